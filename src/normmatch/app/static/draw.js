// Draws points, boxes and matches over the two pictures, from the state.

import { POINT, UNMATCHED, color } from "./colors.js";
import { links, state } from "./state.js";

const stage = document.getElementById("stage");
const overlay = document.getElementById("overlay");
const tooltip = document.getElementById("tooltip");
const editor = document.getElementById("pointEditor");

export const frames = () => [...stage.querySelectorAll(".frame")];

// Where a picture is shown, in pixels of the stage: it is fitted into its frame.
export function place(side) {
  const { width, height } = state.sides[side];
  const outer = stage.getBoundingClientRect();
  const frame = frames()[side].getBoundingClientRect();
  const scale = width ? Math.min(frame.width / width, frame.height / height) : 1;
  return {
    scale,
    left: frame.left - outer.left + (frame.width - width * scale) / 2,
    top: frame.top - outer.top + (frame.height - height * scale) / 2,
  };
}

export function toStage(side, point, at = place(side)) {
  return [at.left + point.x * at.scale, at.top + point.y * at.scale];
}

// A pointer's place in pixels of the picture, kept inside it.
export function toPicture(side, event) {
  const { width, height } = state.sides[side];
  const outer = stage.getBoundingClientRect();
  const at = place(side);
  const round = (value, most) => Math.round(Math.min(Math.max(value, 0), most) * 10) / 10;
  return {
    x: round((event.clientX - outer.left - at.left) / at.scale, width),
    y: round((event.clientY - outer.top - at.top) / at.scale, height),
  };
}

function element(name, attributes, parent) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

export function draw() {
  const { width, height } = stage.getBoundingClientRect();
  overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
  overlay.replaceChildren();
  const places = [place(0), place(1)];
  state.sides.forEach((side, index) => side.box && drawBox(index, side, places[index]));
  const all = links();
  const related = relatedTo(state.hovered ?? state.selected, all);
  overlay.classList.toggle("many", all.length > 25);
  for (const link of all) if (link.shown) drawLink(link, places, related);
  const colors = [new Map(), new Map()]; // of the points that have a match
  for (const link of [...all].sort((a, b) => a.score - b.score)) {
    if (!link.shown) continue;
    colors[0].set(link.index0, color(link.score));
    colors[1].set(link.index1, color(link.score));
  }
  state.sides.forEach((side, index) => drawPoints(index, side, places[index], colors[index], related));
  showTooltip(all, places);
  showEditor(places);
}

// Which points a pointed-at point is joined with: [set of the first side, set of the second], or null.
function relatedTo(target, all) {
  if (!target || !state.result) return null;
  const found = [new Set(), new Set()];
  found[target.side].add(target.index);
  for (const link of all) {
    if (link.shown && (target.side ? link.index1 : link.index0) === target.index) {
      found[0].add(link.index0);
      found[1].add(link.index1);
    }
  }
  return found;
}

function drawLink({ index0, index1, score }, places, related) {
  const [x1, y1] = toStage(0, state.sides[0].points[index0], places[0]);
  const [x2, y2] = toStage(1, state.sides[1].points[index1], places[1]);
  const faded = related && !(related[0].has(index0) && related[1].has(index1));
  const group = element("g", { class: `link${faded ? " faded" : ""}`, "data-side": 0, "data-index": index0 }, overlay);
  for (const kind of ["hit", "halo", "line"]) {
    const line = element("line", { x1, y1, x2, y2, class: kind }, group);
    if (kind === "line") line.style.stroke = color(score);
  }
}

function drawPoints(side, { points }, at, colors, related) {
  const radius = points.length > 60 ? 4 : points.length > 25 ? 5.5 : 7;
  points.forEach((point, index) => {
    const [x, y] = toStage(side, point, at);
    const chosen = state.selected?.side === side && state.selected.index === index;
    const faded = related && !related[side].has(index);
    const group = element("g", {
      class: `point${chosen ? " chosen" : ""}${faded ? " faded" : ""}`,
      "data-side": side, "data-index": index, transform: `translate(${x} ${y})`,
    }, overlay);
    element("circle", { r: 16, class: "hit" }, group);
    const dot = element("circle", { r: radius, class: "dot" }, group);
    dot.style.fill = state.result ? colors.get(index) ?? UNMATCHED : POINT;
  });
}

function drawBox(side, { box, mode }, at) {
  const [x, y] = toStage(side, { x: box[0], y: box[1] }, at);
  const [width, height] = [box[2] * at.scale, box[3] * at.scale];
  const group = element("g", { class: `box${mode === "box" ? " editing" : ""}`, "data-side": side }, overlay);
  element("rect", { x, y, width, height, rx: 3 }, group);
  if (mode !== "box") return;
  for (const [name, dx, dy] of [["nw", 0, 0], ["ne", 1, 0], ["sw", 0, 1], ["se", 1, 1]]) {
    const handle = { cx: x + dx * width, cy: y + dy * height, class: "handle", "data-corner": name, "data-side": side };
    element("circle", { ...handle, r: 7 }, group);
  }
}

function showTooltip(all, places) {
  const target = state.hovered;
  const point = target && state.sides[target.side].points[target.index];
  tooltip.hidden = !point || (state.selected && !state.result);
  if (tooltip.hidden) return;
  const names = all
    .filter((link) => link.shown && (target.side ? link.index1 : link.index0) === target.index)
    .map((link) => {
      const [first, second] = [state.sides[0].points[link.index0], state.sides[1].points[link.index1]];
      return `${first.name} → ${second.name}  ${link.score.toFixed(2)}`;
    });
  tooltip.textContent = names.length ? names.join("\n") : state.result ? `${point.name}: no match` : point.name;
  moveTo(tooltip, toStage(target.side, point, places[target.side]), 16);
}

function showEditor(places) {
  const chosen = state.selected;
  const point = chosen && state.sides[chosen.side].points[chosen.index];
  editor.hidden = !point;
  if (!point) return;
  const name = document.getElementById("pointName");
  if (document.activeElement !== name) name.value = point.name;
  moveTo(editor, toStage(chosen.side, point, places[chosen.side]), 20);
}

// Put an element below a place of the stage, or above it where there is no room.
function moveTo(moved, [x, y], gap) {
  const { width, height } = stage.getBoundingClientRect();
  const left = Math.min(Math.max(x - moved.offsetWidth / 2, 4), width - moved.offsetWidth - 4);
  const below = y + gap + moved.offsetHeight < height;
  moved.style.left = `${left}px`;
  moved.style.top = `${below ? y + gap : y - gap - moved.offsetHeight}px`;
}

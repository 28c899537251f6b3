// The table of matches and the similarity matrix.

import { color, rgb } from "./colors.js";
import { changed, links, state } from "./state.js";

const body = document.querySelector("#table tbody");
const canvas = document.getElementById("matrix");
const cell = document.getElementById("cell");
let cellHint = ""; // what stands there while no cell is pointed at
const LABELLED = 24; // rows and columns up to which names are written beside them

let layout = null; // of the matrix: where its cells are

export function listen() {
  canvas.addEventListener("pointermove", pointAtCell);
  canvas.addEventListener("pointerleave", () => { cell.textContent = cellHint; });
  body.addEventListener("pointerover", (event) => {
    const row = event.target.closest("tr");
    state.hovered = row ? { side: 0, index: Number(row.dataset.index) } : null;
    changed();
  });
  body.addEventListener("pointerleave", () => { state.hovered = null; changed(); });
}

export function draw() {
  document.getElementById("results").hidden = !state.result;
  if (!state.result) return;
  const all = links();
  document.getElementById("shown").textContent = `${all.filter((link) => link.shown).length} of ${state.sides[0].points.length} points`;
  drawTable(all);
  drawMatrix(all);
}

function drawTable(all) {
  const matched = new Map(all.map((link) => [link.index0, link]));
  const rows = state.sides[0].points.map((point, index) => ({ point, index, link: matched.get(index) }));
  rows.sort((a, b) => (b.link?.score ?? -1) - (a.link?.score ?? -1));
  body.replaceChildren(...rows.map(({ point, index, link }) => {
    const row = document.createElement("tr");
    row.dataset.index = index;
    row.classList.toggle("weak", !link?.shown);
    const texts = [point.name, link?.shown ? state.sides[1].points[link.index1].name : "no match"];
    for (const text of texts) row.append(Object.assign(document.createElement("td"), { textContent: text }));
    const score = document.createElement("td");
    const bar = document.createElement("i");
    bar.style.width = `${100 * (link?.score ?? 0)}%`;
    bar.style.background = color(link?.score ?? 0);
    const holder = document.createElement("b");
    holder.append(bar);
    score.append(holder, link ? link.score.toFixed(2) : "-");
    row.append(score);
    return row;
  }));
}

function drawMatrix(all) {
  const { similarity } = state.result;
  const [rows, columns] = [similarity.length, similarity[0].length];
  const labelled = Math.max(rows, columns) <= LABELLED;
  const names = state.sides.map((side) => side.points.map((point) => point.name));
  const context = canvas.getContext("2d");
  context.font = "12px system-ui, sans-serif";
  const widest = (list) => Math.min(Math.max(...list.map((name) => context.measureText(name).width)) + 10, 120);
  const [left, top] = labelled ? [widest(names[0]), widest(names[1])] : [0, 0];
  const room = Math.min(canvas.parentElement.clientWidth - 34, 520);
  const size = Math.max(Math.min((room - left) / columns, (400 - top) / rows, 46), 0.5);
  layout = { left, top, size, rows, columns };
  const [width, height] = [left + columns * size, top + rows * size];
  const ratio = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: Math.ceil(width * ratio), height: Math.ceil(height * ratio) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  context.scale(ratio, ratio);
  paintCells(context, similarity);
  if (labelled) writeNames(context, names);
  context.lineWidth = 2;
  context.strokeStyle = "#ff3b5c";
  for (const { index0, index1, shown } of all) {
    if (shown && size >= 6) context.strokeRect(left + index1 * size + 1.5, top + index0 * size + 1.5, size - 3, size - 3);
  }
}

function paintCells(context, similarity) {
  const { left, top, size, rows, columns } = layout;
  let [low, high] = [Infinity, -Infinity];
  for (const row of similarity) for (const value of row) [low, high] = [Math.min(low, value), Math.max(high, value)];
  cellHint = `first picture down, second across, from ${low.toFixed(2)} to ${high.toFixed(2)}`;
  cell.textContent = cellHint;
  const picture = new ImageData(columns, rows);
  similarity.flat().forEach((value, k) => picture.data.set([...rgb((value - low) / (high - low || 1)), 255], 4 * k));
  const small = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  small.getContext("2d").putImageData(picture, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, left, top, columns * size, rows * size);
}

function writeNames(context, names) {
  const { left, top, size } = layout;
  context.font = `${Math.min(12, Math.max(size - 1, 7))}px system-ui, sans-serif`;
  context.fillStyle = getComputedStyle(canvas).color;
  context.textBaseline = "middle";
  context.textAlign = "right";
  names[0].forEach((name, k) => context.fillText(name, left - 6, top + (k + 0.5) * size, left - 6));
  context.textAlign = "left";
  names[1].forEach((name, k) => {
    context.save();
    context.translate(left + (k + 0.5) * size, top - 6);
    context.rotate(-Math.PI / 2);
    context.fillText(name, 0, 0, top - 6);
    context.restore();
  });
}

function pointAtCell(event) {
  if (!layout || !state.result) return;
  const { left, top, size, rows, columns } = layout;
  const outer = canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - outer.left - left) / size);
  const row = Math.floor((event.clientY - outer.top - top) / size);
  const inside = row >= 0 && column >= 0 && row < rows && column < columns;
  const names = inside ? `${state.sides[0].points[row].name} → ${state.sides[1].points[column].name}` : "";
  cell.textContent = inside ? `${names}  ${state.result.similarity[row][column].toFixed(3)}` : cellHint;
}

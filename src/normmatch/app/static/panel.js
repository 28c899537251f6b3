// The list of landmarks. Its order never changes; for who cannot see the photograph the list is the photograph.

import { choose, looksExchanged } from "./acts.js";
import { lookOf, wantsCheck } from "./certainty.js";
import { $, make, plural, stemOf } from "./dom.js";
import { checksIn, current, isDone, keyOf, names, slipsIn, state, step, unsetIn } from "./project.js";
import { sign } from "./signs.js";
import { hover, onHover } from "./stage.js";

const STEPS = { names: 0, first: 1, ready: 2 };

export function drawPanel() {
  const photo = current();
  const at = step();
  $(".panel").classList.toggle("is-naming", at === "names");
  $("#naming").hidden = at !== "names";
  $("#steps").hidden = !at;
  if (at) $("#steps").replaceChildren(...["Names", "Set them once", "Propose"].map((text, k) =>
    make("li", { "aria-current": k === STEPS[at] ? "step" : null }, make("i", {}, k < STEPS[at] ? "✓" : String(k + 1)), text)));
  if (at === "names" || !photo) return;
  $("#panelCount").textContent = countWords(photo);
  drawRows(photo);
  drawAccept(photo, at);
}

function countWords(photo) {
  const [unset, checks] = [unsetIn(photo).length, checksIn(photo).length];
  if (unset) return `${names().length - unset} of ${names().length} set`;
  if (photo.reviewed) return "";
  if (checks) return `${checks} uncertain`;
  return Object.values(photo.points).some((mark) => mark.from === "proposed") ? "all sure" : "all set";
}

function drawRows(photo) {
  const list = $("#rows");
  if (list.dataset.names !== JSON.stringify(names())) {
    list.dataset.names = JSON.stringify(names());
    list.replaceChildren(...names().map(makeRow));
  }
  const slips = new Set(slipsIn(photo).flatMap(({ landmark, other }) => [landmark, other].filter(Boolean)));
  for (const row of list.children) drawRow(row, photo, slips);
  if (list.dataset.chosen === String(state.chosen)) return;
  list.dataset.chosen = String(state.chosen); // scrolled to once, then the list is left to the person
  [...list.children].find((row) => row.dataset.name === state.chosen)?.scrollIntoView({ block: "nearest", inline: "center" });
}

const makeRow = (name) => make("li", {
  class: "row", role: "option", "data-name": name, onclick: () => choose(name), onpointerenter: () => hover(name),
  onpointerleave: () => hover(null),
}, make(
  "kbd", { "aria-hidden": "true" }, keyOf(name)
), make("span", { class: "sign" }), make("span", { class: "name" }, name), make("span", { class: "value" }));

function drawRow(row, photo, slips) {
  const { name } = row.dataset;
  const look = lookOf(photo.points[name]);
  const slip = slips.has(name);
  const [, drawn, , value] = row.children;
  const shape = slip ? "slip" : look.shape;
  if (drawn.dataset.shape !== shape) drawn.replaceChildren(sign(shape));
  drawn.dataset.shape = shape;
  value.textContent = slip ? "far off" : look.text;
  value.className = `value ${slip ? "doubt" : look.band}`;
  row.setAttribute("aria-selected", name === state.chosen);
  row.tabIndex = name === (state.chosen ?? names()[0]) ? 0 : -1;
}

onHover((name) => {
  for (const row of $("#rows").children) row.classList.toggle("hovered", row.dataset.name === name);
});

function drawAccept(photo, at) {
  const box = $("#accept");
  const unset = unsetIn(photo).length;
  const others = state.photographs.length - 1;
  box.classList.toggle("primary", at === "ready" || !unset);
  const [text, key] = state.view !== "photo" ? [`Back to ${stemOf(photo.file)}`, "Esc"]
    : at === "ready" ? [`Propose on the other ${others}`, "P"]
      : unset ? [`${unset} not set yet`, "Enter"] : isDone(photo) ? ["Next", "Enter"] : ["Accept and next", "Enter"];
  if (box.dataset.text !== text + key) box.replaceChildren(text, make("kbd", {}, key));
  box.dataset.text = text + key;
  $("#footAbsent").disabled = state.chosen == null;
}

// Where a mark comes from, in a sentence.
export function originOf(photo, name) {
  const mark = photo.points[name];
  if (!mark) return "Click where it is, or mark it absent.";
  if (wantsCheck(mark) && looksExchanged(photo, name)) return "Left and right look exchanged here.";
  if (mark.from === "copied") return "Copied. Move it to its place.";
  const references = plural(state.photographs.filter((other) => other.reviewed && other !== photo).length, "reference");
  if (mark.from === "person") {
    if (mark.absent) return "You marked it absent.";
    const { was } = mark;
    return was && !was.absent ? `Set by you, ${Math.round(Math.hypot(mark.x - was.x, mark.y - was.y))} px from the proposal.` : "Set by you.";
  }
  if (mark.absent) return mark.from === "kept" ? "Proposed as absent, and kept by you." : `Probably not in the picture (${lookOf(mark).text.replace("absent ", "")}).`;
  return `${mark.from === "kept" ? "Proposed" : "Probably"} within ${Math.round(mark.spread ?? 0)} px, from ${references}.`;
}

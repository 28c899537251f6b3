// Keys of the page of two pictures: the two upper rows choose a point, the others do something.

import { $, make } from "./dom.js";
import { table } from "./help_table.js";
import { focusAfterClick, somethingOpen } from "./menus.js";
import { choose, keepAsReference, markAbsent, openReference, openTarget, remove } from "./pair_acts.js";
import { fitOther, frames, nudge, pictures } from "./pair_sides.js";
import { KEYS, changed, redo, state, undo } from "./pair_state.js";
import { nameOfKey } from "./key_names.js";

const side = () => (document.activeElement === frames[0] ? 0 : 1);
const toggle = (name) => { state[name] = !state[name]; changed(); };

const COMMANDS = [
  [["Enter"], "Keep as a reference, next picture", keepAsReference],
  [["s"], "Next picture", () => openTarget(state.target + 1)],
  [["Shift+s"], "Picture before", () => openTarget(state.target - 1)],
  [["d"], "Next reference", () => openReference(state.shown + 1)],
  [["a"], "Absent from the right picture", markAbsent],
  [["Delete", "Backspace"], "Remove the point", remove],
  [["z"], "Undo", undo],
  [["Shift+z"], "Redo", redo],
  [["g"], "Go to the other picture", () => frames[1 - side()].focus()],
  [["f"], "Fit: around the points, or all", () => fitOther(side())],
  [["n"], "All names", () => toggle("names")],
  [["l"], "All lines", () => toggle("allLines")],
  [["+", "="], "Larger", () => pictures[side()].zoom(1.25)],
  [["-"], "Smaller", () => pictures[side()].zoom(0.8)],
  [["?"], "This help", () => showHelp()],
  [["Escape"], "Take a drag back, choose nothing", () => pictures.some((picture) => picture.gestures.cancel()) || choose(null)],
];
const commandOf = new Map(COMMANDS.flatMap(([keys, , run]) => keys.map((key) => [key, run])));
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const MOUSE = [
  [["Click"], "Left: add a point. Right: put the chosen one here"], [["Drag"], "A point: move it. Elsewhere: move the picture"],
  [["Wheel"], "Larger, smaller"]
];
const TOUCH = [
  [["Tap"], "Above: add a point"], [["Drag"], "A point: move it, with the loupe"], [["Hold"], "Below: put the chosen one here"],
  [["Two fingers"], "Larger, smaller, move"]
];

export function showHelp() {
  const called = (key) => key.replace("Shift+", "Shift ").replace(/\b[a-z]$/, (one) => one.toUpperCase());
  const keys = COMMANDS.map(([all, text]) => [all.map(called), text]);
  $("#helpInside").replaceChildren(make(
    "div", { class: "help-columns" }, table("Keys", [[["1", "… 0"], "Choose a point; then Q to O"], ...keys]),
    table("Mouse", MOUSE), table("Touch", TOUCH)
  ));
  $("#help").showModal();
}

function press(event) {
  const focus = document.activeElement;
  if (somethingOpen() || event.defaultPrevented) return;
  if (focus.matches("input:not([type=checkbox]), select")) {
    if (event.key === "Escape" || event.key === "Enter") frames[1].focus();
    return;
  }
  if (event.ctrlKey || event.metaKey) {
    const key = event.key.toLowerCase();
    if (key === "z" || key === "y") {
      event.preventDefault();
      key === "y" || event.shiftKey ? redo() : undo();
    }
    return;
  }
  const list = focus.closest("[role=listbox]");
  if (ARROWS[event.key]) return pressArrow(event, focus, list);
  if ((event.key === "Enter" || event.key === " ") && focus.matches("button, a, input")) return;
  if ((event.key === "Enter" || event.key === " ") && focus.matches("li")) {
    event.preventDefault();
    return focus.click();
  }
  const { digit, key, full } = nameOfKey(event);
  const run = digit == null ? commandOf.get(full) : null;
  const point = state.points[KEYS.indexOf(digit ?? key)];
  if (!run && !point) return;
  event.preventDefault();
  if (run) return run();
  choose(point.id);
  if (!frames.includes(focus)) frames[1].focus({ preventScroll: true });
}

function pressArrow(event, focus, list) {
  event.preventDefault();
  if (list) {
    const to = focus[event.key === "ArrowRight" || event.key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling"];
    to?.focus();
    if (to && list.id === "rows") choose(Number(to.dataset.id));
    return;
  }
  const size = event.shiftKey ? 10 : event.altKey ? 0.1 : 1;
  const [dx, dy] = ARROWS[event.key];
  nudge(side(), dx * size, dy * size);
}

export function listen() {
  document.addEventListener("keydown", press);
  focusAfterClick(frames[1]);
}

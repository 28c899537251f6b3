// One hand on the keyboard: the two upper rows choose a landmark, the two lower rows do something. Digits are read by
// place, since some keyboards need Shift for them; letters by sign.

import { accept, choose, clearMark, copyPose, exchange, markAbsent, nextCheck } from "./acts.js";
import { $, announce } from "./dom.js";
import { redo, undo } from "./edits.js";
import { back, backToChange, skip } from "./going.js";
import { showHelp } from "./help.js";
import { nameOfKey } from "./key_names.js";
import { focusAfterClick, somethingOpen } from "./menus.js";
import { KEYS, changed, names, state, step } from "./project.js";
import { propose } from "./proposing.js";
import { fitOther, nudge, picture } from "./stage.js";
import { mosaic } from "./strip.js";
import { closeThrough, showThrough } from "./through.js";

const hide = (hidden) => {
  state.hidden = hidden;
  picture.redrawMarks();
};

export const COMMANDS = [
  { keys: ["Enter", "Space"], does: "Accept, next", run: acceptOrClose },
  { keys: ["a"], does: "Absent", run: markAbsent },
  { keys: ["s"], does: "Skip", run: skip },
  { keys: ["Shift+s"], does: "Back to the one before", run: back },
  { keys: ["d"], does: "Next uncertain", run: () => nextCheck(1) },
  { keys: ["Shift+d"], does: "Uncertain one before", run: () => nextCheck(-1) },
  { keys: ["f"], does: "Fit: animal or all", run: fitOther },
  { keys: ["g"], does: "In all photographs", run: () => (state.view === "through" ? closeThrough() : showThrough()) },
  { keys: ["h"], does: "Hold: hide marks", run: () => hide(true) },
  { keys: ["k"], does: "Skeleton", run: () => toggleView("skeletonShown") },
  { keys: ["z"], does: "Undo", run: undo },
  { keys: ["Shift+z"], does: "Redo", run: redo },
  { keys: ["x"], does: "Exchange left, right", run: exchange },
  { keys: ["c"], does: "Copy pose", run: copyPose },
  { keys: ["v"], does: "Spread circles", run: () => toggleView("spread") },
  { keys: ["b"], does: "Back to last change", run: backToChange },
  { keys: ["j"], does: "Strip of photographs", run: () => toggleView("strip") },
  { keys: ["n"], does: "All names", run: () => toggleView("names") },
  { keys: ["m"], does: "All photographs", run: () => mosaic() },
  { keys: ["p"], does: "Propose", run: propose },
  { keys: ["Delete", "Backspace"], does: "Clear the point", run: clearMark },
  { keys: ["+", "="], does: "Larger", run: () => picture.zoom(1.25) },
  { keys: ["-"], does: "Smaller", run: () => picture.zoom(0.8) },
  { keys: ["?"], does: "This help", run: () => showHelp(COMMANDS) },
  { keys: ["Escape"], does: "Choose nothing, close", run: escape },
];
const commandOf = new Map(COMMANDS.flatMap((command) => command.keys.map((key) => [key, command])));
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const VIEWS = { names: "Names", skeletonShown: "Skeleton", spread: "Spread circles", strip: "Strip of photographs" };

// Enter, Space and the large button: they do what the button says.
export function acceptOrClose() {
  if (state.view !== "photo") return escape();
  if (step() === "ready") return propose();
  return accept();
}

export function escape() {
  if (picture.gestures.cancel()) return;
  if (state.view === "through") closeThrough();
  else if (state.view === "mosaic") mosaic(false);
  else choose(null);
}

export function toggleView(name) {
  state[name] = !state[name];
  changed();
  announce(`${VIEWS[name]} ${state[name] ? "shown" : "hidden"}`);
}

function press(event) {
  const focus = document.activeElement;
  if (somethingOpen() || event.defaultPrevented) return;
  if (focus.matches("input, textarea, select")) return event.key === "Escape" && $("#frame").focus();
  if (event.ctrlKey || event.metaKey) return pressWithControl(event);
  if (ARROWS[event.key]) return pressArrow(event, focus);
  const confirming = event.key === "Enter" || event.key === " ";
  if (confirming && focus.matches("button, a")) return; // the button's own
  if (confirming && focus.matches(".row, .thumb")) {
    event.preventDefault();
    focus.click();
    return $("#frame").focus({ preventScroll: true });
  }
  const { digit, key, full } = nameOfKey(event);
  if (!state.singleKeys && /^[a-z0-9+=?-]$/.test(digit ?? key)) return;
  const known = digit == null && !event.altKey ? commandOf.get(full) : null;
  const landmark = event.altKey || event.shiftKey && digit == null ? -1 : KEYS.indexOf(digit ?? key);
  if (known) {
    event.preventDefault();
    if (!event.repeat || ["+", "-", "="].includes(key)) known.run();
  } else if (landmark >= 0 && landmark < names().length && step() !== "names") {
    event.preventDefault();
    choose(names()[landmark]);
    if (state.view === "photo") $("#frame").focus({ preventScroll: true });
  }
}

function pressWithControl(event) {
  const key = event.key.toLowerCase();
  if (key !== "z" && key !== "y") return;
  event.preventDefault();
  key === "y" || event.shiftKey ? redo() : undo();
}

function pressArrow(event, focus) {
  const list = focus.closest("[role=listbox], [role=radiogroup]");
  event.preventDefault();
  if (list) return moveFocus(event.key, focus, list);
  const [dx, dy] = ARROWS[event.key];
  const size = event.shiftKey ? 10 : event.altKey ? 0.1 : 1;
  nudge(dx * size, dy * size);
}

// In lists the arrows go from one to the next.
function moveFocus(key, focus, list) {
  const items = [...list.children].filter((one) => !one.hidden);
  const to = items[items.indexOf(focus) + (key === "ArrowRight" || key === "ArrowDown" ? 1 : -1)];
  if (!to) return;
  to.focus();
  if (list.id === "rows") choose(to.dataset.name);
  if (list.id === "filters") to.click();
}

export function listen() {
  document.addEventListener("keydown", press);
  document.addEventListener("keyup", (event) => event.key.toLowerCase() === "h" && hide(false));
  addEventListener("blur", () => hide(false));
  focusAfterClick($("#frame"));
}

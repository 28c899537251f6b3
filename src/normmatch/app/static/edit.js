// Clicks, drags and keys on the two pictures: place, move, name and delete points; draw and change boxes.

import { toPicture } from "./draw.js";
import { addPoint, changed, deletePoint, edited, remember, renamePoint, state, undo } from "./state.js";

const stage = document.getElementById("stage");
const nameInput = document.getElementById("pointName");
const nameMessage = document.getElementById("pointMessage");
const MOVED = 5; // pixels of the screen: less is a click, not a drag
const SMALLEST_BOX = 8; // pixels of the picture

let gesture = null; // what the pressed pointer is doing

export function listen() {
  stage.addEventListener("pointerdown", press);
  stage.addEventListener("pointermove", move);
  stage.addEventListener("pointerup", release);
  stage.addEventListener("pointercancel", () => { gesture = null; });
  stage.addEventListener("pointerover", hover);
  stage.addEventListener("pointerleave", () => point(null));
  stage.addEventListener("contextmenu", removeUnderPointer);
  document.addEventListener("keydown", pressKey);
  document.getElementById("pointDelete").addEventListener("click", deleteSelected);
  document.getElementById("pointEditor").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!nameMessage.textContent) select(null);
  });
  nameInput.addEventListener("input", () => {
    if (state.selected) nameMessage.textContent = renamePoint(state.selected.side, state.selected.index, nameInput.value.trim());
  });
}

const targetOf = (node) => ({ side: Number(node.dataset.side), index: Number(node.dataset.index) });

export function select(target) {
  nameMessage.textContent = "";
  state.selected = target;
  if (document.activeElement === nameInput) nameInput.blur();
  changed();
}

function point(target) {
  if (JSON.stringify(state.hovered) === JSON.stringify(target)) return;
  state.hovered = target;
  changed();
}

function hover(event) {
  const node = event.target.closest(".point, .link");
  if (!gesture) point(node ? targetOf(node) : null);
}

function press(event) {
  if (event.button !== 0 || event.target.closest("#pointEditor, .bar")) return;
  const start = { at: [event.clientX, event.clientY], moved: false };
  const dot = event.target.closest(".point");
  const handle = event.target.closest(".handle");
  const frame = event.target.closest(".frame");
  if (dot) gesture = { ...start, kind: "point", ...targetOf(dot) };
  else if (handle) gesture = { ...start, ...boxGesture(Number(handle.dataset.side), handle.dataset.corner) };
  else if (frame) {
    const side = Number(frame.closest(".side").dataset.side);
    if (!state.sides[side].file) return;
    const inBoxMode = state.sides[side].mode === "box";
    gesture = { ...start, kind: inBoxMode ? "newBox" : "place", side, from: toPicture(side, event) };
  } else return;
  // The overlay is drawn anew while a point moves, so the stage, which stays, holds the pointer.
  if (gesture.kind !== "place") stage.setPointerCapture(event.pointerId);
}

function boxGesture(side, corner) {
  const [x, y, width, height] = state.sides[side].box;
  return { kind: "box", side, from: { x: corner.includes("w") ? x + width : x, y: corner.includes("n") ? y + height : y } };
}

function move(event) {
  if (!gesture) return;
  const distance = Math.hypot(event.clientX - gesture.at[0], event.clientY - gesture.at[1]);
  if (!gesture.moved && distance < MOVED) return;
  if (!gesture.moved && gesture.kind !== "place") remember();
  gesture.moved = true;
  const { side } = gesture;
  const to = toPicture(side, event);
  if (gesture.kind === "point") {
    Object.assign(state.sides[side].points[gesture.index], to);
    state.hovered = null;
    edited();
  } else if (gesture.kind !== "place") {
    const { from } = gesture;
    const [width, height] = [Math.abs(to.x - from.x), Math.abs(to.y - from.y)];
    if (Math.min(width, height) >= SMALLEST_BOX) state.sides[side].box = [Math.min(to.x, from.x), Math.min(to.y, from.y), width, height];
    edited();
  }
}

function release(event) {
  const done = gesture;
  gesture = null;
  if (!done) return;
  if (done.kind === "point" && !done.moved) select({ side: done.side, index: done.index });
  if (done.kind === "place" && !done.moved) {
    if (state.selected) select(null);
    else addPoint(done.side, done.from.x, done.from.y);
  }
  if (done.kind === "newBox" && done.moved) state.sides[done.side].mode = "points";
  if (done.kind !== "place") changed();
  hover(event);
}

function removeUnderPointer(event) {
  const dot = event.target.closest(".point");
  if (!dot) return;
  event.preventDefault();
  deletePoint(...Object.values(targetOf(dot)));
}

function deleteSelected() {
  if (state.selected) deletePoint(state.selected.side, state.selected.index);
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function pressKey(event) {
  if (event.key === "Escape") return select(null);
  if (event.target.matches("input:not([type=range]):not([type=checkbox])")) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z") {
    event.preventDefault();
    return undo();
  }
  if (!state.selected || event.target.matches("input")) return;
  const { side, index } = state.selected;
  if (event.key === "Delete" || event.key === "Backspace") {
    event.preventDefault();
    deleteSelected();
  } else if (event.key in STEPS) {
    event.preventDefault();
    const [dx, dy] = STEPS[event.key].map((step) => step * (event.shiftKey ? 10 : 1));
    const { width, height, points } = state.sides[side];
    remember();
    points[index].x = Math.min(Math.max(points[index].x + dx, 0), width);
    points[index].y = Math.min(Math.max(points[index].y + dy, 0), height);
    edited();
  }
}

// Going through the photographs: which are shown, in what order, and which is next. The order changes only when a
// photograph is left, never under the pointer.

import { $, announce } from "./dom.js";
import { wantsCheck } from "./certainty.js";
import { leave, onEnd, onOpen } from "./changes.js";
import { onShow } from "./edits.js";
import { toast } from "./messages.js";
import {
  changed, checksIn, current, isDone, isUntouched, leastIn, marksOf, slipsIn, sourceOf, state, stateOf, step, toCheck, unsetIn
} from "./project.js";
import { wholeOf } from "./tiles.js";

export const FILTERS = {
  open: ["To review", (photo) => !isDone(photo)],
  unsure: ["Uncertain", (photo) => checksIn(photo).length > 0],
  untouched: ["New", isUntouched],
  absent: ["Absent", (photo) => marksOf(photo).some((mark) => mark?.absent)],
  landmark: ["This landmark", (photo) => state.chosen != null && !photo.reviewed && wantsCheck(photo.points[state.chosen])],
  slips: ["Slips?", (photo) => slipsIn(photo).length > 0],
  reviewed: ["Reviewed", isDone],
  all: ["All", () => true],
};

const ORDERS = {
  certainty: (a, b) => isDone(a) - isDone(b) || isUntouched(a) - isUntouched(b) || leastIn(a) - leastIn(b) || a.number - b.number,
  name: (a, b) => a.number - b.number,
  changed: (a, b) => b.touched - a.touched || b.changed - a.changed || a.number - b.number,
};

const viewers = []; // who brings the photograph on the screen: stage.js
export const onView = (viewer) => viewers.push(viewer);

export function resort() {
  state.order = state.photographs.filter(FILTERS[state.filter][1]).sort(ORDERS[state.sort]);
}

const readable = (photo) => !state.missing[photo.file];
const worst = () => [...state.photographs].filter(readable).sort(ORDERS.certainty)[0] ?? state.photographs[0] ?? null;

// At the beginning: the first photograph to set landmarks on, or the least certain one.
export const openFirst = () => open(step() ? (state.photographs.find(readable) ?? null) : worst());

export function open(photo, { remember = true } = {}) {
  if (remember && state.photo && state.photo !== photo) state.visited.push(state.photo);
  if (state.photo !== photo) leave();
  state.photo = photo;
  if (!photo) return changed();
  // the least certain is chosen; where all are sure nothing is, so that a stray click changes nothing
  state.chosen = photo.reviewed && !unsetIn(photo).length ? null : (toCheck(photo)[0] ?? null);
  for (const view of viewers) view(photo);
  resort();
  changed();
  requestAnimationFrame(() => $(`#thumbs [aria-selected="true"]`)?.scrollIntoView({ block: "nearest", inline: "nearest" }));
  announce(`${photo.file}, ${stateOf(photo).words}`);
  fetchAhead();
}

// The next two photographs of the order are there before one asks for them.
function fetchAhead() {
  const left = waiting().slice(0, 2);
  setTimeout(() => { for (const photo of left) if (sourceOf(photo)) wholeOf(sourceOf(photo)); }, 200);
}

function waiting() {
  const left = state.photographs.filter((photo) => !isDone(photo) && photo !== current() && readable(photo)).sort(ORDERS.certainty);
  const fresh = left.filter((photo) => !photo.skipped);
  return fresh.length ? fresh : left;
}

export function next() {
  const left = waiting();
  if (!left.length) return changed();
  if (left[0].skipped) {
    for (const photo of left) photo.skipped = false;
    toast("You have seen all that are left. The skipped ones come again.");
  }
  open(left[0]);
}

export function skip() {
  if (!current()) return;
  current().skipped = true; // of this visit: what is skipped is no change of the project
  next();
}

export function back() {
  if (state.visited.length) open(state.visited.pop(), { remember: false });
  else toast("This is the first one you opened.");
}

export function backToChange() {
  const [last] = state.photographs.filter((photo) => photo !== current() && photo.touched).sort(ORDERS.changed);
  if (last) open(last);
  else toast("No other photograph was changed yet.");
}

export function filter(name) {
  state.filter = name;
  resort();
  changed();
}

export function sort(name) {
  state.sort = name;
  resort();
  changed();
}

// After undo and redo: their photograph comes into view, with the landmark.
onShow((photo, landmark) => {
  if (photo && photo !== current()) open(photo);
  if (landmark) state.chosen = landmark;
  resort();
});

// After the project was loaded anew: the same photograph, or the least certain one.
onOpen((which) => {
  const same = state.photographs.find((photo) => photo.file === state.photo?.file);
  state.photo = which === "worst" ? state.photo : null;
  open(which === "worst" ? worst() : (same ?? worst()));
});

onEnd(resort);

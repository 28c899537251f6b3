// What the page knows: two sides, the last result, and how it is looked at. Everything is drawn from here.

const emptySide = () => ({ file: null, name: "", width: 0, height: 0, url: "", points: [], box: null, mode: "points" });

export const state = {
  sides: [emptySide(), emptySide()],
  selected: null, // {side, index} of the point that is being edited
  hovered: null, // {side, index} of the point whose match is pointed at
  result: null, // the server's answer; null as soon as something changes that it depends on
  threshold: 0,
};

const listeners = [];
let queued = false;

export function onChange(listener) {
  listeners.push(listener);
}

// Draw everything again, once a frame however often this is called.
export function changed() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    for (const listener of listeners) listener();
  });
}

// ---- edits, which can be undone ----

const history = [];
const snapshot = () => JSON.stringify(state.sides.map((side) => [side.points, side.box]));

export function remember() {
  const now = snapshot();
  if (history.at(-1) !== now) history.push(now);
  if (history.length > 100) history.shift();
}

export function edited() {
  state.result = null;
  changed();
}

export function undo() {
  const now = snapshot();
  while (history.length && history.at(-1) === now) history.pop();
  if (!history.length) return;
  JSON.parse(history.pop()).forEach(([points, box], side) => Object.assign(state.sides[side], { points, box }));
  state.selected = null;
  edited();
}

export function setPicture(side, picture) {
  URL.revokeObjectURL(state.sides[side].url);
  Object.assign(state.sides[side], emptySide(), picture);
  history.length = 0;
  state.selected = null;
  edited();
}

export function setPoints(side, points, box) {
  remember();
  Object.assign(state.sides[side], { points, box });
  state.selected = null;
  edited();
}

export function addPoint(side, x, y) {
  remember();
  const { points } = state.sides[side];
  const used = new Set(points.map((point) => point.name));
  let number = points.length + 1;
  while (used.has(String(number))) number += 1;
  points.push({ name: String(number), x, y });
  state.selected = null;
  edited();
}

export function deletePoint(side, index) {
  remember();
  state.sides[side].points.splice(index, 1);
  state.selected = null;
  state.hovered = null;
  edited();
}

// Names are labels: a new one changes no match. Returns what is wrong with it, or "".
export function renamePoint(side, index, name) {
  const { points } = state.sides[side];
  if (!name) return "A point needs a name.";
  if (points.some((point, other) => other !== index && point.name === name)) return "Another point has this name.";
  if (points[index].name === name) return "";
  remember();
  points[index].name = name;
  changed();
  return "";
}

// ---- what is shown of the result ----

// The matches with at least the score that the slider says: [{index0, index1, score, shown}], all of them.
export function links() {
  if (!state.result) return [];
  const { matches0, matching_scores0: scores } = state.result;
  return matches0.flatMap((index1, index0) =>
    index1 < 0 ? [] : [{ index0, index1, score: scores[index0], shown: scores[index0] >= state.threshold }]);
}

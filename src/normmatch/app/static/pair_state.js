// What the page of two pictures knows: references with their points, pictures to look in, and what was found. A point is
// {id, name, marks}, its marks by the id of their picture; a picture is {id, file, name, width, height, source, small}.

import { wantsCheck } from "./certainty.js";
import { onceAFrame } from "./dom.js";
import { toast } from "./messages.js";

export const KEYS = [..."1234567890qwertyuio"];
export const MOST = 500; // points, as the server has it

export const state = {
  points: [], references: [], targets: [], // references: {picture, used, box}; targets: pictures
  shown: 0, target: 0, chosen: null, hovered: null, names: false, allLines: false, closeUp: true,
  looking: new Set(), numbered: 0, shares: {}, // by picture: how much each reference counted
};

const listeners = [];
export const onChange = (listener) => listeners.push(listener);
export const changed = onceAFrame(() => { for (const listener of listeners) listener(); });

export const reference = () => state.references[state.shown]?.picture ?? null;
export const target = () => state.targets[state.target] ?? null;
export const pictureOn = (side) => (side ? target() : reference());
export const used = () => state.references.filter((one) => one.used);
export const isReference = (picture) => state.references.some((one) => one.picture === picture);
export const pointOf = (id) => state.points.find((point) => point.id === id);
export const chosen = () => pointOf(state.chosen) ?? null;
export const markOn = (point, picture) => (picture && point?.marks[picture.id]) || null;
export const uncertainIn = (picture) => state.points.filter((point) => wantsCheck(markOn(point, picture))).length;

const past = [];
const future = [];
export const snapshot = () => state.points.map((point) => ({ ...point, marks: { ...point.marks } }));
export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;

// A change, with its words for undo; `before` is given where it is on the screen already, after a drag.
export function edit(text, change, before = snapshot()) {
  change();
  past.push({ text, before, after: snapshot() });
  future.length = 0;
  changed();
}

const seekers = []; // who looks for points again: pair_look.js
export const onSeek = (seek) => seekers.push(seek);
export const seek = () => { for (const run of seekers) run(); };

function step(from, to, side, said) {
  const entry = from.pop();
  if (!entry) return toast(said === "Undone" ? "Nothing to undo." : "Nothing to redo.");
  to.push(entry);
  state.points = entry[side].map((point) => ({ ...point, marks: { ...point.marks } }));
  if (!chosen()) state.chosen = null;
  seek();
  changed();
  toast(`${said}: ${entry.text}`);
}
export const undo = () => step(past, future, "before", "Undone");
export const redo = () => step(future, past, "after", "Done again");

// A new point is a name that no other has.
export function newName() {
  const names = new Set(state.points.map(({ name }) => name));
  let number = state.points.length + 1;
  while (names.has(`Point ${number}`)) number += 1;
  return `Point ${number}`;
}

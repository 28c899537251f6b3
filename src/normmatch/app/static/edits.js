// Changes, and taking them back, without end. A change is a patch of the project, as the server takes it:
// {photographs: {file: {points: {name: mark or null}, reviewed, skipped}}, landmarks, renamed, skeleton, settings}.
// Undoing one applies the patch that leads back, and sends it like any other.

import { toast } from "./messages.js";
import { changed, names, photoCalled, state } from "./project.js";
import { save } from "./saving.js";

const MERGED = 900; // milliseconds within which steps of the arrows are one change

const past = [];
const future = [];
const openers = []; // who brings a photograph into view; going.js registers
export const onShow = (opener) => openers.push(opener);
export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;

export function apply(patch) {
  const { renamed = {}, photographs = {} } = patch;
  if (Object.keys(renamed).length) renameAll(renamed);
  for (const name of ["landmarks", "skeleton", "settings", "name"]) if (patch[name] !== undefined) state[name] = patch[name];
  for (const [file, { points = {}, ...rest }] of Object.entries(photographs)) {
    const photo = photoCalled(file);
    if (!photo) continue;
    photo.points = { ...photo.points };
    for (const [name, mark] of Object.entries(points)) mark ? (photo.points[name] = mark) : delete photo.points[name];
    Object.assign(photo, rest);
    if (rest.reviewed) settle(photo);
    photo.touched = ++state.clock;
  }
  if (patch.landmarks) {
    const known = new Set(names());
    for (const photo of state.photographs) photo.points = Object.fromEntries(Object.entries(photo.points).filter(([name]) => known.has(name)));
    if (!known.has(state.chosen)) state.chosen = null;
  }
}

function renameAll(renamed) {
  for (const photo of state.photographs)
    photo.points = Object.fromEntries(Object.entries(photo.points).map(([name, mark]) => [renamed[name] ?? name, mark]));
  if (state.chosen) state.chosen = renamed[state.chosen] ?? state.chosen;
}

// What accepting does, here as at the server: proposals are kept, what was copied is the person's.
function settle(photo) {
  for (const [name, mark] of Object.entries(photo.points)) {
    if (mark.from === "proposed") photo.points[name] = { ...mark, from: "kept" };
    if (mark.from === "copied") photo.points[name] = { ...mark, from: "person" };
  }
}

// The patch that leads back from this one, from the state as it is before it.
export function inverse(patch) {
  const back = {};
  for (const name of ["landmarks", "skeleton", "settings", "name"]) if (patch[name] !== undefined) back[name] = state[name];
  if (patch.renamed) back.renamed = Object.fromEntries(Object.entries(patch.renamed).map(([from, to]) => [to, from]));
  for (const [file, { points = {}, ...rest }] of Object.entries(patch.photographs ?? {})) {
    const photo = photoCalled(file);
    if (!photo) continue;
    const known = rest.reviewed ? { ...photo.points } : Object.fromEntries(Object.keys(points).map((name) => [
      name, photo.points[name] ?? null
    ]));
    back.photographs ??= {};
    back.photographs[file] = { points: known, ...Object.fromEntries(Object.keys(rest).map((name) => [name, photo[name]])) };
  }
  if (patch.landmarks) keepDropped(patch, back);
  return back;
}

// Landmarks that go take their points with them: they come back with them as well.
function keepDropped(patch, back) {
  const after = new Set(patch.landmarks.map(({ name }) => name));
  const dropped = names().filter((name) => !after.has(patch.renamed?.[name] ?? name));
  for (const photo of state.photographs) {
    const gone = dropped.filter((name) => photo.points[name]);
    if (!gone.length) continue;
    back.photographs ??= {};
    const entry = (back.photographs[photo.file] ??= { points: {} });
    for (const name of gone) entry.points[name] = photo.points[name];
  }
}

// Make a change, remember it, save it. what: {text, file, landmark, merge}; those with the same `merge` soon after each
// other are one. `before` is given where the change is on the screen already, after a drag.
export function commit(what, patch, before = null) {
  if (state.saving === "stopped") {
    if (before) apply(before);
    changed();
    return toast("This window has stopped saving. Choose above how to go on.");
  }
  const back = before ?? inverse(patch);
  apply(patch);
  const last = past.at(-1);
  const merged = what.merge && last?.what.merge === what.merge && last.what.file === what.file && Date.now() - last.time < MERGED;
  if (merged) Object.assign(last, { patch, time: Date.now() });
  else past.push({ what, patch, back, time: Date.now() });
  future.length = 0;
  save(patch);
  changed();
}

export const editPhoto = (photo, text, landmark, points, { merge, before, ...rest } = {}) =>
  commit(
    { text, file: photo.file, landmark, merge }, { photographs: { [photo.file]: { ...(points && { points }), ...rest } } },
    before
  );

function move(from, to, side, said) {
  if (state.saving === "stopped") return toast("This window has stopped saving. Choose above how to go on.");
  const entry = from.pop();
  if (!entry) return toast(said === "Undone" ? "Nothing to undo." : "Nothing to redo.");
  to.push(entry);
  const { file, landmark, text } = entry.what;
  apply(entry[side]);
  save(entry[side]);
  for (const show of openers) show(photoCalled(file) ?? null, landmark);
  changed();
  toast(`${said}: ${text}`);
}

export const undo = () => move(past, future, "back", "Undone");
export const redo = () => move(future, past, "patch", "Done again");

export function forget() {
  past.length = future.length = 0;
}

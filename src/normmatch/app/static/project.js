// What the labelling page knows: the project as the server has it, and how it is looked at. Everything is drawn from here.

import { bandOf, certaintyOf, isPlaced, isProposed, wantsCheck } from "./certainty.js";
import { memory, onceAFrame, percent, plural, shortened, stemOf } from "./dom.js";
import { servedSource } from "./tiles.js";

export const KEYS = [..."1234567890qwertyuio"]; // the two upper rows choose a landmark, the two lower rows do something

export const state = {
  name: "", id: "", revision: 0, landmarks: [], skeleton: [], settings: {}, improved: null,
  photographs: [], // {file, width, height, reviewed, skipped, changed, points: {name: mark}, number, touched}
  alike: {}, suspects: {}, stamps: {}, missing: {}, counts: null, exports: [], engine: { ready: true, error: null },
  job: null, last_job: null,
  photo: null, chosen: null, hovered: null, // the photograph in view; names of landmarks
  newer: null, // proposals for the photograph in view, which wait behind a button
  visited: [], order: [], filter: "open", sort: "certainty",
  names: false, skeletonShown: true, spread: true, strip: true, hidden: false, closeUp: true,
  singleKeys: memory.get("single-keys") !== "off",
  saving: "saved", waiting: 0, view: "photo", // or "through", "mosaic"
  clock: 0, // grows with each change of this page
  proposed: false, // whether proposals were asked for
};

const listeners = [];
export const onChange = (listener) => listeners.push(listener);
export const changed = onceAFrame(() => { for (const listener of listeners) listener(); });

export const current = () => state.photo;
export const names = () => state.landmarks.map(({ name }) => name);
export const photoCalled = (file) => state.photographs.find((photo) => photo.file === file);
export const pairOf = (name) => state.landmarks.find((landmark) => landmark.name === name)?.pair ?? null;
export const keyOf = (name) => (KEYS[names().indexOf(name)] ?? "").toUpperCase();
export const marksOf = (photo) => names().map((name) => photo.points[name] ?? null);
export const placedIn = (photo) => marksOf(photo).map((mark) => (isPlaced(mark) ? mark : null));
export const reviewed = () => state.photographs.filter((photo) => photo.reviewed);

export const unsetIn = (photo) => names().filter((name) => !photo.points[name]);
export const isDone = (photo) => photo.reviewed && !unsetIn(photo).length; // a new landmark brings a reviewed photograph back
export const isUntouched = (photo) => !photo.reviewed && names().every((name) => !photo.points[name]);
export const checksIn = (photo) => (photo.reviewed ? [] : names().filter((name) => wantsCheck(photo.points[name])));
export const leastIn = (photo) => Math.min(1, ...marksOf(photo).filter(isProposed).map(certaintyOf));
export const suspectsIn = (photo) => state.suspects[photo.file] ?? [];
export const slipsIn = (photo) => (photo.reviewed ? suspectsIn(photo) : []);

// The uncertain proposals of a photograph, the least certain first, then what was copied, then what is not set.
export function toCheck(photo) {
  const checks = checksIn(photo);
  const proposed = checks.filter((name) => isProposed(photo.points[name]));
  proposed.sort((a, b) => certaintyOf(photo.points[a]) - certaintyOf(photo.points[b]));
  return [...proposed, ...checks.filter((name) => !proposed.includes(name)), ...unsetIn(photo)];
}

// Where one is at the beginning: "names" are asked for, then "first" photograph, then all is "ready" to be proposed.
export function step() {
  if (!state.landmarks.length) return "names";
  if (state.proposed || state.job || state.photographs.length < 2) return null;
  const done = reviewed().length;
  if (!done) return "first";
  return state.photographs.some(isUntouched) ? "ready" : null;
}

// A photograph's state as its thumbnail shows it: sign, band, short text, words.
export function stateOf(photo) {
  if (state.missing[photo.file]) return { glyph: "slip", band: "doubt", text: "", words: "cannot be read" };
  const unset = unsetIn(photo).length;
  if (photo.reviewed && !unset) return {
    glyph: "reviewed", band: "reviewed", text: "", words: slipsIn(photo).length ? "reviewed, a possible slip" : "reviewed"
  };
  if (isUntouched(photo)) return { glyph: "unset", band: "", text: "", words: "not proposed" };
  if (unset) return {
    glyph: "unset", band: "", text: `${state.landmarks.length - unset} of ${state.landmarks.length}`, words: `${unset} not set`
  };
  const least = leastIn(photo);
  const checks = checksIn(photo).length;
  const words = checks ? `${plural(checks, "point")} uncertain, the least ${percent(least)}` : `all sure, least certain ${percent(least)}`;
  return { glyph: bandOf(least), band: bandOf(least), text: percent(least), words };
}

export function counts() {
  const count = { reviewed: 0, sure: 0, unsure: 0, unset: 0 };
  for (const photo of state.photographs) {
    const unset = !state.landmarks.length || unsetIn(photo).length;
    count[isDone(photo) ? "reviewed" : unset ? "unset" : checksIn(photo).length ? "unsure" : "sure"] += 1;
  }
  return count;
}

// Of the proposals that a person has reviewed: {kept, corrected, share}; share is null where there is none.
export function keptShare() {
  const marks = reviewed().flatMap(marksOf);
  const kept = marks.filter((mark) => mark?.from === "kept").length;
  const corrected = marks.filter((mark) => mark?.from === "person" && mark.was).length;
  return { kept, corrected, share: kept + corrected ? kept / (kept + corrected) : null };
}

export function shortOf(photo) {
  state.stems ??= state.photographs.map(({ file }) => stemOf(file));
  return shortened(stemOf(photo.file), state.stems);
}

export const pathOf = (file) => file.split("/").map(encodeURIComponent).join("/");
const stamped = (
  address, photo
) => `image/${address}/${pathOf(photo.file)}?v=${encodeURIComponent(state.stamps[photo.file] ?? "0")}`;
export const thumbOf = (photo) => stamped("thumb", photo);

export function sourceOf(photo) {
  if (state.missing[photo.file]) return null;
  photo.source ??= servedSource(
    photo.file, photo, stamped("view", photo), (level, column, row) => stamped(`tile/${level}/${column}/${row}`, photo)
  );
  return photo.source;
}

// The other photographs that show a landmark best beside the question: reviewed, the most alike first.
export function referencesFor(photo, name, most = 2) {
  const usable = reviewed().filter((other) => other !== photo && isPlaced(other.points[name]) && !state.missing[other.file]);
  const rank = new Map((state.alike[photo.file] ?? []).map((file, k) => [file, k]));
  return usable.sort((a, b) => (rank.get(a.file) ?? 99) - (rank.get(b.file) ?? 99)).slice(0, most);
}

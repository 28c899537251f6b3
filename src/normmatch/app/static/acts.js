// What a person does to the landmarks of the photograph in view, and accepting it.

import { byHand, isPlaced, lookOf } from "./certainty.js";
import { announce, plural } from "./dom.js";
import { commit, editPhoto, undo } from "./edits.js";
import { next, resort } from "./going.js";
import { toast } from "./messages.js";
import { changed, current, names, pairOf, reviewed, state, step, suspectsIn, toCheck, unsetIn } from "./project.js";

const revealers = []; // who brings a point into sight: stage.js
export const onReveal = (reveal) => revealers.push(reveal);

export function choose(name, { reveal = true } = {}) {
  state.chosen = name;
  const mark = name && current()?.points[name];
  if (reveal && isPlaced(mark)) for (const show of revealers) show(mark);
  if (name) announce(`${name}, ${lookOf(mark).text}`);
  changed();
}

function needsChosen() {
  if (!current()) return null;
  if (state.chosen == null) toast("Choose a landmark first: press its key, or click its mark.");
  return state.chosen;
}

export function nextCheck(direction) {
  const list = current() ? toCheck(current()) : [];
  if (!list.length) return toast("Nothing is uncertain here. Enter accepts.");
  const at = list.indexOf(state.chosen);
  const to = at < 0 ? (direction > 0 ? 0 : list.length - 1) : (at + direction + list.length) % list.length;
  choose(list[to]);
}

// After one was set for the first time, the next that is not set is chosen.
function goOn(name) {
  const unset = unsetIn(current());
  const later = unset.find((other) => names().indexOf(other) > names().indexOf(name));
  if (unset.length) choose(later ?? unset[0], { reveal: false });
  else if (step() === "first") toast("All are set. Press Enter to accept this photograph.");
}

export function place(name, at) {
  const mark = current().points[name];
  editPhoto(current(), `${name} ${mark ? "moved" : "set"}`, name, { [name]: byHand(mark, at) });
  if (!mark) goOn(name);
  else announce(`${name} moved`);
}

export function markAbsent() {
  const name = needsChosen();
  if (name == null) return;
  const mark = current().points[name];
  editPhoto(current(), `${name} absent`, name, { [name]: byHand(mark, { absent: true }) });
  toast(`${name}: not in the picture.`, "Undo", undo);
  if (!mark) goOn(name);
}

export function clearMark() {
  const name = needsChosen();
  if (name == null || !current().points[name]) return;
  editPhoto(current(), `${name} cleared`, name, { [name]: null }, current().reviewed ? { reviewed: false } : {});
}

export function exchange() {
  const name = needsChosen();
  if (name == null) return;
  const other = pairOf(name);
  if (other == null) return toast(`${name} has no left or right partner.`);
  const { points } = current();
  const own = (mark) => (mark ? byHand(mark, mark) : null);
  editPhoto(current(), `${name} and ${other} exchanged`, name, { [name]: own(points[other]), [other]: own(points[name]) });
  toast(`${name} and ${other} exchanged.`, "Undo", undo);
}

// Whether a left and a right landmark would fit the other photographs better the other way round.
export const looksExchanged = (photo, name) => suspectsIn(photo).some(({ kind, landmark, other }) => kind === "exchanged" && (landmark === name || other === name));

export function copyPose() {
  const photo = current();
  const from = [...state.visited].reverse().find((other) => other.reviewed && other !== photo) ?? reviewed().find((other) => other !== photo);
  if (!photo || !from) return toast("There is no reviewed photograph to copy from yet.");
  const free = names().filter((name) => photo.points[name]?.from !== "person" && isPlaced(from.points[name]));
  if (!free.length) return toast("Every landmark here was set by you: nothing was copied.");
  const [sx, sy] = [photo.width / from.width, photo.height / from.height]; // so that it lies in the picture, whatever its size
  const copied = free.map((name) => [name, { x: from.points[name].x * sx, y: from.points[name].y * sy, from: "copied" }]);
  editPhoto(photo, `Pose copied from ${from.file}`, null, Object.fromEntries(copied), photo.reviewed ? { reviewed: false } : {});
  toast(`Pose of ${from.file} copied. Drag with Shift to move it as a whole.`, "Undo", undo);
}

let saying;
// Move the chosen point by so many pixels of the photograph; steps soon after each other are one change.
export function nudge(dx, dy, inside) {
  const name = state.chosen;
  const mark = name && current()?.points[name];
  if (!isPlaced(mark)) return null;
  const at = inside({ x: mark.x + dx, y: mark.y + dy });
  editPhoto(current(), `${name} moved`, name, { [name]: byHand(mark, at) }, { merge: `arrows ${name}` });
  clearTimeout(saying);
  saying = setTimeout(() => announce(`${name} at ${at.x.toFixed(1)}, ${at.y.toFixed(1)}`), 500);
  return at;
}

export function accept() {
  const photo = current();
  if (!photo || step() === "names") return;
  const unset = unsetIn(photo);
  if (unset.length) {
    choose(unset[0]);
    const some = `${unset.slice(0, 3).join(", ")}${unset.length > 3 ? " …" : ""}`;
    return toast(`${plural(unset.length, "landmark is", "landmarks are")} not set: ${some}. Click where it is, or press A if it cannot be seen.`);
  }
  if (photo.reviewed) return next();
  const first = step() === "first";
  editPhoto(photo, `${photo.file} accepted`, null, { ...photo.points }, { reviewed: true });
  if (state.saving === "stopped") return;
  if (first && step() === "ready") {
    resort();
    state.chosen = null;
    changed();
    return toast("The first photograph is done. Now propose on the others.");
  }
  const left = state.photographs.filter((other) => !other.reviewed).length;
  next();
  announce(`${photo.file} accepted. ${left} left.`);
}

export function useNewer() {
  const fresh = state.newer;
  state.newer = null;
  const free = Object.entries(fresh).filter(([name]) => !current().points[name] || current().points[name].from === "proposed");
  // the server has them already; taking them back is a change like any other
  commit(
    { text: "Newer proposals used", file: current().file },
    { photographs: { [current().file]: { points: Object.fromEntries(free) } } }
  );
}

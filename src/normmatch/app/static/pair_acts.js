// What a person does to the points of the two pictures.

import { byHand, lookOf } from "./certainty.js";
import { announce, plural } from "./dom.js";
import { toast } from "./messages.js";
import { MOST, changed, chosen, edit, isReference, markOn, newName, reference, state, target, undo, used } from "./pair_state.js";
import { look } from "./pair_look.js";

export function choose(id) {
  state.chosen = id;
  const point = chosen();
  if (point) announce(`${point.name}, ${lookOf(markOn(point, target())).text}`);
  changed();
}

// On the left: a new point, or the chosen one where this reference has none yet. It is looked for at once.
export function placeLeft(at) {
  const point = chosen();
  if (point && !markOn(point, reference())) edit(
    `${point.name} set`, () => { point.marks[reference().id] = { ...at, from: "person" }; }
  );
  else if (state.points.length >= MOST) return toast(`There are ${MOST} points; more cannot be looked at here.`);
  else {
    const added = { id: ++state.numbered, name: newName(), marks: { [reference().id]: { ...at, from: "person" } } };
    edit(`${added.name} added`, () => state.points.push(added));
    state.chosen = added.id;
  }
  look();
}

// On the right: where the chosen point is, by a person.
export function placeRight(point, at, text = "moved") {
  const mark = markOn(point, target());
  edit(`${point.name} ${text}`, () => { point.marks[target().id] = byHand(mark, at); });
}

export function markAbsent() {
  const point = chosen();
  if (!point || !target()) return toast("Choose a point first.");
  placeRight(point, { absent: true }, "absent");
}

export function remove() {
  const point = chosen();
  if (!point) return toast("Choose a point first.");
  edit(`${point.name} removed`, () => {
    state.points = state.points.filter((other) => other !== point);
    state.chosen = null;
  });
  look();
  toast(`${point.name} removed.`, "Undo", undo);
}

export function clear() {
  edit("All points removed", () => {
    state.points = [];
    state.chosen = null;
  });
  toast("All points removed.", "Undo", undo);
}

export function rename(point, name) {
  const wanted = name.trim();
  if (!wanted || wanted === point.name) return changed();
  if (state.points.some((other) => other.name === wanted)) toast(`Another point is called ${wanted}.`);
  else edit(`${point.name} renamed`, () => { point.name = wanted; });
  changed();
}

const shows = []; // who brings pictures on the screen: pair_sides.js
export const onShow = (show) => shows.push(show);

export function openReference(k) {
  if (!state.references.length) return;
  state.shown = (k + state.references.length) % state.references.length;
  for (const show of shows) show(0);
  changed();
}

export function openTarget(k) {
  if (!state.targets.length) return;
  state.target = (k + state.targets.length) % state.targets.length;
  state.looking.clear();
  for (const show of shows) show(1);
  look();
  announce(target().name);
}

// The points as they are now on the right become a reference for the next pictures.
export function keepAsReference() {
  const picture = target();
  if (!picture || !state.points.length) return toast("There is no point yet.");
  if (state.looking.size) return toast("It is still looked at.");
  if (!isReference(picture)) {
    edit(`${picture.name} kept as a reference`, () => {
      for (const point of state.points) {
        const mark = markOn(point, picture);
        if (mark && !mark.absent) point.marks[picture.id] = { x: mark.x, y: mark.y, from: "person" };
      }
    });
    state.references.push({ picture, used: true, box: null });
  }
  openTarget(state.target + 1);
  toast(`${picture.name} is a reference now: ${plural(used().length, "reference")} in use.`);
}

export function use(one, on) {
  one.used = on;
  look();
}

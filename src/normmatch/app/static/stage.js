// The photograph in view: what is painted on it, and what the pointer does there.

import { byHand, isPlaced, lookOf } from "./certainty.js";
import { choose, nudge as nudgeMark, onReveal, place } from "./acts.js";
import { $, announce, percent } from "./dom.js";
import { commit } from "./edits.js";
import { onView } from "./going.js";
import { Loupe } from "./loupe.js";
import { boxAround, nearestMark, paintMarks } from "./marks.js";
import { toast } from "./messages.js";
import { Picture } from "./picture.js";
import { changed, current, marksOf, names, onChange, sourceOf, state, step, unsetIn } from "./project.js";

const LIFT = 56; // pixels: a long press puts the point above the finger
const frame = $("#frame");
const loupe = new Loupe(frame);
const idle = () => state.hidden || step() === "names";
const listeners = []; // who hears which mark the pointer is over
export const onHover = (listener) => listeners.push(listener);

const itemsOf = (photo) => names().flatMap((name) => {
  const mark = photo.points[name];
  return isPlaced(mark) ? [{ key: name, name, mark, look: lookOf(mark), ...picture.toScreen(mark) }] : [];
});

const markAt = (at, event) => nearestMark(
  itemsOf(current()), at, { touch: event?.pointerType === "touch", chosen: state.chosen }
);

export const picture = new Picture(frame, {
  paint(context, { view, size }) {
    if (state.hidden || !current()) return;
    const show = {
      chosen: state.chosen, hovered: state.hovered, names: state.names, spread: state.spread, settled: current().reviewed
    };
    paintMarks(context, itemsOf(current()), view, size, { ...show, lines: state.skeletonShown ? state.skeleton : [] });
  },
  viewed() {
    $("#zoomValue").textContent = percent(picture.view.scale);
  },
  grab(at, event) {
    const name = idle() ? null : markAt(at, event);
    if (name == null) return null;
    state.chosen = name;
    changed();
    return dragOf(name, at, event);
  },
  hold(at, event) {
    return state.chosen == null || idle() ? null : dragOf(state.chosen, at, event, true);
  },
  tap(at, event) {
    const name = state.chosen;
    const to = picture.toPhoto(at);
    if (name == null || idle()) return;
    // by touch a set point is moved by a drag or a long press alone: a tap beside it lets it go
    if (event.pointerType === "touch" && isPlaced(current().points[name])) return choose(null);
    if (to.x < 0 || to.y < 0 || to.x > current().width || to.y > current().height) return toast("This is beside the photograph; A marks a landmark that is not in it.");
    place(name, to);
  },
  hover(at, event) {
    hover(at && current() && !idle() ? markAt(at, event) : null);
  },
});

export function hover(name) {
  if (name === state.hovered) return;
  state.hovered = name;
  frame.classList.toggle("over-mark", name != null);
  for (const listener of listeners) listener(name);
  picture.redrawMarks();
}

// The point moves by as much as the pointer, so that it never jumps under it; with Shift the whole pose does.
function dragOf(name, at, event, fromPointer = false) {
  const photo = current();
  const points = photo.points;
  const mark = points[name];
  const start = isPlaced(mark) && !fromPointer ? picture.toScreen(mark) : at;
  const lift = fromPointer ? { x: 0, y: -LIFT } : { x: start.x - at.x, y: start.y - at.y };
  const whole = event.shiftKey && !fromPointer;
  const origin = picture.toPhoto(start);
  const shape = lookOf(mark).shape;
  const touch = event.pointerType === "touch";
  let moved = {};
  const move = (to) => {
    const point = picture.inside(picture.toPhoto({ x: to.x + lift.x, y: to.y + lift.y }));
    const [dx, dy] = [point.x - origin.x, point.y - origin.y];
    const all = whole ? names().filter((other) => isPlaced(points[other])) : [name];
    moved = Object.fromEntries(all.map((other) => [
      other, byHand(points[other], other === name ? point : picture.inside({ x: points[other].x + dx, y: points[other].y + dy }))
    ]));
    photo.points = { ...points, ...moved };
    picture.redrawMarks();
    if (!whole) loupe.show(picture, point, { from: isPlaced(mark) ? mark : null, shape, touch });
  };
  const cancel = () => {
    photo.points = points;
    loupe.hide();
    changed();
  };
  if (fromPointer) move(at);
  return {
    move, cancel,
    end(far) {
      loupe.hide();
      photo.points = points;
      if (!far && !fromPointer) return choose(name, { reveal: false });
      state.chosen = name;
      commit(
        { text: whole ? "Pose moved" : `${name} moved`, file: photo.file, landmark: name },
        { photographs: { [photo.file]: { points: moved } } }
      );
      announce(`${name} moved`);
    },
  };
}

// Move the chosen point by pixels of the screen, whatever the zoom; nothing chosen: the view moves.
export function nudge(dx, dy) {
  const by = 1 / picture.view.scale;
  const at = current() && nudgeMark(dx * by, dy * by, (point) => picture.inside(point));
  if (!at) return picture.pan(-Math.sign(dx) * 60, -Math.sign(dy) * 60);
  picture.reveal(at);
  loupe.show(picture, at);
  loupe.hide(1200);
}

const boxOf = (photo) => ({ x: 0, y: 0, width: photo.width, height: photo.height });
const closeBox = (photo) => (state.closeUp && !unsetIn(photo).length ? boxAround(marksOf(photo), photo) : boxOf(photo));

// F: in its place it goes to the other of the two, the animal or the whole photograph, which then stays.
export function fitOther() {
  if (!current()) return;
  if (picture.fitted) state.closeUp = !state.closeUp;
  picture.fit(closeBox(current()));
}

onReveal((point) => picture.reveal(point));
onView((photo) => {
  loupe.hide();
  picture.show(photo, sourceOf(photo), closeBox(photo));
});
onChange(() => {
  frame.classList.toggle("placing", state.chosen != null && step() !== "names");
  picture.redrawMarks();
});

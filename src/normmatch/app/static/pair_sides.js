// The two pictures: what is painted on them, and what the pointer does there.

import { byHand, isPlaced, lookOf, wantsCheck } from "./certainty.js";
import { $, isPhone } from "./dom.js";
import { Loupe } from "./loupe.js";
import { ON_PHOTO, boxAround, nearestMark, paintMarks } from "./marks.js";
import { toast } from "./messages.js";
import { choose, onShow, placeLeft, placeRight } from "./pair_acts.js";
import { look } from "./pair_look.js";
import { changed, chosen, edit, markOn, onChange, pictureOn, snapshot, state } from "./pair_state.js";
import { Picture } from "./picture.js";

const LIFT = 56; // pixels: a long press puts the point above the finger
export const frames = [$("#frame0"), $("#frame1")];
const loupes = frames.map((frame) => new Loupe(frame));
const redraw = () => pictures.forEach((picture) => picture.redrawMarks());
const listeners = []; // who hears which point the pointer is over
export const onHover = (listener) => listeners.push(listener);

export const pictures = frames.map((frame, side) => new Picture(frame, {
  paint: (context, { view, size }) => paintSide(context, view, size, side),
  viewed: () => pictures?.[1 - side]?.redrawMarks(), // the line ends there
  grab(at, event) {
    const point = pointAt(side, at, event);
    if (!point) return null;
    if (state.chosen !== point.id) choose(point.id);
    return dragOf(side, point, at, event);
  },
  hold: (at, event) => (side && chosen() ? dragOf(1, chosen(), at, event, true) : null),
  tap: (at, event) => tap(side, at, event),
  hover: (at, event) => hover(at && pictureOn(side) ? (pointAt(side, at, event)?.id ?? null) : null, frame),
}));

const itemsOn = (side) => state.points.flatMap((point) => {
  const mark = markOn(point, pictureOn(side));
  if (!isPlaced(mark) || (side && state.looking.has(point.id))) return [];
  return [{ key: point.id, name: point.name, point, mark, look: lookOf(mark), ...pictures[side].toScreen(mark) }];
});

function pointAt(side, at, event) {
  const items = itemsOn(side);
  const id = nearestMark(items, at, { touch: event?.pointerType === "touch", chosen: state.chosen });
  return items.find(({ key }) => key === id)?.point ?? null;
}

export function hover(id, frame = null) {
  frame?.classList.toggle("over-mark", id != null);
  if (id === state.hovered) return;
  state.hovered = id;
  for (const listener of listeners) listener(id);
  redraw();
}

function dragOf(side, point, at, event, fromPointer = false) {
  const [picture, shown, before] = [pictures[side], pictureOn(side), snapshot()];
  const mark = markOn(point, shown);
  const start = isPlaced(mark) && !fromPointer ? picture.toScreen(mark) : at;
  const lift = fromPointer ? { x: 0, y: -LIFT } : { x: start.x - at.x, y: start.y - at.y };
  const touch = event.pointerType === "touch";
  const move = (to) => {
    const place = picture.inside(picture.toPhoto({ x: to.x + lift.x, y: to.y + lift.y }));
    point.marks[shown.id] = side ? byHand(mark, place) : { ...place, from: "person" };
    redraw();
    loupes[side].show(picture, place, { from: isPlaced(mark) ? mark : null, shape: lookOf(mark).shape, touch });
  };
  const cancel = () => {
    if (mark) point.marks[shown.id] = mark;
    else delete point.marks[shown.id];
    loupes[side].hide();
    changed();
  };
  if (fromPointer) move(at);
  return {
    move, cancel,
    end(far) {
      if (!far && !fromPointer) return cancel();
      loupes[side].hide();
      edit(`${point.name} moved`, () => {}, before);
      look(); // the right follows the left, unless a person has set it
    },
  };
}

function tap(side, at, event) {
  const shown = pictureOn(side);
  const place = pictures[side].toPhoto(at);
  if (place.x < 0 || place.y < 0 || place.x > shown.width || place.y > shown.height) return choose(null);
  if (!side) return placeLeft(place);
  const point = chosen();
  if (!point) return toast("Click the reference to add a point. Here it is found, and can be moved.");
  const mark = markOn(point, shown);
  if (event.pointerType === "touch" && isPlaced(mark)) return choose(null);
  placeRight(point, place, isPlaced(mark) ? "moved" : "set");
}

// Move the chosen point by pixels of the screen; nothing chosen: the view moves.
export function nudge(side, dx, dy) {
  const [picture, point, shown] = [pictures[side], chosen(), pictureOn(side)];
  const mark = point && markOn(point, shown);
  if (!isPlaced(mark)) return picture.pan(-Math.sign(dx) * 60, -Math.sign(dy) * 60);
  const place = picture.inside({ x: mark.x + dx / picture.view.scale, y: mark.y + dy / picture.view.scale });
  if (side) placeRight(point, place);
  else edit(`${point.name} moved`, () => { point.marks[shown.id] = { ...place, from: "person" }; });
  if (!side) look();
  loupes[side].show(picture, place);
  loupes[side].hide(1200);
}

function paintSide(context, view, size, side) {
  // words away from the line that goes to the other picture
  const first = isPhone.matches ? 2 + side : 1 - side;
  paintMarks(
    context, itemsOn(side), view, size,
    {
      chosen: state.chosen, hovered: state.hovered, names: state.names, spread: side === 1, first,
      between: () => paintLines(context, side)
    }
  );
}

// One line from picture to picture, of the point one is busy with; all of them only when asked for. Each picture paints
// its part, below its words.
function paintLines(context, side) {
  const [own, other] = [side, 1 - side].map((k) => new Map(itemsOn(k).map((item) => [item.key, item])));
  const [here, there] = [side, 1 - side].map((k) => frames[k].getBoundingClientRect());
  const wanted = state.allLines ? state.points.map(({ id }) => id) : [...new Set([state.chosen, state.hovered])];
  for (const id of wanted) {
    const [from, end] = [own.get(id), other.get(id)];
    if (!from || !end || end.x < 0 || end.y < 0 || end.x > there.width || end.y > there.height) continue;
    const to = { x: end.x + there.left - here.left, y: end.y + there.top - here.top };
    const { look: shape, mark } = side ? from : end;
    const short = 16 / Math.max(Math.hypot(to.x - from.x, to.y - from.y), 40);
    context.save();
    context.beginPath();
    context.moveTo(from.x + (to.x - from.x) * short, from.y + (to.y - from.y) * short);
    context.lineTo(to.x, to.y);
    context.strokeStyle = "rgb(11 13 18 / .5)";
    context.lineWidth = 4.5;
    context.stroke();
    context.setLineDash(wantsCheck(mark) ? [6, 6] : []);
    context.strokeStyle = ON_PHOTO[shape.shape];
    context.lineWidth = 2;
    context.stroke();
    context.restore();
  }
}

function boxOf(side) {
  const shown = pictureOn(side);
  const whole = { x: 0, y: 0, width: shown.width, height: shown.height };
  return state.closeUp ? boxAround(
    state.points.map((point) => markOn(point, shown)), shown, isPhone.matches ? 0.08 : 0.2
  ) : whole;
}

// F in its place goes to the other one: around the points, or the whole picture.
export function fitOther(side) {
  if (!pictureOn(side)) return;
  if (pictures[side].fitted) state.closeUp = !state.closeUp;
  for (const k of [0, 1]) if (pictureOn(k)) pictures[k].fit(boxOf(k));
}

onShow((side) => {
  const shown = pictureOn(side);
  const whole = shown && { x: 0, y: 0, width: shown.width, height: shown.height };
  if (shown) pictures[side].show(
    shown, shown.source, side && !state.points.some((point) => markOn(point, shown)) ? whole : boxOf(side)
  );
  else pictures[side].clear();
});
onChange(redraw);

// Asking where the points of the references are in the picture on the right. What a person has set there stays.

import { announce, percent } from "./dom.js";
import { toast } from "./messages.js";
import { changed, markOn, onSeek, state, target, used } from "./pair_state.js";
import { send } from "./server.js";

const WAIT = 60; // milliseconds: what is asked for at once is asked once
const LARGE = 2000; // pixels: a second look needs no more, and larger files would only be slow to send

let timer = null;
let running = 0; // the number of the last question; older answers are not used
const asked = new Map(); // by picture: what it was looked for with last, so that nothing is asked twice

const isFree = (point) => markOn(point, target())?.from !== "person";
const known = (point) => used().some((one) => markOn(point, one.picture) && !markOn(point, one.picture).absent);

function question() {
  const points = state.points.filter(known);
  const references = used().filter((one) => one.picture !== target() && points.some((point) => markOn(point, one.picture)));
  const said = JSON.stringify([
    references.map((one) => [one.picture.id, points.map((point) => place(point, one.picture))]), points.map(({ id }) => id)
  ]);
  return { points, references, said };
}

const place = (point, picture) => {
  const mark = markOn(point, picture);
  return mark && !mark.absent ? [mark.x, mark.y] : null;
};

// The picture on the right is looked at again, if anything that it depends on has changed.
export function look() {
  clearTimeout(timer);
  const picture = target();
  if (!picture) return;
  const { points, references, said } = question();
  const free = points.filter(isFree);
  for (const point of state.points) if (!known(point) && isFree(point)) delete point.marks[picture.id];
  if (!free.length || !references.length || used().some((one) => one.picture === picture)) return changed();
  if (asked.get(picture.id) === said && free.every((point) => markOn(point, picture))) return changed();
  for (const point of free) if (!markOn(point, picture) || asked.get(picture.id) !== said) state.looking.add(point.id);
  timer = setTimeout(() => ask(picture, points, references, said), WAIT);
  changed();
}
onSeek(look);

async function ask(picture, points, references, said) {
  const run = ++running;
  try {
    const sent = await Promise.all([...references.map((one) => one.picture), picture].map(small));
    const content = {
      looks: 2, box: null,
      references: references.map((one, k) => ({
        keypoints: points.map((point) => place(point, one.picture)?.map((value) => value * sent[k].scale) ?? null),
        box: one.box?.map((value) => value * sent[k].scale) ?? null,
      })),
    };
    const found = await send("locate", sent.map(({ file }) => file), content);
    if (run !== running) return;
    take(found, picture, points, references, 1 / sent.at(-1).scale);
    asked.set(picture.id, said);
  } catch (error) {
    if (run === running) toast(error.message);
  } finally {
    if (run === running) state.looking.clear();
    changed();
  }
}

function take({ keypoints, scores, visible, spread, shares }, picture, points, references, scale) {
  points.forEach((point, k) => {
    const now = state.points.find(({ id }) => id === point.id);
    if (!now || now.marks[picture.id]?.from === "person") return;
    const [x, y] = keypoints[k].map((value) => value * scale);
    const mark = { x, y, from: "proposed", score: scores[k], visible: visible[k], spread: spread[k] * scale };
    now.marks[picture.id] = visible[k] < 0.5 ? { ...mark, absent: true } : mark;
  });
  state.shares[picture.id] = shares && Object.fromEntries(references.map((one, k) => [one.picture.id, shares[k]]));
  const fresh = points.find((point) => point.id === state.chosen);
  const mark = fresh && markOn(fresh, picture);
  if (mark?.from === "proposed") announce(mark.absent ? `${fresh.name} is probably not in the picture` : `${fresh.name} found, ${percent(mark.score)} certain`);
}

// A picture as it is sent: the file, or a smaller copy of a large one. Made once.
function small(picture) {
  picture.sent ??= shrink(picture).catch(() => ({ file: picture.file, scale: 1 }));
  return picture.sent;
}

async function shrink({ file, name, width, height }) {
  const scale = LARGE / Math.max(width, height);
  if (scale >= 1) return { file, scale: 1 };
  const bitmap = await createImageBitmap(
    file, { resizeWidth: Math.round(width * scale), resizeHeight: Math.round(height * scale), resizeQuality: "high" }
  );
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  const blob = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.94 });
  return { file: new File([blob], name), scale: bitmap.width / width };
}

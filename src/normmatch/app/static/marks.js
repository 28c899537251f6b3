// What is painted on a photograph: marks, the circle of the spread, lines and words. Every line is bright on a dark edge,
// so that it shows on any animal, and shape says the same as colour.

import { clamp } from "./dom.js";
import { isPlaced, wantsCheck } from "./certainty.js";

export const HALO = "#0b0d12";
export const ON_PHOTO = {
  sure: "#4fd0ff", unsure: "#ffc83d", doubt: "#ff6f4d", person: "#ffffff", kept: "#ffffff", copied: "#ffffff"
};
const FONT = "Inter, system-ui, sans-serif";
const CORNERS = {
  unsure: [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]],
  doubt: [[0, -1.35], [1.3, 0.95], [-1.3, 0.95]],
  copied: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
};

export function traceShape(context, shape, x, y, size) {
  context.beginPath();
  for (const [dx, dy] of CORNERS[shape] ?? []) context.lineTo(x + dx * size, y + dy * size);
  if (!CORNERS[shape]) context.arc(x, y, size, 0, 7);
  context.closePath();
}

export function strokeTwice(context, color, width) {
  context.lineJoin = "round";
  for (const [style, thickness] of [[HALO, width + 2.5], [color, width]]) {
    context.strokeStyle = style;
    context.lineWidth = thickness;
    context.stroke();
  }
}

// Hollow, so that it hides nothing of what it marks; the dot is the point itself. Smaller where marks crowd.
export function paintMark(context, x, y, shape, { chosen = false, hovered = false, room = Infinity } = {}) {
  const color = ON_PHOTO[shape];
  const size = chosen ? 9 : hovered ? 8 : clamp(room * 0.4, 3.5, 6.5);
  traceShape(context, shape, x, y, size);
  strokeTwice(context, color, chosen ? 2.5 : 2);
  context.beginPath();
  context.arc(x, y, shape === "person" ? size * 0.38 : 1.4, 0, 7);
  context.fillStyle = color;
  context.strokeStyle = HALO;
  context.lineWidth = 1.5;
  context.stroke();
  context.fill();
  if (!chosen) return;
  context.beginPath();
  for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
    context.moveTo(x + dx * (size + 6), y + dy * (size + 6));
    context.lineTo(x + dx * (size + 13), y + dy * (size + 13));
  }
  strokeTwice(context, "#ffffff", 2);
}

function paintSpread(context, { x, y }, radius, shape) {
  context.save();
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.globalAlpha = 0.14;
  context.fillStyle = ON_PHOTO[shape];
  context.fill();
  context.globalAlpha = 0.9;
  context.setLineDash([5, 4]);
  context.strokeStyle = ON_PHOTO[shape];
  context.lineWidth = 1.25;
  context.stroke();
  context.restore();
}

// A line that ends before the marks; dashed where one of its ends is uncertain.
function paintLine(context, from, to, dashed) {
  const short = 9 / Math.max(Math.hypot(to.x - from.x, to.y - from.y), 19);
  context.save();
  context.beginPath();
  context.moveTo(from.x + (to.x - from.x) * short, from.y + (to.y - from.y) * short);
  context.lineTo(to.x - (to.x - from.x) * short, to.y - (to.y - from.y) * short);
  context.strokeStyle = "rgb(11 13 18 / .45)";
  context.lineWidth = 3.5;
  context.stroke();
  context.setLineDash(dashed ? [5, 5] : []);
  context.strokeStyle = "rgb(255 255 255 / .85)";
  context.lineWidth = 1.25;
  context.stroke();
  context.restore();
}

// Everything on one photograph. items: [{key, mark, look, name, x, y}] in pixels of the screen; `show` says what of it:
// {chosen, hovered, lines: [[key, key]], names, spread, settled, between(), first}.
export function paintMarks(context, items, { scale }, size, show) {
  const lit = (item) => item.key === show.chosen || item.key === show.hovered;
  const byKey = new Map(items.map((item) => [item.key, item]));
  for (const [a, b] of show.lines ?? []) {
    const [from, to] = [byKey.get(a), byKey.get(b)];
    if (from && to) paintLine(context, from, to, !show.settled && (wantsCheck(from.mark) || wantsCheck(to.mark)));
  }
  const order = [...items].sort((a, b) => (a.key === show.chosen) - (b.key === show.chosen));
  if (show.spread)
    for (const item of order)
      if (item.look.band && item.mark.spread && (wantsCheck(item.mark) || lit(item)))
        paintSpread(context, item, Math.max(item.mark.spread * scale, 10), item.look.shape);
  show.between?.();
  for (const item of order) {
    const room = Math.min(...items.map((other) => (other === item ? Infinity : Math.hypot(other.x - item.x, other.y - item.y))));
    paintMark(
      context, item.x, item.y, item.look.shape, { chosen: item.key === show.chosen, hovered: item.key === show.hovered, room }
    );
  }
  paintLabels(context, order.flatMap((item) => labelOf(item, show, lit(item))), items, size, show.first ?? 0);
}

// Number beside what is uncertain; name and number beside what is chosen or pointed at.
function labelOf(item, show, lit) {
  const doubtful = item.look.band && wantsCheck(item.mark);
  const number = item.look.band && (doubtful || lit) ? String(Math.round(item.mark.score * 100)) : "";
  const text = [lit || show.names ? item.name : "", number].filter(Boolean).join("  ");
  const chosen = item.key === show.chosen;
  if (!text) return [];
  return [{
    x: item.x, y: item.y, text, color: doubtful ? ON_PHOTO[item.look.shape] : "#fff", bold: chosen,
    rank: chosen ? 0 : lit ? 1 : 2
  }];
}

const overlap = (a, b) => Math.max(
  0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])
) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));

// Words beside the marks, each where it covers the least; `first` is where they like to be: right, left, above, below.
function paintLabels(context, wanted, obstacles, { width, height }, first) {
  const taken = obstacles.map(({ x, y }) => [x - 10, y - 10, x + 10, y + 10]);
  context.textBaseline = "middle";
  for (const { x, y, text, color, bold } of wanted.sort((a, b) => a.rank - b.rank)) {
    context.font = `${bold ? 700 : 600} 12px ${FONT}`;
    const [w, h, gap] = [context.measureText(text).width + 12, 20, bold ? 25 : 13];
    const places = [
      [gap, -h / 2], [-gap - w, -h / 2], [-w / 2, -gap - h], [-w / 2, gap],
      [gap - 3, -gap - 8], [-gap - w + 3, -gap - 8], [gap - 3, gap - 10], [-gap - w + 3, gap - 10],
    ];
    const boxes = places.map(([dx, dy]) => [x + dx, y + dy, x + dx + w, y + dy + h]);
    const outside = (box) => box[0] < 2 || box[1] < 2 || box[2] > width - 2 || box[3] > height - 2;
    const costs = boxes.map((box, k) => (k === first ? 0 : 4 + k * 4) + (outside(box) ? 900 : 0) + taken.reduce(
      (sum, other) => sum + overlap(box, other), 0
    ));
    const box = boxes[costs.indexOf(Math.min(...costs))];
    taken.push(box);
    context.beginPath();
    context.roundRect(box[0], box[1], w, h, 5);
    context.fillStyle = "rgb(11 13 18 / .84)";
    context.fill();
    if (bold) {
      context.strokeStyle = color;
      context.lineWidth = 1.5;
      context.stroke();
    }
    context.fillStyle = color;
    context.fillText(text, box[0] + 6, box[1] + h / 2 + 0.5);
  }
}

// The part of a photograph around its marks and where they may be, with room; all of it where few of them are placed.
export function boxAround(marks, photo, share = 0.12) {
  const points = marks.filter(isPlaced);
  if (points.length < Math.max(3, marks.length / 2)) return { x: 0, y: 0, width: photo.width, height: photo.height };
  const reach = (point) => (wantsCheck(point) ? (point.spread ?? 0) : 0);
  const low = (axis) => clamp(Math.min(...points.map((point) => point[axis] - reach(point))), 0, Infinity);
  const high = (axis, most) => Math.min(Math.max(...points.map((point) => point[axis] + reach(point))), most);
  const [left, top, right, bottom] = [low("x"), low("y"), high("x", photo.width), high("y", photo.height)];
  const room = share * Math.max(right - left, bottom - top) + Math.max(photo.width, photo.height) / 100;
  const [x, y] = [Math.max(left - room, 0), Math.max(top - room, 0)];
  return { x, y, width: Math.min(right + room, photo.width) - x, height: Math.min(bottom + room, photo.height) - y };
}

// The mark nearest to a place of the screen, or null; the chosen one wins a tie, and a finger reaches further.
export function nearestMark(items, at, { touch = false, chosen = null } = {}) {
  const away = (item) => Math.hypot(item.x - at.x, item.y - at.y) - (item.key === chosen ? 5 : 0);
  const near = items.filter((item) => away(item) < (touch ? 26 : 15));
  return near.length ? near.reduce((best, item) => (away(item) < away(best) ? item : best)).key : null;
}

// The few hundred pixels around a point that is being moved, enlarged, beside the pointer and above the finger.

import { clamp, make, onceAFrame } from "./dom.js";
import { ON_PHOTO, strokeTwice, traceShape } from "./marks.js";
import { askFor, paintRegion } from "./tiles.js";

const SIZE = 170; // pixels of the screen inside its border
const TIMES = 4.5; // the view; less where that would show single pixels
const EDGE = 8;

export class Loupe {
  constructor(frame) {
    this.frame = frame;
    this.repaint = onceAFrame(() => !this.canvas.hidden && this.paint(false));
    this.canvas = make("canvas", { class: "loupe", hidden: true, "aria-hidden": "true" });
    this.note = make("div", { class: "loupe-note", hidden: true, "aria-hidden": "true" });
    frame.append(this.canvas, this.note);
  }

  // from: where the point was; shape: how it looked there
  show(picture, point, { from = null, shape = "person", touch = false } = {}) {
    this.shown = { picture, point, from, shape };
    this.paint();
    this.put(picture, point, touch);
    this.note.textContent = `${point.x.toFixed(1)}, ${point.y.toFixed(1)}`;
    this.canvas.hidden = this.note.hidden = false;
    clearTimeout(this.ending);
  }

  paint(ask = true) {
    const { picture, point, from, shape } = this.shown;
    const [ratio, { scale }] = [devicePixelRatio, picture.view];
    const zoom = Math.max(scale * 2, Math.min(scale * TIMES, 1.2));
    this.canvas.width = this.canvas.height = SIZE * ratio;
    const context = this.canvas.getContext("2d");
    const reach = SIZE / zoom / 2;
    const region = { x: point.x - reach, y: point.y - reach, width: 2 * reach, height: 2 * reach };
    context.setTransform(zoom * ratio, 0, 0, zoom * ratio, -region.x * zoom * ratio, -region.y * zoom * ratio);
    if (picture.source) {
      if (ask) askFor(this, picture.source, region, zoom * ratio, this.repaint);
      paintRegion(context, picture.source, region, zoom * ratio, picture.copy.bitmap);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (from) {
      traceShape(context, shape, (from.x - point.x) * zoom + SIZE / 2, (from.y - point.y) * zoom + SIZE / 2, 7);
      context.setLineDash([3, 3]);
      strokeTwice(context, ON_PHOTO[shape] ?? "#fff", 1.5);
      context.setLineDash([]);
    }
    paintCross(context);
  }

  // Beside the pointer or above the finger; on the other side where the frame ends.
  put(picture, point, touch) {
    const at = picture.toScreen(point);
    const { width, height } = picture.size;
    const away = touch ? 150 : 120;
    let [x, y] = [touch ? at.x - SIZE / 2 : at.x - away - SIZE / 2, at.y - away - SIZE / 2];
    if (y < EDGE) {
      y = touch ? at.y - SIZE / 2 : at.y + away - SIZE / 2;
      if (touch) x = at.x > width / 2 ? at.x - away - SIZE / 2 : at.x + away - SIZE / 2;
    }
    if (x < EDGE && !touch) x = at.x + away - SIZE / 2;
    x = clamp(x, EDGE, Math.max(width - SIZE - EDGE, EDGE));
    y = clamp(y, EDGE, Math.max(height - SIZE - 36, EDGE));
    Object.assign(this.canvas.style, { left: `${x}px`, top: `${y}px` });
    Object.assign(this.note.style, { left: `${x + SIZE / 2}px`, top: `${y + SIZE + 8}px` });
  }

  hide(after = 0) {
    clearTimeout(this.ending);
    const end = () => { this.canvas.hidden = this.note.hidden = true; };
    if (after) this.ending = setTimeout(end, after);
    else end();
  }
}

// A cross with a gap, so that the pixel itself is seen.
function paintCross(context) {
  const middle = SIZE / 2;
  context.beginPath();
  for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
    context.moveTo(middle + dx * 7, middle + dy * 7);
    context.lineTo(middle + dx * middle, middle + dy * middle);
  }
  for (const [color, width] of [["rgb(11 13 18 / .4)", 2], ["#fff", 1]]) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.stroke();
  }
  context.beginPath();
  context.arc(middle, middle, 1.5, 0, 7);
  context.fillStyle = "#fff";
  context.fill();
}

// Crops of photographs around a landmark, turned so that all animals lie the same way.

import { askFor, paintRegion, paintTile, wholeOf } from "./tiles.js";

const behind = new WeakMap(); // of each canvas the photograph alone, which arrives in pieces and is kept

// Paint the crop whose width is `side` pixels of the photograph around `centre`; `after(context, toCrop)` paints upon it.
export function paintCrop(canvas, source, centre, side, angle, after) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width || !source) return; // not shown, or replaced already
  const [ratio, scale] = [devicePixelRatio, width / side];
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  const show = () => {
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(behind.get(canvas).pixels, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    after?.(context, (point) => toCrop(canvas, point, centre, side, angle));
  };
  const key = [source.id, centre.x, centre.y, side, angle, canvas.width, canvas.height].join();
  if (behind.get(canvas)?.key === key) return show();
  const pixels = new OffscreenCanvas(canvas.width, canvas.height);
  const kept = { key, pixels };
  behind.set(canvas, kept);
  const context = pixels.getContext("2d");
  context.fillStyle = "#15171c";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.setTransform(ratio, 0, 0, ratio, (width / 2) * ratio, (height / 2) * ratio);
  context.rotate(-angle);
  context.scale(scale, scale);
  context.translate(-centre.x, -centre.y);
  show();
  const reach = (0.5 * Math.hypot(width, height)) / scale; // whatever the turn
  const region = { x: centre.x - reach, y: centre.y - reach, width: 2 * reach, height: 2 * reach };
  const current = () => behind.get(canvas) === kept;
  wholeOf(source).promise.then((bitmap) => {
    if (!bitmap || !current()) return;
    paintRegion(context, source, region, scale * ratio, bitmap);
    show();
    askFor(canvas, source, region, scale * ratio, (tile) => {
      if (!current()) return;
      paintTile(context, source, tile);
      show();
    });
  });
}

function turn({ x, y }, angle) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return { x: x * c - y * s, y: x * s + y * c };
}

// From pixels of the photograph to those of the crop on the screen, and back.
export function toCrop(canvas, point, centre, side, angle) {
  const scale = canvas.clientWidth / side;
  const moved = turn({ x: point.x - centre.x, y: point.y - centre.y }, -angle);
  return { x: canvas.clientWidth / 2 + moved.x * scale, y: canvas.clientHeight / 2 + moved.y * scale };
}

export function fromCrop(canvas, at, centre, side, angle) {
  const scale = canvas.clientWidth / side;
  const moved = turn({ x: (at.x - canvas.clientWidth / 2) / scale, y: (at.y - canvas.clientHeight / 2) / scale }, angle);
  return { x: centre.x + moved.x, y: centre.y + moved.y };
}

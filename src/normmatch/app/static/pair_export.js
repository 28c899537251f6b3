// Points of all pictures as a file, made in the browser: COCO, CSV, our JSON, and a picture of both sides.

import { isPlaced, isProposed, lookOf } from "./certainty.js";
import { make } from "./dom.js";
import { item } from "./menus.js";
import { paintMarks } from "./marks.js";
import { toast } from "./messages.js";
import { markOn, pictureOn, state } from "./pair_state.js";
import { wholeOf } from "./tiles.js";

const HEIGHT = 1200; // pixels of the picture
const GAP = 16;

function save(name, text, type) {
  const blob = text instanceof Blob ? text : new Blob([text], { type });
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

const all = () => [...new Set([
  ...state.references.map((one) => one.picture), ...state.targets
])].filter((picture) => state.points.some((point) => markOn(point, picture)));
const tenth = (value) => Math.round(value * 10) / 10;
const scoreOf = (mark) => (isProposed(mark) ? Math.round(mark.score * 1000) / 1000 : null);

function asNative() {
  const images = all().map((picture) => ({
    image: picture.name,
    keypoints: state.points.flatMap((point) => {
      const mark = markOn(point, picture);
      if (!isPlaced(mark)) return [];
      return [{ name: point.name, x: tenth(mark.x), y: tenth(mark.y), ...(isProposed(mark) && { score: scoreOf(mark) }) }];
    }),
  }));
  return JSON.stringify({ made_by: "NormMatch", images }, null, 1);
}

function asCsv() {
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = all().flatMap((picture) => state.points.flatMap((point) => {
    const mark = markOn(point, picture);
    return isPlaced(mark) ? [[
      quoted(picture.name), quoted(point.name), tenth(mark.x), tenth(mark.y), scoreOf(mark) ?? ""
    ].join()] : [];
  }));
  return ["image,name,x,y,score", ...lines, ""].join("\n");
}

function asCoco() {
  const pictures = all();
  const images = pictures.map(({ name, width, height }, k) => ({ id: k + 1, file_name: name, width, height }));
  const annotations = pictures.map((picture, k) => {
    const marks = state.points.map((point) => markOn(point, picture));
    const placed = marks.filter(isPlaced);
    const [xs, ys] = [placed.map(({ x }) => x), placed.map(({ y }) => y)];
    const [x, y] = [Math.min(...xs, picture.width), Math.min(...ys, picture.height)];
    const [w, h] = [Math.max(...xs, x) - x, Math.max(...ys, y) - y];
    const keypoints = marks.flatMap((mark) => (isPlaced(mark) ? [tenth(mark.x), tenth(mark.y), 2] : [0, 0, 0]));
    return {
      id: k + 1, image_id: k + 1, category_id: 1, keypoints, num_keypoints: placed.length, bbox: [x, y, w, h].map(tenth),
      area: tenth(w * h), iscrowd: 0
    };
  });
  const categories = [{ id: 1, name: "object", keypoints: state.points.map(({ name }) => name), skeleton: [] }];
  return JSON.stringify({ images, annotations, categories }, null, 1);
}

// Both pictures beside each other, with the points and the lines between them.
async function asPicture() {
  const shown = [0, 1].map(pictureOn);
  const copies = await Promise.all(shown.map((picture) => wholeOf(picture.source).promise));
  const scales = shown.map(({ height }) => HEIGHT / height);
  const widths = shown.map(({ width }, k) => Math.round(width * scales[k]));
  const canvas = new OffscreenCanvas(widths[0] + GAP + widths[1], HEIGHT);
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  shown.forEach((picture, side) => {
    context.save();
    context.translate(side ? widths[0] + GAP : 0, 0);
    context.drawImage(copies[side], 0, 0, widths[side], HEIGHT);
    const items = state.points.flatMap((point) => {
      const mark = markOn(point, picture);
      return isPlaced(mark) ? [{
        key: point.id, name: point.name, mark, look: lookOf(mark), x: mark.x * scales[side], y: mark.y * scales[side]
      }] : [];
    });
    paintMarks(
      context, items, { scale: scales[side] }, { width: widths[side], height: HEIGHT }, { names: true, spread: side === 1 }
    );
    context.restore();
  });
  return canvas.convertToBlob({ type: "image/png" });
}

export function fillExport(list) {
  list.replaceChildren(
    make("h2", {}, "Points of all pictures"),
    item("COCO keypoints", "JSON. Names and places", () => save("points-coco.json", asCoco(), "application/json")),
    item("CSV", "One line a point, with scores", () => save("points.csv", asCsv(), "text/csv")),
    item("NormMatch", "JSON, with scores", () => save("points.json", asNative(), "application/json")),
    item(
      "Picture", "PNG of both, with the points",
      async () => (pictureOn(0) && pictureOn(1) ? save("points.png", await asPicture()) : toast("There are not two pictures yet."))
    ),
    make("hr"),
    item(
      "Label a whole folder like this", "Saves points.json; then: normmatch label FOLDER --from points.json",
      () => save("points.json", asNative(), "application/json")
    ));
}

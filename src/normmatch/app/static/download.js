// What is shown, as a file: JSON with points and matches, CSV, or a picture. All are made in the browser.

import { UNMATCHED, color } from "./colors.js";
import { links, state } from "./state.js";

const MAX_SIDE = 1200; // pixels, the height of the picture
const GAP = 16;

export function listen() {
  const on = (id, make) => document.getElementById(id).addEventListener("click", make);
  on("downloadJson", () => save("matches.json", new Blob([JSON.stringify(asJson(), null, 1)], { type: "application/json" })));
  on("downloadCsv", () => save("matches.csv", new Blob([asCsv()], { type: "text/csv" })));
  on("downloadPng", async () => save("matches.png", await asPng()));
}

function save(name, blob) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const shown = () => links().filter((link) => link.shown);

// As `normmatch match --json` writes it; `images` makes it a points file too, which can be loaded again.
export function asJson() {
  const { sides, result, threshold } = state;
  const kept = (side) => result[`matches${side}`].map((match, k) => (result[`matching_scores${side}`][k] >= threshold ? match : -1));
  const both = (name, value) => Object.fromEntries([0, 1].map((side) => [`${name}${side}`, value(side)]));
  return {
    ...both("image", (side) => sides[side].name),
    ...both("names", (side) => sides[side].points.map((point) => point.name)),
    ...both("keypoints", (side) => sides[side].points.map(({ x, y }) => [x, y])),
    matches: shown().map(({ index0, index1, score }) => ({ name0: sides[0].points[index0].name, name1: sides[1].points[index1].name, score })),
    ...both("matches", kept),
    ...both("matching_scores", (side) => result[`matching_scores${side}`]),
    similarity: result.similarity,
    min_score: threshold,
    one_to_one: result.oneToOne,
    images: sides.map(({ name, points, box }) => ({ image: name, keypoints: points, ...(box && { box }) })),
  };
}

export function asCsv() {
  const quoted = (value) => (/[",\n\r]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
  const rows = shown().map(({ index0, index1, score }) => {
    const [a, b] = [state.sides[0].points[index0], state.sides[1].points[index1]];
    return [a.name, a.x, a.y, b.name, b.x, b.y, score].map(quoted).join(",");
  });
  return ["name0,x0,y0,name1,x1,y1,score", ...rows].join("\n") + "\n";
}

async function asPng() {
  const images = [...document.querySelectorAll(".frame img")];
  await Promise.all(images.map((image) => image.decode()));
  const height = Math.min(MAX_SIDE, Math.max(600, ...images.map((image) => image.naturalHeight)));
  const scales = state.sides.map((side) => height / side.height);
  const widths = state.sides.map((side, k) => side.width * scales[k]);
  const canvas = Object.assign(document.createElement("canvas"), { width: widths[0] + GAP + widths[1], height: height + 60 });
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  const lefts = [0, widths[0] + GAP];
  images.forEach((image, side) => context.drawImage(image, lefts[side], 0, widths[side], height));
  const at = (side, index) => {
    const { x, y } = state.sides[side].points[index];
    return [lefts[side] + x * scales[side], y * scales[side]];
  };
  paintMatches(context, at, height / 600);
  paintScale(context, canvas.width, height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function paintMatches(context, at, unit) {
  const matches = shown().sort((a, b) => a.score - b.score);
  const colors = [new Map(), new Map()];
  for (const { index0, index1, score } of matches) {
    colors[0].set(index0, color(score));
    colors[1].set(index1, color(score));
    for (const [style, width] of [["rgba(255,255,255,.6)", 5 * unit], [color(score), 2.6 * unit]]) {
      Object.assign(context, { strokeStyle: style, lineWidth: width });
      context.beginPath();
      context.moveTo(...at(0, index0));
      context.lineTo(...at(1, index1));
      context.stroke();
    }
  }
  Object.assign(context, { font: `${13 * unit}px system-ui, sans-serif`, textBaseline: "middle", lineJoin: "round" });
  state.sides.forEach(({ points }, side) => points.forEach((point, index) => {
    const [x, y] = at(side, index);
    Object.assign(context, { fillStyle: colors[side].get(index) ?? UNMATCHED, strokeStyle: "white", lineWidth: 1.6 * unit });
    context.beginPath();
    context.arc(x, y, 5 * unit, 0, 7);
    context.fill();
    context.stroke();
    if (points.length > 40) return;
    Object.assign(context, { textAlign: side ? "left" : "right", fillStyle: "black", lineWidth: 3.5 * unit });
    const text = [point.name, x + (side ? 9 : -9) * unit, y];
    context.strokeText(...text);
    context.fillText(...text);
  }));
}

function paintScale(context, width, top) {
  const [length, left] = [240, width / 2 - 120];
  for (let k = 0; k < length; k += 1) {
    context.fillStyle = color(k / (length - 1));
    context.fillRect(left + k, top + 16, 1, 12);
  }
  Object.assign(context, { fillStyle: "#333", font: "15px system-ui, sans-serif", textAlign: "right" });
  context.fillText("score 0", left - 8, top + 22);
  context.textAlign = "left";
  context.fillText("1", left + length + 8, top + 22);
}

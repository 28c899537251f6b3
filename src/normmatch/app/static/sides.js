// The bar above each picture: upload, drop, paste and samples; points files; the box; and a message beside them.

import { pictureUrl, send } from "./server.js";
import { changed, setPicture, setPoints, state } from "./state.js";

const MAX_FILE = 25e6; // bytes, as the server has it
const TITLES = ["First picture", "Second picture"];
const articles = [...document.querySelectorAll(".side")];
const part = (side, selector) => articles[side].querySelector(selector);

let samples = [];
let lastSide = 0; // where a pasted picture goes: the side used last, or the empty one
const loads = [0, 0]; // counts what each side was asked to load, so that a slow answer does not replace a later one

export async function listen() {
  articles.forEach((article, side) => {
    article.append(document.getElementById("sideTemplate").content.cloneNode(true));
    part(side, "h2").textContent = TITLES[side];
    listenBar(side);
    listenDrop(article, side);
    article.addEventListener("pointerdown", () => { lastSide = side; });
  });
  document.addEventListener("paste", paste);
  document.addEventListener("pointerdown", (event) => {
    for (const menu of document.querySelectorAll("details[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  samples = await send("samples").catch(() => []);
  articles.forEach((_, side) => listSamples(side));
  if (samples.length > 1) await Promise.all([loadSample(0, 0), loadSample(1, 1)]);
}

function listenBar(side) {
  const choose = (button, input, load) => {
    part(side, button).addEventListener("click", () => part(side, input).click());
    part(side, input).addEventListener("change", (event) => {
      const [file] = event.target.files;
      event.target.value = ""; // the same file may be chosen again
      if (file) load(side, file);
    });
  };
  choose(".upload", ".uploadInput", loadPicture);
  choose(".pointsFile", ".pointsInput", loadPoints);
  part(side, ".clear").addEventListener("click", () => setPoints(side, [], null));
  part(side, ".box").addEventListener("click", () => {
    const now = state.sides[side];
    now.mode = now.mode === "box" ? "points" : "box";
    changed();
  });
}

function listenDrop(article, side) {
  article.addEventListener("dragover", (event) => {
    event.preventDefault();
    article.classList.add("dropping");
  });
  article.addEventListener("dragleave", () => article.classList.remove("dropping"));
  article.addEventListener("drop", (event) => {
    event.preventDefault();
    article.classList.remove("dropping");
    const [file] = event.dataTransfer.files;
    const folder = event.dataTransfer.items[0]?.webkitGetAsEntry?.()?.isDirectory;
    if (folder) say(side, "This is a folder; expected one picture or points file.");
    else if (file) (/\.(json|csv)$/i.test(file.name) ? loadPoints : loadPicture)(side, file);
    else say(side, "Only a file can be dropped here; save the picture first.");
  });
}

function paste(event) {
  const file = [...(event.clipboardData?.files ?? [])][0];
  if (!file) return;
  event.preventDefault();
  const empty = state.sides.findIndex((side) => !side.file);
  loadPicture(empty >= 0 ? empty : lastSide, file);
}

function listSamples(side) {
  const grid = part(side, ".grid");
  for (const [number, sample] of samples.entries()) {
    const button = document.createElement("button");
    const picture = Object.assign(document.createElement("img"), { src: sample.url, alt: "", loading: "lazy" });
    button.append(picture, sample.title);
    button.dataset.sample = sample.title;
    button.addEventListener("click", () => {
      part(side, ".samples").open = false;
      loadSample(side, number);
    });
    grid.append(button);
  }
  part(side, ".samples").hidden = !samples.length;
}

async function loadSample(side, number) {
  const sample = samples[number];
  const file = await fetch(sample.url).then((answer) => answer.blob());
  await loadPicture(side, new File([file], sample.image, { type: file.type }), sample);
}

async function loadPicture(side, file, { keypoints = [], box = null } = {}) {
  loads[side] += 1;
  const load = loads[side];
  say(side, "");
  articles[side].classList.add("loading");
  try {
    if (file.size > MAX_FILE) throw new Error(`${file.name} has ${Math.round(file.size / 1e6)} MB; expected at most ${MAX_FILE / 1e6} MB.`);
    const { name, width, height, preview } = await send("picture", [file]);
    if (load !== loads[side]) return;
    setPicture(side, { file, name, width, height, url: pictureUrl(preview), points: keypoints.map((point) => ({ ...point })), box });
  } catch (error) {
    if (load === loads[side]) say(side, error.message);
  } finally {
    if (load === loads[side]) articles[side].classList.remove("loading");
  }
}

async function loadPoints(side, file) {
  say(side, "");
  const { file: picture, name, width, height } = state.sides[side];
  try {
    if (!picture) throw new Error("Choose a picture first: the points are placed on it.");
    const { images } = await send("points", [file]);
    const chosen = images.find((image) => image.image.split(/[\\/]/).pop() === name) ?? images[Math.min(side, images.length - 1)];
    const outside = chosen.keypoints.find(({ x, y }) => !(x >= 0 && y >= 0 && x <= width && y <= height));
    if (outside) throw new Error(`${file.name}: ${outside.name} is at (${outside.x}, ${outside.y}), outside the picture of ${width} x ${height} pixels.`);
    setPoints(side, chosen.keypoints, chosen.box ?? null);
  } catch (error) {
    say(side, error.message);
  }
}

export function say(side, sentence) {
  part(side, ".message").textContent = sentence;
}

export function draw() {
  state.sides.forEach((now, side) => {
    const image = part(side, ".frame img");
    if (image.getAttribute("src") !== now.url && now.url) image.src = now.url;
    image.hidden = !now.url;
    part(side, ".empty").hidden = Boolean(now.url);
    const count = now.points.length;
    const points = `${count || "no"} point${count === 1 ? "" : "s"}${now.box ? " and a box" : ""}`;
    const hint = now.mode === "box" ? "drag a box around the object" : count ? "" : "click to place points";
    part(side, ".note").textContent = now.file ? [`${now.name}, ${now.width} x ${now.height}`, points, hint].filter(Boolean).join(" · ") : "";
    part(side, ".box").setAttribute("aria-pressed", now.mode === "box");
    articles[side].classList.toggle("boxing", now.mode === "box");
    for (const button of [".pointsFile", ".box", ".clear"]) part(side, button).disabled = !now.file;
  });
}

// Pictures and points from files: chosen, dropped, pasted, or the samples.

import { $, announce, make, plural } from "./dom.js";
import { item } from "./menus.js";
import { toast } from "./messages.js";
import { openReference, openTarget } from "./pair_acts.js";
import { look } from "./pair_look.js";
import { changed, edit, reference, state } from "./pair_state.js";
import { get, pictureOf, send } from "./server.js";
import { fileSource } from "./tiles.js";

const MAX_FILE = 25e6; // bytes, as the server has it
let numbered = 0;
let samples = [];

// The server reads a picture, so that every format works that it knows, and gives a copy that every browser can show.
async function describe(file) {
  if (file.size > MAX_FILE) throw new Error(`${file.name} has ${Math.round(file.size / 1e6)} MB; expected at most ${MAX_FILE / 1e6} MB.`);
  const { name, width, height, preview } = await send("picture", [file]);
  const id = `p${++numbered}`;
  const copy = pictureOf(preview);
  return {
    id, file, name, width, height, small: URL.createObjectURL(copy), source: fileSource(id, { width, height, file, copy })
  };
}

async function add(side, file, box = null) {
  const picture = await describe(file);
  if (side) state.targets.push(picture);
  else state.references.push({ picture, used: true, box });
  return picture;
}

const isPoints = (file) => /\.(json|csv|tps|txt|yaml|yml)$/i.test(file.name);

// Files for a side: pictures are added, and the first of them is shown; a points file is laid on the reference.
export async function take(side, files) {
  for (const [k, file] of [...files].entries()) {
    try {
      if (isPoints(file)) await takePoints(file);
      else {
        await add(side, file);
        if (!k) side ? openTarget(state.targets.length - 1) : openReference(state.references.length - 1);
      }
    } catch (error) {
      toast(error.message);
    }
    changed();
  }
  look();
}

async function takePoints(file) {
  if (!reference()) throw new Error("Add a reference first: the points are placed on it.");
  const { images } = await send("points", [file]);
  const chosen = images.find(({ image }) => image.split(/[\\/]/).pop() === reference().name) ?? images[0];
  lay(chosen, reference(), file.name);
  openReference(state.shown);
  toast(`${plural(chosen.keypoints.length, "point")} from ${file.name}.`);
}

// Points of a file on a picture: those of a name that is known are moved there, others are new.
function lay({ keypoints }, picture, called) {
  const outside = keypoints.find(({ x, y }) => !(x >= 0 && y >= 0 && x <= picture.width && y <= picture.height));
  if (outside) throw new Error(`${called}: ${outside.name} is at (${outside.x}, ${outside.y}), outside the picture of ${picture.width} x ${picture.height} pixels.`);
  edit(`Points of ${called}`, () => {
    for (const { name, x, y, visible } of keypoints) {
      if (visible === false) continue;
      let point = state.points.find((known) => known.name === name);
      if (!point) state.points.push(point = { id: ++state.numbered, name, marks: {} });
      point.marks[picture.id] = { x, y, from: "person" };
    }
  });
}

async function sampleFile(sample) {
  const blob = await fetch(sample.url).then((answer) => answer.blob());
  return new File([blob], sample.image, { type: blob.type });
}

// The page opens with a reference whose points are known, and pictures in which they are found.
export async function begin() {
  samples = await get("samples").catch(() => []);
  const [first, ...others] = samples;
  if (!first) return;
  lay(first, await add(0, await sampleFile(first), first.box), first.title);
  openReference(0);
  for (const other of others) await add(1, await sampleFile(other));
  openTarget(0);
}

async function takeSample(side, sample) {
  const picture = await add(side, await sampleFile(sample), side ? null : sample.box);
  if (!side) lay(sample, picture, sample.title);
  side ? openTarget(state.targets.length - 1) : openReference(state.references.length - 1);
  look();
}

// The menu behind *Add* of a side.
export function fillAdd(side, list) {
  const choose = (kind) => () => { $("#file").dataset.side = side; $("#file").accept = kind; $("#file").click(); };
  list.replaceChildren(
    item("Photographs…", "They can be dropped or pasted as well", choose("image/*,.tif,.tiff,.jp2")),
    ...(side ? [] : [item(
      "Points from a file…", "COCO, CSV, NormMatch and others, for the reference that is shown", choose("")
    )]),
    make("hr"), make("h2", {}, "Samples"),
    ...samples.map((sample) => item(
      sample.title, null, () => takeSample(side, sample).catch((error) => toast(error.message)), { "data-sample": sample.title }
    )));
}

export function listenFiles(sides) {
  $("#file").addEventListener("change", (event) => {
    const files = [...event.target.files];
    event.target.value = ""; // the same file may be chosen again
    take(Number(event.target.dataset.side), files);
  });
  sides.forEach((element, side) => {
    element.addEventListener("dragover", (event) => { event.preventDefault(); element.classList.add("dropping"); });
    element.addEventListener("dragleave", () => element.classList.remove("dropping"));
    element.addEventListener("drop", (event) => drop(event, element, side));
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    announce("Pasted");
    take(state.references.length ? 1 : 0, files);
  });
}

function drop(event, element, side) {
  event.preventDefault();
  element.classList.remove("dropping");
  const folder = [...event.dataTransfer.items].some((one) => one.webkitGetAsEntry?.()?.isDirectory);
  if (folder) toast("This is a folder; `normmatch label FOLDER` opens one. Expected pictures or a points file.");
  else if (event.dataTransfer.files.length) take(side, event.dataTransfer.files);
  else toast("Only files can be dropped here; save the picture first.");
}

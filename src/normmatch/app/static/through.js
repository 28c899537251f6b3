// One landmark in all photographs: crops, the least certain first, all turned the same way. A click puts it there.

import { byHand, certaintyOf, isPlaced, isProposed, lookOf } from "./certainty.js";
import { fromCrop, paintCrop } from "./crops.js";
import { $, make, stemOf } from "./dom.js";
import { editPhoto } from "./edits.js";
import { open } from "./going.js";
import { paintMark } from "./marks.js";
import { toast } from "./messages.js";
import { poseOf } from "./poses.js";
import { changed, sourceOf, state } from "./project.js";
import { sign } from "./signs.js";

const SHARE = 0.36; // of the animal's length

let shown = null; // the landmark whose crops are there; their order stays while they are looked at
const kept = new WeakMap(); // of a crop: {photo, centre, side, angle}
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.seen = isIntersecting;
    if (isIntersecting) drawCrop(target);
  }
}, { rootMargin: "150px" });

export function showThrough() {
  if (state.chosen == null) return toast("Choose a landmark first: press its key, or click its mark.");
  state.view = "through";
  shown = null;
  changed();
  requestAnimationFrame(() => $("#crops").firstElementChild?.focus({ preventScroll: true }));
}

export function closeThrough() {
  state.view = "photo";
  shown = null;
  changed();
  $("#frame").focus({ preventScroll: true });
}

export function drawThrough() {
  const on = state.view === "through" && state.chosen != null;
  $("#through").hidden = !on;
  if (!on) return $("#crops").replaceChildren();
  $("#throughTitle").textContent = `${state.chosen} in all photographs`;
  if (shown !== state.chosen) {
    shown = state.chosen;
    watcher.disconnect();
    const list = state.photographs.filter((photo) => photo.points[shown] && sourceOf(photo)).sort(leastFirst);
    $("#crops").replaceChildren(...list.map(makeCrop));
    $("#crops").firstElementChild?.setAttribute("tabindex", 0); // one stop of Tab; the arrows go on
  }
  for (const crop of $("#crops").children) if (crop.seen) drawCrop(crop);
}

function leastFirst(a, b) {
  const [one, other] = [a.points[shown], b.points[shown]];
  return isProposed(other) - isProposed(one) || (isProposed(one) ? certaintyOf(one) - certaintyOf(other) : 0) || a.number - b.number;
}

function makeCrop(photo) {
  const mark = photo.points[shown];
  const { angle, long } = poseOf(photo);
  const centre = mark.x == null ? middleOf(photo) : { x: mark.x, y: mark.y };
  const canvas = make("canvas", { "aria-hidden": "true", onclick: (event) => putAt(photo, canvas, event) });
  const crop = make(
    "li", { class: "crop", role: "option", tabindex: -1, onkeydown: (event) => pressKey(photo, event) }, canvas, make("p")
  );
  kept.set(crop, { photo, centre, side: long * SHARE, angle });
  kept.set(canvas, kept.get(crop));
  watcher.observe(crop);
  return crop;
}

// Where to look for a landmark of which nothing is known in this photograph.
function middleOf(photo) {
  const points = Object.values(photo.points).filter(isPlaced);
  if (!points.length) return { x: photo.width / 2, y: photo.height / 2 };
  const mean = (axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length;
  return { x: mean("x"), y: mean("y") };
}

function drawCrop(crop) {
  const { photo, centre, side, angle } = kept.get(crop);
  const mark = photo.points[shown];
  const look = lookOf(mark);
  const canvas = crop.firstChild;
  crop.setAttribute("aria-label", `${photo.file}, ${look.text}`);
  crop.classList.toggle("gone", Boolean(mark?.absent));
  $("p", crop).replaceChildren(
    sign(look.shape), make("b", { class: look.band }, look.text), make("span", {}, stemOf(photo.file))
  );
  paintCrop(canvas, sourceOf(photo), centre, side, angle, (context, toCrop) => {
    if (!isPlaced(mark)) return;
    const { x, y } = toCrop(mark);
    paintMark(context, x, y, look.shape, { hovered: true });
  });
}

function set(photo, at) {
  const name = state.chosen;
  editPhoto(
    photo, `${name} ${at.absent ? "absent" : "moved"} in ${photo.file}`, name, { [name]: byHand(photo.points[name], at) }
  );
}

function putAt(photo, canvas, event) {
  const { centre, side, angle } = kept.get(canvas);
  const box = canvas.getBoundingClientRect();
  const at = fromCrop(canvas, { x: event.clientX - box.left, y: event.clientY - box.top }, centre, side, angle);
  if (at.x < 0 || at.y < 0 || at.x > photo.width || at.y > photo.height) return;
  set(photo, at);
}

function pressKey(photo, event) {
  const crop = event.currentTarget;
  const across = Math.max(1, Math.round(crop.parentElement.clientWidth / (crop.offsetWidth + 12)));
  const all = [...crop.parentElement.children];
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
  const to = step && all[all.indexOf(crop) + step];
  if (to) {
    [crop.tabIndex, to.tabIndex] = [-1, 0];
    to.focus();
  } else if (step) crop.focus();
  else if (event.key === "a" && state.singleKeys) set(photo, { absent: true });
  else if (event.key === "Enter") {
    const name = state.chosen;
    closeThrough();
    open(photo);
    state.chosen = name;
  } else return;
  event.preventDefault();
  event.stopPropagation();
}


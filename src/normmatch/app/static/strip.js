// The photographs below the one in view: filters, which are the legend of the signs too, and thumbnails, drawn only where
// they are seen.

import { isPlaced, lookOf } from "./certainty.js";
import { $, make, stemOf } from "./dom.js";
import { FILTERS, filter, open, resort } from "./going.js";
import { HALO, ON_PHOTO } from "./marks.js";
import { changed, current, marksOf, shortOf, slipsIn, state, stateOf, thumbOf } from "./project.js";
import { sign } from "./signs.js";

const SIGNS = { slips: "slip", unsure: "unsure", untouched: "unset", absent: "absent", reviewed: "reviewed" };
const ALWAYS = ["open", "all", "reviewed"];
const LONGER = 320; // pixels of a thumbnail as the server makes it

export function drawFilters() {
  const box = $("#filters");
  if (!box.children.length) box.append(...Object.entries(FILTERS).map(([name, [text]]) =>
    make(
      "button", { type: "button", class: "chip", role: "radio", "data-filter": name, onclick: () => filter(name) },
      SIGNS[name] ? sign(SIGNS[name]) : null, text, make("b")
    )));
  for (const chip of box.children) {
    const name = chip.dataset.filter;
    const count = String(state.photographs.filter(FILTERS[name][1]).length);
    if (chip.lastChild.textContent !== count) chip.lastChild.textContent = count;
    chip.setAttribute("aria-checked", name === state.filter);
    chip.tabIndex = name === state.filter ? 0 : -1;
    chip.hidden = count === "0" && name !== state.filter && !ALWAYS.includes(name);
  }
}

const photoOf = new WeakMap(); // of a thumbnail
const seen = new Set(); // thumbnails in sight
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target);
    else seen.delete(target);
    if (isIntersecting) drawThumb(target);
  }
}, { rootMargin: "200px" });

export function drawThumbs() {
  const list = $("#thumbs");
  const wanted = state.order.map((photo) => (photo.thumb ??= makeThumb(photo)));
  const same = wanted.length === list.children.length && wanted.every((thumb, k) => list.children[k] === thumb);
  if (!same) {
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    list.replaceChildren(...wanted);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
  }
  if (!wanted.length) list.replaceChildren(make("li", { class: "empty" }, "No photograph is like that."));
  const stop = state.order.includes(current()) ? current() : state.order[0]; // the one stop of Tab
  for (const photo of state.order) {
    photo.thumb.setAttribute("aria-selected", photo === current());
    photo.thumb.tabIndex = photo === stop ? 0 : -1;
  }
  for (const thumb of seen) if (thumb.isConnected) drawThumb(thumb);
}

function makeThumb(photo) {
  const shape = Math.max(photo.width, photo.height) / LONGER;
  const canvas = make("canvas", { width: Math.round(photo.width / shape), height: Math.round(photo.height / shape) });
  const thumb = make(
    "li", { class: "thumb", role: "option", "aria-label": photo.file, onclick: () => { open(photo); mosaic(false); } }, canvas,
    make("p")
  );
  photoOf.set(thumb, photo);
  watcher.observe(thumb);
  return thumb;
}

function drawThumb(thumb) {
  const photo = photoOf.get(thumb);
  const look = slipsIn(photo).length ? { ...stateOf(photo), glyph: "slip", band: "doubt" } : stateOf(photo);
  const wide = state.view === "mosaic";
  const words = `${photo.file}, ${look.words}`;
  const now = `${words} ${look.glyph} ${look.text} ${wide}`;
  if (thumb.dataset.shown !== now) {
    thumb.dataset.shown = now;
    thumb.setAttribute("aria-label", words);
    thumb.title = words;
    thumb.classList.toggle("done", photo.reviewed);
    $("p", thumb).replaceChildren(
      sign(look.glyph), make("b", { class: look.band }, look.text), make("span", {}, wide ? stemOf(photo.file) : shortOf(photo))
    );
  }
  paintThumb(thumb.firstChild, photo);
}

// The small photograph once it is there, and a dot for each point, when they have changed.
function paintThumb(canvas, photo) {
  if (!photo.small && !state.missing[photo.file]) {
    photo.small = new Image();
    photo.small.onload = () => { photo.painted = null; paintThumb(canvas, photo); };
    photo.small.src = thumbOf(photo);
  }
  if (!photo.small?.complete || photo.painted === photo.points) return;
  photo.painted = photo.points;
  const context = canvas.getContext("2d");
  if (photo.small.naturalWidth) context.drawImage(photo.small, 0, 0, canvas.width, canvas.height);
  for (const mark of marksOf(photo)) {
    if (!isPlaced(mark)) continue;
    context.beginPath();
    context.arc((mark.x * canvas.width) / photo.width, (mark.y * canvas.height) / photo.height, 4.2, 0, 7);
    context.fillStyle = ON_PHOTO[lookOf(mark).shape];
    context.strokeStyle = HALO;
    context.lineWidth = 2;
    context.fill();
    context.stroke();
  }
}

// All photographs at once, in place of the one in view.
export function mosaic(on = state.view !== "mosaic") {
  if (on === (state.view === "mosaic")) return;
  state.view = on ? "mosaic" : "photo";
  if (on) state.filter = "all";
  else if (state.filter === "all") state.filter = "open";
  resort();
  changed();
}

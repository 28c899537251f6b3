// The list of points, and the chosen one enlarged in both pictures.

import { certaintyOf, isPlaced, isProposed, lookOf } from "./certainty.js";
import { paintCrop } from "./crops.js";
import { $, isPhone, make, percent, plural, stemOf } from "./dom.js";
import { paintMark } from "./marks.js";
import { choose, markAbsent, remove, rename } from "./pair_acts.js";
import { frames, hover, onHover } from "./pair_sides.js";
import { KEYS, canUndo, chosen, isReference, markOn, reference, state, target, uncertainIn, used } from "./pair_state.js";
import { angleBetween, lengthOf } from "./poses.js";
import { sign } from "./signs.js";

export function drawPanel() {
  const uncertain = uncertainIn(target());
  const some = state.points.length > 0;
  $("#count").textContent = some && target() && !state.looking.size ? (uncertain ? `${uncertain} uncertain` : isReference(target()) ? "" : "all sure") : "";
  $("#empty").hidden = some;
  for (const id of ["#clear", "#keep"]) $(id).disabled = !some || (id === "#keep" && !target());
  drawRows();
  $("#footUndo").disabled = !canUndo();
  $("#footAbsent").disabled = !chosen();
  $("#keep").replaceChildren(isPhone.matches ? "Keep, next" : "Keep as a reference, next", make("kbd", {}, "Enter"));
  drawDetail();
}

const looksNow = (point) => (state.looking.has(point.id) ? {
  shape: "unset", band: "", text: "looking…"
} : lookOf(markOn(point, target())));

let scrolled = null;

function drawRows() {
  const list = $("#rows");
  const had = list.contains(document.activeElement);
  list.replaceChildren(...state.points.map((point, k) => {
    const look = looksNow(point);
    const first = state.chosen == null && !k;
    return make("li", {
      class: "row", role: "option", "data-id": point.id, "aria-selected": point.id === state.chosen,
      tabindex: point.id === state.chosen || first ? 0 : -1,
      onclick: () => { choose(point.id); frames[1].focus({ preventScroll: true, focusVisible: false }); },
      onpointerenter: () => hover(point.id), onpointerleave: () => hover(null),
    }, make(
      "kbd", { "aria-hidden": "true" }, (KEYS[k] ?? "").toUpperCase()
    ), make("span", {}, sign(look.shape)), make("span", { class: "name" }, point.name), make(
      "span", { class: `value ${look.band}` }, look.text
    ));
  }));
  const lit = list.querySelector("[aria-selected=true]");
  if (had) lit?.focus({ preventScroll: true });
  if (scrolled === state.chosen) return;
  scrolled = state.chosen;
  if (lit && isPhone.matches) list.scrollLeft = lit.offsetLeft - (innerWidth - lit.offsetWidth) / 2;
  else lit?.scrollIntoView({ block: "nearest" });
}

onHover((id) => {
  for (const row of $("#rows").children) row.classList.toggle("hovered", Number(row.dataset.id) === id);
});

function wordsOf(point, mark) {
  if (state.looking.has(point.id)) return "Looking…";
  if (!mark) return used().length ? "It is on none of the references in use." : "No reference is in use.";
  if (mark.from === "person") {
    if (mark.absent) return "You marked it absent.";
    return isPlaced(mark.was) ? `Set by you, ${Math.round(Math.hypot(mark.x - mark.was.x, mark.y - mark.was.y))} px from where it was found.` : "Set by you.";
  }
  if (mark.absent) return `Probably not in this picture (${percent(certaintyOf(mark))}).`;
  const known = used().filter((one) => isPlaced(markOn(point, one.picture))).length;
  return `Probably within ${Math.round(mark.spread)} px, from ${plural(known, "reference")}.`;
}

let shown = "";

function drawDetail() {
  const [box, point] = [$("#detail"), chosen()];
  if (isPhone.matches) return;
  const mark = point && markOn(point, target());
  const now = JSON.stringify([
    point?.id, point?.name, mark, markOn(point, reference()), state.looking.has(point?.id), target()?.id, reference()?.id,
    used().length, state.points.length > 0
  ]);
  if (now === shown) return; // what has the focus keeps it
  shown = now;
  if (!point) return box.replaceChildren(make(
    "p", { class: "origin" }, state.points.length ? "Choose a point to see it in both pictures, enlarged." : ""
  ));
  const look = looksNow(point);
  const name = make(
    "input",
    {
      class: "field name-field", value: point.name, maxlength: 60, spellcheck: "false", "aria-label": "Name of the point",
      onchange: (event) => rename(point, event.target.value)
    }
  );
  const share = isProposed(mark) && !state.looking.has(point.id) ? percent(certaintyOf(mark)) : "";
  box.replaceChildren(
    make("h3", {}, sign(look.shape), name, make("output", { class: look.band }, share)),
    make("p", { class: "origin" }, wordsOf(point, mark)),
    make("div", { class: "looks" }, figure(point, reference(), "reference", 0), figure(point, target(), "here", 1)),
    make("div", { class: "acts" },
      make("button", { type: "button", class: "button", onclick: markAbsent }, "Absent", make("kbd", {}, "A")),
      make("button", { type: "button", class: "button", onclick: remove }, "Remove", make("kbd", {}, "Del"))));
}

// The right crop is turned as the left one lies.
function figure(point, picture, caption, side) {
  const canvas = make("canvas", { role: "img", "aria-label": `${point.name} in ${picture?.name ?? "no picture"}` });
  const mark = markOn(point, picture);
  if (isPlaced(mark) && !(side && state.looking.has(point.id))) requestAnimationFrame(() => {
    const places = (of) => state.points.map((one) => (isPlaced(markOn(one, of)) ? markOn(one, of) : null));
    const long = lengthOf(places(picture)) || Math.max(picture.width, picture.height) / 2;
    const angle = side && reference() ? angleBetween(places(picture), places(reference())) : 0;
    paintCrop(
      canvas, picture.source, mark, long * 0.3, angle,
      (context) => paintMark(context, canvas.clientWidth / 2, canvas.clientHeight / 2, lookOf(mark).shape)
    );
  });
  return make("figure", {}, canvas, make("figcaption", {}, picture ? `${caption}, ${stemOf(picture.name)}` : caption));
}

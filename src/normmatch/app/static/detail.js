// The chosen landmark: how certain and whence, enlarged here and in the two most alike reviewed photographs, all turned
// the same way, so that twelve clicks stay the same twelve places all afternoon; its coordinates as fields.

import { exchange, looksExchanged, markAbsent } from "./acts.js";
import { byHand, certaintyOf, isPlaced, isProposed, lookOf } from "./certainty.js";
import { paintCrop } from "./crops.js";
import { $, clamp, isPhone, make, percent, stemOf } from "./dom.js";
import { editPhoto } from "./edits.js";
import { paintMark } from "./marks.js";
import { originOf } from "./panel.js";
import { poseOf } from "./poses.js";
import { current, pairOf, referencesFor, reviewed, sourceOf, state, step } from "./project.js";
import { sign } from "./signs.js";
import { showThrough } from "./through.js";

const LEGEND = [
  ["sure", "sure: 80\u202f% and more"], ["unsure", "uncertain: 50 to 80\u202f%"], ["doubt", "doubtful: below 50\u202f%"],
  ["person", "set by you"],
  ["kept", "proposed, and kept by you"], ["absent", "not in the picture"], ["slip", "far from where the others have it"],
];

let shown = ""; // what the fields and buttons were made for: they are made anew only when that changes

export function drawDetail() {
  const [photo, name, box] = [current(), state.chosen, $("#detail")];
  if (!photo || isPhone.matches || step() === "names") return;
  const mark = name == null ? null : (photo.points[name] ?? null);
  const now = JSON.stringify([photo.file, name, mark, name && looksExchanged(photo, name), pairOf(name), reviewed().length]);
  if (now === shown && box.children.length) return;
  shown = now;
  if (name == null) return box.replaceChildren(
    make("h3", {}, "Signs"), make("ul", { class: "legend" }, ...LEGEND.map(([drawn, text]) => make("li", {}, sign(drawn), text)))
  );
  const held = box.contains(document.activeElement) ? [...box.querySelectorAll("input, button")].indexOf(document.activeElement) : -1;
  const look = lookOf(mark);
  box.replaceChildren(
    make(
      "h3", {}, sign(look.shape), name, make("output", { class: look.band }, isProposed(mark) ? percent(certaintyOf(mark)) : "")
    ),
    make("p", { class: "origin" }, originOf(photo, name)),
    looksOf(photo, name, mark), placeOf(photo, name, mark), actsOf(photo, name),
  );
  if (held >= 0) box.querySelectorAll("input, button")[held]?.focus(); // the same control keeps the focus
}

function looksOf(photo, name, mark) {
  const row = make("div", { class: "looks" });
  const others = referencesFor(photo, name);
  for (const other of isPlaced(mark) ? [photo, ...others] : others) {
    const canvas = make("canvas", { role: "img", "aria-label": `${name} in ${other.file}` });
    row.append(make(
      "figure", { class: other === photo ? "here" : "" }, canvas,
      make("figcaption", {}, other === photo ? "here" : stemOf(other.file))
    ));
    requestAnimationFrame(() => cropInto(canvas, other, name));
  }
  return row;
}

function cropInto(canvas, photo, name) {
  const mark = photo.points[name];
  if (!canvas.isConnected || !isPlaced(mark)) return;
  const { angle, long } = poseOf(photo);
  paintCrop(canvas, sourceOf(photo), mark, long * 0.24, angle, (context) => {
    paintMark(context, canvas.clientWidth / 2, canvas.clientHeight / 2, lookOf(mark).shape);
  });
}

function placeOf(photo, name, mark) {
  const placed = isPlaced(mark);
  const input = (axis, most) => make("input", {
    class: "field", type: "number", step: "0.1", min: 0, max: most, value: placed ? mark[axis].toFixed(1) : "", disabled: !placed,
    "aria-label": `${axis} in pixels`,
    onchange(event) {
      const value = event.target.valueAsNumber;
      if (Number.isFinite(value)) editPhoto(
        photo, `${name} moved`, name, { [name]: byHand(mark, { ...mark, [axis]: clamp(value, 0, most) }) }
      );
      else event.target.value = mark[axis].toFixed(1);
    },
  });
  return make(
    "div", { class: "place" }, make("label", {}, "x", input("x", photo.width)), make("label", {}, "y", input("y", photo.height)),
    make("span", { class: "soft" }, "px")
  );
}

function actsOf(photo, name) {
  const act = (text, key, run, off = false, lit = false) =>
    make(
      "button", { type: "button", class: `button${lit ? " lit" : ""}`, onclick: run, disabled: off }, text, make("kbd", {}, key)
    );
  return make("div", { class: "acts" },
    act("Absent", "A", markAbsent),
    act("Exchange", "X", exchange, pairOf(name) == null, !photo.reviewed && looksExchanged(photo, name)),
    act("In all", "G", showThrough));
}

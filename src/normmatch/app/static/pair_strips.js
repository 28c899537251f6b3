// Above each picture: what it is, and the others there are; below the right one, what is not in it.

import { bandOf, certaintyOf, isProposed, lookOf } from "./certainty.js";
import { $, isPhone, make, percent, plural, shortened, stemOf } from "./dom.js";
import { choose, openReference, openTarget, use } from "./pair_acts.js";
import { changed, isReference, markOn, reference, state, target, uncertainIn, used } from "./pair_state.js";
import { sign } from "./signs.js";

export function drawHeads() {
  const [left, right] = [reference(), target()];
  const called = (picture) => (isPhone.matches ? stemOf(picture.name) : picture.name);
  $("#about0").textContent = left ? `${called(left)}${state.references.length > 1 ? `, ${state.shown + 1} of ${state.references.length}` : ""}` : "none yet";
  $("#about1").replaceChildren(...(right ? [make("span", {}, called(right)), ...stateWords(right)] : ["none yet"]));
  for (const [side, picture, list] of [[0, left, state.references], [1, right, state.targets]]) {
    $(`#frame${side}`).setAttribute("aria-label", picture ? `${picture.name}, ${side ? "found" : "reference"}` : "No picture");
    for (const button of document.querySelectorAll(`#turn${side} .turn`)) button.disabled = list.length < 2;
    $(`#hint${side}`).hidden = Boolean(picture) && state.points.length > 0;
    $(`#fit${side}`).disabled = !picture;
  }
  $("#hint0").textContent = left ? "Click a point here: an eye, a corner, a tip" : "Drop or paste a photograph here, or press Add";
  $("#hint1").textContent = right ? "It is found here, with its certainty" : "Drop the photographs to look in here, or press Add";
  $("#note0").textContent = used().length > 1 ? `${plural(used().length, "reference")} in use: the more alike, the more one counts` : "";
  drawTray(right);
  drawPulse();
}

function stateWords(picture) {
  if (isReference(picture)) return [sign("reviewed"), "a reference"];
  const marks = state.points.map((point) => markOn(point, picture)).filter(Boolean);
  if (state.looking.size || !marks.length) return state.looking.size ? [sign("unset"), "looking…"] : [];
  const uncertain = uncertainIn(picture);
  return uncertain ? [sign("unsure"), `${uncertain} uncertain`] : [sign("sure"), "all sure"];
}

function drawTray(picture) {
  const absent = picture ? state.points.filter((point) => markOn(point, picture)?.absent && !state.looking.has(point.id)) : [];
  const words = absent.length ? "Not in the picture:" : picture && state.points.length && !state.looking.size ? "Nothing is missing from the picture" : "";
  $("#tray").replaceChildren(make("span", { class: "small" }, words), ...absent.map((point) => {
    const mark = markOn(point, picture);
    const share = isProposed(mark) ? make("b", { class: lookOf(mark).band }, percent(certaintyOf(mark))) : null;
    return make(
      "button",
      {
        type: "button", class: "chip", "aria-pressed": point.id === state.chosen, title: "Choose it, then click where it is",
        onclick: () => choose(point.id)
      },
      sign("absent"), point.name, share
    );
  }));
}

// While a point is looked for a ring beats in the middle of the right picture: the one thing that moves by itself.
function drawPulse() {
  const frame = $("#frame1");
  const there = frame.querySelector(".pulse");
  if (state.looking.size && !there) frame.append(make("div", { class: "pulse", "aria-hidden": "true" }));
  if (!state.looking.size) there?.remove();
}

export function drawThumbs() {
  const share = state.shares[target()?.id];
  const [known, others] = [
    state.references.map((one) => one.picture), state.targets
  ].map((list) => list.map(({ name }) => stemOf(name)));
  fill($("#references"), state.references.map((one, k) => {
    const counted = share?.[one.picture.id];
    const box = make(
      "input",
      {
        type: "checkbox", checked: one.used, "aria-label": `Use ${one.picture.name}`,
        onchange: (event) => { use(one, event.target.checked); changed(); }
      }
    );
    const label = make(
      "label",
      { class: "use", title: "How much it counts for the picture on the right", onclick: (event) => event.stopPropagation() },
      box, make("b", {}, one.used ? (counted == null ? "" : percent(counted)) : "off")
    );
    const thumb = thumbOf(one.picture, known, k === state.shown, () => openReference(k), label);
    thumb.classList.toggle("unused", !one.used);
    return thumb;
  }));
  fill($("#targets"), state.targets.map((picture, k) => {
    const marks = state.points.map((point) => markOn(point, picture)).filter(isProposed);
    const least = Math.min(1, ...marks.map(certaintyOf));
    const kept = isReference(picture);
    const drawn = kept ? "reviewed" : marks.length ? bandOf(least) : "unset";
    const number = marks.length && !kept ? make("b", { class: bandOf(least) }, percent(least)) : null;
    return thumbOf(picture, others, picture === target(), () => openTarget(k), sign(drawn), number);
  }));
}

function thumbOf(picture, stems, selected, run, ...caption) {
  const image = make("img", { src: picture.small, alt: "", draggable: "false" });
  return make("li", {
    class: "thumb", role: "option", "aria-selected": selected, "aria-label": picture.name, title: picture.name,
    tabindex: selected ? 0 : -1, onclick: run
  },
    image, make("p", {}, ...caption.filter(Boolean), make("span", {}, shortened(stemOf(picture.name), stems))));
}

// The list anew, with the focus where it was.
function fill(list, thumbs) {
  const at = [...list.children].findIndex((child) => child.contains(document.activeElement));
  const box = document.activeElement?.matches?.("input");
  list.replaceChildren(...thumbs);
  const there = at >= 0 && list.children[at];
  if (there) (box ? there.querySelector("input") : there)?.focus({ preventScroll: true });
}

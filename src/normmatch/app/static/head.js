// Above and below the photograph: what is saved, what is left, why this photograph is in view, what is absent from it.

import { certaintyOf, isProposed, lookOf } from "./certainty.js";
import { choose, exchange } from "./acts.js";
import { $, button, isPhone, make, percent, plural } from "./dom.js";
import { canRedo, canUndo } from "./edits.js";
import { resort } from "./going.js";
import {
  checksIn, counts, current, isDone, isUntouched, keptShare, pairOf, reviewed, slipsIn, state, stateOf, step, toCheck, unsetIn
} from "./project.js";
import { proposeWords } from "./proposing.js";
import { icon, sign } from "./signs.js";

export function drawTop() {
  $("#name").textContent = state.name;
  document.title = `${state.name} · NormMatch`;
  drawSaved();
  drawProgress();
  drawJob();
}

function drawSaved() {
  const waits = !state.waiting ? "Not connected" : isPhone.matches ? `${state.waiting} unsaved` : `${plural(state.waiting, "change")} not saved yet`;
  const [drawn, words] = {
    saved: ["save", "Saved"], saving: ["busy", "Saving…"], waiting: ["warn", waits], stopped: ["warn", "Not saving"]
  }[state.saving];
  const box = $("#saved");
  if (box.textContent === words) return;
  box.className = `saved ${state.saving}`;
  box.replaceChildren(icon(drawn), words);
  box.title = `Project file, revision ${state.revision}`;
}

function drawProgress() {
  const total = state.photographs.length;
  const count = counts();
  $("#leftCount").textContent = total && count.reviewed === total ? "All reviewed" : `${total - count.reviewed} to review`;
  const { share } = keptShare();
  $("#leftWords").textContent = `${count.reviewed} of ${total} reviewed${share == null ? "" : `, ${percent(share)} of proposals kept`}`;
  const meter = $("#meter");
  if (!meter.children.length) meter.append(...Object.keys(count).map((name) => make("i", { class: name })));
  for (const part of meter.children) {
    part.style.flexGrow = count[part.className];
    part.hidden = !count[part.className];
  }
  const words = `${count.reviewed} reviewed, ${count.sure} proposed and sure, ${count.unsure} with uncertain points, ${count.unset} not proposed`;
  meter.setAttribute("aria-label", words);
  meter.title = words;
}

function drawJob() {
  const { job } = state;
  const shown = job && job.kind !== "renew"; // that one runs beside the work
  $("#job").hidden = !shown;
  $("#proposing").hidden = Boolean(shown);
  if (shown) {
    const words = job.kind === "improve" ? "Improving" : "Proposing";
    $("#job span").textContent = `${isPhone.matches ? "" : `${words}: `}${job.done} of ${job.total}`;
    $("#job progress").value = job.total ? job.done / job.total : 0;
    $("#job progress").setAttribute("aria-label", words);
  }
  const at = step();
  const words = state.engine.ready || state.engine.error ? proposeWords(at) : "Getting ready…";
  const propose = $("#propose");
  if (propose.dataset.words !== words) {
    propose.dataset.words = words;
    propose.replaceChildren(icon("propose"), words, make("kbd", {}, "P"));
  }
  propose.classList.toggle("primary", at === "ready");
  propose.disabled = (Boolean(at) && at !== "ready") || !(state.engine.ready || state.engine.error);
  propose.title = state.engine.error ?? "";
}

// Why this photograph is in view, in one line.
function reasonFor(photo) {
  const unset = unsetIn(photo).length;
  const all = state.landmarks.length;
  if (state.missing[photo.file]) return [sign("slip"), make("span", {}, state.missing[photo.file])];
  if (slipsIn(photo).length) return slipReason(slipsIn(photo));
  if (photo.reviewed && !unset) {
    const mine = Object.values(photo.points).filter((mark) => mark.from === "person").length;
    return [sign("reviewed"), mine === all ? "Reviewed: all set by you" : `Reviewed: ${all - mine} kept, ${mine} set by you`];
  }
  if (isUntouched(photo)) return [sign("unset"), "Not proposed yet"];
  if (unset) return [sign("unset"), `${all - unset} of ${all} set`];
  const checks = toCheck(photo).filter((name) => isProposed(photo.points[name]));
  if (checks.length) {
    const worst = lookOf(photo.points[checks[0]]);
    const least = isPhone.matches ? [] : [", the least: ", make("b", {}, checks[0]), ` ${worst.text}`];
    return [sign(worst.band || "unsure"), make("span", {}, `${checks.length} uncertain`, ...least)];
  }
  if (checksIn(photo).length) return [sign("copied"), "Copied: move the points to their places"];
  if (Object.values(photo.points).every((mark) => mark.from === "person")) return [sign("person"), "All set by you. Look, then accept."];
  return [sign("sure"), "All are sure. Look, then accept."];
}

// What looks like a slip: an exchange is offered to be undone, everything else is the server's sentence.
function slipReason(slips) {
  const swapped = slips.find(({ kind, landmark, other }) => kind === "exchanged" && landmark && pairOf(landmark) === other);
  const far = slips.filter(({ kind }) => kind === "far").map(({ landmark }) => landmark);
  if (swapped) {
    const { landmark, other } = swapped;
    const put = () => { choose(landmark); exchange(); resort(); };
    return [
      sign("slip"), make("span", {}, "Possible slip: ", make("b", {}, `${landmark}, ${other}`), " look exchanged."),
      button("Exchange them", put, { class: "chip" })
    ];
  }
  if (far.length) return [
    sign("slip"), make("span", {}, "Possible slip: ", make("b", {}, far.join(", ")), " far from where the others have it.")
  ];
  const words = slips[0].why ?? `${slips[0].landmark ?? "The points"} ${slips[0].kind}.`;
  return [sign("slip"), make("span", { title: words }, "Possible slip: ", words)];
}

function questionFor(photo) {
  const [unset, all] = [unsetIn(photo).length, state.landmarks.length];
  const name = state.chosen[0].toLowerCase() + state.chosen.slice(1);
  const words = make(
    "span", {}, `${isPhone.matches ? "Tap" : "Click"} the `, make("b", {}, /^.[A-Z0-9]/.test(state.chosen) ? state.chosen : name)
  );
  const rest = isPhone.matches ? [] : [make("i", {}, "Not visible?"), make("kbd", {}, "A")];
  return [words, make("i", {}, `${all - unset + 1} of ${all}`), ...rest];
}

let said = "";

export function drawHead() {
  const photo = current();
  for (const id of ["#undo", "#footUndo"]) $(id).disabled = !canUndo();
  $("#redo").disabled = !canRedo();
  $("#back").disabled = !state.visited.length;
  $("#useNewer").hidden = !state.newer;
  if (!photo) return;
  $("#fileName").textContent = photo.file;
  $("#fileName").title = `${photo.width} × ${photo.height} pixels`;
  $("#frame").setAttribute("aria-label", `${photo.file}, ${stateOf(photo).words}`);
  const naming = step() === "names";
  const asking = !naming && state.chosen != null && !photo.points[state.chosen];
  const parts = naming ? [] : asking ? questionFor(photo) : reasonFor(photo);
  const now = parts.map((part) => part.outerHTML ?? part).join();
  if (now !== said) $("#reason").replaceChildren(...parts); // a button that has the focus stays
  said = now;
  $("#reason").classList.toggle("asking", asking);
  drawTray(photo);
  drawDone();
}

// What is absent stands below the picture, never at a place of it.
function drawTray(photo) {
  const absent = Object.entries(photo.points).filter(([, mark]) => mark.absent);
  const words = absent.length ? "Not in the picture:" : step() || unsetIn(photo).length ? "" : "Nothing is missing from the picture";
  const held = document.activeElement?.closest?.("#tray button")?.dataset.name;
  $("#tray").replaceChildren(make("span", { class: "small" }, words), ...absent.map(([name, mark]) => {
    const share = isProposed(mark) ? make("b", { class: lookOf(mark).band }, percent(certaintyOf(mark))) : null;
    return make("button", {
      type: "button", class: "chip", "data-name": name, "aria-pressed": name === state.chosen,
      title: "Choose it, then click where it is", onclick: () => choose(name),
    }, sign("absent"), name, share);
  }));
  if (held) $(`#tray [data-name="${CSS.escape(held)}"]`)?.focus();
}

let closed = false; // the card was put away

function drawDone() {
  const all = state.photographs.length > 0 && state.photographs.every(isDone);
  const card = $("#done");
  if (!all) closed = false;
  card.hidden = !all || closed;
  if (card.hidden) return card.replaceChildren();
  if (card.children.length) return;
  const { kept, corrected, share } = keptShare();
  const points = reviewed().length * state.landmarks.length;
  const words = share == null ? `You set all ${points} points by hand.` : `${percent(share)} of the proposals were kept: you set ${points - kept} of ${points} points by hand.`;
  card.append(
    make("h2", {}, `All ${state.photographs.length} photographs are reviewed.`),
    make("p", { "data-corrected": corrected }, words),
    make("div", {},
      button("Export", () => $("#exportButton").click(), { class: "button primary" }),
      button("Look at all of them", () => $("#mosaicButton").click()),
      button("Keep working", () => { closed = true; card.hidden = true; }, { class: "button plain" })),
  );
}

// The labelling page: everything is drawn from the state when it changes, and the buttons do what the keys do.

import { clearMark, copyPose, exchange, markAbsent, useNewer } from "./acts.js";
import { start } from "./changes.js";
import { drawDetail } from "./detail.js";
import { $, isPhone, make } from "./dom.js";
import { redo, undo } from "./edits.js";
import { fillExport } from "./exporting.js";
import { back, openFirst, skip, sort } from "./going.js";
import { drawHead, drawTop } from "./head.js";
import { showHelp } from "./help.js";
import { COMMANDS, acceptOrClose, listen as listenKeys, toggleView } from "./keys.js";
import { editLandmarks } from "./landmarks.js";
import { item, menu, nextTheme, startDialogs, startTheme } from "./menus.js";
import { banner, toast } from "./messages.js";
import { listenNames } from "./names.js";
import { drawPanel } from "./panel.js";
import { changed, isDone, onChange, state } from "./project.js";
import { improve, propose, stopJob, takeBack } from "./proposing.js";
import { icon } from "./signs.js";
import { fitOther, picture } from "./stage.js";
import { drawFilters, drawThumbs, mosaic } from "./strip.js";
import { closeThrough, drawThrough, showThrough } from "./through.js";

const VIEWS = [
  ["names", "Names on the picture", "N"], ["skeletonShown", "Skeleton", "K"], ["spread", "Spread circles", "V"],
  ["strip", "Strip of photographs", "J"]
];

function drawLayout() {
  const main = $("main");
  main.classList.toggle("mosaic", state.view === "mosaic");
  main.classList.toggle("overview", state.view !== "photo");
  $("#mosaicButton").setAttribute("aria-pressed", state.view === "mosaic");
  $("#thumbs").classList.toggle("folded", !state.strip);
  $("#sort").value = state.sort;
  $("#others").textContent = state.photographs.length > 1 ? `other ${state.photographs.length - 1}` : "others";
}

function fillMenus() {
  $("#proposeMenu").append(
    item("Propose again on all not reviewed", "What you have set stays as it is", propose),
    item(
      "Improve from the reviewed photographs", "A minute or two. Kept only if it is better on reviewed ones set aside", improve
    ),
    item("Take the last improvement back", null, takeBack),
    make("hr"),
    item("Take points from a file…", "What you have set here stays as it is", () => $("#file").click()));
  const toggles = VIEWS.map(([name, text, key]) => item(
    text, null, () => toggleView(name),
    { role: "menuitemcheckbox", "aria-checked": "false", "data-stay": true, "data-view": name, key }
  ));
  const light = make(
    "input",
    {
      type: "range", min: 0.5, max: 2, step: 0.05, value: 1, "aria-label": "Brightness", class: "brightness",
      oninput: (event) => { picture.light = Number(event.target.value); picture.redraw(); }
    }
  );
  $("#viewMenu").append(...toggles, make("hr"), make("h2", {}, "Brightness, on screen only"), light);
  onChange(() => { for (const toggle of toggles) toggle.setAttribute("aria-checked", state[toggle.dataset.view]); });
  $("#moreMenu").append(
    item("Exchange left and right", null, exchange), item("Clear the point", null, clearMark),
    item("Copy the pose of the one before", null, copyPose),
    item("This landmark in all photographs", null, showThrough), item("Redo", null, redo), make("hr"),
    item("Propose", null, propose), item("Improve", null, improve),
    item("Export", null, () => setTimeout(() => $("#exportButton").click())), item("Edit the landmarks", null, editLandmarks),
    item("View", null, () => setTimeout(() => $("#viewButton").click())),
    item("Light or dark", null, nextTheme, { "data-stay": true }), item("Keys and gestures", null, () => showHelp(COMMANDS)));
  for (const [opener, list] of [
    ["#exportButton", "#exportMenu"], ["#proposeMore", "#proposeMenu"], ["#viewButton", "#viewMenu"],
    ["#moreButton", "#moreMenu"]
  ]) menu([$(opener)], $(list));
}

function listen() {
  const clicks = {
    "#propose": propose, "#stopJob": stopJob, "#helpButton": () => showHelp(COMMANDS), "#back": back, "#skip": skip,
    "#undo": undo, "#redo": redo,
    "#footUndo": undo, "#footAbsent": markAbsent, "#footSkip": skip, "#footCopy": copyPose, "#zoomIn": () => picture.zoom(1.4),
    "#zoomOut": () => picture.zoom(1 / 1.4),
    "#fitButton": fitOther, "#mosaicButton": () => mosaic(), "#closeThrough": closeThrough, "#useNewer": useNewer,
    "#editLandmarks": editLandmarks, "#accept": acceptOrClose,
  };
  for (const [id, run] of Object.entries(clicks)) $(id).addEventListener("click", () => run());
  let byPointer = false; // after the mouse the focus goes back to the photograph, after a key it stays
  addEventListener("pointerdown", () => { byPointer = true; }, true);
  addEventListener("keydown", () => { byPointer = false; }, true);
  $("#sort").addEventListener("change", (event) => {
    sort(event.target.value);
    if (byPointer) $("#frame").focus({ preventScroll: true });
  });
  isPhone.addEventListener("change", changed);
  listenKeys();
  listenNames();
}

for (const button of document.querySelectorAll("[data-icon]")) button.prepend(icon(button.dataset.icon));
$("#viewButton").append(icon("down"));
startTheme();
startDialogs();
fillMenus();
listen();
for (const draw of [drawLayout, drawTop, drawFilters, drawThumbs, drawHead, drawPanel, drawDetail, drawThrough]) onChange(draw);
try {
  await start();
  fillExport();
  if (state.photographs.every(isDone)) state.filter = "all";
  openFirst();
  if (!state.photographs.length) toast("There is no photograph in this folder.");
} catch (error) {
  banner("stop", "warn", "The project could not be read.", error.message, [["Try again", () => location.reload()]]);
}
changed();
document.body.dataset.ready = "yes"; // for tests

// The page of two pictures: click a point on the left, see it on the right.

import { $, isPhone } from "./dom.js";
import { menu, startDialogs, startTheme } from "./menus.js";
import { clear, keepAsReference, markAbsent, openReference, openTarget } from "./pair_acts.js";
import { fillExport } from "./pair_export.js";
import { begin, fillAdd, listenFiles } from "./pair_files.js";
import { listen as listenKeys, showHelp } from "./pair_keys.js";
import { drawPanel } from "./pair_panel.js";
import { fitOther } from "./pair_sides.js";
import { changed, onChange, state, undo } from "./pair_state.js";
import { drawHeads, drawThumbs } from "./pair_strips.js";
import { icon } from "./signs.js";
import { toast } from "./messages.js";

for (const button of document.querySelectorAll("[data-icon]")) button.prepend(icon(button.dataset.icon));
startTheme();
startDialogs();
const clicks = {
  "#helpButton": showHelp, "#footUndo": undo, "#footAbsent": markAbsent, "#keep": keepAsReference, "#clear": clear,
  "#fit0": () => fitOther(0), "#fit1": () => fitOther(1),
  "#back0": () => openReference(state.shown - 1), "#next0": () => openReference(state.shown + 1),
  "#back1": () => openTarget(state.target - 1), "#next1": () => openTarget(state.target + 1),
};
for (const [id, run] of Object.entries(clicks)) $(id).addEventListener("click", () => run());
menu([$("#exportButton")], $("#exportMenu"));
for (const side of [0, 1]) menu([...document.querySelectorAll(`[data-add="${side}"]`)], $(`#addMenu${side}`));
fillExport($("#exportMenu"));
listenKeys();
listenFiles([$(".known"), $(".found")]);
isPhone.addEventListener("change", changed);
for (const draw of [drawHeads, drawThumbs, drawPanel]) onChange(draw);
changed();
await begin().catch((error) => toast(error.message));
for (const side of [0, 1]) fillAdd(side, $(`#addMenu${side}`));
changed();
document.body.dataset.ready = "yes"; // for tests: samples and first pictures are there

// Keys and gestures, on a keyboard as it lies before one.

import { $, make, memory } from "./dom.js";
import { table } from "./help_table.js";
import { KEYS, names, state } from "./project.js";

const ROWS = ["1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm"];
const FINE = [
  [["←", "↑", "→", "↓"], "Move the point by a pixel of the screen"], [["Shift"], "with an arrow: by ten"],
  [["Alt"], "with an arrow: by a tenth"],
  [["Del"], "Clear the point"], [["Shift", "Z"], "Redo"], [["Shift", "S"], "Back to the one before"],
  [["Shift", "D"], "The uncertain one before"],
];
const MOUSE = [
  [["Click"], "Put the chosen landmark here"], [["Drag"], "A mark: move it. Elsewhere: move the picture"],
  [["Shift", "Drag"], "Move the whole pose"],
  [["Wheel"], "Larger, smaller, where the pointer is"],
];
const TOUCH = [
  [["Tap"], "A mark: choose it"], [["Drag"], "A mark: move it, it stays clear of the finger"],
  [["Hold"], "Move the chosen landmark here, with the loupe"],
  [["Two fingers"], "Larger, smaller, move the picture"],
];

function keyCap(key, commandOf) {
  const landmark = names()[KEYS.indexOf(key)];
  const does = landmark ?? commandOf.get(key)?.does;
  const more = commandOf.get(`Shift+${key}`);
  const title = more && !landmark ? `With Shift: ${more.does.toLowerCase()}` : null;
  return make(
    "div", { class: `key ${landmark ? "landmark" : does ? "" : "none"}`, title }, make("b", {}, key.toUpperCase()), does ?? ""
  );
}

export function showHelp(commands) {
  const commandOf = new Map(commands.flatMap((command) => command.keys.map((key) => [key, command])));
  const all = commands.filter(({ keys }) => /^[a-z]$/.test(keys[0])).map(({ keys, does }) => [[keys[0].toUpperCase()], does]);
  $("#helpInside").replaceChildren(
    make("div", { class: "keyboard", "aria-hidden": "true" },
      ...ROWS.map((row) => make("div", {}, ...[...row].map((key) => keyCap(key, commandOf)))),
      make("div", {}, make("div", { class: "key space" }, make("b", {}, "Space or Enter"), "Accept, next"))),
    make("div", { class: "unseen" }, table("Letters", all)), // the drawn keyboard in words
    make(
      "p", { class: "soft small wide-only" },
      "The two upper rows choose a landmark, the two lower rows do something: the left hand stays on the keys, the right one on the mouse."
    ),
    make("div", { class: "help-columns" }, table("Fine work", FINE), table("Mouse", MOUSE), table("Touch", TOUCH)),
    make(
      "label", { class: "switch" }, make("input", { type: "checkbox", checked: state.singleKeys, onchange: setSingleKeys }),
      "Single keys do something (turn off if you speak to your computer)"
    ),
  );
  $("#help").showModal();
}

function setSingleKeys(event) {
  state.singleKeys = event.target.checked;
  memory.set("single-keys", state.singleKeys ? null : "off");
}

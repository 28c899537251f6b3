// The dialog of the landmarks: names, left and right partners, lines of the skeleton. Nothing changes before "Use these".

import { $, make, plural } from "./dom.js";
import { commit } from "./edits.js";
import { KEYS, names, state } from "./project.js";

const keysOf = (name) => state.skeleton.filter((line) => line.includes(name)).map(([a, b]) => (KEYS[names().indexOf(a === name ? b : a)] ?? "").toUpperCase()).join(" ");

export function editLandmarks() {
  const rows = make("tbody");
  const table = make(
    "table", {},
    make(
      "thead", {},
      make(
        "tr", {}, ...["Key", "Name", "Left or right partner", "Lines to", ""].map((text) => make("th", { scope: "col" }, text))
      )
    ),
    rows
  );
  const list = state.landmarks.map((landmark) => ({ ...landmark, was: landmark.name, lines: keysOf(landmark.name) }));
  for (const entry of list) entry.pair = list.find(({ name }) => name === entry.pair) ?? null; // an entry: its name may change
  const draw = () => rows.replaceChildren(...list.map((entry, k) => rowOf(entry, k, list, draw)));
  draw();
  const add = make(
    "button",
    {
      type: "button", class: "button",
      onclick: () => {
        list.push({ name: "", color: null, pair: null, was: null, lines: "" });
        draw();
        rows.lastChild.querySelector("input").focus();
      }
    },
    "Add a landmark"
  );
  const use = make("button", { type: "button", class: "button primary", onclick: () => useEdited(list) }, "Use these");
  $("#landmarksInside").replaceChildren(
    make(
      "p", { class: "soft" },
      "A new name keeps its points. Partners are exchanged by X. Lines: the keys of the landmarks it is joined to."
    ),
    make("div", { class: "scroll" }, table), make("p", { class: "warning", id: "landmarksWarning", role: "alert" }),
    make("div", { class: "dialog-foot" }, add, use));
  $("#landmarks").showModal();
}

function rowOf(entry, k, list, draw) {
  const field = (name, label) => make(
    "input",
    {
      class: "field", value: entry[name], maxlength: 80, spellcheck: "false", "aria-label": label,
      oninput: (event) => { entry[name] = event.target.value; }
    }
  );
  const partner = make("select", {
    class: "field", "aria-label": `Partner of ${entry.name}`,
    onchange: (event) => { pair(entry, list[event.target.value] ?? null); draw(); }
  },
    make("option", { value: "" }, "none"),
    ...list.flatMap((other, n) => (other === entry ? [] : [make(
      "option", { value: n, selected: other === entry.pair }, other.name
    )])));
  const remove = make(
    "button",
    {
      type: "button", class: "button plain", "aria-label": `Remove ${entry.name}`,
      onclick: () => { pair(entry, null); list.splice(k, 1); draw(); warn(list); }
    },
    "Remove"
  );
  const cells = [
    make("kbd", {}, (KEYS[k] ?? "").toUpperCase()), field("name", `Name of landmark ${k + 1}`), partner,
    field("lines", `Keys of the landmarks joined to ${entry.name}`), remove
  ];
  return make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));
}

// Partners are mutual: who gets a new one leaves the old one alone.
function pair(entry, partner) {
  for (const one of [entry, partner]) if (one?.pair) one.pair.pair = null;
  entry.pair = partner;
  if (partner) partner.pair = entry;
}

// How many points go with what was removed is said before it is done.
function warn(list) {
  const kept = new Set(list.map(({ was }) => was));
  const gone = names().filter((name) => !kept.has(name));
  const points = state.photographs.reduce((sum, photo) => sum + gone.filter((name) => photo.points[name]).length, 0);
  $("#landmarksWarning").textContent = gone.length ? `${gone.join(", ")} will be removed, with ${plural(points, "point")}. It can be undone.` : "";
}

function useEdited(list) {
  const called = list.map(({ name }) => name.trim());
  const twice = called.find((name, k) => !name || called.indexOf(name) !== k);
  if (twice !== undefined) {
    $("#landmarksWarning").textContent = twice ? `Two landmarks are called ${twice}.` : "A landmark has no name.";
    return;
  }
  const renamed = Object.fromEntries(list.map(({ was }, k) => [was, called[k]]).filter(([was, name]) => was && was !== name));
  const landmarks = list.map(({ color, pair: partner }, k) => ({
    name: called[k], color, pair: partner ? called[list.indexOf(partner)] : null
  }));
  commit(
    { text: "Landmarks changed" },
    { landmarks, skeleton: linesOf(list, called), ...(Object.keys(renamed).length && { renamed }) }
  );
  $("#landmarks").close();
}

function linesOf(list, called) {
  const lines = new Map();
  list.forEach(({ lines: keys }, k) => {
    for (const key of keys.toLowerCase().replace(/[^a-z0-9]/g, "")) {
      const other = KEYS.indexOf(key);
      if (other >= 0 && other !== k && other < called.length) lines.set(
        [k, other].sort().join(), [called[Math.min(k, other)], called[Math.max(k, other)]]
      );
    }
  });
  return [...lines.values()];
}

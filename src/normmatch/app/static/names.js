// Where landmarks come from at first: names that are written, or a file of another tool.

import { $, plural } from "./dom.js";
import { choose } from "./acts.js";
import { commit } from "./edits.js";
import { open } from "./going.js";
import { toast } from "./messages.js";
import { current, names, state } from "./project.js";
import { send } from "./server.js";

const MOST = 200;
const LEFT = [["left", "right"], ["Left", "Right"], ["L_", "R_"], ["_L", "_R"], ["_l", "_r"]];

// The names of a list, each once; left and right ones are partners.
export function landmarksOf(lines) {
  const wanted = [...new Set(lines.map((line) => line.trim()).filter(Boolean))].slice(0, MOST);
  const partner = (name) => LEFT.flatMap(([a, b]) => [
    name.replace(a, b), name.replace(b, a)
  ]).find((other) => other !== name && wanted.includes(other)) ?? null;
  return wanted.map((name) => ({ name, color: null, pair: partner(name) }));
}

function useNames(event) {
  event.preventDefault();
  const landmarks = landmarksOf($("#names").value.split("\n"));
  if (!landmarks.length) return toast("Write at least one name, or take them from a file.");
  commit({ text: "Names written" }, { landmarks, skeleton: [] });
  choose(names()[0]);
  $("#frame").focus({ preventScroll: true });
}

// Landmarks and points of an annotation file: what a person has set here stays, unless it is agreed to.
async function useFile(file) {
  try {
    const { landmarks, photographs, skeleton, unknown = [] } = await send("api/read", [file]);
    const known = names();
    const fresh = landmarks.map((one) => one.name ?? one).filter((name) => !known.includes(name));
    const patch = { photographs: {} };
    if (fresh.length) patch.landmarks = known.length ? [...state.landmarks, ...landmarksOf(fresh)] : landmarksOf(fresh);
    if (skeleton?.length && !state.skeleton.length) patch.skeleton = skeleton;
    let taken = 0;
    for (const photo of state.photographs) {
      const points = Object.fromEntries(Object.entries(photographs[photo.file]?.points ?? {}).filter(([name, mark]) => mark && !["person", "kept"].includes(photo.points[name]?.from)));
      if (!Object.keys(points).length) continue;
      patch.photographs[photo.file] = { points };
      taken += 1;
    }
    commit({ text: `${file.name} read` }, patch);
    open(current() ?? state.photographs[0]);
    const others = unknown.length ? ` ${plural(unknown.length, "photograph")} of it ${unknown.length === 1 ? "is" : "are"} not in this folder.` : "";
    toast(`${file.name}: ${plural(fresh.length, "new landmark")}, points on ${plural(taken, "photograph")}.${others}`);
  } catch (error) {
    toast(error.message);
  }
}

export function listenNames() {
  $("#naming").addEventListener("submit", useNames);
  $("#namesFile").addEventListener("click", () => $("#file").click());
  $("#file").addEventListener("change", (event) => {
    const [file] = event.target.files;
    event.target.value = ""; // the same file may be chosen again
    if (file) useFile(file);
  });
}

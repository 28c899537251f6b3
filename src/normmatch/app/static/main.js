// Starts the page: the parts listen, every change draws all of them, and the button asks the server for matches.

import * as download from "./download.js";
import { draw as drawOverlay } from "./draw.js";
import * as edit from "./edit.js";
import * as results from "./results.js";
import { send } from "./server.js";
import * as sides from "./sides.js";
import { changed, onChange, state } from "./state.js";

const button = document.getElementById("match");
const oneToOne = document.getElementById("oneToOne");
const threshold = document.getElementById("threshold");
const status = document.getElementById("status");
const message = document.getElementById("matchMessage");
let running = 0;
let moved = false; // whether the user has chosen a threshold; the network's own holds until then

async function match() {
  message.textContent = "";
  running += 1;
  const run = running;
  const asked = {
    one_to_one: oneToOne.checked,
    sides: state.sides.map(({ points, box }) => ({ box, keypoints: points.map(({ x, y }) => [x, y]) })),
  };
  const files = state.sides.map((side) => side.file);
  button.classList.add("running");
  button.disabled = true;
  state.result = null;
  changed();
  const before = state.sides.map(({ file, points, box }) => JSON.stringify([file?.name, points, box])).join();
  try {
    const answer = await send("match", files, asked);
    const now = state.sides.map(({ file, points, box }) => JSON.stringify([file?.name, points, box])).join();
    if (run !== running || now !== before) return; // something was changed meanwhile
    state.result = { ...answer, oneToOne: oneToOne.checked };
    if (!moved) threshold.value = answer.min_score;
    state.threshold = Number(threshold.value);
  } catch (error) {
    message.textContent = error.message;
  } finally {
    if (run === running) button.classList.remove("running");
    changed();
  }
}

function drawActions() {
  const ready = state.sides.every((side) => side.file && side.points.length);
  const { result } = state;
  button.disabled = !ready || button.classList.contains("running");
  threshold.disabled = !result;
  document.getElementById("thresholdValue").textContent = Number(threshold.value).toFixed(2);
  if (button.classList.contains("running")) status.textContent = "Matching …";
  else if (!result) status.textContent = ready ? "Ready." : "Mark points on both pictures, then match.";
  else {
    const time = `Matched in ${result.seconds.toFixed(2)} s.`;
    status.textContent = result.low_scores ? `${time} All scores are low: do both pictures show the same kind of object?` : time;
  }
}

button.addEventListener("click", match);
oneToOne.addEventListener("change", () => { if (state.result) match(); });
threshold.addEventListener("input", () => {
  moved = true;
  state.threshold = Number(threshold.value);
  changed();
});
onChange(sides.draw);
onChange(drawActions);
onChange(results.draw);
onChange(drawOverlay);
window.addEventListener("resize", changed);
new ResizeObserver(changed).observe(document.getElementById("stage"));
edit.listen();
results.listen();
download.listen();
changed();
await sides.listen();
document.body.dataset.ready = "yes"; // for tests: samples and first pictures are there

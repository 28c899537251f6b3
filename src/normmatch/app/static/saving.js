// Changes go to the server in their order, within a second. Until the answer is there they lie in local storage too, so
// that neither a lost server nor a reload loses one.

import { banner, toast } from "./messages.js";
import { changed, state } from "./project.js";
import { post } from "./server.js";
import { forgetUnsent, keepUnsent } from "./unsent.js";

const GATHER = 300; // milliseconds
const AGAIN = 2000; // until a lost server is asked again
const PATIENCE = 10000;

export const windowId = `w-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
const queue = []; // edits that are not saved: {id, ...patch}
const listeners = []; // who hears of an answer: changes.js
export const onSaved = (listener) => listeners.push(listener);
let numbered = 0;
let sending = false;
let timer = null;

export function save(patch) {
  queue.push({ id: `e-${windowId}-${++numbered}`, ...patch });
  kept();
  if (state.saving === "saved") state.saving = "saving";
  clearTimeout(timer);
  if (!sending) timer = setTimeout(flush, state.saving === "waiting" ? AGAIN : GATHER);
}

// Edits of a page that was closed before they were saved.
export function resend(edits) {
  queue.push(...edits);
  if (!edits.length) return;
  kept();
  state.saving = "saving";
  timer = setTimeout(flush, 0);
}

function kept() {
  state.waiting = queue.length;
  if (queue.length) keepUnsent(state, windowId, queue);
  else forgetUnsent(state, windowId);
}

export async function flush() {
  clearTimeout(timer);
  if (sending || !queue.length || state.saving === "stopped") return;
  sending = true;
  const edits = [...queue];
  try {
    const answer = await post(
      "api/edit", { window: windowId, revision: state.revision, edits }, { signal: AbortSignal.timeout(PATIENCE) }
    );
    queue.splice(0, edits.length);
    saved(answer);
  } catch (error) {
    failed(error);
  } finally {
    sending = false;
    if (queue.length && state.saving !== "stopped") timer = setTimeout(flush, state.saving === "waiting" ? AGAIN : GATHER);
    changed();
  }
}

function saved(answer) {
  if (state.saving === "waiting") {
    banner(null);
    toast("Back again. Everything is saved.");
  }
  state.revision = answer.revision;
  state.saving = queue.length ? "saving" : "saved";
  kept();
  for (const listener of listeners) listener(answer);
}

function failed(error) {
  if (error.status === 409) return stop();
  if (error.status === 400) { // what was sent cannot be, so sending it again would not help
    queue.length = 0;
    kept();
    state.saving = "saved";
    toast(error.message);
    return reloaders.forEach((reload) => reload());
  }
  lost(error);
}

const reloaders = []; // who loads the project anew
export const onReload = (reload) => reloaders.push(reload);

// The server does not answer, or could not write: work goes on, changes are counted and sent when it can again.
export function lost(error) {
  if (state.saving === "stopped") return;
  const again = [["Try again", () => { retry(); }]];
  state.saving = "waiting";
  kept(); // this window is alive: no other takes its edits over
  if (error.status) banner(
    "warn", "warn", "Nothing is saved just now.",
    `${error.message} Go on working: changes stay in this page and are saved as soon as possible.`, again
  );
  else banner(
    "warn", "warn", "NormMatch does not answer.",
    "Is its window still open? Go on working: changes stay in this page and are saved when it is back.", again
  );
  changed();
}

async function retry() {
  if (queue.length) await flush();
  else for (const listener of listeners) listener(null); // polls at once
}

// The server is back, and there was nothing to save.
export function found() {
  if (state.saving !== "waiting" || queue.length) return;
  state.saving = "saved";
  banner(null);
  toast("Back again. Everything is saved.");
  changed();
}

// Another window has saved: this one stops at once, so that nothing is overwritten.
export function stop() {
  if (state.saving === "stopped") return;
  state.saving = "stopped";
  clearTimeout(timer);
  const lostHere = queue.length ? `Your last ${queue.length === 1 ? "change" : `${queue.length} changes`} here ${queue.length === 1 ? "is" : "are"} not in the file.` : "";
  banner("stop", "windows", "Another window has saved this project.", `This one has stopped saving, so that nothing is overwritten. ${lostHere}`, [
    [
      "Load what the other saved",
      () => { goOn(); reloaders.forEach((reload) => reload("Loaded what the other window saved.")); }
    ],
    ["Save mine as a copy", saveCopy],
  ]);
  changed();
}

// Saving starts anew, without what was not saved.
export function goOn() {
  queue.length = 0;
  kept();
  state.saving = "saved";
  banner(null);
}

async function saveCopy() {
  const { name, landmarks, skeleton, settings, photographs } = state;
  const plain = photographs.map(({
    file, width, height, reviewed, skipped, changed: touched, box, scale, points
  }) => ({ file, width, height, reviewed, skipped, changed: touched, box, scale, points }));
  try {
    const { file } = await post("api/copy", { project: { name, landmarks, skeleton, settings, photographs: plain } });
    goOn();
    reloaders.forEach((reload) => reload(`Saved as ${file}. Here is what the other window saved.`));
  } catch (error) {
    toast(error.message);
  }
}

// What is not saved when the page goes: sent on the way out; if that fails it is in local storage.
addEventListener("pagehide", () => {
  if (queue.length && state.saving !== "stopped" && !sending)
    post("api/edit", { window: windowId, revision: state.revision, edits: queue }, { keepalive: true }).catch(() => {});
});

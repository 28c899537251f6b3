// What the machine did, and whether somebody else has saved: the page asks now and then. Also opens the project.

import { wantsCheck } from "./certainty.js";
import { toast } from "./messages.js";
import { percent, plural } from "./dom.js";
import { apply, forget } from "./edits.js";
import { checksIn, changed, current, isUntouched, names, photoCalled, reviewed, state } from "./project.js";
import { found, lost, onReload, onSaved, resend, stop, windowId } from "./saving.js";
import { get } from "./server.js";
import { takeUnsent } from "./unsent.js";

const BUSY = 400, CALM = 2000, HIDDEN = 10000; // milliseconds between questions
const SOON = 3000; // after an edit the machine is at work

let proposals = 0; // how far this page has read
let edited = 0; // when the last edit was saved
let timer = null;
let shown = null; // the number of the last job that was told of
const openers = []; // what opens a photograph: going.js
export const onOpen = (opener) => openers.push(opener);
const enders = []; // what is done when a job has ended: the order is made anew
export const onEnd = (ender) => enders.push(ender);

export async function load() {
  const project = await get("api/project");
  const { photographs, missing = [], ...rest } = project;
  Object.assign(state, rest, { id: project.id ?? idOf(photographs) });
  state.suspects ??= {};
  state.missing = Object.fromEntries(missing.map(({ file, error }) => [file, error]));
  state.photographs = photographs.map((photo, number) => ({ ...photo, points: clean(photo.points), number, touched: 0 }));
  state.proposed = state.photographs.some((photo) => Object.values(photo.points).some((mark) => mark.score != null || mark.was));
  state.newer = null;
  state.visited = [];
  state.stems = null;
  proposals = project.proposals ?? 0;
  shown = state.last_job?.number ?? 0;
  if (!names().includes(state.chosen)) state.chosen = null;
  return project;
}

// A folder is known by its photographs: other folders opened at this address have their own unsent edits.
function idOf(photographs) {
  let hash = 0;
  for (const letter of photographs.map(({
    file, width, height
  }) => `${file} ${width} ${height}`).sort().join("\n")) hash = (Math.imul(hash, 31) + letter.codePointAt(0)) | 0;
  return (hash >>> 0).toString(36);
}

const clean = (points) => Object.fromEntries(Object.entries(points ?? {}).filter(([, mark]) => mark));

export async function start() {
  await load();
  const { edits, outdated } = takeUnsent(state);
  for (const { id, ...patch } of edits) apply(patch);
  resend(edits);
  const words = [edits.length && `${plural(edits.length, "change")} of before ${edits.length === 1 ? "is" : "are"} saved now.`,
    outdated && `${plural(outdated, "change")} of before ${outdated === 1 ? "was" : "were"} left out: it was changed since.`];
  if (edits.length || outdated) toast(words.filter(Boolean).join(" "));
  poll(BUSY);
}

onReload(async (words) => {
  try {
    await load();
    forget();
    for (const open of openers) open();
    if (words) toast(words);
    changed();
  } catch (error) {
    lost(error);
  }
});

onSaved((answer) => {
  edited = Date.now();
  if (answer?.suspects) state.suspects = answer.suspects;
  poll(answer ? BUSY : 0);
});

export function poll(after) {
  clearTimeout(timer);
  timer = setTimeout(ask, after);
}

async function ask() {
  try {
    const answer = await get(`api/changes?revision=${state.revision}&proposals=${proposals}`);
    if (answer.revision > state.revision && answer.saved_by !== windowId) return stop();
    found();
    takeOver(answer);
  } catch (error) {
    lost(error);
  }
  if (state.saving === "stopped") return;
  poll(state.job || Date.now() - edited < SOON ? BUSY : document.hidden ? HIDDEN : CALM);
}

function takeOver({ photographs = {}, alike, job, last_job: last, suspects, engine, ...rest }) {
  if (rest.proposals !== undefined) proposals = rest.proposals;
  const before = JSON.stringify([state.job, state.suspects, state.engine]);
  for (const [file, { points }] of Object.entries(photographs)) {
    const photo = photoCalled(file);
    if (photo) renew(photo, clean(points));
  }
  Object.assign(state.alike, alike);
  Object.assign(state, { job: job ?? null, engine: engine ?? state.engine, suspects: suspects ?? state.suspects });
  if (last && last.number !== shown) {
    shown = last.number;
    state.last_job = last;
    for (const done of enders) done();
    tell(last);
  }
  if (Object.keys(photographs).length || before !== JSON.stringify([state.job, state.suspects, state.engine])) changed();
}

// New proposals, for what nobody has set. The photograph in view does not change under the hand: if it would get better
// by a band, a button says so; only where nothing was proposed yet they are shown at once.
function renew(photo, points) {
  const free = names().filter((name) => !photo.points[name] || photo.points[name].from === "proposed");
  if (photo.reviewed || !free.length) return;
  state.proposed = true;
  const fresh = Object.fromEntries(free.filter((name) => points[name]?.from === "proposed").map((name) => [name, points[name]]));
  const setByHand = Object.values(photo.points).some((mark) => mark.from !== "proposed");
  if (photo !== current() || (isUntouched(photo) && !setByHand)) return put(photo, fresh);
  const better = Object.entries(fresh).some(([name, mark]) => photo.points[name] && wantsCheck(photo.points[name]) && !wantsCheck(mark));
  const missing = Object.keys(fresh).some((name) => !photo.points[name]);
  state.newer = better || missing ? fresh : null;
}

function put(photo, fresh) {
  photo.points = { ...photo.points, ...fresh };
  photo.touched = ++state.clock;
}

// Proposals that had to wait come in when their photograph is left.
export function leave() {
  if (state.newer && current() && !current().reviewed) {
    const free = Object.entries(state.newer).filter(([name]) => !current().points[name] || current().points[name].from === "proposed");
    put(current(), Object.fromEntries(free));
  }
  state.newer = null;
}

function tell({ kind, done, stopped, error, uncertain, before, after, kept }) {
  if (error) return toast(error);
  if (kind === "propose" && stopped) toast(`Stopped after ${plural(done, "photograph")}. What was proposed stays.`);
  else if (kind === "propose") {
    const left = uncertain ?? state.photographs.filter((photo) => checksIn(photo).length).length;
    toast(
      `${plural(done, "photograph")} proposed, ${left} with uncertain points.`, "Start with the least certain",
      () => openers.forEach((open) => open("worst"))
    );
  }
  if (kind === "improve" && stopped) toast("Stopped. Nothing was changed.");
  else if (kind === "improve" && kept === false) toast("Not better on the reviewed photographs set aside, so nothing was changed.");
  else if (kind === "improve") toast(
    `Improved: on reviewed photographs set aside, ${percent(after)} of the points are now right, ${percent(before)} before.`,
    "Take it back", () => takeBack.forEach((run) => run())
  );
}

const takeBack = [];
export const onTakeBack = (run) => takeBack.push(run);
export const canImprove = () => reviewed().length >= 5;

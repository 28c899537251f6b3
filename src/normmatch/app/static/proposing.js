// Asking the machine: propose, stop, improve, and taking an improvement back.

import { announce, plural } from "./dom.js";
import { canImprove, onTakeBack, poll } from "./changes.js";
import { toast } from "./messages.js";
import { changed, current, isUntouched, reviewed, state } from "./project.js";
import { flush } from "./saving.js";
import { post } from "./server.js";

async function ask(address, content, said) {
  try {
    await flush(); // the machine works from what was saved
    const answer = await post(address, content);
    if (answer.job !== undefined) state.job = answer.job;
    if (said) announce(said);
    poll(100);
  } catch (error) {
    toast(error.message);
  }
  changed();
}

export function propose() {
  if (state.job && state.job.kind !== "renew") return;
  if (!reviewed().length) return toast("Set the landmarks on one photograph first, and accept it.");
  if (state.engine.error) return toast(state.engine.error);
  const wanted = state.photographs.filter((photo) => !photo.reviewed).length;
  if (!wanted) return toast("All photographs are reviewed: nothing is left to propose.");
  state.proposed = true;
  return ask("api/propose", {}, `Proposing on ${plural(wanted, "photograph")}.`);
}

export const stopJob = () => ask("api/stop", {}, "Stopping.");

export function improve() {
  if (state.job && state.job.kind !== "renew") return toast("Something is running already; it can be stopped.");
  if (!canImprove()) return toast(`Improving needs 5 reviewed photographs; there ${reviewed().length === 1 ? "is" : "are"} ${reviewed().length}.`);
  return ask("api/improve", {}, "Improving from the reviewed photographs.");
}

export async function takeBack() {
  if (!state.improved && state.last_job?.kind !== "improve") return toast("There is no improvement to take back.");
  await ask("api/improve/undo", {});
  state.improved = null;
  toast("The improvement is taken back.");
}
onTakeBack(takeBack);

// What the button says: how many photographs it would look at first.
export function proposeWords(step) {
  const fresh = state.photographs.filter((photo) => isUntouched(photo) && photo !== current()).length;
  return step ? "Propose" : fresh ? `Propose on ${fresh} new` : "Propose again";
}

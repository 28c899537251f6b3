// Edits that are not saved yet, in local storage, and what becomes of them when the page is opened again.

import { memory } from "./dom.js";
import { photoCalled } from "./project.js";

const PREFIX = "normmatch-unsent-";
const ALIVE = 8000; // milliseconds: a window with unsent edits renews its entry more often

const keyFor = (project, id) => `unsent-${project.id}-${id}`;

export function keepUnsent(project, id, edits) {
  memory.set(keyFor(project, id), JSON.stringify({ time: Date.now(), revision: project.revision, edits }));
  try {
    sessionStorage.setItem("normmatch-window", id);
  } catch { /* the page works without a memory */ }
}

export const forgetUnsent = (project, id) => memory.set(keyFor(project, id), null);

// Entries that windows of this project left behind: {key, revision, edits}. Those of a window that lives are its own;
// this tab's, from before it was reloaded, are taken at once.
function leftBehind(project) {
  try {
    const mine = sessionStorage.getItem("normmatch-window");
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(`${PREFIX}${project.id}-`));
    return keys.flatMap((key) => {
      const { time, revision, edits } = JSON.parse(localStorage.getItem(key));
      return key.endsWith(`-${mine}`) || Date.now() - time > ALIVE ? [{ key, revision, edits }] : [];
    });
  } catch {
    return [];
  }
}

// What of them can be made good now: nothing that was changed since is overwritten. -> {edits, outdated}, the second is
// how many photographs were left as they are.
export function takeUnsent(project) {
  let outdated = 0;
  const taken = leftBehind(project).flatMap(({ key, revision, edits }) => {
    memory.set(key.slice("normmatch-".length), null);
    const at = edits.findIndex(({ id }) => id === project.saved_edit); // it was saved, and only the answer was lost
    return edits.slice(at + 1).flatMap((edit) => {
      const photographs = {};
      for (const [file, change] of Object.entries(edit.photographs ?? {})) {
        const photo = photoCalled(file);
        if (!photo) continue;
        if (photo.changed <= revision || at >= 0) photographs[file] = change;
        else if (!isThere(photo, change)) outdated += 1;
      }
      const { id, landmarks, renamed, skeleton, settings } = edit;
      if (project.revision === revision) return [{ ...edit, photographs }]; // nothing happened since
      if (landmarks || renamed || skeleton || settings) outdated += 1;
      return Object.keys(photographs).length ? [{ id, photographs }] : [];
    });
  });
  return { edits: taken, outdated };
}

function isThere(photo, { points = {}, reviewed }) {
  const same = (a, b) => (!a && !b) || (a && b && a.x === b.x && a.y === b.y && Boolean(a.absent) === Boolean(b.absent));
  return Object.entries(points).every(([name, mark]) => same(mark, photo.points[name])) && (reviewed === undefined || reviewed === photo.reviewed);
}

// How sure a mark is, and how that looks. A mark is null (not set), or {from, x, y}, or {from, absent: true}; `from` is
// "person", "kept" (a proposal that a person accepted), "copied" or "proposed", and what was proposed has score (the point
// is right), visible (it is in the picture) and spread (pixels that hold 68 %). Colour is the machine's certainty: what a
// person has set or kept has none.

import { percent } from "./dom.js";

export const SURE = 0.8;
const DOUBT = 0.5;

export const bandOf = (share) => (share >= SURE ? "sure" : share >= DOUBT ? "unsure" : "doubt");
export const certaintyOf = (mark) => (mark.absent ? 1 - (mark.visible ?? 0) : (mark.score ?? 1));
export const isProposed = (mark) => mark?.from === "proposed";
export const isPlaced = (mark) => Boolean(mark && !mark.absent);
export const wantsCheck = (mark) => mark?.from === "copied" || (isProposed(mark) && certaintyOf(mark) < SURE);

export function lookOf(mark) {
  if (!mark) return { shape: "unset", band: "", text: "not set" };
  if (mark.absent) {
    const settled = mark.from !== "proposed";
    const band = settled || certaintyOf(mark) >= SURE ? "" : "unsure";
    return { shape: "absent", band, text: settled ? "absent" : `absent ${percent(certaintyOf(mark))}` };
  }
  if (mark.from === "person") return { shape: "person", band: "", text: "you" };
  if (mark.from !== "proposed") return { shape: mark.from, band: "", text: mark.from };
  const band = bandOf(mark.score);
  return { shape: band, band, text: percent(mark.score) };
}

// What a person sets, with the proposal that it takes the place of: the share of proposals kept is counted from it.
export function byHand(mark, at) {
  const was = isProposed(mark) || mark?.from === "kept" ? { ...mark, from: "proposed" } : mark?.was;
  return { ...(at.absent ? { absent: true } : { x: at.x, y: at.y }), from: "person", ...(was && { was }) };
}

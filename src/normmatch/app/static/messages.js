// What the page says: a toast below the photograph, banners below the top bar.

import { $, announce, button, make } from "./dom.js";
import { icon } from "./signs.js";

let ends;

// A sentence for 4 seconds, or for 8 with something to do about it.
export function toast(text, action, run) {
  const box = $("#toast");
  const close = () => box.classList.remove("shown");
  const act = action && make("button", { type: "button", onclick: () => { close(); run(); } }, action);
  box.replaceChildren(make("span", {}, text), ...(act ? [act] : []));
  box.classList.add("shown");
  announce(action ? `${text} ${action}` : text);
  clearTimeout(ends);
  ends = setTimeout(close, action ? 8000 : 4000);
}

// kind: "stop" or "warn"; it pushes the page down, and covers nothing. actions: [[text, run], ...], the first is primary.
export function banner(kind, sign, title, sentence, actions) {
  const box = $("#banner");
  const said = kind ? `${title} ${sentence}` : "";
  if (kind && box.dataset.said === said) return; // it stands there, and is not read out again
  box.dataset.said = said;
  box.hidden = !kind;
  if (!kind) return box.replaceChildren();
  box.className = `banner ${kind}`;
  const buttons = actions.map(([text, run], k) => button(
    text, run, { class: `button${kind === "stop" && !k ? " primary" : ""}` }
  ));
  box.replaceChildren(icon(sign), make("p", {}, make("b", {}, `${title} `), sentence), ...buttons);
}

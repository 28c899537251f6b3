// Menus, dialogs, and light or dark: what opens over the page.

import { $, clamp, make, memory } from "./dom.js";
import { icon } from "./signs.js";

// Buttons that open a list of menu items below themselves, or above where there is no room.
export function menu(openers, list) {
  list.popover = "auto";
  list.setAttribute("role", "menu");
  list.setAttribute("aria-label", openers[0].getAttribute("aria-label") ?? openers[0].textContent.trim());
  const items = () => [...list.querySelectorAll("button:not([hidden]):not(:disabled)")];
  for (const opener of openers) {
    opener.setAttribute("aria-haspopup", "menu");
    opener.setAttribute("aria-expanded", "false");
    opener.addEventListener("click", () => {
      if (list.matches(":popover-open")) return list.hidePopover();
      list.showPopover();
      put(list, opener.getBoundingClientRect());
      items()[0]?.focus({ preventScroll: true });
    });
    list.addEventListener("toggle", (event) => opener.setAttribute("aria-expanded", event.newState === "open"));
  }
  list.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || event.target.matches("input")) return;
    event.preventDefault();
    all[to % all.length].focus();
  });
  list.addEventListener("click", (event) => {
    if (event.target.closest("button:not([data-stay])")) list.hidePopover();
  });
}

function put(list, at) {
  const box = list.getBoundingClientRect();
  const below = at.bottom + 6 + box.height < innerHeight || at.top < innerHeight / 2;
  list.style.left = `${clamp(at.right - box.width, 8, Math.max(innerWidth - box.width - 8, 8))}px`;
  list.style.top = `${Math.max(8, below ? at.bottom + 6 : at.top - 6 - box.height)}px`;
}

export const item = (text, note, run, { key, ...rest } = {}) =>
  make("button", { type: "button", role: "menuitem", onclick: run, ...rest },
    make("span", {}, text), note ? make("small", {}, note) : null, key ? make("kbd", {}, key) : null);

const THEMES = { auto: "as the system", light: "light", dark: "dark" };

export function setTheme(name) {
  document.documentElement.dataset.theme = name;
  for (const opener of document.querySelectorAll("[data-theme-switch]")) {
    opener.replaceChildren(icon(name));
    opener.title = `Colours: ${THEMES[name]}`;
    opener.setAttribute("aria-label", opener.title);
  }
  memory.set("theme", name);
}

export function nextTheme() {
  const all = Object.keys(THEMES);
  setTheme(all[(all.indexOf(document.documentElement.dataset.theme) + 1) % all.length]);
}

export function startTheme() {
  for (const opener of document.querySelectorAll("[data-theme-switch]")) opener.addEventListener("click", nextTheme);
  const kept = memory.get("theme");
  setTheme(THEMES[kept] ? kept : "auto");
}

// Dialogs close by their button, by Esc, and by a click beside them.
export function startDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    for (const closer of dialog.querySelectorAll("[data-close]")) closer.addEventListener("click", () => dialog.close());
  }
}

export const somethingOpen = () => Boolean(document.querySelector("dialog[open], :popover-open"));
export const showDialog = (selector) => $(selector).showModal();

// After a click of the mouse the keys work on the photograph again; who uses the keyboard keeps the focus.
export function focusAfterClick(frame) {
  document.addEventListener("click", (event) => {
    const used = event.target.closest?.(".button, .chip, .row, .thumb, .menu button");
    if (event.detail && used && !somethingOpen() && !used.closest("form, .crops, dialog")) frame.focus({ preventScroll: true, focusVisible: false });
  });
}

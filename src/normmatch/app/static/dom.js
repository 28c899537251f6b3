// Small helpers that both pages share: elements, numbers in words, and the region that screen readers hear.

export const $ = (selector, root = document) => root.querySelector(selector);
export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
export const percent = (share) => `${Math.round(share * 100)}\u202f%`;
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
export const isPhone = matchMedia("(max-width: 759px)");
export const stemOf = (name) => name.split("/").pop().replace(/\.\w+$/, "");

// What tells a name from the others of its list, for where there is little room: three letters at least.
export function shortened(stem, stems) {
  const alike = stems.length > 1 ? [...stem].findIndex((letter, k) => stems.some((other) => other[k] !== letter)) : 0;
  return stem.slice(Math.max(0, Math.min(alike, stem.length - 3)));
}

// An element; attributes that begin with "on" are listeners, true is an empty attribute, false and null are none.
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-") && value != null) made.setAttribute(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export const button = (text, run, attributes = {}) => make(
  "button", { type: "button", class: "button", onclick: run, ...attributes }, text
);

let saying;
// To screen readers, where nothing on the page takes the focus.
export function announce(text) {
  const region = $("#live");
  region.textContent = "";
  clearTimeout(saying);
  saying = setTimeout(() => { region.textContent = text; }, 30); // an emptied region is read again even if the words are the same
}

// Many changes within a frame are one drawing.
export function onceAFrame(draw) {
  let asked = 0;
  return () => {
    if (asked) return;
    asked = requestAnimationFrame(() => {
      asked = 0;
      draw();
    });
  };
}

// A person's settings, kept in this browser; a page works without a memory as well.
export const memory = {
  get(name) {
    try {
      return localStorage.getItem(`normmatch-${name}`);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      value == null ? localStorage.removeItem(`normmatch-${name}`) : localStorage.setItem(`normmatch-${name}`, value);
      return true;
    } catch {
      return false;
    }
  },
};

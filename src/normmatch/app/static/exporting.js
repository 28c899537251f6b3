// Files out: the formats that the server offers, of the reviewed photographs or of all.

import { $, make } from "./dom.js";
import { item } from "./menus.js";
import { toast } from "./messages.js";
import { reviewed, state } from "./project.js";
import { flush } from "./saving.js";

let which = "reviewed";

export function fillExport() {
  const radio = (name) => item(
    "", null, () => { which = name; say(); }, { role: "menuitemradio", "data-stay": true, "data-which": name }
  );
  const group = (name) => state.exports.filter((one) => one.group === name).map(({ format, title, note }) => item(
    title, note, () => save(format, title), { "data-format": format }
  ));
  $("#exportMenu").replaceChildren(
    make("h2", {}, "Which photographs"), radio("reviewed"), radio("all"), make("hr"),
    make("h2", {}, "Landmarks"), ...group("landmarks"), make("hr"), make("h2", {}, "Results"), ...group("results"));
  $("#exportMenu").addEventListener("beforetoggle", say);
  say();
}

function say() {
  for (const radio of $("#exportMenu").querySelectorAll("[data-which]")) {
    const all = radio.dataset.which === "all";
    radio.firstChild.textContent = all ? `All ${state.photographs.length}, with proposals and their certainty` : `Reviewed only, ${reviewed().length} photographs`;
    radio.setAttribute("aria-checked", radio.dataset.which === which);
  }
}

// Fetched, so that an error is a sentence here and not a page.
async function save(format, title) {
  try {
    await flush();
    toast(`${title} …`);
    const answer = await fetch(`export/${format}?photographs=${which}`);
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `The server answered with ${answer.status}.`);
    const told = answer.headers.get("Content-Disposition") ?? "";
    const name = decodeURIComponent(/filename\*=UTF-8''([^;]+)/.exec(told)?.[1] ?? /filename="?([^";]+)/.exec(told)?.[1] ?? `${state.name}-${format}`);
    const link = make("a", { href: URL.createObjectURL(await answer.blob()), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    toast(`${name} is saved where your browser keeps downloads.`);
  } catch (error) {
    toast(error.message === "Failed to fetch" ? "NormMatch does not answer; nothing was exported." : error.message);
  }
}

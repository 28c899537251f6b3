// A table of the help: keys, and what they do.

import { make } from "./dom.js";

export const table = (title, entries) => make("section", {}, make("h3", {}, title),
  make(
    "dl", {},
    ...entries.flatMap(([keys, text]) => [make("dt", {}, ...keys.map((key) => make("kbd", {}, key))), make("dd", {}, text)])
  ));

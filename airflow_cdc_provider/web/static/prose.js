// Sentences of the server: what is between backticks is code, and a few marks of Markdown.

import { h } from "./dom.js";

const MARKS = /(`+) ?(.+?) ?\1|\*\*(.+?)\*\*/g;

/** A sentence, with `code` and **strong words** as elements. */
export function prose(text) {
  const parts = [];
  let from = 0;
  for (const found of String(text).matchAll(MARKS)) {
    parts.push(text.slice(from, found.index));
    parts.push(found[2] === undefined ? h("strong", {}, found[3]) : h("code", {}, found[2]));
    from = found.index + found[0].length;
  }
  return [...parts, String(text).slice(from)];
}

/** A text of paragraphs and of lists whose lines begin with a dash. */
export function paragraphs(text) {
  const blocks = [];
  for (const line of String(text).split("\n").map((each) => each.trim())) {
    const item = line.startsWith("- ") ? h("li", {}, prose(line.slice(2))) : null;
    if (item === null) {
      if (line) blocks.push(h("p", {}, prose(line)));
    } else if (blocks.at(-1)?.tagName === "UL") blocks.at(-1).append(item);
    else blocks.push(h("ul", {}, item));
  }
  return blocks;
}

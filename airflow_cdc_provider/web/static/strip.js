// The ranges of a table's key in their order, and what each is at.

import { h } from "./dom.js";

const CELLS = {
  pending: "not read yet",
  part: "partly read",
  reading: "being read",
  own: "read, at its own high watermark",
  stream: "at the stream’s position",
  again: "being read again by a request",
  failed: "failed",
  left: "left alone by the stream",
};

/** What the colours of the strips mean. */
export function legend() {
  return h(
    "p",
    { class: "legend" },
    Object.entries(CELLS).map(([kind, text]) =>
      h("span", {}, h("span", { class: `swatch cell-${kind}` }), text),
    ),
  );
}

const FLOWS = new Set(["consistent", "following"]);

function kindOf(letter, table) {
  if (letter === "x") return "failed";
  if (letter === "r") return "reading";
  if (letter === "0") return "pending";
  if (letter !== "9") return "part";
  if (table.requests.length) return "again";
  if (table.phase === "paused" || table.phase === "failed") return "left";
  return FLOWS.has(table.phase) ? "stream" : "own";
}

export function strip(table) {
  const whole = FLOWS.has(table.phase) ? "9" : "0";
  const kinds = [...(table.strip || whole)].map((letter) => kindOf(letter, table));
  const cells = [];
  for (let from = 0; from < kinds.length; ) {
    let to = from + 1;
    while (to < kinds.length && kinds[to] === kinds[from]) to += 1;
    const cell = h("span", { class: `cell-${kinds[from]}`, title: CELLS[kinds[from]] });
    cell.style.flexGrow = to - from;
    cells.push(cell);
    from = to;
  }
  const told = [...new Set(kinds)].map((kind) => CELLS[kind]).join(", ");
  return h("span", { class: "strip", role: "img", "aria-label": told }, cells);
}

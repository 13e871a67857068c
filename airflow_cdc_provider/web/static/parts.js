// Pieces that both views are made of.

import { h } from "./dom.js";
import { compact, seconds, words } from "./format.js";

const TONES = {
  failed: "bad",
  "cannot be looked at": "bad",
  streaming: "good",
  paused: "idle",
  stopped: "idle",
  new: "idle",
};

/** A link to Airflow's own pages; Airflow lets no frame of its leave them, so there it is a name. */
export const airflowLink = (path, text) =>
  window.top === window.self ? h("a", { href: `../${path}` }, text) : text;

/** What a pipeline does, in a word, with its tone. */
export function badge(text, tone = TONES[text] ?? "busy") {
  return h("span", { class: `badge ${tone}` }, words(text));
}

/** The badges of a pipeline's row. */
export function badges(row) {
  return [
    badge(row.summary, row.held_up ? "bad" : row.stale ? "warn" : undefined),
    row.stale ? badge("stale", "warn") : null,
    row.wanted === "stop" && row.summary !== "paused" ? badge("pause wanted", "warn") : null,
    row.wanted === "restart" ? badge("restart wanted", "warn") : null,
    row.dag_paused ? badge("DAG paused", "idle") : null,
  ];
}

/** A bar of how much of a whole is done. */
export function bar(done, whole, label) {
  const share = whole > 0 ? Math.min(1, done / whole) : 0;
  const fill = h("span", { class: share === 1 ? "fill full" : "fill" });
  fill.style.width = `${share * 100}%`;
  return h("span", { class: "bar", role: "img", "aria-label": label }, fill);
}

/** An error's facts: what, where, what is at risk, what to do. */
export function facts(error, subject = "") {
  const line = (name, text) =>
    text ? [h("dt", {}, name), h("dd", {}, text)] : [];
  return h(
    "div",
    { class: `problem ${error.level ?? ""}` },
    h(
      "p",
      { class: "what" },
      subject ? h("strong", {}, `${subject}: `) : null,
      error.code && error.code !== "CDC-000" ? h("code", {}, error.code) : null,
      " ",
      error.what,
    ),
    h(
      "dl",
      {},
      line("Where", error.where),
      line("At risk", error.risk),
      line("What to do", error.remedy),
      line("In Airflow", error.in_airflow),
    ),
  );
}

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

function kindOf(letter, table) {
  if (letter === "x") return "failed";
  if (letter === "r") return "reading";
  if (letter === "0") return "pending";
  if (letter !== "9") return "part";
  if (table.requests.length) return "again";
  if (table.phase === "paused" || table.phase === "failed") return "left";
  return table.phase === "consistent" ? "stream" : "own";
}

/** The ranges of a table's key in their order, and what each is at. */
export function strip(table) {
  const whole = table.phase === "consistent" ? "9" : "0";
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

/** A number with its name, large. */
export function tile(name, text, more = "", tone = "") {
  return h(
    "div",
    { class: `tile ${tone}`, "data-fact": name },
    h("span", { class: "name" }, name),
    h("span", { class: "number" }, text),
    h("span", { class: "more" }, more),
  );
}

/** How far the stream was behind when it ended, or was last heard of; nobody knows it now. */
export const lastLag = (row) =>
  row.lag_s === null && row.last_lag_s !== null && row.last_lag_s !== undefined
    ? `${seconds(row.last_lag_s)} ${row.phase === "streaming" ? "when last at work" : "at the end of its last run"}, `
    : "";
export const lagTone = (row) => (row.held_up ? "bad" : row.stale ? "warn" : "");
export const rowsOf = (table) =>
  `${compact(table.rows)} of about ${compact(Math.max(table.rows, table.estimated_rows))} rows`;
export const age = (row) =>
  row.heartbeat_age_s === null || row.heartbeat_age_s === undefined
    ? "no heartbeat yet"
    : `heard of ${seconds(row.heartbeat_age_s)} ago`;

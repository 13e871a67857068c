// A pipeline's tables, a row each, what is not well first; one that is opened shows its ranges.

import { changesOf, tableForm } from "./ask.js";
import { h, part } from "./dom.js";
import { bytes, compact, count, moment, noun, NOTHING, seconds, when } from "./format.js";
import { badge, facts, rowsOf } from "./parts.js";
import { legend, strip } from "./strip.js";

const MOST_TABLES = 100;
const TONES = { consistent: "good", following: "good", failed: "bad", paused: "warn", "not copied": "warn" };
const RANKS = { failed: 0, paused: 1, "not copied": 1, changed: 2, consistent: 9, following: 9 };
const READ = new Set(["planned", "snapshot", "changed"]);
const UNREAD = new Set([...READ, "read"]);
const HEADS = [
  ["Table", "table"],
  ["State", "state"],
  ["Rows", "number"],
  ["Inserts", "number"],
  ["Updates", "number"],
  ["Deletes", "number"],
  ["Last change", "time"],
  ["Lag", "time"],
  ["Last verified", "verified"],
  ["", "change"],
];

export function tablesPart(path, again) {
  const opened = new Set();
  const body = h("div", { class: "scrolled" });
  const below = h("div");
  const found = h("input", {
    type: "search",
    placeholder: "Find a table",
    "aria-label": "Find a table",
    oninput: () => redraw(),
  });
  const note = h("span", { class: "quiet" }, "Inserts, updates and deletes are today’s, since midnight UTC.");
  const element = h("div", {}, h("header", {}, note, found), body, below);
  const toggle = (name) => {
    if (!opened.delete(name)) opened.add(name);
    redraw();
  };
  const change = (table) => tableForm(table, changesOf(table, mayChange), path, again);
  const draw = part(body, ([tables, lag, may, open]) => {
    const has = (table) => changesOf(table, may).length > 0;
    return tableList(tables, { lag, open: new Set(open), toggle, change: (table) => (has(table) ? change : null) });
  });
  const drawBelow = part(below, ([more, hasStrips]) => [
    more ? h("p", { class: "quiet" }, `And ${more} more: find them by name.`) : null,
    hasStrips ? legend() : null,
  ]);
  let known = [];
  let lag = null;
  let mayChange = [];

  function redraw() {
    const text = found.value.trim().toLowerCase();
    const fitting = known.filter((each) => `${each.source} ${each.sink ?? ""}`.toLowerCase().includes(text));
    const shown = fitting.slice(0, MOST_TABLES);
    draw([shown, lag, mayChange, [...opened]]);
    const hasStrips = shown.some((each) => each.sink && (isRead(each) || opened.has(each.source)));
    drawBelow([Math.max(0, fitting.length - MOST_TABLES), hasStrips]);
  }

  return {
    element,
    show(it) {
      const others = it.not_copied.map((source) => ({ source, phase: "not copied" }));
      known = [...it.table_list, ...others].sort((one, other) => rank(one) - rank(other));
      found.hidden = known.length < 6;
      lag = it.lag_s;
      mayChange = it.may_write && it.is_handed_off ? it.changes : [];
      redraw();
    },
  };
}

const differs = (table) => table.verified?.equal === false;
const rank = (table) => (table.waits ? 0 : differs(table) ? 1 : RANKS[table.phase] ?? 5);
/** Tell whether a table's strip says something new with each look. */
const isRead = (table) => (READ.has(table.phase) && !table.by_request) || table.requests?.length > 0;

function tableList(tables, how) {
  if (!tables.length) return [h("p", { class: "quiet" }, "No tables.")];
  return [
    h(
      "table",
      { class: "tables" },
      h("colgroup", {}, HEADS.map(([, kind]) => h("col", { class: `col-${kind}` }))),
      h("thead", {}, h("tr", {}, HEADS.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
      h("tbody", {}, tables.map((table) => rows(table, how))),
    ),
  ];
}

function rows(table, how) {
  const isOpen = how.open.has(table.source);
  return [
    h(
      "tr",
      { "data-table": table.source, class: isOpen ? "opened" : null },
      h("td", {}, opener(table, isOpen, how.toggle)),
      h("td", {}, table.waits ? badge("waits at the sink", "bad") : badge(table.phase, TONES[table.phase] ?? "busy")),
      table.sink && isRead(table) ? reading(table) : numbers(table, how.lag),
      h("td", { class: "change" }, changer(table, how.change(table))),
    ),
    isOpen && table.sink ? h("tr", { class: "more" }, h("td", { colspan: HEADS.length }, more(table))) : null,
  ];
}

function opener(table, isOpen, toggle) {
  const name = h("span", { class: "name", title: table.sink ? `${table.source} → ${table.sink}` : table.source }, table.source);
  if (!table.sink) return name;
  return h(
    "button",
    {
      type: "button",
      class: "opener",
      "data-key": `open ${table.source}`,
      "aria-expanded": String(isOpen),
      onclick: () => toggle(table.source),
    },
    name,
  );
}

/** In the place of its numbers, how far a table is read. */
function reading(table) {
  const growing = table.planning_done ? "" : "+";
  const splits = `${count(table.finished)}/${count(table.splits)}${growing} ${noun(table.splits, "split")}`;
  const text = `${splits}, ${rowsOf(table)}`;
  return h("td", { colspan: 7 }, h("span", { class: "being-read" }, strip(table), h("span", { class: "quiet" }, text)));
}

const MOST_DIGITS = 1e9;
const short = (value) => (value >= MOST_DIGITS ? compact(value) : count(value));
const number = (value) => h("td", { class: value === null || value === undefined ? "number none" : "number" }, short(value));

function numbers(table, lag) {
  const isFollowed = !table.waits && ["consistent", "following", "catching_up"].includes(table.phase);
  return [
    h("td", { class: "number", title: countedWhen(table) }, short(rowsNow(table))),
    number(table.inserts),
    number(table.updates),
    number(table.deletes),
    h("td", { title: table.changed_us ? moment(table.changed_us) : null }, when(table.changed_us)),
    h("td", {}, isFollowed ? seconds(lag) : NOTHING),
    h("td", { title: table.verified ? moment(table.verified.at_us) : null }, verdict(table.verified)),
  ];
}

/** The rows of a table when they were last counted. */
const rowsNow = (table) =>
  table.verified?.rows ?? (table.by_request || !table.splits ? null : table.rows);
const countedWhen = (table) =>
  table.verified?.rows === undefined ? "as the snapshot read them" : `as compared ${moment(table.verified.at_us)}`;

function verdict(verified) {
  if (!verified) return NOTHING;
  return h("span", { class: verified.equal ? "good" : "bad" }, `${verified.equal ? "equal" : "differs"} ${when(verified.at_us)}`);
}

function changer(table, change) {
  if (!change) return null;
  return h(
    "button",
    {
      type: "button",
      class: "small",
      "data-key": `change ${table.source}`,
      "aria-label": `Change ${table.source}`,
      onclick: () => change(table),
    },
    "Change…",
  );
}

/** What an opened table shows beside its row. */
function more(table) {
  const growing = table.planning_done ? "" : "+";
  const splits = `${count(table.finished)}/${count(table.splits)}${growing} ${noun(table.splits, "split")}, ${rowsOf(table)}, ${bytes(table.bytes)}`;
  return h(
    "div",
    { class: "table-more" },
    h("p", {}, "Copied to ", h("strong", {}, table.sink), table.key?.length ? `, key ${table.key.join(", ")}` : ""),
    strip(table),
    h("p", { class: "quiet" }, table.by_request ? rowsByRequest(table) : `Snapshot: ${splits}`),
    table.error ? facts(table.error) : null,
  );
}

/** Say of a table that has no splits of a plan who reads its rows. */
const rowsByRequest = (table) =>
  table.requests?.length
    ? `Its rows are read by ${table.requests.join(", ")}.`
    : table.phase === "following"
      ? "It began without a snapshot: rows of before are as they were at the sink."
      : UNREAD.has(table.phase)
        ? "Its rows wait for a request that reads them."
        : "Its rows did not come by the first snapshot, but beside the stream, by the opposite edge, or before this state.";

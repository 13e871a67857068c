// Pieces that several views are made of.

import { h } from "./dom.js";
import { compact, noun, seconds, words } from "./format.js";
import { prose } from "./prose.js";

const TONES = {
  "broken file": "bad",
  "cannot be looked at": "bad",
  "caught up": "good",
  ended: "good",
  failed: "bad",
  "held up": "bad",
  "never run": "idle",
  "not heard of": "warn",
  paused: "idle",
  stopping: "warn",
  streaming: "good",
  "to be started": "warn",
};

export const address = (row) =>
  `page?${new URLSearchParams({ dag_id: row.dag_id, pipeline: row.pipeline })}`;

export const stateTone = (state) => TONES[state] ?? "busy";

/** What a pipeline does, in a word, with its tone. */
export function badge(text, tone = stateTone(text)) {
  return h("span", { class: `badge ${tone}` }, words(text));
}

/** The badges of a pipeline. */
export function badges(row) {
  return [
    badge(row.state),
    row.wanted === "restart" && row.state !== "restarting" ? [" ", badge("restart wanted", "warn")] : null,
    row.dag_paused ? [" ", badge("DAG paused", "idle")] : null,
  ];
}

/** A bar of how much of a whole is done. */
export function bar(done, whole, label) {
  const share = whole > 0 ? Math.min(1, done / whole) : 0;
  const fill = h("span", { class: "fill" });
  fill.style.width = `${share * 100}%`;
  return h("span", { class: "bar", role: "img", "aria-label": label, title: label }, fill);
}

/** Names with what is said of each. */
export const line = (name, text) =>
  text ? [h("dt", {}, name), h("dd", {}, typeof text === "string" ? prose(text) : text)] : [];

/** An error's facts: what, where, what is at risk, what to do. */
export function facts(error, subject = "") {
  return h(
    "div",
    { class: `problem ${error.level ?? ""}` },
    h(
      "p",
      { class: "what" },
      subject ? h("strong", {}, `${subject}: `) : null,
      error.code && error.code !== "CDC-000" ? h("code", {}, error.code) : null,
      " ",
      prose(error.what),
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
export const lagTone = (row) => (row.held_up || row.late ? "bad" : row.stale ? "warn" : "");
export const rowsOf = ({ rows, estimated_rows: estimated }) => {
  const about = Math.max(rows, estimated);
  return `${compact(rows)} of about ${compact(about)} ${noun(about, "row")}`;
};
export const age = (row) =>
  row.heartbeat_age_s === null || row.heartbeat_age_s === undefined
    ? "no heartbeat yet"
    : `heard of ${seconds(row.heartbeat_age_s)} ago`;
/** How old the copy is: the lag of a stream at work, else the time since one was. */
export const copyAge = (row) => (row.ended ? null : (row.lag_s ?? row.copy_age_s ?? null));
/** How many open requests and questions wait for a person. */
export const waiting = (row) => (row.waiting_requests ?? 0) + (row.waiting_approvals ?? 0);

// What was asked of a pipeline: open requests with how far they are, others a line each.

import { post } from "./api.js";
import { ask } from "./ask.js";
import { h } from "./dom.js";
import { count, moment, plural, when } from "./format.js";
import { badge, bar } from "./parts.js";
import { prose } from "./prose.js";

const OPEN = new Set(["waiting", "asked", "reading"]);
const TONES = { done: "good", failed: "bad", cancelled: "idle", waiting: "warn" };

export function requests([all, mayWrite], path, again) {
  if (!all.length) return [h("p", { class: "quiet" }, "No requests.")];
  const open = all.filter((each) => OPEN.has(each.status));
  const ended = all.filter((each) => !OPEN.has(each.status));
  return [
    ...open.map((each) => openRequest(each, mayWrite, path, again)),
    ended.length && open.length ? h("h3", {}, "Ended") : null,
    ...ended.map(endedRequest),
  ];
}

const named = (it) => [
  h("strong", {}, it.id),
  ` ${it.kind} of ${scope(it)} `,
  badge(it.status, TONES[it.status] ?? "busy"),
];

function openRequest(it, mayWrite, path, again) {
  const own = `${path}/requests/${encodeURIComponent(it.id)}`;
  const button = (verb, text, question) =>
    h(
      "button",
      {
        type: "button",
        "data-key": `${verb} ${it.id}`,
        disabled: !mayWrite,
        onclick: () => ask(question, text, () => post(`${own}/${verb}`), again),
      },
      text,
    );
  const whole = it.estimated_rows;
  const rows = `rows of ${scope(it)} again?`;
  return h(
    "article",
    { class: "request", "data-request": it.id },
    h("div", { class: "names" }, named(it), it.cancel_wanted ? [" ", badge("to be cancelled", "warn")] : null),
    h(
      "div",
      { class: "progress" },
      whole && it.reads_rows && it.status === "reading" ? bar(it.rows, whole, `${it.rows} of about ${plural(whole, "row")}`) : null,
      h(
        "span",
        { class: "quiet" },
        it.reads_rows ? `${whole === null ? plural(it.rows, "row") : `${count(it.rows)} of about ${plural(whole, "row")}`}, ${spared(it)}` : "",
        `asked by ${it.asked_by}, ${moment(it.asked_us)}`,
      ),
    ),
    it.error ? h("p", { class: "quiet" }, prose(it.error)) : null,
    it.cancel_wanted
      ? null
      : h(
          "p",
          { class: "buttons" },
          it.status === "waiting"
            ? button("approve", "Approve", `Let request ${it.id} read ${whole === null ? "its" : `about ${count(whole)}`} ${rows}`)
            : null,
          button("cancel", "Cancel", `Give request ${it.id} up? Rows that were read again stay right.`),
        ),
  );
}

function endedRequest(it) {
  const rows = it.reads_rows ? `${plural(it.rows, "row")}, ${spared(it)}` : "";
  return h(
    "article",
    { class: "request ended", "data-request": it.id },
    named(it),
    h("span", { class: "quiet", title: moment(it.asked_us) }, ` ${rows}asked by ${it.asked_by}, ${when(it.asked_us)}`),
    it.error ? h("span", { class: it.status === "failed" ? "bad" : "quiet" }, " ", prose(it.error)) : null,
  );
}

/** How many rows were left alone, of a request on an edge of a topology. */
const spared = (it) => (it.left ? `${count(it.left)} left as the sink’s node had changed them, ` : "");

/** What a request is about. */
export function scope(it) {
  const tables = it.tables.length > 3 ? `${it.tables.length} tables` : it.tables.join(", ");
  const key = it.from_key || it.to_key ? `, keys ${text(it.from_key)} up to ${text(it.to_key)}` : "";
  const rows = it.condition ? `, where ${text(it.condition)}` : it.interval ? `, ${interval(it.interval)}` : "";
  return `${tables}${key}${rows}`;
}

const interval = ([column, [from, to]]) => `${column} from ${text(from)} up to ${text(to)}`;

const text = (value) =>
  value === null || value === undefined
    ? "the end"
    : typeof value === "string"
      ? value
      : JSON.stringify(value);

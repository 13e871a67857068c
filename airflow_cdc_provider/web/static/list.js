// All pipelines, one row each.

import { get } from "./api.js";
import { h, part } from "./dom.js";
import { compact, rate, seconds } from "./format.js";
import { age, badges, bar, lagTone, lastLag } from "./parts.js";

/** Build the view; returns what brings it up to date. */
export function listView(page) {
  const rows = h("div", { class: "list" });
  const found = h("input", {
    type: "search",
    placeholder: "Find a pipeline",
    "aria-label": "Find a pipeline",
    oninput: () => show(),
  });
  page.replaceChildren(h("header", {}, h("h1", {}, "CDC pipelines"), found), rows);
  let shown = null;
  const draw = part(rows, table);

  function show() {
    if (shown === null) return;
    const text = found.value.trim().toLowerCase();
    draw(shown.filter((row) => row.pipeline.toLowerCase().includes(text)));
  }

  return async () => {
    shown = (await get("api/pipelines")).pipelines;
    found.hidden = shown.length < 2;
    show();
  };
}

function table(rows) {
  if (!rows.length) return empty();
  const heads = ["Pipeline", "State", "Lag", "Changes/s", "Rows/s", "Tables", "Requests", "Problems"];
  return h(
    "table",
    { class: "pipelines" },
    h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map(line)),
  );
}

function empty() {
  return h(
    "div",
    { class: "empty" },
    h("p", {}, "No pipeline is to be seen here."),
    h(
      "p",
      { class: "quiet" },
      "The page shows pipelines of DAGs that you may read and that have the tag “cdc”, as those " +
        "have that cdc_dags makes.",
    ),
  );
}

export const address = (row) =>
  `page?${new URLSearchParams({ dag_id: row.dag_id, pipeline: row.pipeline })}`;

function line(row) {
  const name = h("a", { href: address(row), "data-key": `row ${row.dag_id}` }, row.pipeline);
  if (row.problem) {
    return h(
      "tr",
      { "data-pipeline": row.pipeline },
      cell("Pipeline", name),
      cell("State", badges(row)),
      h("td", { colspan: 6, "data-label": "Problems" }, unseen(row.problem)),
    );
  }
  return h(
    "tr",
    { "data-pipeline": row.pipeline },
    cell("Pipeline", name),
    cell("State", badges(row)),
    cell("Lag", h("span", { title: lastLag(row) + age(row), class: lagTone(row) }, seconds(row.lag_s))),
    cell("Changes/s", rate(row.changes_per_s)),
    cell("Rows/s", rate(row.rows_per_s)),
    cell("Tables", tables(row)),
    cell("Requests", requests(row)),
    cell("Problems", problems(row)),
  );
}

function unseen(problem) {
  return h(
    "span",
    {},
    h("span", { class: "bad" }, problem.what),
    h("br"),
    h("span", { class: "quiet" }, problem.remedy),
  );
}

const cell = (label, ...content) => h("td", { "data-label": label }, ...content);

function tables(row) {
  if (!row.tables) return "–";
  const label = `${row.consistent} of ${row.tables} tables are consistent`;
  return h(
    "span",
    { class: "with-bar", title: label },
    bar(row.consistent, row.tables, label),
    `${compact(row.consistent)}/${compact(row.tables)}`,
  );
}

function requests(row) {
  if (!row.open_requests) return "–";
  const waiting = row.waiting_requests ? `, ${row.waiting_requests} to approve` : "";
  return `${row.open_requests} open${waiting}`;
}

function problems(row) {
  if (!row.problems.length) return "–";
  const [first, ...others] = row.problems;
  const more = others.length ? ` (and ${others.length} more)` : "";
  const subject = first.table ? `${first.table}: ` : "";
  const tone = row.problems.some((each) => each.level === "error") ? "bad" : "warn";
  return h("span", { class: tone, title: first.remedy }, `${subject}${first.what}${more}`);
}

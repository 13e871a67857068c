// All pipelines, one row each: what is not well first.

import { get } from "./api.js";
import { notice } from "./ask.js";
import { h, part } from "./dom.js";
import { compact, moment, NOTHING, plural, seconds, span, when } from "./format.js";
import { newPipelineForm } from "./new_pipeline.js";
import { address, age, badge, bar, copyAge, lagTone, lastLag, waiting } from "./parts.js";
import { prose } from "./prose.js";
import { drawn, topologies } from "./topology.js";

const EVERY = "all states";
const PROBLEMS = "with problems";
const MAY_NOT = "Airflow lets only those who may add connections look at servers.";

/** Build the view; returns what brings it up to date. */
export function listView(page) {
  const rows = h("div", { class: "list" });
  const text = h("input", {
    type: "search",
    placeholder: "Find a pipeline",
    "aria-label": "Find a pipeline",
    oninput: () => show(),
  });
  const state = h("select", { "aria-label": "State", onchange: () => show() });
  const filters = h("div", { class: "filters" }, state, text);
  const pictures = h("div", { class: "topologies" });
  page.replaceChildren(h("header", {}, h("h1", {}, "CDC pipelines"), filters, beginning()), rows, pictures);
  document.title = "CDC pipelines";
  let shown = null;
  const draw = part(rows, table);
  const picture = part(pictures, (edges) => topologies(edges, linked));
  const choose = part(state, (names) => names.map((name) => h("option", {}, name)));

  function show() {
    if (shown === null) return;
    const chosen = state.value || EVERY;
    const states = [...new Set(shown.map((row) => row.state))].sort();
    choose([...new Set([EVERY, PROBLEMS, ...states, chosen])]);
    state.value = chosen;
    const sought = text.value.trim().toLowerCase();
    const fits = (row) => isOfState(row, chosen) && isNamed(row, sought);
    draw([shown.filter(fits).sort(byTrouble), shown.length]);
  }

  return async () => {
    shown = (await get("api/pipelines")).pipelines;
    filters.hidden = shown.length < 2;
    show();
    picture(shown.filter((row) => row.edge).map(drawn)); // whole, whatever is filtered
  };
}

const linked = (row) => h("a", { href: address(row), "data-key": `edge ${row.dag_id} ${row.pipeline}`, title: row.pipeline }, row.pipeline);

/** A button that opens the form of a new pipeline, for those who may have servers looked at. */
function beginning() {
  const button = h("button", { type: "button", disabled: true, title: MAY_NOT }, "New pipeline…");
  get("api/new").then(({ may_look: mayLook }) => {
    button.disabled = !mayLook;
    if (mayLook) button.removeAttribute("title");
  }, () => {});
  button.addEventListener("click", async () => {
    try {
      const [{ connections }, { pipelines }] = await Promise.all([get("api/new"), get("api/pipelines")]);
      newPipelineForm(connections, pipelines.map((row) => row.pipeline));
    } catch (error) {
      notice(error.facts?.what ?? String(error));
    }
  });
  return button;
}

const isOfState = (row, state) =>
  state === EVERY || (state === PROBLEMS ? rank(row) < 2 : row.state === state);
const isNamed = (row, sought) =>
  [row.pipeline, row.source, row.sink].some((each) => (each ?? "").toLowerCase().includes(sought));

/** Tell how much a row needs somebody: 0 has an error, 1 a warning or a question, 2 is well. */
function rank(row) {
  if (row.problem || row.problems.some((each) => each.level === "error")) return 0;
  return row.problems.length || waiting(row) ? 1 : 2;
}

const byTrouble = (one, other) =>
  rank(one) - rank(other) || one.pipeline.localeCompare(other.pipeline);

const HEADS = [
  ["Pipeline", "name"],
  ["State", "state"],
  ["Source and sink", "ends"],
  ["Mode", "mode"],
  ["Lag or age", "age"],
  ["Last success", "time"],
  ["Next run", "time"],
  ["Tables", "tables"],
  ["Requests", "requests"],
  ["Problems", "problems"],
];

function table([rows, all]) {
  if (!all) return empty();
  return h(
    "table",
    { class: "pipelines" },
    h("colgroup", {}, HEADS.map(([, kind]) => h("col", { class: `col-${kind}` }))),
    h("thead", {}, h("tr", {}, HEADS.map(([name]) => h("th", { scope: "col" }, name)))),
    h(
      "tbody",
      {},
      rows.length ? rows.map(lines) : h("tr", {}, h("td", { colspan: 10, class: "quiet" }, "No pipeline fits.")),
    ),
  );
}

function empty() {
  return h(
    "div",
    { class: "empty" },
    h("p", {}, "There is no pipeline here."),
    h(
      "p",
      { class: "quiet" },
      "The page shows pipelines of DAGs that you may read and that have the tag “cdc”, as those " +
        "have that cdc_dags makes.",
    ),
  );
}

/** A pipeline's row, and below it what is wrong. */
function lines(row) {
  const name = h("a", { href: address(row), "data-key": `row ${row.dag_id}`, title: row.pipeline }, row.pipeline);
  const problem = row.problem ?? row.problems[0];
  return [
    h(
      "tr",
      { "data-pipeline": row.pipeline, class: problem ? "has-problem" : "" },
      cell("Pipeline", name),
      cell("State", h("span", {}, badge(row.state), row.dag_paused ? [" ", badge("DAG paused", "idle")] : null)),
      cell("Source, sink", ends(row)),
      cell("Mode", row.mode || NOTHING),
      cell("Lag or age", freshness(row)),
      cell("Last success", time(row.succeeded_us)),
      cell("Next run", time(row.next_run_us)),
      cell("Tables", tables(row)),
      cell("Requests", requests(row)),
      cell("Problems", row.problem ? "1" : row.problems.length ? String(row.problems.length) : NOTHING),
    ),
    problem ? h("tr", { class: "why", "data-of": row.pipeline }, h("td", { colspan: 10 }, h("div", {}, why(row, problem)))) : null,
  ];
}

function cell(label, content) {
  return h("td", { "data-label": label, class: content === NOTHING ? "none" : null }, content);
}

function ends(row) {
  if (!row.source && !row.sink) return NOTHING;
  const text = `${row.source || "?"} → ${row.sink || "?"}`;
  return h("span", { title: text }, text);
}

function freshness(row) {
  const old = copyAge(row);
  if (old === null) return NOTHING;
  const target = row.freshness_s ? h("span", { class: "quiet" }, ` of ${span(row.freshness_s)}`) : null;
  return h("span", {}, h("span", { title: lastLag(row) + age(row), class: lagTone(row) }, seconds(old)), target);
}

const time = (us) => (us ? h("span", { title: moment(us) }, when(us)) : NOTHING);

function tables(row) {
  if (!row.tables) return NOTHING;
  const label = `${row.consistent} of ${plural(row.tables, "table")} ${row.started ? "following" : "consistent"}`;
  return h(
    "span",
    { class: "with-bar", title: label },
    bar(row.consistent, row.tables, label),
    `${compact(row.consistent)}/${compact(row.tables)}`,
  );
}

function requests(row) {
  const asked = waiting(row);
  if (asked) return h("span", { class: "warn" }, `${asked} to approve`);
  return row.open_requests ? `${row.open_requests} open` : NOTHING;
}

function why(row, problem) {
  const more = row.problems.length > 1 ? ` (and ${row.problems.length - 1} more)` : "";
  const tone = rank(row) ? "warn" : "bad";
  return [
    h("span", { class: tone }, problem.table ? `${problem.table}: ` : "", prose(problem.what), more),
    problem.where && row.problem && !problem.what.includes(problem.where) ? h("span", { class: "quiet" }, " at ", prose(problem.where)) : null,
    problem.remedy ? h("span", { class: "quiet" }, " – ", prose(problem.remedy)) : null,
  ];
}

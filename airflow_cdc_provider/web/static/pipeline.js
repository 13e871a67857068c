// One pipeline: what it does and what waits for a person, then its tables and the rest in tabs.

import { get, pipelinePath } from "./api.js";
import { approvalsPart } from "./approvals.js";
import { charts } from "./chart.js";
import { h, part } from "./dom.js";
import { events } from "./events.js";
import { figures, snapshot } from "./figures.js";
import { count } from "./format.js";
import { headed, heading } from "./heading.js";
import { airflowLink, dagPath } from "./links.js";
import { badge, facts, waiting } from "./parts.js";
import { preflight } from "./preflight.js";
import { requests } from "./requests.js";
import { stream } from "./stream.js";
import { tablesPart } from "./tables.js";
import { tabs } from "./tabs.js";
import { throttled } from "./throttle.js";

const SAMPLES_EVERY_MS = 10_000;
const MOST_PROBLEMS = 4;
const WRONG_FILE = "CDC-CFG-002";
const trail = () => h("nav", {}, h("a", { href: "page" }, "All pipelines"));

/** Build the view; returns what brings it up to date. */
export function pipelineView(page, row, again) {
  document.title = `${row.pipeline} – CDC`;
  const path = pipelinePath(row);
  let view = null;
  return async () => {
    let form;
    try {
      form = await get(path);
    } catch (error) {
      if (view === null && error.facts && error.status !== 0) return refused(page, row, error);
      throw error;
    }
    view ??= built(page, path, again);
    await view(form);
  };
}

/** Say of a pipeline that cannot be looked at why, where its name and its DAG are still seen. */
function refused(page, row, error) {
  page.replaceChildren(
    trail(),
    h("h1", {}, row.pipeline, " ", badge(error.facts.code === WRONG_FILE ? "broken file" : "cannot be looked at")),
    h("p", {}, "DAG ", airflowLink(dagPath(row.dag_id), row.dag_id)),
    h("section", { class: "problems" }, facts({ ...error.facts, level: "error" })),
  );
}

function built(page, path, again) {
  const head = h("div", { class: "head" });
  const tiles = h("section", { class: "tiles" });
  const progress = h("section", { class: "whole" });
  const problems = h("section", { class: "problems" });
  const held = h("div");
  const tables = tablesPart(path, again);
  const panels = { Requests: h("div"), Stream: h("div"), Events: h("div"), Preflight: h("div") };
  const questions = approvalsPart(path, again);
  const plots = charts();
  const tabbed = tabs({ Tables: tables.element, ...panels });
  let latest = null;
  const draw = [
    [part(head, (it) => heading(it, path, again, () => latest)), headed],
    [part(held, throttled), (it) => it.throttle?.text ?? ""],
    [part(tiles, figures), (it) => it],
    [part(progress, snapshot), (it) => it.snapshot],
    [part(problems, wrong), (it) => it.problems],
    [part(panels.Requests, (it) => requests(it, path, again)), (it) => [it.requests, it.may_write]],
    [part(panels.Stream, stream), (it) => [it.stream, it.log_reach, it.started]],
    [part(panels.Events, events), (it) => it.events],
    [part(panels.Preflight, preflight), (it) => it.preflight],
  ];
  page.replaceChildren(
    trail(), head, held, questions.element, problems, progress, tiles, plots.element, tabbed.element,
  );
  let sampledAt = -Infinity;

  return async (form) => {
    latest = form;
    for (const [show, pick] of draw) show(pick(latest));
    tables.show(latest);
    questions.show(latest);
    labelled(tabbed, latest);
    if (performance.now() - sampledAt >= SAMPLES_EVERY_MS) {
      plots.update((await get(`${path}/samples`)).samples);
      sampledAt = performance.now();
    }
  };
}

/** Say on the tabs how much there is behind them. */
function labelled(tabbed, it) {
  const open = it.open_requests + it.waiting_approvals;
  const found = it.preflight?.findings.filter((each) => each.level !== "info").length ?? 0;
  tabbed.label("Tables", count(it.table_list.length), it.stopped ? "bad" : "");
  tabbed.label("Requests", open ? `${open} open` : "", waiting(it) ? "warn" : "");
  tabbed.label("Preflight", found || "", "warn");
}

function wrong(problems) {
  if (!problems.length) return [];
  const [first, others] = [problems.slice(0, MOST_PROBLEMS), problems.slice(MOST_PROBLEMS)];
  const shown = (each) => facts(each, each.table);
  return [
    h("h2", {}, "Problems"),
    first.map(shown),
    others.length
      ? h("details", {}, h("summary", { "data-key": "more problems" }, `${others.length} more`), others.map(shown))
      : null,
  ];
}

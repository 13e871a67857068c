// One pipeline: what it does, its tables, requests and events, and buttons that ask.

import { get, pipelinePath, post } from "./api.js";
import { ask, resyncForm, runNow, tableForm } from "./ask.js";
import { charts } from "./chart.js";
import { h, part } from "./dom.js";
import { bytes, compact, count, moment, rate, seconds, words } from "./format.js";
import { age, airflowLink, badge, badges, bar, facts, lagTone, lastLag, legend, rowsOf, strip, tile } from "./parts.js";

const SAMPLES_EVERY_MS = 10_000;
const MOST_TABLES = 100;

/** Build the view; returns what brings it up to date. */
export function pipelineView(page, row, again) {
  const path = pipelinePath(row);
  const head = h("div", { class: "head" });
  const tiles = h("section", { class: "tiles" });
  const problems = h("section", { class: "problems" });
  const position = h("section");
  const preflight = h("section");
  const tables = tablesPart((it) => tableForm(it, path, again));
  const requests = h("section");
  const events = h("section");
  const plots = charts();
  const draw = [
    [part(head, (it) => heading(it, path, again, () => latest)), headed],
    [part(tiles, facing), (it) => it],
    [part(problems, wrong), (it) => it.problems],
    [part(position, standing), (it) => [it.stream, it.log_reach]],
    [part(preflight, found), (it) => it.preflight],
    [part(requests, (it) => asked(it, path, again)), (it) => [it.requests, it.may_write]],
    [part(events, happened), (it) => it.events],
  ];
  document.title = `${row.pipeline} – CDC`;
  page.replaceChildren(
    h("nav", {}, h("a", { href: "page" }, "All pipelines")),
    head,
    tiles,
    problems,
    plots.element,
    tables.element,
    requests,
    position,
    preflight,
    events,
  );
  let sampledAt = -Infinity;
  let latest = null;

  return async () => {
    latest = await get(path);
    for (const [show, pick] of draw) show(pick(latest));
    tables.show(latest);
    if (performance.now() - sampledAt >= SAMPLES_EVERY_MS) {
      plots.update((await get(`${path}/samples`)).samples);
      sampledAt = performance.now();
    }
  };
}

const HEADED = [
  "pipeline", "dag_id", "dag_paused", "summary", "phase", "wanted", "stale", "held_up", "owner",
  "resync_dag", "may_write", "may_resync", "dag_has_run", "next_run_us",
];

/** What the heading shows: its buttons stay the same while numbers change. */
const headed = (it) => Object.fromEntries(HEADED.map((name) => [name, it[name]]));

function heading(it, path, again, latest) {
  const button = (key, text, question, act) =>
    h(
      "button",
      {
        type: "button",
        "data-key": key,
        disabled: !it.may_write,
        title: it.may_write ? null : `Airflow does not let you run the DAG ${it.dag_id}.`,
        onclick: () => ask(question, text, act, again),
      },
      text,
    );
  // who is at work hears of it; where nobody is, a run of the DAG has to begin
  const wish = (wanted, text, question) =>
    button(wanted, text, question, async () => {
      await post(`${path}/wanted`, { wanted });
      return wanted === "stop" || it.owner ? null : runNow(it);
    });
  const name = it.pipeline;
  const isPaused = it.wanted === "stop";
  const begins = it.owner ? "" : ` A run of the DAG ${it.dag_id} begins.`;
  const resuming = wish(
    "run",
    "Resume",
    `Let ${name} run again, from its last committed position?${begins}`,
  );
  const pausing = wish(
    "stop",
    "Pause",
    `Pause ${name}? It stops behind the transaction it is at, and nothing is lost.`,
  );
  const restarting = wish(
    "restart",
    "Restart",
    `Let ${name} begin again from the sink’s ledger? What it ended with is tried once more.${begins}`,
  );
  const isIdle = !isPaused && it.phase !== "failed" && !it.owner && !it.dag_has_run;
  const running = button("now", "Run now", `Begin a run of the DAG ${it.dag_id} now?`, () => runNow(it));
  return [
    h("h1", {}, name, " ", badges(it)),
    h(
      "p",
      { class: "quiet" },
      "DAG ",
      airflowLink(`dags/${encodeURIComponent(it.dag_id)}`, it.dag_id),
      it.owner ? `, at work: ${it.owner}` : "",
      !it.owner && it.next_run_us ? `, next run ${moment(it.next_run_us)}` : "",
    ),
    h(
      "p",
      { class: "buttons" },
      isPaused || it.phase === "failed" ? resuming : null,
      isIdle ? running : null,
      isPaused ? null : pausing,
      restarting,
      resyncing(it, again, latest),
    ),
  ];
}

function resyncing(it, again, latest) {
  const why = !it.resync_dag
    ? "There is no DAG for resyncs of this pipeline."
    : it.may_resync
      ? null
      : `Airflow does not let you run the DAG ${it.resync_dag}.`;
  return h(
    "button",
    {
      type: "button",
      "data-key": "resync",
      disabled: why !== null,
      title: why,
      onclick: () => resyncForm(latest(), again),
    },
    "Resync…",
  );
}

function facing(it) {
  const tone = lagTone(it);
  return [
    tile("Lag", seconds(it.lag_s), it.stream ? lastLag(it) + age(it) : "no stream yet", tone),
    tile("Changes/s", rate(it.changes_per_s), it.stream ? `${compact(it.stream.changes)} in all` : ""),
    tile("Rows/s read", rate(it.rows_per_s), `${compact(it.table_list.reduce((sum, table) => sum + table.rows, 0))} by the snapshot`),
    tile("Tables consistent", `${count(it.consistent)} of ${count(it.tables)}`, it.stopped ? `${it.stopped} stopped` : "", it.stopped ? "bad" : ""),
    tile("Open requests", count(it.open_requests), it.waiting_requests ? `${it.waiting_requests} to approve` : ""),
  ];
}

function wrong(problems) {
  if (!problems.length) return [];
  return [h("h2", {}, "Problems"), ...problems.map((each) => facts(each, each.table))];
}

function standing([stream, reach]) {
  if (stream === null) return [];
  const line = (name, text) => [h("dt", {}, name), h("dd", {}, text)];
  return [
    h("h2", {}, "Stream"),
    h(
      "dl",
      { class: "position" },
      line("Position", h("code", {}, stream.position)),
      line(
        "End of the log",
        stream.at_end
          ? "the same: nothing waits"
          : h("code", {}, stream.source_end ?? "the source did not answer when last asked"),
      ),
      reach ? line("The source keeps", kept(reach)) : [],
      line("Transactions", count(stream.transactions)),
      stream.inconsistent.length
        ? line("Not consistent yet", stream.inconsistent.join(", "))
        : [],
    ),
  ];
}

/** How far the source's log reaches back, and how much of it the stream still needs. */
function kept(reach) {
  const by = [
    reach.kept_s ? `log of the last ${hours(reach.kept_s)}` : "its log, whatever its age",
    reach.limit_bytes ? `no more than ${bytes(reach.limit_bytes)}` : null,
  ].filter(Boolean);
  const files = reach.files === 1 ? "1 file" : `${count(reach.files)} files`;
  const needed =
    reach.applied_bytes === null
      ? reach.is_outside
        ? "the stream’s position is not in them"
        : "how much of it lies before the stream’s position is known with the next change"
      : `${bytes(reach.applied_bytes)} before the stream’s position, ${bytes(reach.kept_bytes - reach.applied_bytes)} behind it`;
  return `${by.join(", ")}. There are ${bytes(reach.kept_bytes)} in ${files}: ${needed} (seen ${moment(reach.at_us)})`;
}

const hours = (given) =>
  given >= 172800 ? `${Math.round(given / 86400)} days` : `${count(Math.round(given / 360) / 10)} hours`;

const LEVEL_TONES = { block: "bad", warn: "warn", info: "idle" };

/** What preflight found when it last looked. */
function found(preflight) {
  if (preflight === null) return [];
  const left = Object.values(preflight.counts).reduce((sum, each) => sum + each, 0) - preflight.findings.length;
  return [
    h("h2", {}, "Preflight"),
    h("p", { class: "quiet" }, `looked ${moment(preflight.at_us)}${preflight.findings.length ? "" : ", and found nothing"}`),
    ...preflight.findings.map(finding),
    left > 0 ? h("p", { class: "quiet" }, `And ${count(left)} more, in the log of its task.`) : null,
  ];
}

function finding(it) {
  const line = (name, text) => (text ? [h("dt", {}, name), h("dd", {}, text)] : []);
  return h(
    "details",
    { class: "finding", "data-key": `${it.code} ${it.subject}` },
    h("summary", {}, badge(it.level, LEVEL_TONES[it.level] ?? "idle"), ` ${it.subject}: ${it.observed}`),
    h(
      "dl",
      {},
      line("Wanted", it.wanted),
      line("Why", it.why),
      line("Fix", it.fix),
      line("In Airflow", it.in_airflow),
    ),
  );
}

/** The tables; `change` asks what is to become of one. */
function tablesPart(change) {
  const body = h("div");
  const found = h("input", {
    type: "search",
    placeholder: "Find a table",
    "aria-label": "Find a table",
    oninput: () => redraw(),
  });
  const title = h("h2", {}, "Tables");
  const element = h("section", {}, h("header", {}, title, found), legend(), body);
  const draw = part(body, ([tables, more, may]) => tableList(tables, more, may && change));
  let known = [];
  let mayChange = false;

  function redraw() {
    const text = found.value.trim().toLowerCase();
    const fitting = known.filter((table) => table.source.toLowerCase().includes(text));
    draw([fitting.slice(0, MOST_TABLES), Math.max(0, fitting.length - MOST_TABLES), mayChange]);
  }

  return {
    element,
    show(it) {
      const others = it.not_copied.map((source) => ({ source, phase: "not copied" }));
      // what is not well stands first
      known = [...it.table_list, ...others].sort((one, other) => rank(one) - rank(other));
      title.textContent = `Tables (${it.table_list.length})`;
      found.hidden = known.length < 6;
      mayChange = it.may_write && it.is_handed_off;
      redraw();
    },
  };
}

const RANKS = { failed: 0, paused: 1, "not copied": 1, changed: 2, consistent: 9 };
const rank = (table) => RANKS[table.phase] ?? 5;

function tableList(tables, more, change) {
  if (!tables.length) return [h("p", { class: "quiet" }, "No table is planned yet.")];
  return [
    ...tables.map((table) => tableLine(table, change)),
    more ? h("p", { class: "quiet" }, `And ${more} more: find them by name.`) : null,
  ];
}

function tableLine(table, change) {
  const growing = table.planning_done ? "" : "+";
  const tones = { consistent: "good", failed: "bad", paused: "warn", "not copied": "warn" };
  const names = h(
    "div",
    { class: "names" },
    h("strong", {}, table.source),
    table.sink ? h("span", { class: "quiet" }, ` to ${table.sink}`) : null,
    " ",
    badge(table.phase, tones[table.phase] ?? "busy"),
    change
      ? h(
          "button",
          {
            type: "button",
            class: "small",
            "data-key": `change ${table.source}`,
            "aria-label": `Change ${table.source}`,
            onclick: () => change(table),
          },
          "Change…",
        )
      : null,
  );
  if (!table.sink) return h("article", { class: "table", "data-table": table.source }, names);
  return h(
    "article",
    { class: "table", "data-table": table.source },
    names,
    h(
      "div",
      { class: "progress" },
      // what a request reads has no splits of a plan
      !table.by_request
        ? [
            bar(table.finished, table.splits, `${table.finished} of ${table.splits} splits are read`),
            h(
              "span",
              { class: "quiet" },
              `${count(table.finished)}/${count(table.splits)}${growing} splits, ${rowsOf(table)}, ${bytes(table.bytes)}`,
            ),
          ]
        : h("span", { class: "quiet" }, rowsByRequest(table)),
    ),
    strip(table),
    table.error ? h("p", { class: "bad" }, table.error.what) : null,
  );
}

/** Say of a table that has no splits of a plan who reads its rows. */
const rowsByRequest = (table) =>
  table.phase === "consistent" || table.phase === "catching_up"
    ? "its rows were read by a request"
    : "its rows are read by a request";

function asked([requests, mayWrite], path, again) {
  if (!requests.length) return [h("h2", {}, "Requests"), h("p", { class: "quiet" }, "Nobody asked for anything.")];
  return [h("h2", {}, "Requests"), ...requests.map((each) => request(each, mayWrite, path, again))];
}

const OPEN = new Set(["waiting", "asked", "reading"]);
const STATUS_TONES = { done: "good", failed: "bad", cancelled: "idle", waiting: "warn" };

function request(it, mayWrite, path, again) {
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
  const isOpen = OPEN.has(it.status);
  const whole = it.estimated_rows;
  return h(
    "article",
    { class: "request", "data-request": it.id },
    h(
      "div",
      { class: "names" },
      h("strong", {}, it.id),
      ` ${it.kind} of ${scope(it)} `,
      badge(it.status, STATUS_TONES[it.status] ?? "busy"),
      it.cancel_wanted && isOpen ? [" ", badge("to be cancelled", "warn")] : null,
    ),
    h(
      "div",
      { class: "progress" },
      whole ? bar(it.status === "done" ? whole : it.rows, whole, `${it.rows} of about ${whole} rows`) : null,
      h(
        "span",
        { class: "quiet" },
        it.reads_rows ? `${count(it.rows)}${whole === null ? "" : ` of about ${count(whole)}`} rows, ` : "",
        `asked by ${it.asked_by}, ${moment(it.asked_us)}`,
      ),
    ),
    it.error ? h("p", { class: it.status === "failed" ? "bad" : "quiet" }, it.error) : null,
    isOpen && !it.cancel_wanted
      ? h(
          "p",
          { class: "buttons" },
          it.status === "waiting"
            ? button("approve", "Approve", `Let request ${it.id} read ${whole === null ? "its" : `about ${count(whole)}`} rows of ${scope(it)} again?`)
            : null,
          button("cancel", "Cancel", `Give request ${it.id} up? Rows that were read again stay right.`),
        )
      : null,
  );
}

function scope(it) {
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

function happened(events) {
  if (!events.length) return [];
  return [
    h("h2", {}, "Events"),
    h(
      "ol",
      { class: "events" },
      events.map((each) =>
        h(
          "li",
          { class: each.level },
          h("time", {}, moment(each.at_us)),
          each.level === "info" ? null : badge(words(each.level), each.level === "error" ? "bad" : "warn"),
          h("span", {}, each.text),
        ),
      ),
    ),
  ];
}

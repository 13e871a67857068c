// A pipeline's name, where it leads, and the buttons that ask something of all of it.

import { pipelinePath, post } from "./api.js";
import { ask } from "./ask.js";
import { h } from "./dom.js";
import { when, words } from "./format.js";
import { airflowLink, dagPath, outsideLink, runPath, taskPath } from "./links.js";
import { address, badges } from "./parts.js";
import { resyncForm } from "./resync.js";
import { runNow } from "./runs.js";
import { throttleForm } from "./throttle.js";

const HEADED = [
  "pipeline", "dag_id", "dag_paused", "state", "phase", "wanted", "owner", "resync_dag", "source",
  "sink", "mode", "may_write", "may_resync", "dag_has_run", "next_run_us", "succeeded_us", "run_id",
  "run_state", "task", "spark", "job_log", "edge", "opposite",
];

/** What the heading shows: its buttons stay the same while numbers change. */
export const headed = (it) => Object.fromEntries(HEADED.map((name) => [name, it[name]]));

export function heading(it, path, again, latest) {
  return [
    h("h1", {}, it.pipeline, " ", badges(it)),
    h("p", { class: "quiet ends" }, described(it)),
    h("p", { class: "links" }, links(it)),
    h(
      "p",
      { class: "buttons" },
      buttons(it, path, again),
      resyncing(it, again, latest),
      throttling(it, path, again, latest),
    ),
  ];
}

/** What a pipeline is, in one line; its nodes are left out where its ends have the same names. */
export function described(it) {
  const ends = it.source || it.sink ? `${it.source || "?"} → ${it.sink || "?"}` : null;
  const nodes = it.edge ? `${it.edge.src_node} → ${it.edge.dst_node}` : null;
  return [
    nodes === ends ? null : ends,
    nodes ? `${nodes} of ${it.edge.topology}` : null,
    it.mode || null,
    it.succeeded_us ? `last success ${when(it.succeeded_us)}` : null,
    !it.owner && it.next_run_us ? `next run ${when(it.next_run_us)}` : null,
    isOther(it) ? `at work: ${it.owner}` : null,
  ].filter(Boolean).join(" · ");
}

/** Tell whether somebody else than the pipeline's DAG is at work. */
const isOther = (it) => it.owner && it.owner !== `airflow dag ${it.dag_id}`;

function links(it) {
  return [
    h("span", {}, "DAG ", airflowLink(dagPath(it.dag_id), it.dag_id)),
    it.run_id
      ? h("span", {}, "newest run ", airflowLink(runPath(it.dag_id, it.run_id), it.run_id), ` ${words(it.run_state)}`)
      : null,
    it.task
      ? h("span", {}, "log of ", airflowLink(taskPath(it.dag_id, it.run_id, it.task), `the task ${it.task.task_id}`), ` ${words(it.task.state)}`)
      : null,
    it.opposite.map((row) => h("span", {}, "edge back ", h("a", { href: address(row) }, row.pipeline))),
    it.spark ? h("span", {}, outsideLink(it.spark.url, "Spark UI"), ` ${it.spark.application}`) : null,
    it.job_log ? h("span", {}, jobLog(it)) : null,
  ];
}

/** Where the newest job's log is: a link to it, if the API server has its file. */
function jobLog(it) {
  const { path, host, is_here: isHere } = it.job_log;
  return isHere
    ? outsideLink(`${pipelinePath(it)}/job_log`, "job log")
    : ["job log ", h("code", {}, path), host ? ` on ${host}` : ""];
}

function buttons(it, path, again) {
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
  const name = it.pipeline;
  const isPaused = it.wanted === "stop";
  const isStopped = isPaused || it.phase === "failed";
  // who is at work hears of it; where nobody is, or who is may be about to end, a run has to begin
  const goesOn = it.owner && !isStopped;
  const wish = (wanted, text, question) =>
    button(wanted, text, question, async () => {
      await post(`${path}/wanted`, { wanted });
      return wanted === "stop" || goesOn ? null : runNow(it, isStopped);
    });
  const begins = goesOn ? "" : ` A run of the DAG ${it.dag_id} begins.`;
  const isIdle = !isStopped && !it.owner && !it.dag_has_run;
  return [
    isStopped
      ? wish("run", "Resume", `Let ${name} run again, from its last committed position?${begins}`)
      : null,
    isIdle
      ? button("now", "Run now", `Begin a run of the DAG ${it.dag_id} now?`, () => runNow(it))
      : null,
    isPaused
      ? null
      : wish("stop", "Pause", `Pause ${name}? It stops behind the transaction it is at, and nothing is lost.`),
    wish(
      "restart",
      "Restart",
      `Let ${name} begin again from the sink’s ledger? What it ended with is tried once more.${begins}`,
    ),
  ];
}

function throttling(it, path, again, latest) {
  return h(
    "button",
    {
      type: "button",
      "data-key": "throttle",
      disabled: !it.may_write,
      title: it.may_write ? null : `Airflow does not let you run the DAG ${it.dag_id}.`,
      onclick: () => throttleForm(latest(), path, again),
    },
    "Throttle…",
  );
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


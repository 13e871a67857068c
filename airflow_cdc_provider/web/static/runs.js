// Runs of a pipeline’s DAGs, by Airflow's own API, so that its permissions and audit log apply.

import { get, patch, post } from "./api.js";
import { runPath, taskPath } from "./links.js";

/** The address of a DAG in Airflow's API. */
export const dag = (dagId) => `../api/v2/dags/${encodeURIComponent(dagId)}`;

/** The details of a DAG that is switched on. */
export async function switchedOn(dagId) {
  const details = await get(`${dag(dagId)}/details`);
  if (details.is_paused) {
    throw { facts: { what: `The DAG ${dagId} is paused, so no run of it begins.`, remedy: "Switch it on in Airflow’s list of DAGs, then ask again." } };
  }
  return details;
}

/**
 * Begin a run of a pipeline’s DAG, unless one waits or is under way; says what there is now.
 *
 * A run that is under way while the pipeline is stopped is about to end, and does nothing more: a
 * new one waits behind it.
 */
export async function runNow(it, isStopped = false) {
  await switchedOn(it.dag_id);
  const runs = `${dag(it.dag_id)}/dagRuns`;
  const unended = await get(`${runs}?state=queued&state=running`);
  const waiting = unended.dag_runs.find((run) => run.state === "queued");
  const underWay = unended.dag_runs.find((run) => run.state === "running");
  const there = waiting ?? (isStopped ? undefined : underWay);
  const run = there ?? (await post(runs, { logical_date: null, conf: {} }));
  const behind = underWay ? ` when ${underWay.dag_run_id} has ended` : "";
  const does = waiting ? "waits to begin" : there ? "is under way" : `begins${behind}`;
  return {
    text: `run ${run.dag_run_id} of ${it.dag_id} ${does}`,
    path: runPath(it.dag_id, run.dag_run_id),
  };
}

/** Answer what a task asks. */
export async function answerTask(it, option) {
  const run = `${dag(it.dag_id)}/dagRuns/${encodeURIComponent(it.run_id)}`;
  const task = `${run}/taskInstances/${encodeURIComponent(it.task_id)}/${it.map_index}`;
  await patch(`${task}/hitlDetails`, { chosen_options: [option], params_input: {} });
  return { text: `${it.task_id} of ${it.run_id} goes on`, path: taskPath(it.dag_id, it.run_id, it) };
}

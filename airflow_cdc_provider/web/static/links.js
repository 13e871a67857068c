// Links that leave the page: to Airflow's own pages, and to Spark.

import { leaving } from "./frame.js";

const part = encodeURIComponent;

export const dagPath = (dagId) => `dags/${part(dagId)}`;
export const runPath = (dagId, runId) => `${dagPath(dagId)}/runs/${part(runId)}`;

/** The page of a task in a run, where its log is. */
export function taskPath(dagId, runId, { task_id: taskId, map_index: mapIndex = -1 }) {
  const task = `${runPath(dagId, runId)}/tasks/${part(taskId)}`;
  return mapIndex >= 0 ? `${task}/mapped/${mapIndex}` : task;
}

/** A link to one of Airflow's own pages. */
export const airflowLink = (path, text, more = {}) => leaving(`../${path}`, text, more);

/** A link to another server, in a tab of its own. */
export const outsideLink = (url, text) =>
  leaving(url, text, { target: "_blank", rel: "noopener noreferrer" });

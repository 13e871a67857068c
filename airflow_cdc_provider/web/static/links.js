// Links that leave the page: to Airflow's own pages, and to Spark.

import { h } from "./dom.js";

const isFramed = window.top !== window.self;
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

/**
 * Airflow's frame lets no link of ours replace it or open a tab. Airflow's page is of this server
 * too, so a link in that page is followed instead.
 */
function leaving(href, text, more) {
  return h("a", { href, ...more, onclick: isFramed ? followed : null }, text);
}

function followed(event) {
  const { href, target } = event.currentTarget;
  const isOther = event.ctrlKey || event.metaKey || event.shiftKey;
  event.preventDefault();
  const outer = window.top.document;
  const link = outer.createElement("a");
  link.href = href;
  link.target = isOther ? "_blank" : target;
  link.rel = "noopener noreferrer";
  outer.body.append(link);
  link.click();
  link.remove();
}

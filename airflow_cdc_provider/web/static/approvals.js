// What waits for a person: requests of the pipeline, and tasks of its DAGs.

import { post } from "./api.js";
import { ask } from "./ask.js";
import { h, part } from "./dom.js";
import { plural, when } from "./format.js";
import { airflowLink, taskPath } from "./links.js";
import { paragraphs, prose } from "./prose.js";
import { scope } from "./requests.js";
import { answerTask } from "./runs.js";

/** The part of the page with all of them; none where nothing waits. */
export function approvalsPart(path, again) {
  const element = h("section", { class: "approvals" });
  const draw = part(element, ([requests, tasks, may]) =>
    requests.length || tasks.length
      ? [
          h("h2", {}, "Waiting for approval"),
          ...requests.map((each) => ofRequest(each, may, path, again)),
          ...tasks.map((each) => ofTask(each, again)),
        ]
      : [],
  );
  return {
    element,
    show(it) {
      const isWaiting = (each) => each.status === "waiting" && !each.cancel_wanted;
      draw([it.requests.filter(isWaiting), it.approvals, it.may_write]);
    },
  };
}

function question(name, subject, body, since, ...below) {
  return h(
    "article",
    { class: "approval", "data-approval": name },
    h("p", { class: "what" }, h("strong", {}, prose(subject)), since ? h("span", { class: "quiet" }, ` since ${when(since)}`) : null),
    h("div", { class: "quiet body" }, body),
    h("p", { class: "buttons" }, below),
  );
}

const button = (key, text, isMain, isEnabled, act) =>
  h(
    "button",
    { type: "button", class: isMain ? "primary" : null, "data-key": key, disabled: !isEnabled, onclick: act },
    text,
  );

function ofRequest(it, may, path, again) {
  const own = `${path}/requests/${encodeURIComponent(it.id)}`;
  const rows = it.estimated_rows === null ? "its rows, which are not counted," : `about ${plural(it.estimated_rows, "row")}`;
  const asking = (verb, route, text) => () => ask(text, verb, () => post(`${own}/${route}`), again);
  return question(
    it.id,
    `Let request ${it.id} read ${rows} again?`,
    h("p", {}, `${it.kind} of ${scope(it)}, asked by ${it.asked_by}`),
    it.asked_us,
    button(`approve ${it.id}`, "Approve", true, may, asking("Approve", "approve", `Let request ${it.id} read ${rows} of ${scope(it)} again?`)),
    button(`reject ${it.id}`, "Reject", false, may, asking("Reject", "cancel", `Give request ${it.id} up? Nothing of it is read.`)),
    may ? null : h("span", { class: "quiet" }, "Airflow does not let you run this pipeline’s DAG, so you may not answer."),
  );
}

function ofTask(it, again) {
  const name = `${it.dag_id} ${it.run_id} ${it.task_id}`;
  const asking = (option) => () =>
    ask(`${option}: ${it.subject}`, option, () => answerTask(it, option), again, "answered in Airflow");
  return question(
    name,
    it.subject,
    paragraphs(it.body),
    it.since_us,
    it.options.map((option, number) => button(`${option} ${name}`, option, number === 0, it.may_answer, asking(option))),
    it.may_answer ? null : h("span", { class: "quiet" }, "Airflow does not let you answer it."),
    airflowLink(`${taskPath(it.dag_id, it.run_id, it)}/required_actions`, "Open in Airflow"),
  );
}

// What preflight found when it last looked.

import { h } from "./dom.js";
import { count, moment } from "./format.js";
import { badge, line } from "./parts.js";
import { prose } from "./prose.js";

const TONES = { block: "bad", warn: "warn", info: "idle" };

export function preflight(it) {
  if (it === null) return [h("p", { class: "quiet" }, "Preflight has not run yet.")];
  const left = Object.values(it.counts).reduce((sum, each) => sum + each, 0) - it.findings.length;
  return [
    h("p", { class: "quiet" }, `looked ${moment(it.at_us)}${it.findings.length ? "" : ", and found nothing"}`),
    ...it.findings.map(finding),
    left > 0 ? h("p", { class: "quiet" }, `And ${count(left)} more, in the log of its task.`) : null,
  ];
}

/** One finding, which opens to what is wanted, why, and its fix. */
export function finding(it) {
  return h(
    "details",
    { class: "finding", "data-key": `${it.code} ${it.subject}` },
    h("summary", {}, badge(it.level, TONES[it.level] ?? "idle"), ` ${it.subject}: `, prose(it.observed)),
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

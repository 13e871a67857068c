// What comes of the form: the file to commit, the grants, what `check` finds, and the DAG file.

import { post } from "./api.js";
import { copied } from "./copy.js";
import { h, replace } from "./dom.js";
import { plural } from "./format.js";
import { badge, facts } from "./parts.js";
import { finding } from "./preflight.js";

const REFUSED = {
  what: "Airflow does not let you look at this server.",
  remedy: "Ask for the permission to add connections, and to read the one that is named.",
};

/** An error's facts; a refusal of Airflow's says what it takes. */
export const told = (error) => facts(error.status === 403 ? REFUSED : error.facts ?? { what: String(error) });

/** Show the file, and what is asked of the servers about it as it comes. */
export function result(answers, made) {
  const asked = { ...answers, exclude: made.exclude };
  return [
    section(
      "The file",
      h("p", { class: "quiet" }, "Commit it as ", h("code", {}, made.file), ", below the folder of your DAGs. Nothing was written or begun."),
      copied(made.text, "the file"),
      h("details", {}, h("summary", {}, `${plural(made.tables.length, "table")} now${made.exclude.length ? `, ${made.exclude.length} left out` : ""}`), routed(made)),
    ),
    section(
      "Check",
      later("Asking both servers…", post("api/new/check", asked), checked),
    ),
    section(
      "Grants",
      h("p", { class: "quiet" }, "All that the accounts need; an administrator of each server runs them."),
      ...["source", "sink"].map((part) =>
        later(`Asking the ${part}…`, rights(part, answers, made), ({ statements }) => [
          h("h4", {}, `At the ${part}, ${answers[part]}`),
          copied(statements.join("\n"), `the grants at the ${part}`),
        ]),
      ),
    ),
    section(
      "The DAGs",
      h("p", { class: "quiet" }, "Once for all pipelines, a Python file in the folder of your DAGs:"),
      copied(made.dag_file, "the DAG file"),
    ),
  ];
}

const section = (name, ...content) => h("section", { "data-result": name }, h("h3", {}, name), content);

const rights = (part, answers, made) =>
  post("api/new/rights", { conn_id: answers[part], part, databases: made.databases[part] });

/** What is there once it was answered. */
function later(text, answer, show) {
  const element = h("div", { role: "status" }, h("p", { class: "quiet" }, text));
  answer.then(
    (found) => replace(element, show(found)),
    (error) => replace(element, told(error)),
  );
  return element;
}

function checked(report) {
  const blocks = report.findings.filter((each) => each.level === "block").length;
  return [
    h(
      "p",
      {},
      badge(blocks ? "not fit yet" : "fit", blocks ? "bad" : "good"),
      " ",
      blocks
        ? `${plural(blocks, "thing speaks", "things speak")} against it, with the way to mend it:`
        : `Nothing speaks against it${report.findings.length ? "; worth knowing:" : "."}`,
    ),
    report.findings.map(finding),
  ];
}

function routed(made) {
  return h(
    "ul",
    {},
    made.tables.map(({ source, sink }) => h("li", {}, source === sink ? source : `${source} → ${sink}`)),
    made.exclude.map((table) => h("li", { class: "quiet" }, `${table}: left out, it has no primary key`)),
  );
}

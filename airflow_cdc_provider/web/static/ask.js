// Questions before something is asked of a pipeline, and the form of a resync.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { facts } from "./parts.js";

const POLL_MS = 1500;
const ENDED = new Set(["success", "failed"]);

function opened(title, ...content) {
  const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), ...content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Say for some seconds that something was done. */
function notice(text) {
  const line = h("p", {}, text);
  document.getElementById("notices").append(line);
  setTimeout(() => line.remove(), 6000);
}

/** Ask, do it if the answer is yes, then bring the page up to date. */
export function ask(question, verb, act, again, done = "noted in the pipeline’s state") {
  const problem = h("div", { role: "alert" });
  const yes = h("button", { type: "submit", class: "primary" }, verb);
  const no = h("button", { type: "button" }, "Do nothing");
  const form = h(
    "form",
    { method: "dialog" },
    h("p", {}, question),
    problem,
    h("p", { class: "buttons" }, no, yes),
  );
  const dialog = opened(verb, form);
  no.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      const told = await act();
      dialog.close();
      notice(`${verb}: ${typeof told === "string" ? told : done}.`);
      await again();
    } catch (error) {
      problem.replaceChildren(facts(error.facts ?? { what: String(error) }));
      yes.disabled = false;
    }
  });
}

// --- one table: a request, which whoever owns the pipeline checks and carries out -------------

const CHANGES = {
  add: ["Add", "The stream follows it from now on, and reads the rows there are. No other table is read again."],
  resume: ["Resume", "It comes back to the stream: by the log, or read again."],
  pause: ["Pause", "The stream leaves it alone where it stands; the other tables flow on."],
  reset: ["Begin again", "It begins again as it is defined now, and all of its rows are read. The other tables flow on."],
  remove: ["Remove", "The stream gives it up for good, and its rows at the sink stay. Take it out of the pipeline file first."],
};
const LEFT_ALONE = new Set(["failed", "paused"]);

/** Let a person say what is to become of a table. */
export function tableForm(table, path, again) {
  const may = !table.sink
    ? ["add"]
    : [LEFT_ALONE.has(table.phase) ? "resume" : "pause", "reset", "remove"];
  const choices = may.map((change, number) =>
    h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "change", value: change, checked: number === 0 }),
      h("span", {}, h("strong", {}, CHANGES[change][0]), ` ${CHANGES[change][1]}`),
    ),
  );
  const problem = h("div", { role: "alert" });
  const yes = h("button", { type: "submit", class: "primary" }, "Ask for it");
  const no = h("button", { type: "button" }, "Do nothing");
  const form = h("form", {}, choices, problem, h("p", { class: "buttons" }, no, yes));
  const dialog = opened(table.source, form);
  no.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      const change = new FormData(form).get("change");
      const asked = await post(`${path}/tables`, { change, tables: [table.source] });
      dialog.close();
      notice(`Request ${asked.id} is noted: whoever is at work on the pipeline carries it out, else its next run.`);
      await again();
    } catch (error) {
      problem.replaceChildren(facts(error.facts ?? { what: String(error) }));
      yes.disabled = false;
    }
  });
}

// --- a resync: Airflow's own API starts its DAG, so that its permissions and audit log apply ----

const dag = (dagId) => `../api/v2/dags/${encodeURIComponent(dagId)}`;

/** Let a person say what is to be read again; a dry run comes first. */
export function resyncForm(it, again) {
  const tables = h(
    "select",
    { multiple: true, size: 6, required: true, "aria-label": "Tables" },
    it.table_list.map((table) => h("option", { value: table.source }, table.source)),
  );
  const field = (label, note) =>
    h("label", {}, label, h("input", { type: "text", placeholder: note }));
  const from = field("From key", "first key that is read");
  const to = field("To key", "first key that is not read");
  const where = field("Where", "a condition, as in SQL");
  const told = h("div", { role: "status" });
  const dry = h("button", { type: "submit", class: "primary", value: "dry" }, "Dry run");
  const real = h("button", { type: "submit", value: "real", disabled: true }, "Read again");
  const no = h("button", { type: "button" }, "Close");
  const form = h(
    "form",
    {},
    h("p", {}, "Rows of these tables are read again while they flow on."),
    h("label", {}, "Tables", tables),
    h("details", {}, h("summary", {}, "Some rows of one table"), from, to, where),
    told,
    h("p", { class: "buttons" }, no, dry, real),
  );
  const dialog = opened(`Resync of ${it.pipeline}`, form);
  no.addEventListener("click", () => dialog.close());
  // what was estimated is what was said then
  form.addEventListener("input", () => {
    real.disabled = true;
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const isDry = event.submitter?.value !== "real";
    const choice = {
      tables: [...tables.selectedOptions].map((option) => option.value),
      from_key: valueOf(from),
      to_key: valueOf(to),
      where: valueOf(where),
    };
    dry.disabled = real.disabled = true;
    try {
      if (isDry) {
        await dryRun(it.resync_dag, choice, told, dialog);
        real.disabled = false;
      } else {
        await started(it.resync_dag, choice, false);
        dialog.close();
        notice(`The DAG ${it.resync_dag} asks for it; large ones wait there for an approval.`);
        await again();
      }
    } catch (error) {
      told.replaceChildren(facts(error.facts ?? { what: String(error) }));
    }
    dry.disabled = false;
  });
}

const valueOf = (label) => label.querySelector("input").value.trim() || null;

/** The details of a DAG that is switched on. */
async function switchedOn(dagId) {
  const details = await get(`${dag(dagId)}/details`);
  if (details.is_paused) {
    throw { facts: { what: `The DAG ${dagId} is paused, so no run of it begins.`, remedy: "Switch it on in Airflow’s list of DAGs, then ask again." } };
  }
  return details;
}

/** Begin a run of a pipeline’s DAG, unless one waits or is under way; says what there is now. */
export async function runNow(it) {
  await switchedOn(it.dag_id);
  const runs = `${dag(it.dag_id)}/dagRuns`;
  const unended = await get(`${runs}?state=queued&state=running&limit=1`);
  if (unended.total_entries) return `run ${unended.dag_runs[0].dag_run_id} of ${it.dag_id} is under way`;
  const run = await post(runs, { logical_date: null, conf: {} });
  return `run ${run.dag_run_id} of ${it.dag_id} begins`;
}

async function started(dagId, choice, isDry) {
  const details = await switchedOn(dagId);
  const picked = details.params?.tables?.schema?.items?.enum;
  const isPicked = (name) => picked === undefined || picked.includes(name);
  const { tables, ...rows } = choice;
  const others = tables.filter((name) => !isPicked(name));
  const conf = {
    tables: tables.filter(isPicked),
    ...(others.length ? { more_tables: others } : {}),
    ...rows,
    dry_run: isDry,
  };
  const run = await post(`${dag(dagId)}/dagRuns`, { logical_date: null, conf });
  return run.dag_run_id;
}

async function dryRun(dagId, choice, told, dialog) {
  told.replaceChildren(h("p", { class: "quiet" }, "Estimating: the DAG asks both servers…"));
  const runId = await started(dagId, choice, true);
  const run = `${dag(dagId)}/dagRuns/${encodeURIComponent(runId)}`;
  while (dialog.open && !ENDED.has((await get(run)).state)) {
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
  const path = `${run}/taskInstances/estimate/xcomEntries/return_value`;
  const found = await get(path).catch(() => null);
  if (found === null) {
    throw { facts: { what: "The dry run failed.", remedy: `The log of run ${runId} of ${dagId} says why.` } };
  }
  const value = typeof found.value === "string" ? JSON.parse(found.value) : found.value;
  told.replaceChildren(estimated(value));
}

function estimated(value) {
  const rows = value.rows === null ? "too many to count" : count(value.rows);
  const told = value.lines?.join("\n") ?? value.text;
  return h(
    "div",
    { class: "estimate" },
    h("p", {}, `Rows at the source, about: ${rows}`, value.needs_approval ? ". Somebody has to approve it." : "."),
    told ? h("pre", {}, told) : null,
  );
}

// The form of a resync: tables and rows are chosen, a dry run says what it costs, then it is asked.

import { get, post } from "./api.js";
import { notice, opened } from "./ask.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { airflowLink, runPath } from "./links.js";
import { facts } from "./parts.js";
import { dag, switchedOn } from "./runs.js";

const POLL_MS = 1500;
const ENDED = new Set(["success", "failed"]);
const FEW_TABLES = 8;

/** Let a person say what is to be read again; a dry run comes first. */
export function resyncForm(it, again) {
  const tables = picker(it.table_list);
  const rows = rowFields();
  const told = h("div", { role: "status" });
  const dry = h("button", { type: "submit", value: "dry" }, "Dry run");
  const real = h("button", { type: "submit", value: "real" }, "Read again");
  const no = h("button", { type: "button" }, "Close");
  const form = h(
    "form",
    {},
    h("p", {}, "Rows of these tables are read again while they flow on."),
    tables.element,
    rows.element,
    told,
    h("p", { class: "buttons" }, no, dry, real),
  );
  const dialog = opened(`Resync of ${it.pipeline}`, form);
  // what was estimated is what may be read; the next step is the blue button
  const next = (isEstimated) => {
    const has = tables.chosen().length > 0;
    dry.disabled = !has;
    real.disabled = !isEstimated;
    dry.className = isEstimated ? "" : "primary";
    real.className = isEstimated ? "primary" : "";
    rows.show(it.table_list.filter((table) => tables.chosen().includes(table.source)));
  };
  next(false);
  no.addEventListener("click", () => dialog.close());
  form.addEventListener("input", (event) => {
    if (!event.target.matches("[type=search]")) next(false);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const isDry = event.submitter?.value !== "real";
    const choice = { tables: tables.chosen(), ...rows.chosen() };
    dry.disabled = real.disabled = true;
    try {
      if (isDry) {
        await dryRun(it.resync_dag, it.pipeline, choice, told, dialog);
        next(true);
      } else {
        const runId = await started(it.resync_dag, it.pipeline, choice, false);
        dialog.close();
        notice(`Run ${runId} of ${it.resync_dag} begins. Where it is about many rows, it waits for an approval, here on this page.`, runPath(it.resync_dag, runId));
        await again();
      }
    } catch (error) {
      told.replaceChildren(facts(error.facts ?? { what: String(error) }));
      next(false);
    }
  });
}

/** Boxes to tick, with a search where there are many; a table that is ticked is always seen. */
function picker(all) {
  const boxes = all.map((table) =>
    h("label", { class: "choice" }, h("input", { type: "checkbox", value: table.source }), h("span", {}, table.source)),
  );
  const isTicked = (label) => label.querySelector("input").checked;
  const sum = h("span", { class: "quiet" });
  const search = h("input", { type: "search", placeholder: "Find a table", "aria-label": "Find a table", hidden: all.length < FEW_TABLES });
  const list = h("div", { class: "picked" }, boxes);
  const show = () => {
    const text = search.value.trim().toLowerCase();
    for (const label of boxes) label.hidden = !isTicked(label) && !label.textContent.toLowerCase().includes(text);
    sum.textContent = ` ${boxes.filter(isTicked).length} of ${plural(boxes.length, "table")}`;
  };
  search.addEventListener("input", show);
  list.addEventListener("change", show);
  show();
  return {
    element: h("fieldset", {}, h("legend", {}, "Tables", sum), search, list),
    chosen: () => boxes.filter(isTicked).map((label) => label.querySelector("input").value),
  };
}

/** Fields for some rows of one table, which name its key. */
function rowFields() {
  const field = (label, note) => {
    const name = h("span", {}, label);
    return { name, element: h("label", {}, name, h("input", { type: "text", placeholder: note })) };
  };
  const from = field("From key", "the first key that is read");
  const to = field("To key", "the first key that is not read any more");
  const where = field("Where", "a condition, as in SQL");
  const which = h("p", { class: "quiet" });
  const value = ({ element }) => element.querySelector("input").value.trim() || null;
  return {
    element: h(
      "details",
      {},
      h("summary", {}, "Some rows of one table"),
      which,
      from.element,
      to.element,
      where.element,
    ),
    chosen: () => ({ from_key: value(from), to_key: value(to), where: value(where) }),
    show(tables) {
      const key = tables.length === 1 ? tables[0].key ?? [] : [];
      const columns = key.length ? ` (${key.join(", ")})` : "";
      from.name.textContent = `From key${columns}, included`;
      to.name.textContent = `To key${columns}, not included`;
      which.textContent =
        tables.length === 1
          ? key.length > 1
            ? `The key of ${tables[0].source} is ${key.join(", ")}: write its parts with commas between.`
            : ""
          : "Choose one table for this.";
    },
  };
}

async function started(dagId, pipeline, choice, isDry) {
  const details = await switchedOn(dagId);
  const picked = details.params?.tables?.schema?.items?.enum;
  const isPicked = (name) => picked === undefined || picked.includes(name);
  const { tables, ...rows } = choice;
  const others = tables.filter((name) => !isPicked(name));
  const conf = {
    ...(details.params?.pipeline ? { pipeline } : {}), // a DAG of several pipelines
    tables: tables.filter(isPicked),
    ...(others.length ? { more_tables: others } : {}),
    ...rows,
    dry_run: isDry,
  };
  const run = await post(`${dag(dagId)}/dagRuns`, { logical_date: null, conf });
  return run.dag_run_id;
}

async function dryRun(dagId, pipeline, choice, told, dialog) {
  told.replaceChildren(h("p", { class: "quiet" }, "Estimating: the DAG asks both servers…"));
  const runId = await started(dagId, pipeline, choice, true);
  const run = `${dag(dagId)}/dagRuns/${encodeURIComponent(runId)}`;
  while (dialog.open && !ENDED.has((await get(run)).state)) {
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
  const entry = async (key, task = "estimate") => {
    const found = await get(`${run}/taskInstances/${task}/xcomEntries/${key}`).catch(() => null);
    return typeof found?.value === "string" ? JSON.parse(found.value) : found?.value;
  };
  const value = await entry("return_value");
  if (!value) {
    const untold = { what: "The dry run failed.", remedy: `The log of run ${runId} of ${dagId} says why.` };
    throw { facts: (await entry("refused")) ?? (await entry("refused", "check")) ?? untold };
  }
  told.replaceChildren(estimated(value, airflowLink(runPath(dagId, runId), "Open the dry run")));
}

function estimated(value, link) {
  const rows = value.rows === null ? "more than are counted" : count(value.rows);
  const told = value.lines?.join("\n") ?? value.text;
  return h(
    "div",
    { class: "estimate" },
    h("p", {}, `Rows at the source, about: ${rows}`, value.needs_approval ? ". Somebody has to approve it. " : ". ", link),
    told ? h("pre", {}, told) : null,
  );
}

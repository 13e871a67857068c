// Which view, and how often it is brought up to date.

import { get } from "./api.js";
import { h } from "./dom.js";
import { seconds } from "./format.js";
import { followNavigation } from "./frame.js";
import { listView } from "./list.js";
import { address, facts } from "./parts.js";
import { pipelineView } from "./pipeline.js";

const EVERY_MS = 4000;
const page = document.getElementById("page");
const outage = h("div", { id: "outage", role: "alert", hidden: true });
page.before(outage);

/** Find which pipeline the address names; a link from a task knows its DAG only. */
async function named() {
  const asked = new URLSearchParams(location.search);
  const dagId = asked.get("dag_id");
  if (dagId === null) return null;
  if (asked.has("pipeline")) return { dag_id: dagId, pipeline: asked.get("pipeline") };
  const rows = (await get("api/pipelines")).pipelines;
  const own = rows.filter((row) => row.dag_id === dagId);
  const related = rows.filter((row) => dagId.startsWith(`${row.pipeline}__`));
  const found = own.length === 1 ? own : related;
  if (found.length !== 1) return null;
  history.replaceState(null, "", address(found[0]) + location.hash);
  return found[0];
}

function shown(error, since) {
  const for_ = since === null ? "" : ` What is shown is ${seconds((Date.now() - since) / 1000)} old.`;
  outage.replaceChildren(facts(error.facts ?? { what: String(error) }), h("p", {}, for_));
  outage.hidden = false;
}

async function follow() {
  let refresh = null;
  let since = null;
  for (;;) {
    try {
      if (refresh === null) {
        const row = await named();
        refresh = row === null ? listView(page) : pipelineView(page, row, () => refresh());
      }
      await refresh();
      since = Date.now();
      outage.hidden = true;
      page.dataset.state = "fresh";
    } catch (error) {
      page.dataset.state = "stale";
      shown(error, since);
    }
    await pause();
  }
}

/** Wait; a page that nobody sees asks for nothing. */
async function pause() {
  await new Promise((done) => setTimeout(done, EVERY_MS));
  if (document.hidden) {
    await new Promise((done) => {
      document.addEventListener("visibilitychange", done, { once: true });
    });
  }
}

followNavigation();
follow();

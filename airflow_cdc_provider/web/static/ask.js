// Questions before something is asked of a pipeline, and what is said once it is.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { airflowLink } from "./links.js";
import { facts } from "./parts.js";

const SHOWN_MS = 8000;
const LONG_SHOWN_MS = 60_000;
const WATCH_EVERY_MS = 2000;
const WATCHED_MS = 120_000;
const OPEN = new Set(["waiting", "asked", "reading"]);

/** Open a dialog. */
export function opened(title, ...content) {
  const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), ...content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Say what was done; what has a link to follow, or is bad, stays for a minute, or until closed. */
export function notice(text, path = null, tone = "") {
  const close = h("button", { type: "button", class: "close", "aria-label": "Close" }, "×");
  const link = path ? [" ", airflowLink(path, "Open it")] : null;
  const line = h("p", { class: tone }, h("span", {}, text, link), close);
  close.addEventListener("click", () => line.remove());
  document.getElementById("notices").append(line);
  setTimeout(() => line.remove(), path || tone ? LONG_SHOWN_MS : SHOWN_MS);
}

/** Look for a while what becomes of a request, and say so if it fails: who carries it out refuses. */
async function watched(path, id) {
  for (const until = Date.now() + WATCHED_MS; Date.now() < until; ) {
    await new Promise((done) => setTimeout(done, WATCH_EVERY_MS));
    const it = await get(path).catch(() => null);
    const asked = it?.requests.find((each) => each.id === id);
    if (asked?.status === "failed") notice(`Request ${id} failed: ${asked.error}`, null, "bad");
    if (asked && !OPEN.has(asked.status)) return;
  }
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
      notice(`${verb}: ${told?.text ?? done}.`, told?.path);
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

/** What may be asked for a table, of what its pipeline does: an edge of a topology does not all. */
export function changesOf(table, may) {
  const some = !table.sink ? ["add"] : [LEFT_ALONE.has(table.phase) ? "resume" : "pause", "reset", "remove"];
  return some.filter((change) => may.includes(change));
}

/** Let a person say what is to become of a table. */
export function tableForm(table, may, path, again) {
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
      watched(path, asked.id);
      await again();
    } catch (error) {
      problem.replaceChildren(facts(error.facts ?? { what: String(error) }));
      yes.disabled = false;
    }
  });
}

// The form of a new pipeline: it asks as `init` does, and shows the file. It begins nothing.

import { post } from "./api.js";
import { opened } from "./ask.js";
import { h, replace } from "./dom.js";
import { result, told } from "./new_result.js";
import { routeFields } from "./new_routes.js";
import { tableChoice } from "./new_tables.js";

const MODES = [
  ["continuous", "continuous: the stream goes on and on"],
  ["bounded", "bounded: each run catches up and ends"],
];
/** Ids are in Airflow's audit log; a DSN, which has a password, is not sent. */
const NO_DSN = "(?:(?!:\\/\\/).)+";
const VERIFY = [
  ["after_snapshot", "after a snapshot: tables that were read anew"],
  ["always", "always: all tables in each run"],
  ["never", "never"],
];

/** Open the form; `taken` are the names of pipelines there are. */
export function newPipelineForm(connections, taken) {
  const name = h("input", { type: "text", required: true, pattern: "[A-Za-z][A-Za-z0-9_]{0,62}", placeholder: "shop_to_dr", title: "a letter, then letters, digits and underscores" });
  const source = connection("source", connections, { required: true, placeholder: "shop_mysql" });
  const sink = connection("sink", connections, { required: true, placeholder: "dr_mysql" });
  const state = connection("state", connections, { placeholder: "none: a SQLite file under Airflow’s home" });
  const [mode, verify] = [options(MODES), options(VERIFY)];
  const look = h("button", { type: "button" }, "Look at its tables");
  const looked = h("div", { role: "status" });
  const picker = h("div", {}, h("p", { class: "quiet" }, "Look at the source’s tables first."));
  const clash = h("p", { class: "warn", role: "status", hidden: true });
  const outcome = h("div", { class: "outcome" });
  const show = h("button", { type: "submit", class: "primary", disabled: true }, "Show the file");
  const close = h("button", { type: "button" }, "Close");
  const routes = routeFields(() => outdated());
  let choice = null;
  let lookedAt = "";
  let turn = 0;

  function outdated() {
    turn += 1; // what is on its way answers other answers
    outcome.replaceChildren();
    clash.hidden = !taken.includes(name.value);
    clash.textContent = `There is a pipeline ${name.value} already.`;
    look.disabled = !source.input.value.trim();
    const has = choice !== null && lookedAt === source.input.value.trim();
    if (has) routes.show(choice.databases());
    show.disabled = !(has && choice.chosen().length);
    look.className = has ? "" : "primary";
  }

  look.addEventListener("click", async () => {
    if (!source.input.reportValidity()) return;
    const asked = source.input.value.trim();
    look.disabled = true;
    looked.replaceChildren(h("p", { class: "quiet" }, "Asking the source…"));
    try {
      const found = await post("api/new/tables", { source: asked });
      looked.replaceChildren(...found.facts.map((fact) => h("p", { class: "quiet fact" }, fact)));
      choice = tableChoice(found.tables, outdated, lookedAt === asked ? choice.kept() : null);
      lookedAt = asked;
      replace(picker, choice.element);
    } catch (error) {
      looked.replaceChildren(told(error));
    }
    outdated();
  });

  const form = h(
    "form",
    { class: "new-pipeline" },
    part("Name", h("label", {}, "Of the pipeline and its file", name), clash),
    part("Source", source.label, h("p", { class: "buttons" }, look), looked, picker),
    part("Sink", sink.label, routes.element),
    part("How it runs", h("label", {}, "Mode", mode), h("label", {}, "Runs compare all rows of source and sink", verify), state.label),
    h("p", { class: "buttons" }, close, show),
    outcome,
  );
  const dialog = opened("New pipeline", h("p", { class: "quiet" }, "This looks at both servers and shows the file to commit. It begins nothing and keeps nothing."), form);
  dialog.classList.add("wide");
  close.addEventListener("click", () => dialog.close());
  form.addEventListener("input", (event) => {
    if (!event.target.matches("[type=search]")) outdated();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    show.disabled = true;
    const asked = turn;
    const isLate = () => asked !== turn;
    replace(outcome, h("p", { class: "quiet", role: "status" }, "Asking the source…"));
    try {
      const answers = {
        name: name.value,
        source: source.input.value.trim(),
        sink: sink.input.value.trim(),
        state: state.input.value.trim() || null,
        tables: choice.chosen(),
        route: routes.chosen(choice.databases()),
        mode: mode.value,
        verify: verify.value,
      };
      const made = await post("api/new/file", answers);
      if (isLate()) return;
      replace(outcome, result(answers, made));
    } catch (error) {
      if (isLate()) return;
      replace(outcome, told(error));
    }
    show.disabled = false;
    outcome.scrollIntoView({ block: "start", behavior: "smooth" });
  });
  outdated();
}

const part = (title, ...content) => h("fieldset", {}, h("legend", {}, h("h3", {}, title)), content);

/** A field for the id of a connection, with those that may be read to choose from. */
function connection(kind, connections, more) {
  const id = `connections-of-${kind}`;
  const offered = connections.filter((each) => each.parts.includes(kind));
  const list = h("datalist", { id }, offered.map((each) => h("option", { value: each.conn_id }, each.conn_type)));
  const input = h("input", { type: "text", list: id, autocomplete: "off", pattern: NO_DSN, title: "a connection’s id, never a DSN", ...more });
  const text = kind === "state" ? "Connection of the state store" : "Airflow connection";
  return { input, label: h("label", {}, text, input, list) };
}

const options = (values) => h("select", {}, values.map(([value, text]) => h("option", { value }, text)));

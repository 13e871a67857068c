// How fast rows may be read: what holds now, and the form that changes it.

import { post } from "./api.js";
import { notice, opened } from "./ask.js";
import { h } from "./dom.js";
import { facts } from "./parts.js";

const FIELDS = [
  ["rows_per_second", "rows a second", "any"],
  ["mb_per_second", "megabytes a second", "any"],
  ["max_threads_running", "running threads at the source, above which nothing is read", "1"],
  ["critical_threads_running", "running threads from which on the snapshot or request ends", "1"],
  ["max_replica_lag_s", "seconds that a replica may be behind", "any"],
];

/** Under what limits rows are read, and why none are read now. */
export function throttled(text) {
  return text ? [h("p", { class: "throttle", role: "status" }, text)] : [];
}

/** Let a person say how fast rows may be read. */
export function throttleForm(it, path, again) {
  const holding = it.throttle?.limits ?? it.file_throttle.limits;
  const inputs = FIELDS.map(([name, label, step]) => {
    const input = h("input", { type: "number", name, min: "0", step, value: holding[name] ?? "", placeholder: "no limit" });
    if (name === "max_replica_lag_s" && !it.file_throttle.has_replicas) input.disabled = true;
    return [h("label", { class: "field" }, h("span", {}, label), input), input];
  });
  const problem = h("div", { role: "alert" });
  const no = h("button", { type: "button" }, "Close");
  const file = h("button", { type: "submit", value: "file" }, "As in the file");
  const yes = h("button", { type: "submit", class: "primary", value: "change" }, "Change");
  const form = h(
    "form",
    {},
    h("p", {}, "Snapshots and requests read rows within these limits, also those under way; a field left empty has none. The stream is never held up."),
    inputs.map(([label]) => label),
    it.file_throttle.has_replicas ? null : h("p", { class: "quiet" }, "The file names no replicas whose lag could count."),
    problem,
    h("p", { class: "buttons" }, no, file, yes),
  );
  const dialog = opened(`Throttle of ${it.pipeline}`, form);
  no.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const changes = event.submitter?.value === "file" ? {} : changed(inputs, holding);
    if (event.submitter?.value !== "file" && !Object.keys(changes).length) {
      dialog.close();
      return;
    }
    file.disabled = yes.disabled = true;
    try {
      const answer = await post(`${path}/throttle`, { changes });
      dialog.close();
      notice(`Throttle: ${answer.limits_text} (${answer.origin}). Whoever reads rows takes it up within seconds.`);
      await again();
    } catch (error) {
      problem.replaceChildren(facts(error.facts ?? { what: String(error) }));
      file.disabled = yes.disabled = false;
    }
  });
}

/** The limits that a person changed; null takes one away. */
function changed(inputs, holding) {
  const changes = {};
  for (const [, input] of inputs) {
    const value = input.value === "" ? null : Number(input.value);
    if (!input.disabled && value !== (holding[input.name] ?? null)) changes[input.name] = value;
  }
  return changes;
}

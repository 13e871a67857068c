// Tables of a source to choose from: each by a box, all of a database, or by patterns.

import { h, replace } from "./dom.js";
import { bytes, count, plural } from "./format.js";

const MOST_SHOWN = 200;
const SIZE = (table) => `about ${plural(table.rows, "row")}, ${bytes(table.bytes)}`;

const PATTERN = /(?:`(?:[^`]|``)+`|(?<![^\s,.])\/(?:[^/\\]|\\.)+\/|[^\s,])+/gs;
const IS_READ_OTHERWISE = /\*|^[./`]|\.$|\{\d+\}/;

/** A name as the pipeline file has it: in backticks, or a dot inside it doubled. */
const spelt = (name) => (IS_READ_OTHERWISE.test(name) ? `\`${name.replaceAll("`", "``")}\`` : name.replaceAll(".", ".."));
export const everyTableOf = (database) => `${spelt(database)}.*`;

/** Build the choice; `changed` is called after each change of it. `before` is what an earlier look had chosen. */
export function tableChoice(tables, changed, before = null) {
  const names = [...new Set(tables.map((table) => table.database))].sort();
  const offered = new Set(tables.filter((table) => !table.left_out).map((table) => table.table));
  const ticked = new Set(before?.ticked.filter((table) => offered.has(table)));
  const whole = new Set(before?.whole.filter((database) => names.includes(database)));
  const few = names.map((database) => [database, tables.filter((table) => table.database === database)]);
  const list = h("div", { class: "picked offered" });
  const sum = h("span", { class: "quiet" });
  const search = h("input", { type: "search", placeholder: "Find a table", "aria-label": "Find a table", value: before?.search ?? "" });
  const patterns = h("textarea", { rows: "2", placeholder: "shop.order_*" });
  patterns.value = before?.patterns ?? "";
  const typed = () => patterns.value.match(PATTERN) ?? [];

  function box(key, text, isChecked, isDisabled, act, ...more) {
    const input = h("input", { type: "checkbox", "data-key": key, disabled: isDisabled });
    input.checked = isChecked;
    input.addEventListener("change", () => {
      act(input.checked);
      draw();
      changed();
    });
    return h("label", { class: "choice" }, input, h("span", { class: "name" }, text), more);
  }

  function row(table) {
    const isWhole = whole.has(table.database);
    const isChecked = !table.left_out && (isWhole || ticked.has(table.table));
    const act = (is) => (is ? ticked.add(table.table) : ticked.delete(table.table));
    const note = table.left_out ? `left out: ${table.left_out}` : SIZE(table);
    const tone = table.left_out ? "warn" : "quiet";
    return box(table.table, table.table, isChecked, isWhole || Boolean(table.left_out), act, h("span", { class: tone }, note));
  }

  function group([database, its]) {
    const pattern = everyTableOf(database);
    const fit = its.filter((table) => !table.left_out).length;
    const act = (is) => (is ? whole.add(database) : whole.delete(database));
    const note = `all ${count(fit)} with a primary key, and those that are created later`;
    return box(pattern, h("strong", {}, pattern), whole.has(database), !fit, act, h("span", { class: "quiet" }, note));
  }

  function draw() {
    const sought = search.value.trim().toLowerCase();
    const isSought = (table) => table.table.toLowerCase().includes(sought);
    let left = MOST_SHOWN;
    let hidden = 0;
    const shown = few.flatMap(([database, its]) => {
      const found = its.filter(isSought);
      const some = found.slice(0, left);
      left -= some.length;
      hidden += found.length - some.length;
      return some.length ? [group([database, its]), ...some.map(row)] : [];
    });
    const more = hidden ? h("p", { class: "quiet" }, `And ${count(hidden)} more: find them by name.`) : null;
    const none = shown.length ? null : h("p", { class: "quiet" }, "No table has this in its name.");
    replace(list, shown, more, none);
    const chosen = tables.filter((table) => !table.left_out && (whole.has(table.database) || ticked.has(table.table)));
    sum.textContent = ` ${count(chosen.length)} of ${count(tables.length)} chosen${typed().length ? ", and patterns" : ""}`;
  }

  search.addEventListener("input", draw);
  patterns.addEventListener("input", () => {
    draw();
    changed();
  });
  draw();
  return {
    element: [
      h("p", {}, h("strong", {}, "Tables"), sum),
      search,
      list,
      h("label", {}, "And what fits these patterns, now or later; * is any characters, /.../ a regular expression, `...` a name as it is", patterns),
    ],
    /** What another look at the same source begins with. */
    kept: () => ({ ticked: [...ticked], whole: [...whole], patterns: patterns.value, search: search.value }),
    chosen: () => [
      ...[...whole].sort().map(everyTableOf),
      ...tables.filter((table) => ticked.has(table.table) && !whole.has(table.database)).map((table) => table.table),
      ...typed(),
    ],
    databases() {
      const named = names.filter((name) => typed().some((text) => [`${spelt(name)}.`, `\`${name}\`.`].some((start) => text.startsWith(start))));
      const of = tables.filter((table) => ticked.has(table.table)).map((table) => table.database);
      return [...new Set([...whole, ...of, ...named])].sort();
    },
  };
}

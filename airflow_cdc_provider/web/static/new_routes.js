// Where tables go at the sink: a database for each of the source's, and routes of single tables.

import { h } from "./dom.js";
import { everyTableOf } from "./new_tables.js";

/** What is left and right of the first `=` that is in no name in backticks, nor in a regular expression. */
const ROUTE = /^((?:`(?:[^`]|``)+`|(?<![^\s.])\/(?:[^/\\]|\\.)+\/|[^=])*?)=(.*)$/s;

/** Build the fields; `show` says which databases tables are chosen from. */
export function routeFields(changed) {
  const kept = new Map();
  const places = h("div", { class: "fields" });
  const lines = h("textarea", { rows: "2", placeholder: "shop.orders=dr_shop.orders_2024" });
  lines.addEventListener("input", changed);
  let shown = "";

  function field(database) {
    const input = h("input", { type: "text", placeholder: database, value: kept.get(database) ?? "" });
    input.addEventListener("input", () => {
      kept.set(database, input.value.trim());
      changed();
    });
    return h("label", {}, "Tables of ", h("code", {}, database), " go to the database", input);
  }

  return {
    element: [
      places,
      h("details", {}, h("summary", {}, "Routes of single tables"), h("label", {}, "One a line, as source=sink; where none fits, a table keeps its name", lines)),
    ],
    show(databases) {
      const now = databases.join("\n");
      if (now === shown) return;
      shown = now;
      places.replaceChildren(...databases.map(field));
    },
    chosen(databases) {
      const entries = lines.value.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
        const [source, target] = (ROUTE.exec(line) ?? []).slice(1).map((part) => part.trim());
        if (source && target) return [source, target];
        throw { facts: { what: `“${line}” is no route.`, remedy: "Write source=sink, as in shop.orders=dr_shop.orders." } };
      });
      for (const database of databases) {
        const target = kept.get(database);
        if (target && target !== database) entries.push([everyTableOf(database), everyTableOf(target)]);
      }
      return Object.fromEntries(entries);
    },
  };
}

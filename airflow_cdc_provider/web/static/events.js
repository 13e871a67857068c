// The newest of what happened to a pipeline.

import { h } from "./dom.js";
import { moment, words } from "./format.js";
import { badge } from "./parts.js";
import { prose } from "./prose.js";

export function events(all) {
  if (!all.length) return [h("p", { class: "quiet" }, "No events.")];
  return [
    h(
      "ol",
      { class: "events" },
      all.map((each) =>
        h(
          "li",
          { class: each.level },
          h("time", {}, moment(each.at_us)),
          each.level === "info" ? null : badge(words(each.level), each.level === "error" ? "bad" : "warn"),
          h("span", {}, prose(each.text), each.times > 1 ? h("span", { class: "quiet" }, ` ${each.times} times since ${moment(each.since_us)}`) : null),
        ),
      ),
    ),
  ];
}

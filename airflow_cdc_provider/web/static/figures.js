// The numbers of a pipeline, and how far its snapshot is as a whole.

import { h } from "./dom.js";
import { compact, count, noun, rate, seconds, span } from "./format.js";
import { age, bar, lagTone, lastLag, tile, waiting } from "./parts.js";
import { settled } from "./topology.js";

export function figures(it) {
  const read = it.table_list.reduce((sum, table) => sum + table.rows, 0);
  const open = it.open_requests + it.waiting_approvals;
  const asked = waiting(it);
  return [
    lag(it),
    tile("Changes/s", rate(it.changes_per_s), it.stream ? `${compact(it.stream.changes)} in all` : ""),
    tile("Rows/s read", rate(it.rows_per_s), `${compact(read)} by the snapshot`),
    tile(it.started ? "Tables following" : "Tables consistent", `${count(it.consistent)} of ${count(it.tables)}`, it.stopped ? `${it.stopped} stopped` : "", it.stopped ? "bad" : ""),
    tile("Open requests", count(open), asked ? `${asked} to approve` : "", asked ? "warn" : ""),
    it.edge?.settles ? tile("Conflicts", settled(it), `the command conflicts lists them; rule: ${it.edge.settles}`) : null,
  ];
}

/** The lag of a stream at work; between runs the age of the copy; where it has ended for good. */
function lag(it) {
  if (it.ended) return tile("Ended at", it.ended.position, it.ended.text);
  const behind = it.published_age_s === null ? "" : `, tables have what was committed ${seconds(it.published_age_s)} ago`;
  const target = (it.freshness_s ? `, may be ${span(it.freshness_s)}` : "") + behind;
  if (it.lag_s === null && it.copy_age_s !== null) {
    return tile("Age of the copy", seconds(it.copy_age_s), `lag ${lastLag(it)}${age(it)}${target}`, lagTone(it));
  }
  return tile("Lag", seconds(it.lag_s), (it.stream ? lastLag(it) + age(it) : "no stream yet") + target, lagTone(it));
}

/** While a snapshot is read: one bar of all of it, how fast, and about how long it takes. */
export function snapshot(it) {
  if (it === null) return [];
  const { finished, splits, rows, estimated_rows: about } = it;
  const growing = it.planning_done ? "" : "+";
  const label = `${count(finished)}/${count(splits)}${growing} ${noun(splits, "split")}`;
  const whole = it.planning_done ? bar(finished, splits, label) : bar(rows, about, label);
  return [
    h("h2", {}, "Snapshot"),
    whole,
    h(
      "p",
      { class: "quiet" },
      [
        label,
        `${compact(rows)} of about ${compact(about)} ${noun(about, "row")}`,
        it.rows_per_s === null ? null : `${rate(it.rows_per_s)} rows/s`,
        it.left_s === null ? null : `about ${left(it.left_s)} left`,
      ].filter(Boolean).join(", "),
    ),
  ];
}

function left([least, most]) {
  const [from, to] = [seconds(Math.max(1, Math.round(least))), seconds(Math.max(1, Math.round(most)))];
  return from === to ? from : `${from} to ${to}`;
}

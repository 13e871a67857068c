// Where the stream is in the source's log, and how much of it the source keeps.

import { h } from "./dom.js";
import { bytes, count, moment } from "./format.js";
import { line } from "./parts.js";

export function stream([it, reach, started]) {
  if (it === null) return [h("p", { class: "quiet" }, "There is no stream yet.")];
  return [
    h(
      "dl",
      { class: "position" },
      started ? line("Began", `${started.text}. Rows of before are read by requests alone.`) : [],
      line("Position", h("code", {}, it.position)),
      line(
        "End of the log",
        it.at_end
          ? "the same: nothing waits"
          : h("code", {}, it.source_end ?? "the source did not answer when last asked"),
      ),
      reach ? line("The source keeps", kept(reach)) : [],
      line("Transactions", count(it.transactions)),
      it.inconsistent.length ? line("Not consistent yet", it.inconsistent.join(", ")) : [],
    ),
  ];
}

/** How far the source's log reaches back, and how much of it the stream still needs. */
function kept(reach) {
  const by = [
    reach.kept_s ? `log of the last ${hours(reach.kept_s)}` : "its log, whatever its age",
    reach.limit_bytes ? `no more than ${bytes(reach.limit_bytes)}` : null,
  ].filter(Boolean);
  const files = reach.files === 1 ? "1 file" : `${count(reach.files)} files`;
  const needed =
    reach.applied_bytes === null
      ? reach.is_outside
        ? "the stream’s position is not in them"
        : "how much of it lies before the stream’s position is known with the next change"
      : `${bytes(reach.applied_bytes)} before the stream’s position, ${bytes(reach.kept_bytes - reach.applied_bytes)} behind it`;
  return `${by.join(", ")}. There are ${bytes(reach.kept_bytes)} in ${files}: ${needed} (seen ${moment(reach.at_us)})`;
}

const hours = (given) =>
  given >= 172800 ? `${Math.round(given / 86400)} days` : `${count(Math.round(given / 360) / 10)} hours`;

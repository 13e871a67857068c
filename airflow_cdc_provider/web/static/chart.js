// Lag, changes and rows of the last day, each on an axis of its own.

import { h } from "./dom.js";
import { rate, seconds } from "./format.js";
import uPlot from "./vendor/uPlot.esm.js";

const HEIGHT = 150;
const FONT = "11px system-ui, sans-serif";
const LEAST_AXIS = 58;
const BESIDE_LABELS = 10;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Samples, as the server gives them, as columns: time, lag, changes a second, rows a second. */
export function columns(samples) {
  const times = [];
  const lags = [];
  const changes = [];
  const rows = [];
  let before = null;
  for (const [atUs, stepS, lagUs, changed, rowsRead] of samples) {
    const at = atUs / 1e6;
    if (before !== null && at - before.at > 2.5 * Math.max(stepS, before.stepS)) {
      times.push(before.at + before.stepS);
      lags.push(null);
      changes.push(null);
      rows.push(null);
    }
    const grown = before === null || changed === null || before.changed === null
      ? null
      : changed - before.changed;
    times.push(at);
    lags.push(lagUs === null ? null : lagUs / 1e6);
    changes.push(grown === null || grown < 0 ? null : grown / (at - before.at));
    rows.push(rowsRead / stepS);
    before = { at, stepS, changed };
  }
  return [times, lags, changes, rows];
}

/** The plots, in one element; returns it and what gives it new samples. */
export function charts() {
  const lag = plot("Lag", "--lag", seconds);
  const changed = plot("Changes/s", "--changes", rate);
  const read = plot("Rows/s read", "--rows", rate);
  const element = h("div", { class: "charts" }, lag.element, changed.element, read.element);
  const update = (samples) => {
    const [times, lags, changes, rows] = columns(samples);
    lag.update([times, lags]);
    changed.update([times, changes]);
    // after the snapshot nothing is read for days: an axis of nothing says nothing
    read.element.hidden = !rows.some((each) => each > 0);
    read.update([times, rows]);
  };
  return { element, update };
}

function plot(title, tone, text) {
  const body = h("div", { class: "plot" });
  const seen = h("span", { class: "quiet seen" });
  const element = h("figure", {}, h("figcaption", {}, title, h("span", { class: "quiet" }, " last day"), seen), body);
  let chart = null;
  let data = null;

  function draw() {
    chart?.destroy();
    chart = null;
    body.replaceChildren();
    seen.textContent = "";
    if (data === null) return;
    if (data[0].length < 2 || data[1].every((each) => each === null)) {
      body.append(h("p", { class: "quiet nothing" }, "No data yet"));
      return;
    }
    chart = new uPlot(options(body.clientWidth || 480, tone, text, seen), data, body);
  }

  addEventListener("cdc-theme", draw);
  new ResizeObserver(() => {
    if (chart !== null && Math.abs(chart.width - body.clientWidth) > 1) {
      chart.setSize({ width: body.clientWidth, height: HEIGHT });
    }
  }).observe(body);

  return {
    element,
    update(fresh) {
      const wasEmpty = chart === null;
      data = fresh;
      if (wasEmpty || fresh[0].length < 2) draw();
      else chart.setData(fresh);
    },
  };
}

const MINUTES = uPlot.fmtDate("{HH}:{mm}");
const SECONDS = uPlot.fmtDate("{HH}:{mm}:{ss}");

/** Name the moments of a time axis; with seconds where they are less than a minute apart. */
export function times(_chart, moments, _axis, _space, step) {
  const text = step < 60 ? SECONDS : MINUTES;
  return moments.map((moment) => text(new Date(moment * 1000)));
}

const pen = document.createElement("canvas").getContext("2d");

/** How wide an upright axis is: plots one below the other are alike, unless a label is long. */
export function axisWidth(_chart, labels) {
  pen.font = FONT;
  const widths = (labels ?? []).map((label) => pen.measureText(label).width);
  return Math.max(LEAST_AXIS, Math.ceil(Math.max(0, ...widths)) + BESIDE_LABELS);
}

/** Say the value under the pointer, or nothing while there is none. */
function say(chart, seen, text) {
  const at = chart.cursor.idx;
  const value = at === null || at === undefined ? null : chart.data[1][at];
  seen.textContent =
    value === null || value === undefined
      ? ""
      : `${SECONDS(new Date(chart.data[0][at] * 1000))}  ${text(value)}`;
}

function options(width, tone, text, seen) {
  const axis = {
    stroke: colour("--quiet"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    font: FONT,
  };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { points: { size: 6 }, y: false },
    hooks: { setCursor: [(chart) => say(chart, seen, text)] },
    scales: { y: { range: (_chart, _least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      { ...axis, values: times, space: 70, size: 30 },
      { ...axis, size: axisWidth, space: 34, values: (_chart, values) => values.map(text) },
    ],
    series: [
      {},
      {
        stroke: colour(tone),
        width: 1.5,
        fill: `color-mix(in srgb, ${colour(tone)} 14%, transparent)`,
      },
    ],
  };
}

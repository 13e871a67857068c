// Databases that follow each other: each topology as a picture, and its edges with lag and conflicts.

import { h } from "./dom.js";
import { compact, NOTHING, plural, seconds } from "./format.js";
import { badge, copyAge, lagTone, stateTone } from "./parts.js";

const WIDTH = 160;
const HEIGHT = 40;
const COLUMN = 384;
const ROW = 76;
const EDGE = 8;
const MOST_LETTERS = 26;
const SMALLEST = 0.7;
const LOUD = new Set(["warn", "bad"]);
const SVG = "http://www.w3.org/2000/svg";

/** The topologies among pipelines; `linked` makes a link to one of them. */
export function topologies(rows, linked) {
  const edges = rows.filter((row) => row.edge);
  const names = [...new Set(edges.map((row) => row.edge.topology))].sort();
  return names.map((name) => topology(name, edges.filter((row) => row.edge.topology === name), linked));
}

/** What of a row the picture shows. */
export const drawn = (row) => ({
  ...Object.fromEntries(["pipeline", "dag_id", "edge", "state", "conflicts"].map((key) => [key, row[key]])),
  tone: toneOf(row),
  lag: lagOf(row),
});

function topology(name, edges, linked) {
  const sorted = [...edges].sort((one, other) => from(one).localeCompare(from(other)));
  return h(
    "section",
    { class: "topology", "data-topology": name },
    h("h2", {}, `Topology ${name}`),
    h("div", { class: "sides" }, h("div", { class: "picture" }, picture(name, edges)), h("div", { class: "edges" }, table(sorted, linked))),
  );
}

const from = (row) => `${row.edge.src_node} ${row.edge.dst_node}`;

function table(edges, linked) {
  const heads = ["From", "To", "Pipeline", "State", "Lag", "Conflicts"];
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, heads.map((each) => h("th", { scope: "col" }, each)))),
    h("tbody", {}, edges.map((row) => edgeLine(row, edges, linked))),
  );
}

function edgeLine(row, edges, linked) {
  const { src_node: source, dst_node: target } = row.edge;
  const hasBack = edges.some((each) => each.edge.src_node === target && each.edge.dst_node === source);
  return h(
    "tr",
    { "data-edge": `${source} ${target}` },
    h("td", {}, source),
    h("td", {}, target, hasBack ? null : unreturned()),
    h("td", {}, linked(row)),
    h("td", {}, badge(row.state)),
    h("td", { class: LOUD.has(row.tone) ? row.tone : null }, row.lag),
    h("td", {}, conflictsOf(row)),
  );
}

const unreturned = () =>
  h("span", { class: "warn", title: "Of the pipelines that you may read here, none brings changes back." }, " no edge back seen");

/** How many conflicts an edge has settled; nothing where nobody looks for them. */
function conflictsOf(row) {
  if (!row.edge.settles) return h("span", { title: "Conflicts are not looked for." }, NOTHING);
  return h("span", { title: `The command conflicts lists them. Rule: ${row.edge.settles}.` }, settled(row));
}

/** The number of conflicts; nobody knows it before the edge told. */
export const settled = (row) => (row.conflicts === null || row.conflicts === undefined ? "?" : compact(row.conflicts));

const lagOf = (row) => {
  const old = copyAge(row);
  return old === null ? NOTHING : seconds(old);
};

function toneOf(row) {
  if (row.problem || (row.problems ?? []).some((each) => each.level === "error")) return "bad";
  return lagTone(row) || ((row.problems ?? []).length ? "warn" : stateTone(row.state));
}

// The picture: a tree from its middle to the right; what is no tree is left to the table.

function picture(name, edges) {
  const places = placed(edges);
  if (places === null) {
    return h("p", { class: "quiet" }, "No picture: the edges that you may read here are no tree, or hang on others.");
  }
  const right = Math.max(...places.map(({ column }) => column)) * COLUMN + WIDTH + 2 * EDGE;
  const down = Math.max(...places.map(({ row }) => row)) * ROW + HEIGHT + 2 * EDGE;
  const at = new Map(places.map((each) => [each.node, each]));
  const drawing = s("svg", { viewBox: `0 0 ${right} ${down}`, role: "img", "aria-label": `Nodes and edges of ${name}` });
  drawing.style.maxWidth = `${right}px`;
  drawing.style.minWidth = `${right * SMALLEST}px`;
  for (const { node, above } of places) {
    if (above !== null) drawing.append(...lines(at.get(above), at.get(node), edges));
  }
  drawing.append(...places.flatMap(box));
  return drawing;
}

/** Each node with its column, its row and the node it hangs on; null if the edges are no tree. */
function placed(edges) {
  const beside = new Map();
  const add = (one, other) => beside.set(one, (beside.get(one) ?? new Set()).add(other));
  for (const { edge } of edges) {
    add(edge.src_node, edge.dst_node);
    add(edge.dst_node, edge.src_node);
  }
  const nodes = [...beside.keys()].sort();
  const depths = new Map(nodes.map((node) => [node, depth(node, beside)]));
  const middle = nodes.reduce((best, node) => (depths.get(node) < depths.get(best) ? node : best));
  if (edgesOf(beside) !== nodes.length - 1 || depths.get(middle) === Infinity) return null;
  const found = [];
  let rows = 0;
  const place = (node, above, column) => {
    const it = { node, above, column, row: 0 };
    found.push(it);
    const below = [...beside.get(node)].filter((each) => each !== above).sort().map((each) => place(each, node, column + 1));
    it.row = below.length ? (below[0] + below[below.length - 1]) / 2 : rows++;
    return it.row;
  };
  place(middle, null, 0);
  return found;
}

const edgesOf = (beside) => [...beside.values()].reduce((sum, each) => sum + each.size, 0) / 2;

/** How many steps the farthest node is away; Infinity if one cannot be reached. */
function depth(start, beside) {
  const seen = new Set([start]);
  let steps = 0;
  for (let front = [start]; front.length; steps += front.length ? 1 : 0) {
    front = front.flatMap((node) => [...beside.get(node)].filter((each) => !seen.has(each) && seen.add(each)));
  }
  return seen.size === beside.size ? steps : Infinity;
}

const left = ({ column }) => EDGE + column * COLUMN;
const middleOf = ({ row }) => EDGE + row * ROW + HEIGHT / 2;

function box(place) {
  const x = left(place);
  const y = middleOf(place) - HEIGHT / 2;
  return [
    s("rect", { class: "node", x, y, width: WIDTH, height: HEIGHT, rx: 8 }),
    text(place.node, x + WIDTH / 2, y + HEIGHT / 2 + 5, "middle", "name"),
  ];
}

/** The way from a node to one that hangs on it, there above and back below. */
function lines(near, far, edges) {
  const [x, turn, end] = [left(near) + WIDTH, left(near) + WIDTH + 24, left(far)];
  const of = (source, target) =>
    edges.find(({ edge }) => edge.src_node === source.node && edge.dst_node === target.node);
  const one = (row, shift, isThere) => {
    if (!row) return [];
    const [y, far_y] = [middleOf(near) + shift, middleOf(far) + shift];
    const tip = isThere ? `M${end} ${far_y} l-8 -4 v8 z` : `M${x} ${y} l8 -4 v8 z`;
    return [
      s("path", { class: `line ${row.tone}`, d: `M${x} ${y} H${turn} V${far_y} H${end}` }),
      s("path", { class: `tip ${row.tone}`, d: tip }),
      text(label(row), (turn + end) / 2, far_y + (shift < 0 ? -5 : 15), "middle", row.tone),
    ];
  };
  return [...one(of(near, far), -6, true), ...one(of(far, near), 6, false)];
}

function label(row) {
  const told = row.edge.settles && row.conflicts ? `, ${plural(row.conflicts, "conflict")}` : "";
  return `${row.lag === NOTHING ? row.state : row.lag}${told}`;
}

function text(content, x, y, anchor, kind) {
  const element = s("text", { x, y, "text-anchor": anchor, class: kind });
  if (content.length <= MOST_LETTERS) {
    element.textContent = content;
    return element;
  }
  element.textContent = `${content.slice(0, MOST_LETTERS - 1)}…`;
  const whole = s("title", {});
  whole.textContent = content;
  element.append(whole);
  return element;
}

function s(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

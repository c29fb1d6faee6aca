// The dataflow: a column per step away from the sources, a box per node, a dot per instance.

import { behind, drawn, element, latency, rate, span } from "./format.js";

const BOX = { width: 190, height: 112 };
const GAP = { x: 70, y: 22 };
const LONGEST_NAME = 22;
const LONG_AGO = 10;

export function showGraph(place, view) {
  const graph = view.graph;
  if (!graph) {
    place.replaceChildren(element("p", { class: "quiet" }, "There is nothing to draw yet."));
    return;
  }
  const at = positions(graph.nodes);
  const width = Math.max(...[...at.values()].map((one) => one.x)) + BOX.width + 2;
  const height = Math.max(...[...at.values()].map((one) => one.y)) + BOX.height + 2;
  const picture = drawn("svg", { viewBox: `-1 -1 ${width} ${height}`, width, height, role: "img", "aria-label": spoken(graph) });
  for (const edge of graph.edges) picture.append(...line(edge, at, view));
  for (const node of graph.nodes) picture.append(box(node, at.get(node.number), view));
  place.replaceChildren(picture);
}

function positions(nodes) {
  const columns = new Map();
  for (const node of nodes) columns.set(node.column, [...(columns.get(node.column) ?? []), node]);
  const tallest = Math.max(...[...columns.values()].map((column) => column.length));
  const at = new Map();
  for (const [column, members] of columns) {
    const above = ((tallest - members.length) * (BOX.height + GAP.y)) / 2;
    members.forEach((node, row) =>
      at.set(node.number, { x: column * (BOX.width + GAP.x), y: above + row * (BOX.height + GAP.y) }));
  }
  return at;
}

function line(edge, at, view) {
  const from = at.get(edge.from), to = at.get(edge.to);
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = Math.max(30, (x2 - x1) / 2);
  const flows = rateOf(view, edge.to) > 0;
  const path = drawn("path", {
    d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`,
    class: flows ? "edge flows" : "edge",
  });
  if (!edge.output) return [path];
  return [path, drawn("text", { x: x2 - 6, y: y2 - 8, class: "output" }, edge.output)];
}

function box(node, at, view) {
  const operator = view.said?.operators.find((one) => one.node === node.number);
  const instances = operator?.instances ?? [];
  const name = node.name.length > LONGEST_NAME ? `${node.name.slice(0, LONGEST_NAME - 1)}…` : node.name;
  const group = drawn("g", {
    class: `node ${node.kind}`, transform: `translate(${at.x},${at.y})`, "data-node": node.name,
  });
  group.append(
    drawn("title", {}, about(node)),
    drawn("rect", { width: BOX.width, height: BOX.height, rx: 10 }),
    drawn("text", { x: 14, y: 24, class: "name" }, name),
    drawn("text", { x: 14, y: 41, class: "kind" }, subtitle(node)),
  );
  if (node.kind === "source") group.append(...lag(node, view));
  const course = view.course?.[node.number];
  if (node.kind !== "source") {
    group.append(drawn("text", { x: BOX.width - 14, y: 24, class: "rate" }, rate(rateOf(view, node.number))));
    if (course) group.append(sparkline(course, view.at));
    const took = view.latency?.[node.number];
    if (took) group.append(drawn("text", { x: 14, y: 58, class: "latency" },
      drawn("title", {}, "From a row's entering the query until it was visible, of the last two minutes"),
      `p50 ${latency(took.p50)} · p99 ${latency(took.p99)}`));
    instances.forEach((each, number) => group.append(dot(each, number)));
  }
  return group;
}

// What a source has not read yet, where it says that: Spark asks it behind each batch.
function lag(node, view) {
  const known = (view.said?.sources ?? []).filter((one) => one.node === node.number && one.behind !== null);
  if (!known.length) return [];
  const ago = view.at - known[0].at;
  const when = ago > LONG_AGO ? [drawn("text", { x: 14, y: 75, class: "kind" }, `${span(ago)} ago`)] : [];
  return [drawn("text", { x: 14, y: 58, class: "lag" },
    drawn("title", {}, `Not read yet behind the last batch, ${span(ago)} ago`), known.map(behind).join(", ")), ...when];
}

function about(node) {
  if (node.kind === "source") return `source ${node.name}`;
  const key = node.key.length ? `, keyed by ${node.key.join(", ")}` : "";
  return `${node.kind} ${node.name}, ${node.parallelism} instances${key}`;
}

function subtitle(node) {
  if (node.kind === "source") return "source";
  const key = node.key.join(", ");
  return key && key.length < 18 ? `${node.kind} by ${key}` : node.kind;
}

function dot(each, number) {
  const made = drawn("circle", { cx: 20 + number * 17, cy: BOX.height - 15, r: 5.5, class: `dot ${each.state}` });
  made.append(drawn("title", {}, `instance ${each.instance}: ${each.state}${each.pid ? `, process ${each.pid}` : ""}`));
  if (!each.standby) return made;
  const ring = drawn("circle", { cx: 20 + number * 17, cy: BOX.height - 15, r: 7.8, class: "ring" });
  return drawn("g", {}, ring, made);
}

function sparkline(course, now) {
  const seconds = 120, width = BOX.width - 28, height = 20, top = 66;
  const lately = course.filter(([at]) => now - at <= seconds);
  const highest = Math.max(1, ...lately.map(([, value]) => value));
  const points = lately.map(([at, value]) =>
    `${(14 + width * (1 - (now - at) / seconds)).toFixed(1)},${(top + height * (1 - value / highest)).toFixed(1)}`);
  return drawn("polyline", { points: points.join(" "), class: "course" });
}

function rateOf(view, node) {
  const rates = Object.entries(view.rates ?? {}).filter(([place]) => place.split("/")[0] === String(node));
  return rates.length ? rates.reduce((sum, [, value]) => sum + value, 0) : undefined;
}

function spoken(graph) {
  const names = new Map(graph.nodes.map((node) => [node.number, node.name]));
  return graph.edges.map((edge) => `${names.get(edge.from)} to ${names.get(edge.to)}`).join("; ");
}

// Failures and recoveries: a lane per instance, the latest at the right, phases of a recovery in their colours.

import { clock, drawn, element } from "./format.js";

const LANE = 26, LEFT = 150, WIDTH = 900, SHORTEST = 60, LONGEST = 600;
export const PHASES = ["death to hand-over", "state", "log", "function", "replay", "sink", "fence"];

export function showTimeline(place, legend, spanPlace, view) {
  const events = (view.events ?? []).filter((event) => view.at - event.at <= LONGEST && (event.node || event.who));
  if (!events.length) {
    place.replaceChildren(element("p", { class: "quiet" }, "None in the last ten minutes."));
    legend.replaceChildren();
    spanPlace.textContent = "";
    return;
  }
  const shown = Math.max(SHORTEST, view.at - Math.min(...events.map((event) => event.at)) + 5);
  const lanes = [...new Set(events.map(who))].sort();
  const height = lanes.length * LANE + 24;
  const x = (at) => LEFT + (WIDTH - LEFT) * (1 - (view.at - at) / shown);
  const picture = drawn("svg", { viewBox: `0 0 ${WIDTH + 10} ${height}`, width: WIDTH + 10, height, role: "img",
    "aria-label": "failures and recoveries over time" });
  ticks(picture, view.at, shown, x, height);
  lanes.forEach((lane, number) => {
    const y = number * LANE + LANE / 2;
    picture.append(
      drawn("text", { x: 0, y: y + 4, class: "lane" }, lane),
      drawn("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y, class: "rail" }),
    );
    for (const event of events.filter((one) => who(one) === lane)) picture.append(mark(event, x, y));
  });
  place.replaceChildren(picture);
  spanPlace.textContent = `last ${Math.round(shown)} s, UTC`;
  legend.replaceChildren(
    element("span", {}, element("i", { class: "cross" }, "×"), " death"),
    element("span", {}, element("i", { class: "cross failure" }, "!"), " failure"),
    element("span", {}, element("i", { class: "cross start" }, "↻"), " another start"),
    ...PHASES.map((phase, at) => element("span", {}, element("i", { class: `swatch phase${at}` }), ` ${phase}`)),
  );
}

export function who(event) {
  if (event.who) return event.who;
  return event.node ? `${event.operator ?? event.node}/${event.instance}` : "spare";
}

export function parts(recovery) {
  const phases = Object.entries(recovery.phases).map(([name, ms]) => ({ name, ms }));
  const before = recovery.since_death_ms === null ? 0 : Math.max(0, recovery.since_death_ms - recovery.ms);
  return before ? [{ name: PHASES[0], ms: before }, ...phases] : phases;
}

function ticks(picture, now, shown, x, height) {
  const step = [10, 30, 60, 120].find((each) => shown / each <= 8) ?? 120;
  for (let at = Math.ceil((now - shown) / step) * step; at <= now; at += step) {
    picture.append(
      drawn("line", { x1: x(at), x2: x(at), y1: 0, y2: height - 18, class: "tick" }),
      drawn("text", { x: x(at), y: height - 4, class: "time" }, clock(at)),
    );
  }
}

function mark(event, x, y) {
  if (event.kind_of_event === "recovery") return bar(event, x, y);
  const sign = { failure: "!", start: "↻" }[event.kind_of_event] ?? "×";
  const made = drawn("text", { x: x(event.at), y: y + 5, class: `cross ${event.kind_of_event}` }, sign);
  made.append(drawn("title", {}, event.message));
  return made;
}

// A recovery takes milliseconds, which no time line of minutes shows: its bar is as wide as a logarithm says.
function bar(event, x, y) {
  const all = parts(event), total = all.reduce((sum, part) => sum + part.ms, 0) || 1;
  const width = 10 + 12 * Math.log10(1 + total);
  const group = drawn("g", { class: "recovery" });
  let left = x(event.at);
  for (const part of all) {
    const wide = (width * part.ms) / total;
    group.append(drawn("rect", { x: left, y: y - 8, width: wide, height: 16, class: `phase${Math.max(0, PHASES.indexOf(part.name))}` }));
    left += wide;
  }
  group.append(drawn("title", {}, all.map((part) => `${part.name} ${part.ms.toFixed(0)} ms`).join(", ")));
  return group;
}

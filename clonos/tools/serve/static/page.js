// Asks for the state of the chosen query again and again, and shows it.

import { openArchive } from "./archive.js";
import { clock, count, element, rate, size, span } from "./format.js";
import { showGraph } from "./graph.js";
import { parts, showTimeline, who } from "./timeline.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 10_000;
const SILENT_SECONDS = 10;
const COLUMNS = ["operator", "instance", "process", "state", "epoch", "rows", "rows/s", "up", "memory", "log on disk",
  "state on disk", "spill", "standby", "dead letters"];
const find = (id) => document.getElementById(id);
let chosen = Number(new URLSearchParams(location.search).get("query") ?? 0);
let next = 0;

async function asked(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function look() {
  clearTimeout(next);
  const query = chosen;
  try {
    const queries = await asked("api/queries");
    const view = await asked(`api/queries/${query}`);
    if (query === chosen) show(queries, view);
    openArchive(chosen);
  } catch (error) {
    pill("no answer", "error");
    find("facts").textContent = `${error.message ?? error}: what is below is as it was before`;
  }
  if (query === chosen) next = setTimeout(look, EVERY_MS);
}

function show(queries, view) {
  showQueries(queries);
  const silent = view.now - view.at;
  if (silent > SILENT_SECONDS) {
    pill("no news", "warning");
    view.advice = [{ level: "warning", seen: `what is shown is ${span(silent)} old`,
      do: "The query, or the storage of its checkpoint, does not answer this page. It may run or not.", command: "" }];
  } else pill(view.state, { running: "good", "runs elsewhere": "good", "not running": "error" }[view.state] ?? "warning");
  find("facts").textContent = facts(view);
  document.title = `${view.state} – Clonos`;
  find("advice").replaceChildren(...advised(view));
  showGraph(find("graph"), view);
  showTimeline(find("timeline"), find("legend"), find("span"), view);
  find("instances").replaceChildren(...table(view));
  find("events").replaceChildren(...[...(view.events ?? [])].reverse().slice(0, 50).map(happened));
}

function showQueries(queries) {
  if (queries.length < 2) return;
  find("queries").replaceChildren(...queries.map((query) => {
    const button = element("button", { type: "button", "aria-pressed": query.number === chosen, title: query.checkpoint },
      query.checkpoint.replace(/\/+$/, "").split("/").slice(-2).join("/"));
    button.addEventListener("click", () => {
      chosen = query.number;
      history.replaceState(null, "", `?query=${chosen}`);
      look();
    });
    return button;
  }));
}

function pill(text, level) {
  const place = find("state");
  place.textContent = text;
  place.className = `pill ${level}`;
}

function facts(view) {
  const said = view.said;
  const mode = view.realtime === undefined ? "" : view.realtime ? "real time" : "micro-batch";
  if (!said) return [view.checkpoint, mode].filter(Boolean).join(" · ");
  const committed = said.committed < 0 ? "no epoch committed yet"
    : `epoch ${said.committed} committed${said.committed_at ? ` ${span(view.at - said.committed_at)} ago` : ""}`;
  const under = said.epoch === null ? "none under way" : `${said.epoch} under way`;
  return [view.checkpoint, mode, `start ${said.generation}`, `${committed}, ${under}`,
    `server up ${span(view.at - said.server.started)}, ${size(said.server.resident)}`,
    `${said.spares.length} spare processes`].join(" · ");
}

function advised(view) {
  const advice = view.advice ?? [];
  if (!advice.length && view.state !== "running") return [element("li", {}, "Nothing is known yet.")];
  if (!advice.length) return [element("li", { class: "good" }, element("b", {}, "Nothing."), " All is well.")];
  return advice.map((one) => element("li", { class: one.level }, element("b", {}, one.seen), element("p", {}, one.do),
    ...(one.command ? [element("code", {}, one.command)] : [])));
}

function table(view) {
  if (!view.said) return [];
  const head = element("thead", {}, element("tr", {}, ...COLUMNS.map((name) => element("th", {}, name))));
  const rows = view.said.operators.flatMap((operator) => operator.instances.map((each) => {
    const standby = each.standby ? `${each.standby.pid}${each.standby.place ? ` on ${each.standby.place}` : ""}${each.standby.follows ? "" : ", catching up"}` : "–";
    const cells = [operator.operator, each.instance, each.pid ?? "–", each.state, each.epoch ?? "–", count(each.records),
      rate(view.rates?.[`${operator.node}/${each.instance}`]), span(each.uptime), size(each.resident), size(each.log_disk),
      size(each.state_disk), size(each.spill_disk), standby, each.dead_letters || "–"];
    return element("tr", { class: each.state }, ...cells.map((cell) => element("td", {}, cell)));
  }));
  return [head, element("tbody", {}, ...rows)];
}

function happened(event) {
  return element("li", { class: event.kind_of_event },
    element("time", { datetime: new Date(event.at * 1000).toISOString() }, `${clock(event.at)}Z`),
    element("b", {}, who(event)), element("span", {}, told(event)));
}

function told(event) {
  if (event.kind_of_event === "death" || event.kind_of_event === "start") return event.message;
  if (event.kind_of_event === "failure") return `${event.error}: ${event.message.split("\n")[0]}`;
  const phases = parts(event).map((part) => `${part.name} ${part.ms.toFixed(0)}`).join(", ");
  const live = event.since_death_ms !== null ? `live ${event.since_death_ms.toFixed(0)} ms after the death`
    : `live after ${event.ms.toFixed(0)} ms${event.fresh ? " in a new task" : event.promoted ? " as a standby" : ""}`;
  return `epoch ${event.epoch} ${live} (${phases} ms; ${size(event.repeated)} repeated)`;
}

look();

// Asks the archive of the chosen query: which rows there were, and why they say what they say.

import { compared } from "./compare.js";
import { count, element, size } from "./format.js";

const PATIENCE_MS = 130_000;
const KEPT = 4;
const find = (id) => document.getElementById(id);
let query = -1;
let rowsAsked = 0;
let chosen = []; // to be compared, two at most: { card, row, text, box }

// No two calls take equally long: that is no difference between rows.
const DURATION = / {2}\([\d.,]+ (us|ms|s)\)$/gm;

async function asked(path, given) {
  const answer = await fetch(`api/queries/${query}/${path}?${new URLSearchParams(given)}`,
    { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// A query has been chosen: what is there of it.
export async function openArchive(number) {
  if (number === query) return;
  query = number;
  find("archive").hidden = true;
  find("found").replaceChildren();
  find("explained").replaceChildren();
  compare();
  try {
    const said = await asked("archive", {});
    if (number !== query || !(said.operators.length || said.error)) return;
    find("archive").hidden = false;
    if (said.error) { find("archived").textContent = said.error; return; }
    const there = said.operators.map((one) =>
      `${one.name}: epochs ${one.epochs[0]} to ${one.epochs[1]}, ${size(one.bytes)}`);
    find("archived").textContent = [...there, ...(said.note ? [said.note] : [])].join(" · ");
    find("operator").replaceChildren(...said.operators.map((one) => element("option", {}, one.name)));
    find("operator").value = said.operators.at(-1).name;
  } catch (error) {
    query = -1; // the next look asks again
  }
}

find("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  const mine = ++rowsAsked;
  told("looking …");
  try {
    const given = [["operator", find("operator").value], ["from", find("since").value.trim()], ["to", find("upto").value.trim()],
      ...conditions(find("where").value).map((one) => ["where", one])];
    const said = await asked("rows", given);
    if (mine === rowsAsked) showRows(said);
  } catch (error) {
    if (mine === rowsAsked) told(error.message ?? `${error}`, "error");
  }
});

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  explain(find("row").value.trim());
});

// Conditions are apart from each other by commas, but for those in "quotes".
function conditions(text) {
  return (text.match(/(?:"(?:[^"\\]|\\.)*"|[^,])+/g) ?? []).map((one) => one.trim()).filter(Boolean);
}

function told(text, level = "quiet") {
  find("found").replaceChildren(element("p", { class: level, role: "status" }, text));
}

// A text that says null is in quotes. Where a row has no such column, nothing is shown.
function valueOf(said) {
  return said === null ? element("span", { class: "null", role: "img", "aria-label": "null, no value" }, "null") : said ?? "";
}

function showRows(said) {
  if (said.error) return told(said.error, "error");
  const lacking = said.lacking.map((one) => element("p", { class: "error", role: "status" }, `not looked at: ${one}`));
  if (!said.rows.length) {
    told(lacking.length ? "No row of what could be looked at had these values." : "No row had these values.");
    return find("found").append(...lacking);
  }
  const output = (one) => [one.output, one.through && `through ${one.through}`].filter(Boolean).join(", ");
  const outputs = said.rows.some(output) ? ["output"] : [];
  const names = [...new Set(said.rows.flatMap((one) => Object.keys(one.row)))];
  const head = element("tr", {}, ...["row", "epoch", ...outputs, ...names].map((name) => element("th", {}, name)));
  const rows = said.rows.map((one) => {
    const button = element("button", { type: "button", title: "why?" }, one.id);
    button.addEventListener("click", () => explain(one.id));
    return element("tr", {}, element("td", {}, button), element("td", {}, one.epoch),
      ...outputs.map(() => element("td", {}, output(one))), ...names.map((name) => element("td", {}, valueOf(one.row[name]))));
  });
  const more = said.rows.length === said.limit ? ` The first ${count(said.limit)} are shown.` : "";
  const rowsFound = said.rows.length === 1 ? "1 row" : `${count(said.rows.length)} rows`;
  find("found").replaceChildren(element("p", { class: "quiet" }, `${rowsFound}.${more}`), ...lacking,
    element("div", { class: "scrolls rows" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))));
}

// Rows that were chosen and are still there, side by side when they are two.
function compare() {
  chosen = chosen.filter((one) => one.card.isConnected);
  if (chosen.length < 2) return find("compared").replaceChildren();
  const pairs = compared(...chosen.map((one) => one.text));
  const cell = (line) => (line === null ? element("td", { class: "none" })
    : element("td", {}, ...line.map((part) => (part.differs ? element("mark", {}, part.text) : part.text))));
  const differing = pairs.filter((pair) => pair.some((line) => line === null || line.some((part) => part.differs))).length;
  find("compared").replaceChildren(
    element("p", { class: "quiet", role: "status" }, `${count(differing)} of ${count(pairs.length)} lines differ.`),
    element("table", { "aria-label": `rows ${chosen[0].row} and ${chosen[1].row}` },
      element("thead", {}, element("tr", {}, ...chosen.map((one) => element("th", {}, `Row ${one.row}`)))),
      element("tbody", {}, ...pairs.map((pair) => element("tr", {}, ...pair.map(cell))))));
}

function comparing(card, row, text) {
  const box = element("input", { type: "checkbox" });
  box.addEventListener("change", () => {
    chosen = chosen.filter((one) => one.card !== card);
    if (box.checked) chosen.push({ card, row, text, box });
    if (chosen.length > 2) chosen.shift().box.checked = false;
    compare();
  });
  return element("label", {}, box, " compare");
}

// The newest is the first; a few stay, so that they can be compared.
async function explain(row) {
  if (!row) return;
  const card = element("article", { "aria-label": `row ${row}` }, element("h3", {}, `Row ${row}`),
    element("p", { class: "quiet", role: "status" }, "its operators are run again …"));
  const place = find("explained");
  for (const old of place.children) if (old.getAttribute("aria-label") === `row ${row}`) old.remove();
  place.prepend(card);
  place.scrollIntoView({ block: "nearest" });
  while (place.children.length > KEPT) place.lastElementChild.remove();
  compare();
  let said;
  try {
    said = await asked("explain", { row });
  } catch (error) {
    said = { error: error.message ?? `${error}` };
  }
  const close = element("button", { type: "button", title: "close" }, "close");
  close.addEventListener("click", () => {
    card.remove();
    compare();
  });
  const head = element("h3", {}, `Row ${row} `, close);
  if (said.error) return card.replaceChildren(head, element("p", { class: "error", role: "status" }, said.error));
  const picture = element("img", { alt: `what row ${row} was made of`,
    src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(said.picture)}` });
  head.append(" ", comparing(card, row, said.text.replace(DURATION, "")));
  card.replaceChildren(head, element("div", { class: "scrolls" }, picture), element("details", {},
    element("summary", {}, "As text"), element("pre", {}, said.text)));
  place.scrollIntoView({ block: "nearest" });
}

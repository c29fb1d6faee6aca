// Numbers, sizes and times in words, and elements with text in them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let at = 0;
  while (bytes >= 1000 && at < UNITS.length - 1) { bytes /= 1024; at += 1; }
  return `${bytes >= 10 || at === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${UNITS[at]}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

export function count(number) {
  return number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en");
}

export function rate(perSecond) {
  if (perSecond === undefined) return "–";
  return perSecond > 0 && perSecond < 10 ? `${perSecond.toFixed(1)}/s` : `${count(perSecond)}/s`;
}

export function behind(source) {
  return source.unit === "bytes" ? `${size(source.behind)} behind` : `${count(source.behind)} ${source.unit} behind`;
}

// Of the buckets that rows are counted in, the highest ends at a minute.
export function latency(seconds) {
  if (seconds >= 60) return "> 1 min";
  if (seconds >= 1) return span(seconds);
  return `${seconds < 0.01 ? (seconds * 1000).toFixed(1) : Math.round(seconds * 1000)} ms`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

// Two texts side by side: which lines belong together, and what differs in them.

const LINES = 300; // at once
const WORDS = 300;

// Pairs of lines, in order, of which either may be missing (null). A line is a list of { text, differs }.
export function compared(one, other) {
  const [left, right] = [one, other].map((text) => text.split("\n"));
  return paired(left, right, LINES, likeness(left, right)).map(([at, to]) => {
    if (at === null) return [null, [{ text: right[to], differs: true }]];
    if (to === null) return [[{ text: left[at], differs: true }], null];
    return marked(left[at], right[to]);
  });
}

// The words of two lines, those that only one of them has marked.
function marked(one, other) {
  if (one === other) return [[{ text: one, differs: false }], [{ text: other, differs: false }]];
  const [left, right] = [one, other].map(words);
  const pairs = paired(left, right, WORDS, (at, to) => (left[at] === right[to] ? 1 : 0));
  const same = pairs.filter(([at, to]) => at !== null && to !== null && left[at] === right[to]);
  return [joined(left, new Set(same.map(([at]) => at))), joined(right, new Set(same.map(([, to]) => to)))];
}

function joined(words, same) {
  const parts = [];
  words.forEach((text, at) => {
    const differs = !same.has(at);
    if (parts.length && parts.at(-1).differs === differs) parts.at(-1).text += text;
    else parts.push({ text, differs });
  });
  return parts;
}

function words(line) {
  return line.match(/[\p{L}\p{N}_.*-]+|\s+|[^]/gu) ?? [];
}

// Of rows of the same operator hardly a line is the same, but they begin alike, as "draw" or "called": such lines belong
// together, the more so the more words they share.
function likeness(left, right) {
  const [ours, theirs] = [left, right].map((lines) => lines.map((line) => {
    const [, indent, label = ""] = line.match(/^( *)(\S*)/);
    return { line, head: `${indent.length} ${label}`, words: new Set(words(line)) };
  }));
  return (at, to) => {
    const [one, other] = [ours[at], theirs[to]];
    if (one.line === other.line) return 3;
    if (one.head !== other.head) return 0;
    let shared = 0;
    for (const word of one.words) shared += other.words.has(word) ? 1 : 0;
    return 1 + shared / Math.max(one.words.size, other.words.size, 1);
  };
}

// The lines, or words, of two lists in pairs, by their places; none is passed over. Long lists are paired part by part.
function paired(left, right, most, like) {
  let begun = 0;
  while (begun < left.length && begun < right.length && left[begun] === right[begun]) begun += 1;
  let ended = 0;
  while (ended < left.length - begun && ended < right.length - begun
    && left[left.length - 1 - ended] === right[right.length - 1 - ended]) ended += 1;
  const pairs = Array.from({ length: begun }, (_, at) => [at, at]);
  for (let from = begun; from < Math.max(left.length, right.length) - ended; from += most) {
    const [height, width] = [left, right].map((all) => Math.max(0, Math.min(most, all.length - ended - from)));
    for (const [at, to] of aligned(height, width, (at, to) => like(from + at, from + to))) {
      pairs.push([at === null ? null : from + at, to === null ? null : from + to]);
    }
  }
  for (let from = ended; from > 0; from -= 1) pairs.push([left.length - from, right.length - from]);
  return pairs;
}

// The pairing with the greatest likeness, by dynamic programming (Needleman and Wunsch; a gap costs nothing).
function aligned(height, width, like) {
  const best = Array.from({ length: height + 1 }, () => new Float32Array(width + 1));
  const alike = Array.from({ length: height }, () => new Float32Array(width));
  for (let at = height - 1; at >= 0; at -= 1) {
    for (let to = width - 1; to >= 0; to -= 1) {
      alike[at][to] = like(at, to);
      const together = alike[at][to] > 0 ? alike[at][to] + best[at + 1][to + 1] : 0;
      best[at][to] = Math.max(together, best[at + 1][to], best[at][to + 1]);
    }
  }
  const pairs = [];
  let [at, to] = [0, 0];
  while (at < height && to < width) {
    if (alike[at][to] > 0 && best[at][to] === Math.fround(alike[at][to] + best[at + 1][to + 1])) pairs.push([at++, to++]);
    else if (best[at][to] === best[at + 1][to]) pairs.push([at++, null]);
    else pairs.push([null, to++]);
  }
  while (at < height) pairs.push([at++, null]);
  while (to < width) pairs.push([null, to++]);
  return pairs;
}

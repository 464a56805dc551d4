// The explanation of a label: words that raise or lower its score, and labels that often occur with it.

import { reason, request } from "./api.js";
import { button, element } from "./dom.js";

const SHOWN = 8; // features
const PLACES = 3; // words that a run of letters is shown in
const PAUSE = 60; // ms that the pointer stays on a label before it is explained
const LEAST = 0.08; // of the largest contribution; smaller ones are not marked in the text
const CACHED = 200; // explanations that need not be requested again
const NOTHING = "The model knows nothing in this text: the probability is the label's frequency.";

const cache = new Map();

// The text with marks on the words that count. Places count code points, strings count UTF-16 units.
export function marked(text, words = []) {
  const most = Math.max(...words.map((word) => Math.abs(word.contribution)));
  const kept = words.filter((word) => Math.abs(word.contribution) >= LEAST * most);
  if (!kept.length) return [text];
  const points = Array.from(text);
  const parts = [];
  let at = 0;
  for (const { start, end, contribution } of kept) {
    const mark = element("mark", contribution < 0 ? "no" : "", points.slice(start, end).join(""));
    mark.style.setProperty("--much", Math.abs(contribution) / most);
    parts.push(points.slice(at, start).join(""), mark);
    at = end;
  }
  return [...parts, points.slice(at).join("")];
}

// The parts of a feature's name: [before, letters, after, ...]. Letters that are a part of words are shown in them, as in
// "per|cen|tage".
function named(feature, points) {
  const isLetter = (i) => /[\p{L}\p{M}\p{N}_]/u.test(points[i] ?? "");
  const shown = new Map();
  for (const { start, end } of feature.spans) {
    let [first, last] = [start, end];
    while (isLetter(first) && isLetter(first - 1)) first--;
    while (isLetter(last - 1) && isLetter(last)) last++;
    if (first === start && last === end) return [feature.feature, "", ""];
    const parts = [points.slice(first, start), points.slice(start, end), points.slice(end, last)].map((part) => part.join(""));
    shown.set(parts.join("|").toLowerCase(), parts);
  }
  const words = [...shown.values()].slice(0, PLACES);
  if (!words.length) return [feature.feature, "", ""];
  return words.flatMap(([before, part, after], i) => [(i ? " · " : "") + before, part, after]);
}

// Features that are shown alike, such as letters with and without the blank before them, are one.
function merged(features, points) {
  const shown = new Map();
  for (const one of features) {
    const name = named(one, points);
    const key = name.join("|");
    shown.set(key, { name, contribution: one.contribution + (shown.get(key)?.contribution ?? 0) });
  }
  return [...shown.values()].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution)).slice(0, SHOWN);
}

// Returns a function that explains a label of a row in a panel, and marks the words with `write`.
export function explainer(panel, write, onClose) {
  const parts = {
    title: element("h2"),
    about: element("h3"),
    reasons: element("ul"),
    near: element("h3", "", "Often occurs with"),
    neighbours: element("ul", "neighbours"),
  };
  const close = button("close", onClose, "×");
  close.setAttribute("aria-label", "Close");
  panel.append(close, ...Object.values(parts));
  let waiting = null;

  function draw(found, text, message = NOTHING) {
    write(text, found.words);
    const features = merged(found.features, Array.from(text));
    const most = Math.max(...features.map((one) => Math.abs(one.contribution)));
    const reasons = features.map((one) => {
      const name = one.name.map((part, i) => (i % 3 === 1 ? element("b", "part", part) : part));
      const line = element("li", one.contribution < 0 ? "reason no" : "reason", element("span", "", ...name), element("i"));
      line.lastChild.style.setProperty("--much", Math.abs(one.contribution) / most);
      line.append(element("b", "", (one.contribution < 0 ? "−" : "+") + Math.abs(one.contribution).toFixed(3)));
      return line;
    });
    const neighbours = found.neighbours.map((one) => {
      const chip = element("li", "", one.name);
      chip.title = `${one.label}: similarity ${one.similarity.toFixed(2)}`;
      return chip;
    });
    parts.title.textContent = `Why ${found.name}?`;
    parts.about.textContent = reasons.length ? "Contributions to its score" : message;
    parts.reasons.replaceChildren(...reasons);
    parts.neighbours.replaceChildren(...neighbours);
    parts.near.hidden = !neighbours.length;
    panel.hidden = false;
  }

  return (one, row, text) => {
    waiting?.abort();
    if (!one) {
      panel.hidden = true;
      write(text);
      return;
    }
    const key = JSON.stringify([one.label, row]);
    if (cache.has(key)) {
      draw(cache.get(key), text);
      return;
    }
    const mine = (waiting = new AbortController());
    setTimeout(async () => {
      if (mine.signal.aborted) return;
      try {
        const response = await request("explain", { ...row, labels: [one.label], top: 3 * SHOWN }, mine.signal);
        if (cache.size >= CACHED) cache.clear();
        cache.set(key, response.explanations[0]);
        draw(response.explanations[0], text);
      } catch (error) {
        if (error.name !== "AbortError") draw({ ...one, words: [], features: [], neighbours: [] }, text, reason(error));
      }
    }, PAUSE);
  };
}

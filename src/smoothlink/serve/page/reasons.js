// The explanation of a label: words that raise or lower its score, and labels that often occur with it.

import { request } from "./api.js";
import { element, scrollToPinned } from "./labels.js";

const SHOWN = 8; // features
const PAUSE = 60; // ms that the pointer stays on a label before it is explained
const LEAST = 0.08; // of the largest contribution; smaller ones are not marked in the text
const CACHED = 200; // explanations that need not be requested again

const why = document.getElementById("why");
const behind = document.getElementById("behind");
const cache = new Map();
let waiting = null;

// The text behind the textarea, which holds the marks and makes the card as high as the text.
export function write(text, words = []) {
  const most = Math.max(...words.map((word) => Math.abs(word.contribution)));
  words = words.filter((word) => Math.abs(word.contribution) >= LEAST * most);
  const points = words.length ? Array.from(text) : []; // places count code points, strings count UTF-16 units
  const parts = [];
  let at = 0;
  for (const { start, end, contribution } of words) {
    const mark = element("mark", contribution < 0 ? "no" : "");
    mark.textContent = points.slice(start, end).join("");
    mark.style.setProperty("--much", Math.abs(contribution) / most);
    parts.push(points.slice(at, start).join(""), mark);
    at = end;
  }
  behind.replaceChildren(...parts, words.length ? points.slice(at).join("") : text, "\n");
}

export function explain(label, row, text) {
  waiting?.abort();
  if (label === null) {
    why.hidden = true;
    write(text);
    return;
  }
  const key = JSON.stringify([label, row]);
  if (cache.has(key)) {
    draw(cache.get(key), text);
    return;
  }
  const mine = (waiting = new AbortController());
  setTimeout(async () => {
    if (mine.signal.aborted) return;
    try {
      const response = await request("explain", { ...row, labels: [label], top: SHOWN }, mine.signal);
      if (cache.size >= CACHED) cache.clear();
      cache.set(key, response.explanations[0]);
      draw(response.explanations[0], text);
    } catch (error) {
      if (error.name === "AbortError") return;
      draw({ label, words: [], features: [], neighbours: [] }, text, error.message);
    }
  }, PAUSE);
}

function draw(found, text, message = "The model knows nothing in this text: the probability is the label's frequency.") {
  write(text, found.words);
  const [title, ...heads] = why.querySelectorAll("h2, h3");
  title.textContent = `Why ${found.label}?`;
  const most = Math.max(...found.features.map((one) => Math.abs(one.contribution)));
  const reasons = found.features.map((one) => {
    const line = element("li", one.contribution < 0 ? "reason no" : "reason");
    const [name, bar, number] = [element("span", ""), element("i", ""), element("b", "")];
    name.textContent = name.title = one.feature;
    bar.style.setProperty("--much", Math.abs(one.contribution) / most);
    number.textContent = (one.contribution < 0 ? "−" : "+") + Math.abs(one.contribution).toFixed(3);
    line.append(name, bar, number);
    return line;
  });
  const neighbours = found.neighbours.map((one) => {
    const chip = element("li", "");
    chip.textContent = one.label;
    chip.title = `Similarity: ${one.similarity.toFixed(2)}`;
    return chip;
  });
  document.getElementById("reasons").replaceChildren(...reasons);
  document.getElementById("neighbours").replaceChildren(...neighbours);
  heads[1].textContent = reasons.length ? "Contributions to its score" : message;
  heads[0].hidden = !neighbours.length;
  why.hidden = false;
  scrollToPinned();
}

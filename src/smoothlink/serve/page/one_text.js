// One text: it is sent as soon as typing pauses, and the newest prediction is shown.

import { RefusedRequest, reason, request } from "./api.js";
import { learnedNumbers } from "./columns.js";
import { button, count, element, get, say } from "./dom.js";
import * as labels from "./labels.js";
import { explainer, marked } from "./reasons.js";

const PAUSE = 60; // ms without a key until the text is sent
const LABELS = 60; // that are requested, unless the threshold is so low that more may reach it
const KEY = "smoothlink-text"; // of the text, which survives a reload

const [text, note, copy] = [get("text"), get("note"), get("copy")];
let about = null;
let waiting = null;
let timer = 0;
let example = null;
let wanted = LABELS;

// The text behind the textarea holds the marks and makes the card as high as the text.
const write = (content, words) => get("behind").replaceChildren(...marked(content, words), "\n");
const explain = explainer(get("why"), (content, words) => {
  write(content, words);
  labels.scrollToPinned();
}, labels.unpin);

function onTyped() {
  write(text.value);
  sessionStorage.setItem(KEY, text.value.slice(0, 1_000_000));
  if (example && example.text !== text.value) selectExample(null);
  clearTimeout(timer);
  timer = setTimeout(send, PAUSE);
}

async function send() {
  waiting?.abort();
  const mine = (waiting = new AbortController());
  if (!text.value.trim()) return clear("");
  try {
    const row = parseRow(text.value);
    const began = performance.now();
    const body = { [about.takes]: [Object.values(row)[0]], k: Math.min(wanted, about.max_labels) };
    const [found] = (await request("predict", body, mine.signal)).predictions;
    get("empty").hidden = true;
    copy.disabled = false;
    labels.show(found.labels, example?.labels ?? []);
    say(note, found.features ? `${found.features} known ${features(found.features)} · ${Math.round(performance.now() - began)} ms` : unknown());
    countLabels();
  } catch (error) {
    if (error.name !== "AbortError") clear(reason(error), true);
  }
}

const features = (n) => (about.takes === "texts" ? "term" : "feature") + (n === 1 ? "" : "s");
const unknown = () => `The model knows no ${features(1)} of it: these are the most frequent labels.`;

function clear(message, bad) {
  labels.show([], []);
  get("empty").hidden = false;
  copy.disabled = true;
  get("count").textContent = "";
  say(note, message, bad);
}

// Says how many labels there are at the threshold; where all that were requested are, more are requested, once.
function countLabels() {
  const { likely, found, threshold, promised } = labels.state();
  const all = likely < found || found === about.labels;
  if (!all && wanted < about.max_labels) {
    wanted = about.max_labels;
    send();
    return;
  }
  const which = threshold === null ? (about.multiclass ? "predicted" : "at their own thresholds or more") : `at ${threshold.toFixed(2)} or more`;
  const shown = `${likely.toLocaleString("en")} of ${count(about.labels, "label")}`;
  if (all && promised) get("count").textContent = `${shown}: such sets ${labels.inWords(promised)}`;
  else get("count").textContent = all ? `${shown} ${which}` : `The first ${shown} are ${which}, and more may be`;
}

// "3:0.5 17:1" -> {vector: {indices: [3, 17], values: [0.5, 1]}}
function parseRow(given) {
  if (about.takes === "texts") return { text: given };
  const vector = { indices: [], values: [] };
  for (const pair of given.split(/[\s,;]+/).filter(Boolean)) {
    const match = /^(\d+):([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)$/i.exec(pair);
    if (!match) throw new RefusedRequest(`“${pair.slice(0, 40)}” is not a pair like 3:0.5: the number of a feature and its value.`);
    vector.indices.push(Number(match[1]));
    vector.values.push(Number(match[2]));
  }
  return { vector };
}

function selectExample(one) {
  example = one;
  for (const each of get("examples").querySelectorAll("button")) each.setAttribute("aria-pressed", each.example === one);
}

function addExamples() {
  const texts = about.examples.map((one) => one.text.replace(/\s+/g, " ").trim());
  const shown = (length) => texts.map((one) => (one.length > length ? `${one.slice(0, length)}…` : one));
  let length = 40; // or as much as tells the examples apart
  while (length < 500 && new Set(shown(length)).size < new Set(texts).size) length += 20;
  const buttons = about.examples.map((one, i) => {
    const made = button("", () => {
      text.value = one.text;
      selectExample(one);
      onTyped();
    }, shown(length)[i]);
    made.title = one.labels.join(", ");
    made.example = one;
    return element("li", "", made);
  });
  get("examples").querySelector("ul").replaceChildren(...buttons);
  get("examples").hidden = !buttons.length;
  selectExample(null);
}

async function copyJson() {
  const shown = { text: text.value, threshold: labels.state().threshold, labels: labels.likely() };
  if (about.takes === "vectors") Object.assign(shown, { text: undefined, ...parseRow(text.value) });
  const json = JSON.stringify(shown, null, 2);
  try {
    await navigator.clipboard.writeText(json);
  } catch {
    // Pages from another machine without https may not use the clipboard, but may copy what is selected.
    const box = Object.assign(element("textarea", "visually-hidden"), { value: json });
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  copy.textContent = "Copied";
  setTimeout(() => (copy.textContent = "Copy JSON"), 1400);
}

export function startText(model) {
  about = model;
  const vectors = about.takes === "vectors";
  const body = vectors ? '{"vectors": [{"indices": [3, 17], "values": [0.5, 1]}], "k": 5}' : '{"texts": ["..."], "k": 5}';
  document.body.classList.toggle("vectors", vectors);
  get("program").querySelector("pre").textContent =
    `curl ${new URL("predict", location.href)} \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
  if (vectors) {
    get("heading").textContent = "Your vector";
    text.placeholder = "3:0.5 17:1";
    get("program").open = true;
    say(note, `This model takes vectors. Type pairs index:value, with indices from 0 to ${about.features - 1}.`);
  }
  if (about.numbers) {
    get("averages").textContent = `${learnedNumbers(about)}: here their averages are assumed. A table can bring them.`;
    get("averages").hidden = false;
  }
  copy.onclick = copyJson;
  text.oninput = onTyped;
  labels.start(about, {
    onExplain: (label) => explain(label, label && parseRow(text.value), text.value),
    onThreshold: () => copy.disabled || countLabels(),
  });
  addExamples();
  text.value ||= sessionStorage.getItem(KEY) ?? "";
  if (text.value) onTyped();
}

// The page: the text is sent as soon as typing pauses, and the newest prediction is shown.

import { RefusedRequest, request } from "./api.js";
import * as labels from "./labels.js";
import { explain, write } from "./reasons.js";

const PAUSE = 60; // ms without a key until the text is sent
const LABELS = 60; // that are requested

const get = (id) => document.getElementById(id);
const [text, note, copy] = [get("text"), get("note"), get("copy")];
let about = null;
let waiting = null;
let timer = 0;
let example = null;

function onTyped() {
  write(text.value);
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
    const response = await request("predict", { [about.takes]: [Object.values(row)[0]], k: Math.min(LABELS, about.max_labels) }, mine.signal);
    const [found] = response.predictions;
    get("empty").hidden = true;
    copy.disabled = false;
    labels.show(found.labels, example?.labels ?? []);
    count();
    showNote(found.features ? `${found.features} known ${features(found.features)} · ${Math.round(performance.now() - began)} ms` : unknown());
  } catch (error) {
    if (error.name !== "AbortError") clear(error instanceof RefusedRequest ? error.message : "The server does not respond.", true);
  }
}

const features = (n) => (about.takes === "texts" ? "term" : "feature") + (n === 1 ? "" : "s");
const unknown = () => `The model knows no ${features(1)} of it: these are the most frequent labels.`;

function showNote(message, bad = false) {
  note.textContent = message;
  note.classList.toggle("bad", bad);
}

function clear(message, bad) {
  labels.show([], []);
  get("empty").hidden = false;
  copy.disabled = true;
  get("count").textContent = "";
  showNote(message, bad);
}

function count() {
  const n = labels.likely().length;
  get("count").textContent = `${n} of ${about.labels.toLocaleString("en")} at ${labels.threshold().toFixed(2)} or more`;
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
  for (const button of get("examples").querySelectorAll("button")) button.setAttribute("aria-pressed", button.example === one);
}

function addExamples() {
  const buttons = about.examples.map((one) => {
    const [item, button] = [document.createElement("li"), document.createElement("button")];
    button.type = "button";
    button.textContent = one.text.replace(/\s+/g, " ").slice(0, 80);
    button.title = one.labels.join(", ");
    button.example = one;
    button.onclick = () => {
      text.value = one.text;
      selectExample(one);
      onTyped();
    };
    item.append(button);
    return item;
  });
  get("examples").querySelector("ul").replaceChildren(...buttons);
  get("examples").hidden = !buttons.length;
  selectExample(null);
}

function describe() {
  const vectors = about.takes === "vectors";
  const body = vectors ? '{"vectors": [{"indices": [3, 17], "values": [0.5, 1]}], "k": 5}' : '{"texts": ["..."], "k": 5}';
  document.body.classList.toggle("vectors", vectors);
  document.title = `${about.name} · smoothlink`;
  get("name").textContent = about.name;
  get("facts").textContent = `${about.labels.toLocaleString("en")} labels · ${about.features.toLocaleString("en")} features`;
  get("program").querySelector("pre").textContent =
    `curl ${new URL("predict", location.href)} \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
  if (vectors) {
    get("heading").textContent = "Your vector";
    text.placeholder = "3:0.5 17:1";
    get("program").open = true;
    showNote(`This model takes vectors. Type pairs index:value, with indices from 0 to ${about.features - 1}.`);
  }
}

async function copyJson() {
  const shown = { text: text.value, threshold: labels.threshold(), labels: labels.likely() };
  if (about.takes === "vectors") Object.assign(shown, { text: undefined, ...parseRow(text.value) });
  const json = JSON.stringify(shown, null, 2);
  try {
    await navigator.clipboard.writeText(json);
  } catch {
    // Pages from another machine without https may not use the clipboard, but may copy what is selected.
    const box = Object.assign(document.createElement("textarea"), { value: json, className: "visually-hidden" });
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  copy.textContent = "Copied";
  setTimeout(() => (copy.textContent = "Copy JSON"), 1400);
}

function switchTheme() {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  localStorage.setItem("smoothlink-theme", (document.documentElement.dataset.theme = dark === "dark" ? "light" : "dark"));
}

const saved = localStorage.getItem("smoothlink-theme");
if (saved) document.documentElement.dataset.theme = saved;
get("close").onclick = labels.unpin;
get("theme").onclick = switchTheme;
copy.onclick = copyJson;
text.oninput = () => about && onTyped();
get("threshold").addEventListener("threshold", () => copy.disabled || count());
labels.whenExplained((label) => explain(label, label === null ? null : parseRow(text.value), text.value));
try {
  about = await request("model");
  describe();
  addExamples();
  if (text.value) onTyped();
} catch (error) {
  showNote(error instanceof RefusedRequest ? error.message : "The server does not respond.", true);
}

// The page: what is typed goes to the server as soon as typing pauses, and the newest answer is shown.

import { ask, Refusal } from "./api.js";
import * as labels from "./labels.js";
import { explain, write } from "./reasons.js";

const PAUSE = 60; // ms without a key until the text is sent
const ASKED = 60; // labels

const get = (id) => document.getElementById(id);
const [text, note, copy] = [get("text"), get("note"), get("copy")];
let about = null;
let waiting = null;
let timer = 0;
let example = null;

function typed() {
  write(text.value);
  if (example && example.text !== text.value) press(null);
  clearTimeout(timer);
  timer = setTimeout(send, PAUSE);
}

async function send() {
  waiting?.abort();
  const mine = (waiting = new AbortController());
  if (!text.value.trim()) return clear("");
  try {
    const row = asRow(text.value);
    const began = performance.now();
    const answer = await ask("predict", { [about.takes]: [Object.values(row)[0]], k: Math.min(ASKED, about.max_labels) }, mine.signal);
    const [found] = answer.predictions;
    get("empty").hidden = true;
    copy.disabled = false;
    labels.show(found.labels, example?.labels ?? []);
    count();
    say(found.features ? `${found.features} known ${features(found.features)} · ${Math.round(performance.now() - began)} ms` : unknown());
  } catch (error) {
    if (error.name !== "AbortError") clear(error instanceof Refusal ? error.message : "The server does not answer.", true);
  }
}

const features = (n) => (about.takes === "texts" ? "term" : "feature") + (n === 1 ? "" : "s");
const unknown = () => `No ${features(1)} of it is known: these are the most frequent labels.`;

function say(what, bad = false) {
  note.textContent = what;
  note.classList.toggle("bad", bad);
}

function clear(what, bad) {
  labels.show([], []);
  get("empty").hidden = false;
  copy.disabled = true;
  get("count").textContent = "";
  say(what, bad);
}

function count() {
  const n = labels.chosen().length;
  get("count").textContent = `${n} of ${about.labels.toLocaleString("en")} at ${labels.threshold().toFixed(2)} or more`;
}

// "3:0.5 17:1" -> {vector: {indices: [3, 17], values: [0.5, 1]}}
function asRow(given) {
  if (about.takes === "texts") return { text: given };
  const vector = { indices: [], values: [] };
  for (const pair of given.split(/[\s,;]+/).filter(Boolean)) {
    const match = /^(\d+):([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)$/i.exec(pair);
    if (!match) throw new Refusal(`“${pair.slice(0, 40)}” is not a pair like 3:0.5, a feature's number and its value.`);
    vector.indices.push(Number(match[1]));
    vector.values.push(Number(match[2]));
  }
  return { vector };
}

function press(one) {
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
      press(one);
      typed();
    };
    item.append(button);
    return item;
  });
  get("examples").querySelector("ul").replaceChildren(...buttons);
  get("examples").hidden = !buttons.length;
  press(null);
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
    get("ask").textContent = "Your vector";
    text.placeholder = "3:0.5 17:1";
    get("program").open = true;
    say(`This model takes vectors: pairs index:value, indices from 0 to ${about.features - 1}.`);
  }
}

async function copied() {
  const said = { text: text.value, threshold: labels.threshold(), labels: labels.chosen() };
  if (about.takes === "vectors") Object.assign(said, { text: undefined, ...asRow(text.value) });
  const json = JSON.stringify(said, null, 2);
  try {
    await navigator.clipboard.writeText(json);
  } catch {
    // Pages from another machine without https may not use the clipboard, but may copy what is selected.
    const box = Object.assign(document.createElement("textarea"), { value: json, className: "unseen" });
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  copy.textContent = "Copied";
  setTimeout(() => (copy.textContent = "Copy JSON"), 1400);
}

function theme() {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  localStorage.setItem("smoothlink-theme", (document.documentElement.dataset.theme = dark === "dark" ? "light" : "dark"));
}

const saved = localStorage.getItem("smoothlink-theme");
if (saved) document.documentElement.dataset.theme = saved;
get("close").onclick = labels.letGo;
get("theme").onclick = theme;
copy.onclick = copied;
text.oninput = () => about && typed();
get("threshold").addEventListener("cut", () => copy.disabled || count());
labels.onLook((label) => explain(label, label === null ? null : asRow(text.value), text.value));
try {
  about = await ask("model");
  describe();
  addExamples();
  if (text.value) typed();
} catch (error) {
  say(error instanceof Refusal ? error.message : "The server does not answer.", true);
}

// The list of labels of one text: bars, the threshold, and which label is explained.

import { element, get } from "./dom.js";

const EXTRA = 4; // labels below the threshold that are shown

const list = get("labels");
const slider = get("threshold");
const own = get("own");
const guarantee = get("guarantee");
const rows = new Map(); // label -> its row, reused so that bars move instead of jumping
let found = []; // [{label, name, probability, predicted}], the best first
let correct = new Set(); // labels that the training set gives this text
let pinned = null; // the label that was clicked
let explained = null; // the label under the pointer or with the focus
let about = null;
let chosen = null; // the threshold of the slider; null: the model's own
let on = {};

const isLikely = (one) => (chosen === null ? one.predicted : one.probability >= chosen);
export const likely = () => found.filter(isLikely);
const promised = () => about.guarantees[guarantee.value]; // {promise, level, threshold}; undefined: none
export const state = () => ({ likely: likely().length, found: found.length, threshold: chosen ?? about.threshold, promised: promised() });

export function scrollToPinned() {
  rows.get(pinned)?.scrollIntoView({ block: "nearest" });
}

export function unpin() {
  pinned = null;
  explain(null);
}

export function show(labels, trainingLabels) {
  found = labels;
  correct = new Set(trainingLabels);
  draw();
  if (explained && !rows.has(explained.label)) explain(null);
  else if (explained) on.onExplain(explained);
}

function draw() {
  const least = chosen ?? about.threshold; // null: labels have different ones, or the best is predicted
  get("shown").value = least === null ? "own" : least.toFixed(2);
  if (chosen === null) slider.value = least ?? 0.5;
  slider.classList.toggle("none", least === null);
  own.hidden = chosen === null;
  list.style.setProperty("--threshold", least ?? -1);
  const visible = found.slice(0, found.findLastIndex(isLikely) + 1 + EXTRA);
  const names = new Set(visible.map((one) => one.label));
  for (const [label, row] of rows) {
    if (!names.has(label)) {
      row.remove();
      rows.delete(label);
    }
  }
  visible.forEach((one, i) => {
    const row = rows.get(one.label) ?? makeRow(one);
    fill(row, one);
    if (list.children[i] !== row) list.insertBefore(row, list.children[i] ?? null);
  });
  if (pinned && !rows.has(pinned)) pinned = null;
  updateState();
}

function makeRow(one) {
  const name = element("span", "label", one.name);
  const row = element("li", "", element("button", "row", name, element("span", "track", element("span", "bar")), element("span", "number")));
  const button = row.firstChild;
  button.type = "button";
  button.title = one.label;
  button.onpointerenter = (event) => event.pointerType === "mouse" && explain(one);
  button.onfocus = () => explain(one);
  button.onclick = () => {
    pinned = pinned === one.label ? null : one.label;
    explain(one);
  };
  rows.set(one.label, row);
  return row;
}

function fill(row, one) {
  const [name, track, number] = row.firstChild.children;
  row.className = isLikely(one) ? "" : "below";
  track.firstChild.style.setProperty("--p", one.probability);
  number.textContent = one.probability.toFixed(2);
  name.querySelector(".correct")?.remove();
  if (correct.has(one.label)) {
    const mark = element("span", "correct", "✓", element("span", "visually-hidden", " is a label of this example"));
    mark.title = "This is a label of this example.";
    name.append(mark);
  }
}

function explain(one) {
  const changed = explained?.label !== one?.label;
  explained = one;
  updateState();
  if (changed) on.onExplain(one);
}

function updateState() {
  const first = rows.get(explained?.label) ?? list.firstChild;
  for (const [label, row] of rows) {
    row.firstChild.classList.toggle("shown", label === explained?.label);
    row.firstChild.setAttribute("aria-pressed", label === pinned);
    row.firstChild.tabIndex = row === first ? 0 : -1; // one stop for the Tab key
  }
}

const explainPinned = () => explain(found.find((one) => one.label === pinned) ?? null);

list.onpointerleave = (event) => event.pointerType === "mouse" && !list.contains(document.activeElement) && explainPinned();

list.onfocusout = (event) => !list.contains(event.relatedTarget) && explainPinned();

list.onkeydown = (event) => {
  const at = [...list.children].indexOf(document.activeElement.parentElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: list.children.length - 1 }[event.key];
  if (event.key === "Escape") {
    pinned = null;
    get("text").focus();
  } else if (to !== undefined) {
    event.preventDefault();
    list.children[Math.max(0, Math.min(to, list.children.length - 1))]?.firstChild.focus();
  }
};

// What a promise says of the labels shown.
export const inWords = ({ promise, level }) =>
  promise === "coverage" ? `hold all labels, ${100 * level} % of the time` : `hold ${100 * level} % of the labels, on average`;

function offerGuarantees() {
  get("promises").hidden = !about.guarantees.length;
  const options = about.guarantees.map((one, i) => Object.assign(element("option", "", inWords(one)), { value: i }));
  guarantee.replaceChildren(guarantee.firstElementChild, ...options);
  guarantee.onchange = () => {
    slider.value = promised()?.threshold ?? slider.value;
    setThreshold(promised()?.threshold ?? null, guarantee.value);
  };
}

function setThreshold(value, promise = "") {
  [chosen, guarantee.value] = [value, promise];
  draw();
  on.onThreshold();
}

export function start(model, callbacks) {
  [about, on] = [model, callbacks];
  slider.oninput = () => setThreshold(Number(slider.value));
  own.onclick = () => setThreshold(null);
  offerGuarantees();
  draw();
}

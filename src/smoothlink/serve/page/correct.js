// The labels of one document: add by typing a part of a name, remove, check, go to the next. All of it by keys.

import { reason, request } from "./api.js";
import { button, element, get } from "./dom.js";
import { neighbour, placeOf, redraw } from "./documents.js";
import { explainer, marked } from "./reasons.js";
import { labelsOf, nameOf, numbersOf, shown, textOf } from "./rows.js";

const FOUND = 12; // labels that a search shows
const LIKELY = 4; // other labels that are a click away
const STORE_AFTER = 1500; // ms without a change until a correction is stored on the server

const [panel, chips, input, options] = [get("document"), get("chips"), get("add"), get("options")];
let about = null;
let access = null;
let row = null;
let offered = []; // [{label, name, probability or count}] in the list below the field
let active = 0; // which of them Enter adds
let searching = Promise.resolve();
let searched = 0;
let flushing = Promise.resolve();
let timer = 0;

const text = () => textOf(access.table(), row);
const write = (text, words) => get("reading").replaceChildren(...marked(text, words));
const explain = explainer(get("document-why"), write, () => explain(null, null, text()));
const explainLabel = (one) => explain(one, one && { text: text(), numbers: knownNumbers(access.table(), row) }, text());

// The numbers of a document, null also where a cell is no number: then its error says so.
function knownNumbers(table, one) {
  try {
    return numbersOf(table, one);
  } catch {
    return null;
  }
}

export function select(next) {
  flush();
  row = next;
  panel.hidden = false;
  document.body.classList.add("reading");
  panel.querySelector("h2").replaceChildren(nameOf(access.table(), row), element("span", "soft", ` · ${placeOf(row)}`));
  explainLabel(null);
  get("reading").scrollTop = 0;
  const line = (name, j) => element("tr", "", element("th", "", name), element("td", "", shown(row.cells[j])));
  get("cells").querySelector("tbody").replaceChildren(...access.table().columns.map(line));
  input.value = "";
  closeOptions();
  draw();
  input.focus({ preventScroll: true });
}

export function closeDocument() {
  row = null;
  panel.hidden = true;
  document.body.classList.remove("reading");
}

function draw() {
  const known = new Map((row.found ?? []).map((one) => [one.label, one]));
  const made = labelsOf(row).map((one) => {
    const found = known.get(one.label);
    const number = element("span", "number", found ? found.probability.toFixed(2) : one.isNew ? "new" : "");
    const chip = button("chip", () => remove(one), one.name, number, element("span", "cross", "×"));
    chip.title = `${one.label}: remove`;
    chip.one = one;
    chip.tabIndex = -1;
    chip.onfocus = chip.onpointerenter = () => explainLabel(one);
    chip.onpointerleave = () => chips.contains(document.activeElement) || explainLabel(null);
    return element("li", "", chip);
  });
  const likely = others().slice(0, LIKELY).map((one) => {
    const number = element("span", "number", one.probability.toFixed(2));
    return element("li", "", button("", () => add(one), "+ ", one.name, number));
  });
  get("likely").replaceChildren(...likely);
  chips.replaceChildren(...made, ...(made.length ? [] : [element("li", "soft", row.error ?? "No label.")]));
  get("checked").checked = Boolean(row.checked);
  redraw(row);
}

// Corrections

function change(labels) {
  row.labels = labels.map(({ label, name, isNew }) => ({ label, name, isNew }));
  check(true);
}

function check(value) {
  row.checked = value;
  row.unstored = about.stores && value;
  access.saveRows([row]);
  draw();
  clearTimeout(timer);
  timer = setTimeout(flush, STORE_AFTER);
}

function add(one) {
  if (!labelsOf(row).some((other) => other.label === one.label)) change([...labelsOf(row), one]);
  input.value = "";
  closeOptions();
  input.focus();
}

function remove(one) {
  const at = labelsOf(row).findIndex((other) => other.label === one.label);
  const kept = labelsOf(row).filter((other) => other.label !== one.label);
  const focused = chips.contains(document.activeElement);
  change(kept);
  explainLabel(null);
  if (focused && kept.length) chips.children[Math.min(at, kept.length - 1)].firstChild.focus();
  else input.focus();
}

// Stores corrections on the server, where it does so, one call after the other, and returns whether it has them all. What
// it refuses is tried again with the next, and does not hold up the others.
export const flush = () => (flushing = flushing.then(storeAll));

async function storeAll() {
  clearTimeout(timer);
  const table = access.table();
  let complete = true;
  for (const one of table?.rows.filter((other) => other.unstored) ?? []) {
    one.unstored = false;
    const correction = { id: nameOf(table, one), file: table.name, text: textOf(table, one) };
    const labels = labelsOf(one).map((label) => label.label);
    try {
      await request("corrections", { ...correction, labels, numbers: knownNumbers(table, one) });
    } catch (error) {
      one.unstored = true;
      complete = false;
      access.tell(reason(error), true);
      if (!(error.status < 500)) break; // it stores nothing at present, or does not respond
    } finally {
      await access.saveRows([one]);
    }
  }
  return complete;
}

function go(step) {
  const next = neighbour(row, step);
  if (next) select(next);
  else access.tell(step > 0 ? "This was the last document of the list." : "This is the first document of the list.");
}

// The list of labels below the field

function search() {
  const words = input.value.trim();
  const mine = ++searched;
  if (!words) {
    closeOptions();
    return;
  }
  searching = (async () => {
    try {
      const { labels } = await request(`labels?vocabulary=true&limit=${FOUND}&q=${encodeURIComponent(words.slice(0, 200))}`);
      if (mine !== searched) return;
      const exact = labels.some((one) => [one.name, one.label].some((text) => text.toLowerCase() === words.toLowerCase()));
      const found = labels.map((one) => ({ ...one, isNew: one.number === null }));
      offer(exact ? found : [...found, { label: words, name: words, isNew: true, isTyped: true }]);
    } catch (error) {
      access.tell(reason(error), true);
    }
  })();
}

// The most probable labels that the document does not have.
function others() {
  const has = new Set(labelsOf(row).map((one) => one.label));
  return (row.found ?? []).filter((one) => !has.has(one.label));
}

function offer(labels) {
  offered = labels;
  activate(0);
}

function activate(at) {
  active = Math.max(0, Math.min(at, offered.length - 1));
  const items = offered.map((one, i) => {
    const name = one.isTyped ? `Add “${one.name}”, a label that the model does not know` : one.name;
    const number = one.isTyped ? "" : one.isNew ? "new" : (one.probability?.toFixed(2) ?? one.count.toLocaleString("en"));
    const item = element("li", "", element("span", "", name), element("span", "number", number));
    item.id = `option-${i}`;
    item.title = one.label;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", i === active);
    item.onpointerdown = (event) => {
      event.preventDefault();
      add(one);
    };
    return item;
  });
  options.replaceChildren(...items);
  options.hidden = !items.length;
  input.setAttribute("aria-expanded", !options.hidden);
  input.setAttribute("aria-activedescendant", items.length ? `option-${active}` : "");
  items[active]?.scrollIntoView({ block: "nearest" });
}

function closeOptions() {
  searched++;
  offer([]);
}

// Keys

input.onkeydown = async (event) => {
  const open = !options.hidden;
  const done = () => event.preventDefault();
  if (event.key === "ArrowDown") return done(), open ? activate(active + 1) : offer(others().slice(0, FOUND));
  if (event.key === "ArrowUp" && open) return done(), activate(active - 1);
  if (event.key === "Escape") return open ? closeOptions() : backToList();
  if (event.key === "PageDown") return done(), go(1);
  if (event.key === "PageUp") return done(), go(-1);
  if (event.key === "Enter") {
    done();
    const typed = input.value;
    if (typed.trim()) await searching;
    if (input.value !== typed) return;
    if (offered.length) return add(offered[active]);
    check(true);
    return go(1);
  }
  if (input.value) return;
  const last = chips.lastElementChild?.firstElementChild;
  if (event.key === "ArrowLeft" && last?.one) last.focus();
  if (event.key === "Backspace" && last?.one) remove(last.one);
};

chips.onkeydown = (event) => {
  const chip = document.activeElement;
  const to = { ArrowLeft: chip.parentElement.previousElementSibling, ArrowRight: chip.parentElement.nextElementSibling }[event.key];
  if (event.key === "Delete" || event.key === "Backspace") remove(chip.one);
  else if (to) to.firstElementChild.focus();
  else if (event.key === "Escape" || event.key === "ArrowRight") input.focus();
  else return;
  event.preventDefault();
};

chips.onfocusout = (event) => row && !chips.contains(event.relatedTarget) && explainLabel(null);

function backToList() {
  document.body.classList.remove("reading");
  get("documents").querySelector("[aria-current=true]")?.focus();
}

export function startCorrecting(model, given) {
  [about, access] = [model, given];
  input.oninput = search;
  input.onblur = closeOptions;
  get("checked").onchange = () => check(get("checked").checked);
  get("to-list").onclick = backToList;
}

// The list of documents: which are shown, in which order, a page at a time.

import { button, element, get } from "./dom.js";
import { certainty, labelsOf, nameOf, textOf } from "./rows.js";

const PAGE = 50; // documents
const SNIPPET = 200; // characters of a text

let table = null; // a function that returns the table
let select = null; // a function that shows a document
let shown = []; // rows, filtered and ordered; it stays as it is while they are corrected
let page = 0;
let current = null;

const FILTERS = {
  all: () => true,
  open: (row) => !row.checked,
  checked: (row) => row.checked,
  changed: (row) => row.labels !== undefined,
  bare: (row) => !labelsOf(row).length,
};
const ORDERS = { least: (a, b) => a.sure - b.sure, most: (a, b) => b.sure - a.sure, file: () => 0 };

export function showDocuments() {
  const words = get("search").value.trim().toLowerCase();
  const texts = (row) => [nameOf(table(), row), textOf(table(), row), ...labelsOf(row).map((one) => one.name)];
  const holds = (row) => texts(row).some((text) => text.toLowerCase().includes(words));
  const kept = table().rows.filter((row) => row.found && FILTERS[get("filter").value](row) && (!words || holds(row)));
  shown = kept.map((row) => ({ row, sure: certainty(row) })).sort(ORDERS[get("order").value]).map((one) => one.row);
  page = 0;
  drawPage();
}

export function drawPage() {
  const start = page * PAGE;
  get("documents").replaceChildren(...shown.slice(start, start + PAGE).map(makeItem));
  const [pager] = get("work").querySelectorAll(".pager span");
  const end = Math.min(start + PAGE, shown.length);
  const [from, to, all] = [start + 1, end, shown.length].map((n) => n.toLocaleString("en"));
  pager.textContent = shown.length ? `${from} to ${to} of ${all}` : "There are none.";
  get("back").disabled = !page;
  get("on").disabled = end === shown.length;
}

function makeItem(row) {
  const sure = element("span", "sure", row.error ? "!" : certainty(row).toFixed(2));
  sure.title = row.error ?? "How certain: of the labels that it has or is given, the share expected to be right.";
  const names = labelsOf(row).map((one) => element("span", "name", one.name));
  const labels = element("span", "names", ...(names.length ? names : [row.error ?? "no label"]));
  const id = element("span", "id", nameOf(table(), row), row.checked ? " ✓" : "");
  const text = textOf(table(), row);
  const snippet = element("span", "snippet", text.length > SNIPPET ? `${text.slice(0, SNIPPET)}…` : text);
  const made = button(row.checked ? "done" : "", () => select(row), id, sure, snippet, labels);
  made.setAttribute("aria-current", row === current);
  return Object.assign(element("li", "", made), { row });
}

// Draws the document again that was corrected or selected, and the one that was before.
export function redraw(row) {
  const before = current;
  current = row;
  for (const item of get("documents").children) if (item.row === row || item.row === before) item.replaceWith(makeItem(item.row));
  [...get("documents").children].find((item) => item.row === row)?.scrollIntoView({ block: "nearest" });
}

export const placeOf = (row) => `${(shown.indexOf(row) + 1).toLocaleString("en")} of ${shown.length.toLocaleString("en")}`;

// Returns the document that many places further down, and turns the page to it.
export function neighbour(row, step) {
  const at = shown.indexOf(row) + step;
  if (!shown[at]) return null;
  if (Math.floor(at / PAGE) !== page) {
    page = Math.floor(at / PAGE);
    drawPage();
  }
  return shown[at];
}

export function startDocuments(tableNow, onSelect) {
  [table, select] = [tableNow, onSelect];
  get("filter").onchange = get("order").onchange = get("search").oninput = showDocuments;
  const turn = (step) => () => {
    page += step;
    drawPage();
    get("documents").scrollTop = 0;
  };
  get("back").onclick = turn(-1);
  get("on").onclick = turn(1);
  get("documents").onkeydown = (event) => {
    const items = [...get("documents").children];
    const at = items.indexOf(document.activeElement.parentElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    items[Math.max(0, Math.min(to, items.length - 1))]?.firstChild.focus();
  };
}

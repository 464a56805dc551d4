// The columns of a table: which hold the text, which says what a document is called, and where the labels go. All is
// guessed, said and can be changed.

import { count, element, get } from "./dom.js";
import { shown, textOf } from "./rows.js";

const SAMPLE = 1000; // rows that the guess looks at
const LONG = 80; // characters of an id at most

// A name that no column has: tags, tags_2, tags_3 ...
export function fresh(table, name, n = 1) {
  const tried = n === 1 ? name : `${name}_${n}`;
  return table.columns.includes(tried) ? fresh(table, name, n + 1) : tried;
}

// Sets `text`, `numbers`, `id` and `target` of a table, and shows them for a change.
export function chooseColumns(table, about) {
  const sample = table.rows.slice(0, SAMPLE);
  const columns = table.columns.map((name, j) => {
    const cells = sample.map((row) => shown(row.cells[j])).filter((cell) => cell.trim());
    return { name, j, cells, length: cells.join("").length / Math.max(1, cells.length) };
  });
  get("guess").textContent = [guessText, findNumbers, guessId, guessTarget].map((guess) => guess(table, columns, about)).filter(Boolean).join(" ");
  get("choices").querySelector("h2").textContent = `${table.name} · ${count(table.rows.length, "row")}`;
  get("tag").textContent = `Tag ${count(table.rows.length, "document")}`;
  drawText(table, columns);
  const ids = [["", "the number of the row"], ...columns.map(({ name, j }) => [j, name])];
  fillSelect(get("ids"), ids, table.id ?? "", (value) => (table.id = value === "" ? null : Number(value)));
  const targets = [...new Set([table.target, wantedTarget(about)])].map((name) => [name, `${name} (${fate(name, columns)})`]);
  fillSelect(get("target"), targets, table.target, (value) => (table.target = value));
  preview(table);
}

function guessText(table, columns, about) {
  const known = about.text_columns.map((name) => table.columns.indexOf(name));
  if (known.length && !known.includes(-1)) {
    table.text = known;
    return `The text is in ${about.text_columns.join(" and ")}, as in training.`;
  }
  const isNumber = (cell) => cell.trim() !== "" && Number.isFinite(Number(cell));
  if (columns.every(({ cells }) => cells.every(isNumber))) {
    table.text = [];
    return "No column holds words: choose the one that is the text, or another file.";
  }
  const longest = columns.reduce((best, one) => (one.length > best.length ? one : best));
  table.text = [longest.j];
  const training = known.length ? ` (In training it was in ${about.text_columns.join(" and ")}.)` : "";
  return `The text is taken from ${longest.name}, the column with the longest cells.${training}`;
}

// Numbers beside the text are never guessed: they are those of training, or none.
function findNumbers(table, columns, about) {
  const names = about.number_columns;
  const absent = names.filter((name) => !table.columns.includes(name));
  table.numbers = absent.length ? [] : names.map((name) => table.columns.indexOf(name));
  if (!about.numbers) return "";
  if (table.numbers.length) return `The numbers in ${names.join(" and ")} are used too, as in training.`;
  const where = absent.length ? `, and this table has no column ${absent.join(" and no column ")}` : "";
  return `${learnedNumbers(about)}${where}: their averages are assumed.`;
}

// Says that the model takes numbers beside a text.
export function learnedNumbers(about) {
  const names = about.number_columns.join(" and ") || count(about.numbers, "number");
  return `The model has also learned from ${names} beside each text`;
}

function guessId(table, columns, about) {
  const all = Math.min(SAMPLE, table.rows.length);
  const isId = ({ j, cells }) => !table.text.includes(j) && new Set(cells).size === all && cells.every((cell) => cell.length <= LONG);
  const known = columns.find((one) => one.name === about.id_column);
  const found = known ?? columns.find(isId);
  table.id = found?.j ?? null;
  if (known) return `Documents are called by ${known.name}, as in training.`;
  if (!found) return "No column tells all documents apart: they are called by the number of their row.";
  return `Documents are called by ${found.name}, where no two are the same.`;
}

const wantedTarget = (about) => about.labels_column ?? "labels";

function guessTarget(table, columns, about) {
  const wanted = wantedTarget(about);
  const isFilled = columns.some(({ name, cells }) => name === wanted && cells.length);
  table.target = isFilled ? fresh(table, wanted) : wanted;
  return isFilled ? `${wanted} has labels already, which stay as they are: new ones are written to ${table.target}.` : "";
}

// What becomes of a column that labels are written to.
function fate(name, columns) {
  const found = columns.find((one) => one.name === name);
  if (!found) return "a new column";
  return found.cells.length ? "what is there is replaced" : "which is empty";
}

function drawText(table, columns) {
  const boxes = columns.map(({ name, j }) => {
    const box = Object.assign(element("input"), { type: "checkbox", checked: table.text.includes(j) });
    box.onchange = () => {
      table.text = box.checked ? [...table.text, j] : table.text.filter((other) => other !== j);
      preview(table);
    };
    return element("label", "choice", box, name);
  });
  get("texts").replaceChildren(get("texts").firstElementChild, ...boxes);
}

function fillSelect(select, options, value, onchange) {
  select.replaceChildren(...options.map(([key, text]) => Object.assign(element("option", "", text), { value: key })));
  select.value = value;
  select.onchange = () => onchange(select.value);
}

function preview(table) {
  const text = textOf(table, table.rows.find((row) => textOf(table, row)) ?? table.rows[0]);
  get("preview").textContent = table.text.length ? text.slice(0, 400) || "Its text is empty." : "Choose a column of text.";
  get("tag").disabled = !table.text.length;
}

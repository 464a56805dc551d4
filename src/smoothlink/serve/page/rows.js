// The rows of a table {name, model, columns, text: [columns], numbers: [columns], id: column or null, target: column of
// labels, rows}.
// A row is {i, cells, found, labels, checked, error, unstored, taught}: `found` are its most probable labels, `labels` those
// that a person gave it, `unstored` says that the server is to store them, `taught` are those that the model has learnt.

// A cell as text.
export function shown(cell, between = ", ") {
  if (Array.isArray(cell)) return cell.map((part) => shown(part)).join(between);
  return typeof cell === "object" && cell !== null ? JSON.stringify(cell) : String(cell ?? "");
}

// The text of a document, as in training: its columns, joined by line ends.
export function textOf(table, row) {
  return table.text.map((j) => shown(row.cells[j], "\n")).filter((text) => text.trim()).join("\n");
}

// The numbers beside the text of a document, as in training: of cells that are numbers or lists of them. null: not known.
export function numbersOf(table, row) {
  const found = (table.numbers ?? []).flatMap((j) => {
    try {
      const cell = row.cells[j];
      const list = typeof cell === "string" && cell.trim().startsWith("[") ? JSON.parse(cell) : cell;
      return [list].flat().map(numberIn);
    } catch {
      throw new Error(`${table.columns[j]} is “${shown(row.cells[j]).slice(0, 40)}”, and must be a number.`);
    }
  });
  return found.some((number) => number !== null) ? found : null;
}

function numberIn(value) {
  const text = String(value ?? "").trim();
  if (!text || text.toLowerCase() === "nan") return null;
  if (!Number.isFinite(Number(text))) throw new Error(text);
  return Number(text);
}

// What a document is called.
export function nameOf(table, row) {
  return (table.id !== null && shown(row.cells[table.id]).trim()) || `Row ${row.i + 1}`;
}

export const labelsOf = (row) => row.labels ?? (row.found ?? []).filter((one) => one.predicted);

// Of the labels that a document has or is given, the share that is expected to be right: calibrated probabilities sum to
// expected counts. Of a document that is given none, the probability that it has none.
export function certainty(row) {
  const sum = (labels) => labels.reduce((total, one) => total + one.probability, 0);
  const found = row.found ?? [];
  const predicted = found.filter((one) => one.predicted);
  if (!predicted.length) return row.error ? 0 : found.reduce((product, one) => product * (1 - one.probability), 1);
  return sum(predicted) / (predicted.length + sum(found) - sum(predicted));
}

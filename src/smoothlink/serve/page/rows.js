// The rows of a table {name, model, columns, text: [columns], id: column or null, target: column of labels, rows}.
// A row is {i, cells, found, labels, checked, error, unstored}: `found` are its most probable labels, `labels` those that a
// person gave it, `unstored` says that the server is to store them.

// A cell as text.
export function shown(cell, between = ", ") {
  if (Array.isArray(cell)) return cell.map((part) => shown(part)).join(between);
  return typeof cell === "object" && cell !== null ? JSON.stringify(cell) : String(cell ?? "");
}

// The text of a document, as in training: its columns, joined by line ends.
export function textOf(table, row) {
  return table.text.map((j) => shown(row.cells[j], "\n")).filter((text) => text.trim()).join("\n");
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

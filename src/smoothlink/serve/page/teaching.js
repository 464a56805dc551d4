// Teaching the model: checked documents are sent with their labels. A document whose labels changed since it was sent is
// forgotten with the former ones first, so that it counts once.

import { request } from "./api.js";
import { labelsOf, numbersOf, textOf } from "./rows.js";
import { nextBatch } from "./tagging.js";

const namesOf = (row) => labelsOf(row).map((one) => one.label).sort();
const same = (some, others) => JSON.stringify(some) === JSON.stringify(others);

// The checked documents that the model does not have, or has with other labels.
export const untaught = (table) =>
  table.rows.filter((row) => row.checked && !row.error && !same(row.taught ?? null, namesOf(row)));

// Sends documents, some at a time; returns how many were learnt, which labels are new, and why others were refused.
export async function teachRows(table, rows, about, saveRows) {
  const done = { taught: 0, labels: [], refused: [] };
  for (const row of rows.filter((one) => one.taught)) {
    await request("forget", bodyOf(table, [row], [row.taught]));
    delete row.taught;
    await saveRows([row]);
  }
  for (let start = 0; start < rows.length; ) {
    const batch = nextBatch(table, rows, start, about);
    await teachBatch(table, batch, done, saveRows);
    start += batch.length;
  }
  return done;
}

const bodyOf = (table, rows, labels) => ({
  texts: rows.map((row) => textOf(table, row)),
  numbers: rows.map((row) => numbersOf(table, row)),
  labels,
});

// A batch that the server refuses is sent in halves, so that one document does not hold up the others.
async function teachBatch(table, rows, done, saveRows) {
  const labels = rows.map(namesOf);
  try {
    const outcome = await request("update", bodyOf(table, rows, labels));
    rows.forEach((row, i) => (row.taught = labels[i]));
    done.taught += outcome.rows;
    done.labels.push(...outcome.new_labels);
    await saveRows(rows);
  } catch (error) {
    if (![413, 422].includes(error.status)) throw error;
    if (rows.length === 1) {
      done.refused.push(error.message);
      return;
    }
    const half = rows.length >> 1;
    await teachBatch(table, rows.slice(0, half), done, saveRows);
    await teachBatch(table, rows.slice(half), done, saveRows);
  }
}

// Tagging the rows of a table: some at a time, so that other clients of the server are served in between.

import { request } from "./api.js";
import { numbersOf, textOf } from "./rows.js";

const BATCH = 100; // documents that are sent together
const LABELS = 50; // that are requested for each
const RETRIES = 30; // of a server that is busy, a second apart

// Sets `found` of all rows that have none, and calls `onBatch` with the rows that were sent, until it returns false.
export async function tagRows(table, rows, about, onBatch) {
  for (let done = 0; done < rows.length; ) {
    const batch = nextBatch(table, rows, done, about);
    await tagBatch(table, batch, about);
    done += batch.length;
    if (!(await onBatch(batch))) return;
  }
}

// The next documents, as many as fit into a request.
export function nextBatch(table, rows, start, about) {
  const batch = [];
  let size = 0;
  for (const row of rows.slice(start, start + Math.min(BATCH, about.max_rows))) {
    size += 4 * textOf(table, row).length + 10 + 25 * about.numbers; // bytes at most
    if (batch.length && size > about.max_body / 2) break;
    batch.push(row);
  }
  return batch;
}

// A document that the server refuses has its reason as `error`; a server that does not respond is an error.
async function tagBatch(table, batch, about, retries = RETRIES) {
  const rows = batch.filter((row) => isUsable(table, row));
  if (!rows.length) return;
  try {
    const texts = rows.map((row) => textOf(table, row));
    const numbers = rows.map((row) => numbersOf(table, row));
    const predictions = await predict(texts, numbers, Math.min(LABELS, about.max_labels), about);
    rows.forEach((row, i) => Object.assign(row, { found: predictions[i], error: undefined }));
  } catch (error) {
    if ([429, 503].includes(error.status) && retries) {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      await tagBatch(table, rows, about, retries - 1);
    } else if (![413, 422, 504].includes(error.status)) {
      throw error;
    } else if (rows.length > 1) {
      const half = rows.length >> 1;
      await tagBatch(table, rows.slice(0, half), about, retries);
      await tagBatch(table, rows.slice(half), about, retries);
    } else {
      Object.assign(rows[0], { found: [], error: error.message });
    }
  }
}

// Returns whether a document can be sent; one that cannot has the reason as `error`.
function isUsable(table, row) {
  try {
    numbersOf(table, row);
    if (textOf(table, row)) return true;
    Object.assign(row, { found: [], error: "It has no text." });
  } catch (error) {
    Object.assign(row, { found: [], error: error.message });
  }
  return false;
}

// The labels of texts; a text of which all that were requested are predicted may have more.
async function predict(texts, numbers, k, about) {
  const { predictions } = await request("predict", { texts, numbers, k });
  const found = predictions.map((one) => one.labels);
  for (const [i, labels] of found.entries()) {
    const all = labels.length < k || k === about.max_labels || labels.some((one) => !one.predicted);
    if (!all) [found[i]] = await predict([texts[i]], [numbers[i]], about.max_labels, about);
  }
  return found;
}

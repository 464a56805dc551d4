// A table of documents: a file is uploaded, its columns are chosen, its documents are tagged and corrected, and it is
// downloaded. The table is in this browser; the server reads and writes files and keeps nothing.

import { RefusedRequest, reason, requestFile, requestLines } from "./api.js";
import { chooseColumns, fresh } from "./columns.js";
import { closeDocument, flush, select, startCorrecting } from "./correct.js";
import { showDocuments, startDocuments } from "./documents.js";
import { count, element, get, say } from "./dom.js";
import { labelsOf } from "./rows.js";
import * as saved from "./saved_table.js";
import { tagRows } from "./tagging.js";
import { teachRows, untaught } from "./teaching.js";

const STATES = ["drop", "choices", "tagging", "work"];
const SHOWN = 200; // documents that are listed while they are tagged

let about = null;
let table = null;
let stopped = false;
let opened = null;
let unsaved = false; // whether the browser has no room for the table

const display = (...states) => STATES.forEach((state) => (get(state).hidden = !states.includes(state)));
const tell = (message, bad = false) => say(get("said"), message, bad);
const isChecked = () => table?.rows.some((row) => row.checked);

async function save(entries) {
  try {
    await saved.save(entries);
  } catch {
    unsaved = true;
    tell("This browser has no room for the table: download it before you close the page.", true);
  }
}
const saveRows = (rows) => save(rows.map((row) => [row.i, row]));

// Reading a file

export async function receive(file, encoding = "") {
  if (!get("tagging").hidden) return tell("Wait until these documents are tagged, or stop it, before you open another file.", true);
  await openTable();
  tell(`Reading ${file.name} …`);
  try {
    const read = await readFile(file, encoding);
    const question = `Close ${table?.name}? The labels that you checked are lost unless you have downloaded them.`;
    if (isChecked() && !confirm(question)) return tell("");
    await flush();
    table = read;
    closeDocument();
    chooseColumns(table, about);
    display("choices");
    get("tag").focus();
  } catch (error) {
    tell(reason(error), true);
    get("again").hidden = !/encoding/i.test(error.message);
    get("again").querySelector("button").onclick = () => receive(file, get("encoding").value);
  } finally {
    get("file").value = "";
  }
}

async function readFile(file, encoding) {
  const size = (bytes) => `${(bytes / 2 ** 20).toFixed(bytes < 2 ** 22 ? 1 : 0)} MB`;
  if (file.size > about.max_upload) {
    const most = size(about.max_upload);
    throw new RefusedRequest(`${file.name} has ${size(file.size)}; at most ${most} are read. Divide it into several files.`);
  }
  const query = new URLSearchParams({ name: file.name, ...(encoding && { encoding }) });
  const [head, ...lines] = await requestLines(`table?${query}`, file);
  const { columns, notes } = JSON.parse(head);
  const rows = lines.map((line, i) => ({ i, cells: JSON.parse(line) }));
  tell(notes.join(" "));
  return { name: file.name, model: about.name, columns, rows };
}

// Tagging

async function tag() {
  startTagging("Starting …");
  get("documents").replaceChildren();
  await saved.clear().catch(() => {});
  await save([["head", { ...table, rows: undefined }]]);
  await saveRows(table.rows);
  await tagRest();
}

async function tagRest() {
  const todo = table.rows.filter((row) => !row.found);
  const all = count(todo.length, "document");
  const began = performance.now();
  let done = 0;
  stopped = false;
  startTagging(`0 of ${all} tagged`);
  try {
    await tagRows(table, todo, about, async (batch) => {
      done += batch.length;
      const left = ((performance.now() - began) / done) * (todo.length - done);
      get("tagging").querySelector("label").textContent = `${done.toLocaleString("en")} of ${all} tagged · about ${duration(left)} left`;
      get("progress").value = done / todo.length;
      await saveRows(batch);
      if (done <= SHOWN) showDocuments();
      return !stopped;
    });
    const failed = todo.filter((row) => row.error).length;
    const tagged = count(done - failed, "document");
    const which = failed === 1 ? "it comes" : "they come";
    const failures = failed ? ` ${count(failed, "document")} could not be tagged: ${which} first, with the reason.` : "";
    if (done < todo.length) finish(`Stopped after ${tagged}.${failures}`);
    else finish(`${tagged} tagged in ${duration(performance.now() - began)}.${failures}`);
  } catch (error) {
    finish(`${reason(error)} ${count(done, "document")} are tagged.`, true);
  }
}

function startTagging(message) {
  display("tagging", "work");
  get("work").classList.add("busy");
  get("tagging").querySelector("label").textContent = message;
  get("progress").value = 0;
  get("order").value = "file";
  closeDocument();
  tell("");
}

// Shows the documents that are tagged.
function finish(message, bad = false) {
  const ending = table.name.toLowerCase().split(".").pop();
  tell(message, bad);
  display("work");
  get("work").classList.remove("busy");
  get("continue").hidden = table.rows.every((row) => row.found);
  get("order").value = "least";
  get("kind").value = [...get("kind").options].some((one) => one.value === ending) ? ending : "csv";
  showDocuments();
}

function duration(ms) {
  const seconds = Math.max(1, Math.round(ms / 1000));
  return seconds < 100 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

// Downloading

async function download() {
  const kind = get("kind").value;
  const rows = table.rows.filter((row) => get("rows").value === "all" || row.checked);
  if (!rows.length) return tell("No document is checked yet. Enter in the field of labels checks one.", true);
  get("download").disabled = true;
  try {
    await flush();
    const file = await requestFile(`table/file?kind=${kind}`, new Blob(tableLines(rows)));
    const name = `${table.name.replace(/\.\w+$/, "")}-tagged.${kind}`;
    const link = Object.assign(element("a"), { href: URL.createObjectURL(file), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    tell(`${count(rows.length, "row")} in ${name}. To train on it, type: `);
    get("said").append(element("code", "", trainCommand(name)));
  } catch (error) {
    tell(`${reason(error)} The table is still here.`, true);
  }
  get("download").disabled = false;
}

// The columns of the table, the labels, their names where a vocabulary has others, and whether a person checked them.
function tableLines(rows) {
  const columns = [...table.columns];
  const place = (name) => (columns.includes(name) ? columns.indexOf(name) : columns.push(name) - 1);
  const [labels, checked] = [place(table.target), place(fresh(table, "checked"))];
  const isNamed = rows.some((row) => labelsOf(row).some((one) => one.name !== one.label));
  const names = isNamed ? place(fresh(table, `${table.target}_names`)) : null;
  const line = (row) => {
    const cells = columns.map((_, j) => row.cells[j] ?? null);
    cells[labels] = labelsOf(row).map((one) => one.label);
    cells[checked] = row.checked ? "yes" : "";
    if (isNamed) cells[names] = labelsOf(row).map((one) => one.name).join(" | ");
    return cells;
  };
  return [{ columns, labels: table.target }, ...rows.map(line)].map((one) => `${JSON.stringify(one)}\n`);
}

function trainCommand(name) {
  // Between double quotes a shell runs $(...): names of a file from anyone are in single ones where they hold such signs.
  const single = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const quote = (text) => (/^[\w.,/-]+$/.test(text) ? text : /["$`\\!]/.test(text) ? single(text) : `"${text}"`);
  const names = (places) => quote(places.map((j) => table.columns[j]).join(","));
  const numbers = table.numbers?.length ? ` --numbers ${names(table.numbers)}` : "";
  return `smoothlink train ${quote(name)} --text ${names(table.text)}${numbers} --labels ${quote(table.target)} -o new.safetensors`;
}

// Sends the checked documents to a server whose model learns from them.
async function teach() {
  const rows = untaught(table);
  if (!rows.length) return tell("No checked document is new to the model. Enter in the field of labels checks one.", true);
  get("teach").disabled = true;
  tell(`Sending ${count(rows.length, "document")} …`);
  try {
    const { taught, labels, refused } = await teachRows(table, rows, about, saveRows);
    const names = labels.length ? `, with ${count(labels.length, "new label")}: ${labels.join(", ")}` : "";
    const failures = refused.length ? ` ${count(refused.length, "document")} could not be learnt: ${refused[0]}` : "";
    tell(`The model has learnt ${count(taught, "document")}${names}.${failures}`, refused.length > 0);
  } catch (error) {
    tell(`${reason(error)} Documents that the model has not learnt are sent the next time.`, true);
  }
  get("teach").disabled = false;
  get("teach").focus();
}

async function shut() {
  if (isChecked() && !confirm("Close the table? The labels that you checked are lost unless you have downloaded it.")) return;
  if (!(await flush()) && !confirm("The server could not store all corrections. Close the table all the same?")) return;
  await saved.clear().catch(() => {});
  table = null;
  tell("");
  display("drop");
}

// Shows the table that this browser has from before a reload, once.
export const openTable = () => (opened ??= loadTable());

async function loadTable() {
  table = await saved.load().catch(() => null);
  if (table) finish(table.model === about.name ? "" : `These labels were predicted by the model ${table.model}.`);
}

export function startTable(model) {
  about = model;
  const kept = about.updatable ? "nothing of it but what you teach the model" : "nothing of it";
  const privacy = about.stores ? "Labels that you check are stored on the server, with their texts." : `The server keeps ${kept}.`;
  document.querySelector(".privacy").textContent = `The table stays in this browser until you close it. ${privacy}`;
  get("file").onchange = () => get("file").files.length && receive(get("file").files[0]);
  get("choices").querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    tag();
  };
  get("other").onclick = () => get("file").click();
  get("stop").onclick = () => (stopped = true);
  get("continue").onclick = tagRest;
  get("download").onclick = download;
  get("shut").onclick = shut;
  get("teach").onclick = teach;
  get("teach").hidden = !about.updatable;
  window.onbeforeunload = () => (unsaved && isChecked() ? "" : undefined);
  startDocuments(() => table, select);
  startCorrecting(about, { table: () => table, saveRows, tell });
}

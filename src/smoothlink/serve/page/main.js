// The page: the model that is served, one text or a table, light or dark.

import { reason, request } from "./api.js";
import { count, get, say } from "./dom.js";
import { startText } from "./one_text.js";
import { openTable, receive, startTable } from "./table.js";

let about = null;

function showView() {
  const table = location.hash === "#table" && about.takes === "texts";
  get("one").hidden = table;
  get("many").hidden = !table;
  get("to-text").setAttribute("aria-current", table ? "false" : "page");
  get("to-table").setAttribute("aria-current", table ? "page" : "false");
  if (table) openTable();
}

function switchTheme() {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  localStorage.setItem("smoothlink-theme", (document.documentElement.dataset.theme = dark === "dark" ? "light" : "dark"));
}

// A file may be dropped anywhere.
document.ondragover = (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  document.body.classList.add("dropping");
};
document.ondragleave = (event) => event.relatedTarget ?? document.body.classList.remove("dropping");
document.ondrop = (event) => {
  document.body.classList.remove("dropping");
  const [file] = event.dataTransfer.files;
  if (!file) return;
  event.preventDefault();
  if (about?.takes !== "texts") return;
  location.hash = "table";
  receive(file);
};

const saved = localStorage.getItem("smoothlink-theme");
if (saved) document.documentElement.dataset.theme = saved;
get("theme").onclick = switchTheme;
try {
  about = await request("model");
  document.title = `${about.name} · smoothlink`;
  get("name").textContent = about.name;
  get("facts").textContent = `${count(about.labels, "label")} · ${count(about.features, "feature")}`;
  get("to-text").hidden = get("to-table").hidden = about.takes !== "texts";
  startText(about);
  startTable(about);
  window.onhashchange = showView;
  showView();
} catch (error) {
  say(get("note"), reason(error), true);
}

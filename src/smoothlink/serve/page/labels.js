// The list of labels: bars, the threshold, and which label is explained.

const EXTRA = 4; // labels below the threshold that are shown

const list = document.getElementById("labels");
const slider = document.getElementById("threshold");
const shown = document.getElementById("shown");
const rows = new Map(); // label -> its row, reused so that bars move instead of jumping
let found = []; // [{label, probability}], the best first
let correct = new Set(); // labels that the training set gives this text
let pinned = null; // the label that was clicked
let explained = null; // the label under the pointer or with the focus
let onExplain = () => {};

export const threshold = () => Number(slider.value);
export const likely = () => found.filter((one) => one.probability >= threshold());

export function whenExplained(callback) {
  onExplain = callback;
}

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
  if (explained && !rows.has(explained)) explain(null);
  else if (explained) onExplain(explained);
}

function draw() {
  const least = threshold();
  shown.value = least.toFixed(2);
  list.style.setProperty("--threshold", least);
  const visible = found.slice(0, likely().length + EXTRA);
  const names = new Set(visible.map((one) => one.label));
  for (const [name, row] of rows) {
    if (!names.has(name)) {
      row.remove();
      rows.delete(name);
    }
  }
  visible.forEach((one, i) => {
    const row = rows.get(one.label) ?? makeRow(one.label);
    fill(row, one, least);
    if (list.children[i] !== row) list.insertBefore(row, list.children[i] ?? null);
  });
  if (pinned && !rows.has(pinned)) pinned = null;
  updateState();
}

function makeRow(name) {
  const row = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "row";
  button.append(element("span", "label"), element("span", "track"), element("span", "number"));
  button.children[0].append(name);
  button.children[1].append(element("span", "bar"));
  button.onpointerenter = (event) => event.pointerType === "mouse" && explain(name);
  button.onfocus = () => explain(name);
  button.onclick = () => {
    pinned = pinned === name ? null : name;
    explain(name);
  };
  row.append(button);
  rows.set(name, row);
  return row;
}

function fill(row, { label, probability }, least) {
  const button = row.firstChild;
  const [name, track, number] = button.children;
  button.title = label;
  row.className = probability >= least ? "" : "below";
  track.firstChild.style.setProperty("--p", probability);
  number.textContent = probability.toFixed(2);
  name.querySelector(".correct")?.remove();
  if (correct.has(label)) {
    const mark = element("span", "correct");
    mark.append("✓", Object.assign(element("span", "visually-hidden"), { textContent: " is a label of this example" }));
    mark.title = "This is a label of this example.";
    name.append(mark);
  }
}

export function element(kind, className) {
  return Object.assign(document.createElement(kind), { className });
}

function explain(name) {
  const changed = explained !== name;
  explained = name;
  updateState();
  if (changed) onExplain(name);
}

function updateState() {
  for (const [name, row] of rows) {
    row.firstChild.classList.toggle("shown", name === explained);
    row.firstChild.setAttribute("aria-pressed", name === pinned);
    row.firstChild.tabIndex = row === (rows.get(explained) ?? list.firstChild) ? 0 : -1; // one stop for the Tab key
  }
}

list.onpointerleave = (event) => event.pointerType === "mouse" && !list.contains(document.activeElement) && explain(pinned);

list.onfocusout = (event) => !list.contains(event.relatedTarget) && explain(pinned);

list.onkeydown = (event) => {
  const at = [...list.children].indexOf(document.activeElement.parentElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: list.children.length - 1 }[event.key];
  if (event.key === "Escape") {
    pinned = null;
    document.getElementById("text").focus();
  } else if (to !== undefined) {
    event.preventDefault();
    list.children[Math.max(0, Math.min(to, list.children.length - 1))]?.firstChild.focus();
  }
};

slider.oninput = () => {
  draw();
  slider.dispatchEvent(new CustomEvent("threshold", { bubbles: true }));
};

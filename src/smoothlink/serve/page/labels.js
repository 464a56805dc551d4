// The list of labels: bars, the threshold, and which label is looked at.

const EXTRA = 4; // labels below the threshold that are shown

const list = document.getElementById("labels");
const slider = document.getElementById("threshold");
const shown = document.getElementById("shown");
const rows = new Map(); // label -> its row, kept so that bars move instead of jumping
let found = []; // [{label, probability}], the best first
let own = new Set(); // labels that the training set gives this text
let held = null; // the label that was clicked
let looked = null;
let notify = () => {};

export const threshold = () => Number(slider.value);
export const chosen = () => found.filter((one) => one.probability >= threshold());

export function onLook(callback) {
  notify = callback;
}

export function reveal() {
  rows.get(held)?.scrollIntoView({ block: "nearest" });
}

export function letGo() {
  held = null;
  look(null);
}

export function show(labels, known) {
  found = labels;
  own = new Set(known);
  draw();
  if (looked && !rows.has(looked)) look(null);
  else if (looked) notify(looked);
}

function draw() {
  const cut = threshold();
  shown.value = cut.toFixed(2);
  list.style.setProperty("--cut", cut);
  const visible = found.slice(0, chosen().length + EXTRA);
  const names = new Set(visible.map((one) => one.label));
  for (const [name, row] of rows) {
    if (!names.has(name)) {
      row.remove();
      rows.delete(name);
    }
  }
  visible.forEach((one, i) => {
    const row = rows.get(one.label) ?? made(one.label);
    fill(row, one, cut);
    if (list.children[i] !== row) list.insertBefore(row, list.children[i] ?? null);
  });
  if (held && !rows.has(held)) held = null;
  settle();
}

function made(name) {
  const row = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "row";
  button.append(element("span", "label"), element("span", "track"), element("span", "number"));
  button.children[0].append(name);
  button.children[1].append(element("span", "bar"));
  button.onpointerenter = (event) => event.pointerType === "mouse" && look(name);
  button.onfocus = () => look(name);
  button.onclick = () => {
    held = held === name ? null : name;
    look(name);
  };
  row.append(button);
  rows.set(name, row);
  return row;
}

function fill(row, { label, probability }, cut) {
  const button = row.firstChild;
  const [name, track, number] = button.children;
  button.title = label;
  row.className = probability >= cut ? "" : "below";
  track.firstChild.style.setProperty("--p", probability);
  number.textContent = probability.toFixed(2);
  name.querySelector(".own")?.remove();
  if (own.has(label)) {
    const mark = element("span", "own");
    mark.append("✓", Object.assign(element("span", "unseen"), { textContent: " a label of this example" }));
    mark.title = "a label of this example";
    name.append(mark);
  }
}

export function element(kind, name) {
  return Object.assign(document.createElement(kind), { className: name });
}

function look(name) {
  if (looked === name) return settle();
  looked = name;
  settle();
  notify(name);
}

function settle() {
  for (const [name, row] of rows) {
    row.firstChild.classList.toggle("shown", name === looked);
    row.firstChild.setAttribute("aria-pressed", name === held);
    row.firstChild.tabIndex = row === (rows.get(looked) ?? list.firstChild) ? 0 : -1; // one stop for the Tab key
  }
}

list.onpointerleave = (event) => event.pointerType === "mouse" && !list.contains(document.activeElement) && look(held);

list.onfocusout = (event) => !list.contains(event.relatedTarget) && look(held);

list.onkeydown = (event) => {
  const at = [...list.children].indexOf(document.activeElement.parentElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: list.children.length - 1 }[event.key];
  if (event.key === "Escape") {
    held = null;
    document.getElementById("text").focus();
  } else if (to !== undefined) {
    event.preventDefault();
    list.children[Math.max(0, Math.min(to, list.children.length - 1))]?.firstChild.focus();
  }
};

slider.oninput = () => {
  draw();
  slider.dispatchEvent(new CustomEvent("cut", { bubbles: true }));
};

// Elements of the page.

export const get = (id) => document.getElementById(id);

export function element(kind, className = "", ...content) {
  const made = Object.assign(document.createElement(kind), { className });
  made.append(...content);
  return made;
}

export function button(className, onclick, ...content) {
  return Object.assign(element("button", className, ...content), { type: "button", onclick });
}

export const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

// Writes a message below what it is about.
export function say(place, message, bad = false) {
  place.textContent = message;
  place.classList.toggle("bad", bad);
}

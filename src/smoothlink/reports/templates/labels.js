"use strict";
(() => {
  const ROWS = 25;
  const { columns, values } = JSON.parse(document.getElementById("label-data").textContent);
  const keys = Object.keys(columns);
  const count = values.label.length;
  const lower = values.label.map((name) => name.toLowerCase());
  const part = (name) => document.getElementById(`label-${name}`);
  const collator = new Intl.Collator(undefined, { numeric: true });
  let sorted = { key: "support", down: true };
  let shown = [];
  let page = 0;

  // A share in percent: 83.2, and where it is small with two digits that say something: 0.0031.
  const percent = (value) => {
    const points = 100 * value;
    return points && points < 0.1 ? points.toPrecision(2) : points.toFixed(1);
  };
  const text = (key, i) => {
    const value = values[key][i];
    if (value === null) return "–";
    return { name: () => value, count: () => value.toLocaleString("en"), share: () => percent(value) }[columns[key][1]]();
  };

  // What is not known comes last in either direction; equal ones stay in the order of the training data.
  const compare = (i, j) => {
    const [a, b] = [values[sorted.key][i], values[sorted.key][j]];
    if (a === null || b === null) return (a === null) - (b === null) || i - j;
    const order = columns[sorted.key][1] === "name" ? collator.compare(a, b) : a - b;
    return (sorted.down ? -order : order) || i - j;
  };

  const arrange = () => {
    const wanted = part("search").value.trim().toLowerCase();
    shown = [...lower.keys()].filter((i) => lower[i].includes(wanted)).sort(compare);
    page = 0;
    draw();
  };

  const draw = () => {
    const start = page * ROWS;
    part("rows").replaceChildren(...shown.slice(start, start + ROWS).map(row));
    const end = Math.min(start + ROWS, shown.length);
    const range = shown.length > ROWS ? `${(start + 1).toLocaleString("en")} – ${end.toLocaleString("en")} of ` : "";
    const of = shown.length < count ? ` that match, of ${count.toLocaleString("en")}` : "";
    part("range").textContent = `${range}${shown.length.toLocaleString("en")} ${shown.length === 1 ? "label" : "labels"}${of}`;
    part("pages").hidden = shown.length <= ROWS;
    part("previous").disabled = page === 0;
    part("next").disabled = end >= shown.length;
    for (const button of document.querySelectorAll("#label-table th button")) {
      const mine = button.dataset.key === sorted.key;
      button.parentElement.setAttribute("aria-sort", mine ? (sorted.down ? "descending" : "ascending") : "none");
    }
  };

  const row = (i) => {
    const line = document.createElement("tr");
    for (const key of keys) {
      const name = columns[key][1] === "name";
      const cell = document.createElement(name ? "th" : "td");
      if (name) {
        cell.scope = "row";
        cell.append(document.createElement("bdi"));
      } else {
        cell.className = "number";
      }
      (name ? cell.firstChild : cell).textContent = text(key, i);
      line.append(cell);
    }
    return line;
  };

  const csv = () => {
    const quoted = (value) => {
      const cell = value === null ? "" : String(value);
      return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
    };
    return [keys.join(","), ...shown.map((i) => keys.map((key) => quoted(values[key][i])).join(","))].join("\n") + "\n";
  };

  for (const button of document.querySelectorAll("#label-table th button")) {
    button.addEventListener("click", () => {
      const key = button.dataset.key;
      sorted = { key, down: sorted.key === key ? !sorted.down : columns[key][1] !== "name" };
      arrange();
    });
  }
  const turn = (by) => () => {
    page += by;
    draw();
  };
  part("search").addEventListener("input", arrange);
  part("previous").addEventListener("click", turn(-1));
  part("next").addEventListener("click", turn(1));
  part("csv").addEventListener("click", (event) => {
    const url = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    event.currentTarget.href = url;
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  });
  part("table").hidden = false;
  arrange();
})();

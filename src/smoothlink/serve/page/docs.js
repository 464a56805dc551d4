// The description of the API, rendered from openapi.json.

const make = (kind, content = [], props = {}) => {
  const made = Object.assign(document.createElement(kind), props);
  made.append(...[content].flat());
  return made;
};

const described = await (await fetch("openapi.json")).json();
const resolve = (schema) => (schema?.$ref ? described.components.schemas[schema.$ref.split("/").pop()] : schema) ?? {};
const options = (schema) => (schema.anyOf ?? [schema]).filter((one) => one.type !== "null");

function kindOf(schema) {
  const kinds = options(schema).map((one) => {
    if (one.$ref) return "object";
    return one.type === "array" ? `list of ${kindOf(one.items)}s` : (one.type ?? "any");
  });
  return kinds.join(" or ");
}

function limitsOf(schema) {
  const [one] = options(schema);
  const names = { minimum: "at least", maximum: "at most", exclusiveMaximum: "below", maxLength: "characters at most", maxItems: "items at most" };
  const limits = Object.entries(names).filter(([key]) => key in one).map(([key, text]) => `${text} ${one[key]}`);
  if (schema.default !== undefined && schema.default !== null && schema.default !== "") limits.push(`default ${schema.default}`);
  return limits.join(", ");
}

function lines(schema, deep = 0) {
  return Object.entries(resolve(schema).properties ?? {}).flatMap(([name, one]) => {
    const row = line(name, one, one.description);
    row.firstChild.style.setProperty("--deep", deep);
    const [inner] = options(one);
    return [row, ...lines(inner.type === "array" ? inner.items : inner, deep + 1)];
  });
}

function line(name, schema, description = "") {
  const what = [kindOf(schema), limitsOf(schema)].filter(Boolean).join(", ");
  return make("tr", [make("td", name), make("td", what), make("td", description)]);
}

function article(path, method, operation) {
  const parts = [make("h2", [make("b", method.toUpperCase()), path]), make("p", operation.description ?? operation.summary)];
  const section = (title, rows) => rows.length && parts.push(make("h3", title), make("table", make("tbody", rows)));
  const body = operation.requestBody?.content["application/json"]?.schema;
  section("Query", (operation.parameters ?? []).map((one) => line(one.name, one.schema, one.description)));
  section("Body", lines(body));
  const example = resolve(body).examples?.[0];
  if (example) parts.push(make("h3", "Example"), make("pre", curl(path, example), { tabIndex: 0 }));
  const { 200: fine, ...errors } = operation.responses;
  section("Response", lines(fine?.content?.["application/json"]?.schema));
  section("Errors", Object.entries(errors).map(([status, one]) => make("tr", [make("td", status), make("td", one.description)])));
  return make("article", parts, { className: "card" });
}

const curl = (path, body) =>
  `curl ${new URL(`.${path}`, location.href)} \\\n  -H 'Content-Type: application/json' \\\n` +
  (described.components.securitySchemes ? "  -H 'Authorization: Bearer TOKEN' \\\n" : "") +
  `  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;

document.getElementById("facts").textContent = `smoothlink ${described.info.version}`;
const all = Object.entries(described.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => article(path, method, operation)));
document.getElementById("paths").append(make("p", described.info.description.replaceAll("`", "")), ...all);

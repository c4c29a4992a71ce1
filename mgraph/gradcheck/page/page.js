// The page of a report: the table of operators, its sorting and filtering, and the details that open below a row.

const report = JSON.parse(document.getElementById("report").textContent);
const element = (id) => document.getElementById(id);
const body = element("operators").tBodies[0];

/** An HTML element; `parts` are elements or texts inside it. */
function html(name, attributes = {}, ...parts) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...parts);
  return made;
}

/** A number to sort by. JSON has infinities and NaN as text; NaN sorts as infinity, a missing number below 0. */
const numberOf = (value) => value === null || value === undefined ? -1 : value === "nan" ? Infinity : Number(
  String(value).replace("inf", "Infinity"));
function shown(value) {
  if (typeof value !== "number") return value ?? "–";
  return value === 0 ? "0" : Number(value.toPrecision(2)).toExponential();
}

/** The limit in a column of witnesses, if it is the same for all operators. */
function limitOf(i) {
  const limits = new Set(report.operators.map((row) => row.cells[i].limit).filter((limit) => limit !== undefined));
  return limits.size === 1 ? `≤ ${shown([...limits][0])}` : "";
}

// -- the table

const COLUMNS = [
  { title: "operator", value: (row) => row.operator.toLowerCase() },
  { title: "type", value: (row) => row.type.toLowerCase() },
  { title: "file", value: (row) => row.file, className: "file" },
  { title: "cases", value: (row) => row.cases, className: "number" },
  ...report.columns.map((title, i) => (
    { title, value: (row) => numberOf(row.cells[i].difference), className: "number", limit: limitOf(i) })),
  { title: "verdict", value: (row) => row.verdict.toLowerCase() },
];
const wrong = report.operators.filter((row) => !row.ok);
const records = report.operators.map((row) => ({ row, line: lineOf(row), details: null }));
let sorted = { column: null, descending: false };

function lineOf(row) {
  const name = html("button", { className: "name", "aria-expanded": "false" }, row.operator);
  const cells = row.cells.map((cell) => html("td", {
    className: cell.wrong ? "number wrong" : "number",
    title: cell.difference === null ? "" : `${cell.witness}: at most ${shown(cell.limit)} is allowed`,
  }, shown(cell.difference)));
  const line = html("tr", { className: row.ok ? "operator" : "operator wrong" },
    html("td", {}, name), html("td", {}, row.type), html("td", { className: "file" }, row.file),
    html("td", { className: "number" }, String(row.cases)), ...cells,
    html("td", { className: "verdict" }, row.verdict));
  line.addEventListener("click", () => {
    if (!getSelection().toString()) toggle(records.find((record) => record.line === line));
  });
  return line;
}

function showHead() {
  const cells = COLUMNS.map((column) => {
    const sort = html("button", {}, column.title, html("span", { className: "limit" }, column.limit ?? ""));
    sort.addEventListener("click", () => sortBy(column));
    const cell = html("th", { className: column.className ?? "", scope: "col" }, sort);
    if (column === sorted.column) {
      cell.setAttribute("aria-sort", sorted.descending ? "descending" : "ascending");
    }
    return cell;
  });
  element("operators").tHead.rows[0].replaceChildren(...cells);
}

/** Sort numbers from the largest, text from a to z; sorting by the same column again reverses the order. */
function sortBy(column) {
  const again = sorted.column === column;
  sorted = { column, descending: again ? !sorted.descending : typeof column.value(report.operators[0]) === "number" };
  const sign = sorted.descending ? -1 : 1;
  records.sort((a, b) => {
    const [x, y] = [column.value(a.row), column.value(b.row)];
    return x < y ? -sign : x > y ? sign : 0;
  });
  const at = COLUMNS.indexOf(column);
  showHead();
  showLines();
  element("operators").tHead.rows[0].cells[at].firstChild.focus();
}

function showLines() {
  const words = element("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const onlyWrong = element("wrong").getAttribute("aria-pressed") === "true";
  let seen = 0;
  for (const { row, line, details } of records) {
    const text = `${row.operator} ${row.type} ${row.file} ${row.verdict}`.toLowerCase();
    line.hidden = (onlyWrong && row.ok) || !words.every((word) => text.includes(word));
    if (details) details.hidden = line.hidden || !isOpen(line);
    seen += !line.hidden;
  }
  body.replaceChildren(...records.flatMap(({ line, details }) => details ? [line, details] : [line]));
  element("count").textContent = `${seen} of ${records.length}`;
  element("nothing").hidden = seen > 0;
}

// -- the details below a row

const isOpen = (line) => line.querySelector(".name").getAttribute("aria-expanded") === "true";

function toggle(record, open = !isOpen(record.line)) {
  record.line.querySelector(".name").setAttribute("aria-expanded", String(open));
  if (open && !record.details) {
    record.details = html("tr", { className: "details" },
      html("td", { colSpan: COLUMNS.length }, ...about(record.row)));
    record.line.after(record.details);
  }
  if (record.details) record.details.hidden = !open;
}

function about(row) {
  const parts = [];
  if (row.failure) {
    const copy = html("button", { className: "copy" }, "Copy");
    const text = row.failure.join("\n"), test = html("pre", {}, text);
    copy.addEventListener("click", (event) => {
      event.stopPropagation();
      navigator.clipboard?.writeText(text).catch(() => getSelection().selectAllChildren(test));
      copy.textContent = "Copied";
    });
    parts.push(html("section", { className: "failure" },
      html("h2", {}, "The smallest failure, as a test  ", copy), test));
  }
  parts.push(...Object.entries(row.documents).flatMap(([name, lines]) =>
    [html("h3", {}, name), html("pre", { className: "document" }, ...marked(lines.join("\n")))]));
  if (row.note) parts.push(html("p", {}, row.note));
  if (row.checks.length) {
    parts.push(html("h2", {}, "The gradients"), html("div", { className: "scroller" }, checksTable(row.checks)));
  }
  const pictured = row.checks.filter((check) => check.picture);
  if (pictured.length) {
    parts.push(html("h2", {}, "Taylor remainders over steps: slope 2 if the gradient is right, 1 if it is wrong"),
      html("div", { className: "pictures" }, ...pictured.map(figureOf)));
  }
  for (const [name, lines] of Object.entries(row.sources)) {
    parts.push(html("h3", {}, name), html("pre", {}, lines.join("\n")));
  }
  return parts.length ? parts : [html("p", {}, row.verdict)];
}

/** The text of a docstring, with its code in `code` elements. */
const marked = (text) => text.split(/``([^`]+)``/).map((part, i) => i % 2 ? html("code", {}, part) : part);

function checksTable(checks) {
  const witnesses = [...new Set(checks.flatMap((check) => Object.keys(check.differences)))];
  const head = ["gradient by", "shape"].map((title) => html("th", { scope: "col" }, title));
  head.push(...witnesses.map((title) => html("th", { className: "number", scope: "col" }, title)));
  const rows = checks.map((check) => html("tr", {},
    html("td", {}, check.name), html("td", {}, check.shape.join("×") || "scalar"),
    ...witnesses.map((witness) => numberCell(check.differences[witness])),
    html("td", { className: check.ok ? "verdict" : "verdict wrong" }, check.verdict)));
  return html("table", { className: "checks" },
    html("thead", {}, html("tr", {}, ...head, html("th", { scope: "col" }, "verdict"))),
    html("tbody", {}, ...rows));
}

function numberCell(found) {
  if (!found) return html("td", { className: "number" }, "–");
  const limit = found.limit === null ? "" : `≤ ${shown(found.limit)}`;
  return html("td", { className: found.wrong ? "number wrong" : "number" }, shown(found.difference),
    html("span", { className: "limit" }, found.wrong ? limit.replace("≤", ">") : limit));
}

function figureOf(check) {
  const bad = ["jax", "differences"].some((witness) => check.differences[witness]?.wrong);
  const figure = html("figure", { className: bad ? "bad" : "" },
    html("figcaption", {}, `${check.name}, slope ${check.slope.toFixed(2)}`));
  const picture = html("template", { innerHTML: check.picture }); // safe: made from numbers only
  figure.prepend(picture.content);
  return figure;
}

// -- the head of the page, and keys

function showVerdict() {
  const verdict = element("verdict");
  verdict.className = wrong.length ? "wrong" : "";
  if (!wrong.length) {
    verdict.textContent = report.operators.length ? "All operators agree with all witnesses" : "There are no operators";
    return;
  }
  const links = wrong.slice(0, 12).map((row) => {
    const link = html("a", { href: "#" }, row.operator);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const record = records.find((other) => other.row === row);
      element("search").value = "";
      showLines();
      toggle(record, true);
      record.line.scrollIntoView({ block: "center" });
      record.line.querySelector(".name").focus();
    });
    return link;
  });
  const more = wrong.length > links.length ? [` and ${wrong.length - links.length} more`] : [];
  const separated = links.flatMap((link, i) => i ? [", ", link] : [link]);
  verdict.replaceChildren(`${wrong.length} of ${report.operators.length} wrong: `, ...separated, ...more);
}

function showFacts() {
  const facts = Object.entries(report.facts).map(([name, value]) =>
    html("div", {}, html("dt", {}, name), html("dd", {}, value)));
  element("facts").replaceChildren(...facts);
}

element("search").addEventListener("input", showLines);
element("wrong").addEventListener("click", () => {
  const pressed = element("wrong").getAttribute("aria-pressed") === "true";
  element("wrong").setAttribute("aria-pressed", String(!pressed));
  showLines();
});
document.addEventListener("keydown", (event) => {
  const search = element("search");
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && document.activeElement === search) {
    search.value = "";
    showLines();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const names = [...body.querySelectorAll("tr.operator:not([hidden]) .name")];
    const at = names.indexOf(document.activeElement);
    if (at < 0 && document.activeElement !== search) return;
    event.preventDefault();
    (names[at + (event.key === "ArrowDown" ? 1 : -1)] ?? search).focus();
  }
});
addEventListener("beforeprint", () => {
  for (const record of records) if (!record.row.ok) toggle(record, true);
});

records.sort((a, b) => Number(a.row.ok) - Number(b.row.ok));
element("wrong").hidden = !wrong.length;
showVerdict();
showFacts();
showHead();
showLines();

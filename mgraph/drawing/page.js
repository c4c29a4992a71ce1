// The page: the reader's input, and the panel about a node or box.

const element = (id) => document.getElementById(id);
const users = new Map(Object.keys(scene.nodes).map((key) => [key, []]));
for (const node of Object.values(scene.nodes)) {
  for (const child of new Set(node.children)) users.get(child)?.push(node.key);
}
const wires = Object.values(scene.boxes).flatMap((box) => box.nets.flatMap(([value, , targets]) =>
  [...new Set(targets)].filter((i) => box.items[i][0] === "node").map((i) => [value, box.items[i][1]])));
const MOST_SEEN = 80, MOST_RESULTS = 100;
let selected = null; // the key of a node or box
let found = []; // keys of the nodes that the search found
let current = -1; // the index in `found` of the result chosen last

/** An HTML element; `parts` are elements or texts inside it. */
function html(name, attributes = {}, ...parts) {
  const made = document.createElement(name);
  Object.assign(made, attributes);
  made.append(...parts);
  return made;
}

const homeOf = (key) => key in scene.nodes ? scene.nodes[key].home : scene.boxes[key].parent;
const labelOf = (key) => {
  if (!(key in scene.nodes)) return scene.boxes[key].title;
  const { type, name } = scene.nodes[key];
  return name ? `${type} ${name}` : type;
};

// -- selecting

function select(key) {
  selected = key;
  mark();
  showPanel();
}

/** Open the boxes around a node or box, select it and move it into view. */
function goTo(key) {
  setOpen(pathOf(homeOf(key)).map((box) => [box, true]));
  select(key); // before measuring, because the panel takes room
  const { x, y, height } = whereIs(key);
  const { clientWidth: w, clientHeight: h } = canvas;
  const scale = Math.min(1.5, Math.max(eye.scale, 0.8)), low = height * scale < h;
  glide(w / 2 - x * scale, low ? h / 2 - y * scale : 40 - (y - height / 2) * scale, scale);
}

/** Open or fold a box; the middle of its top edge stays put, or its corner if folding widens it. */
function toggle(key) {
  const before = frameOnScreen(key);
  setOpen([[key, !open.has(key)]]);
  const after = frameOnScreen(key);
  glide.turn++;
  const middle = open.has(key) || after.width < before.width ? (before.width - after.width) / 2 : 0;
  look(eye.x + before.left - after.left + middle, eye.y + before.top - after.top, eye.scale);
}

/** Mark drawn nodes and boxes: selected, found, timed, cluster; trace the selection's wires. */
function mark() {
  const seen = new Set(found.map(nearestSeen)), lit = new Set(membersOf(onlyCluster).map(nearestSeen));
  for (const [key, drawing] of drawn) {
    const cluster = scene.clusters[key];
    drawing.classList.toggle("selected", key === selected);
    drawing.classList.toggle("found", seen.has(key));
    drawing.classList.toggle("clustered", cluster !== undefined);
    drawing.classList.toggle("shown", lit.has(key));
    drawing.classList.toggle("timed", key in scene.times.nodes);
    if (key in scene.times.nodes) drawing.style.setProperty("--heat", heatOf(scene.times.nodes[key]));
    if (cluster !== undefined) drawing.style.setProperty("--cluster", clusterColors.get(cluster));
  }
  showCrowd();
  const inside = (key) => key === selected || pathOf(scene.nodes[key].home).includes(selected);
  showTraces(selected === null ? [] : wires
    .filter(([from, to]) => inside(from) !== inside(to))
    .map(([from, to]) => [from, to, inside(to) ? "in" : "out"]));
}

/** The outermost folded box around a node, or the node itself if there is none. */
function nearestSeen(key) {
  const path = [...pathOf(homeOf(key)).slice(1), key];
  return path.find((step) => step in scene.boxes && !open.has(step)) ?? key;
}

// -- the panel

function showPanel() {
  const panel = element("panel");
  panel.hidden = selected === null;
  if (selected === null) return;
  const close = html("button", { className: "close", title: "Close (Esc)", onclick: () => select(null) }, "×");
  const parts = [close, html("h2", {}, labelOf(selected)), pathLine(selected)];
  if (selected in scene.boxes) parts.push(...aboutBox(scene.boxes[selected]));
  if (selected in scene.nodes) parts.push(...aboutNode(scene.nodes[selected]));
  panel.replaceChildren(...parts);
  panel.scrollTop = 0;
}

function link(key, label = labelOf(key)) {
  const follow = (event) => { event.preventDefault(); goTo(key); };
  return html("a", { href: "#", onclick: follow }, label);
}

function pathLine(key) {
  const steps = pathOf(homeOf(key)).slice(1).flatMap((box) => [link(box), " / "]);
  return html("p", { className: "path" }, ...steps.slice(0, -1));
}

function table(rows) {
  const cells = rows.map(([name, value, className = ""]) =>
    html("tr", {}, html("th", {}, name), html("td", { className }, value)));
  return html("table", {}, html("tbody", {}, ...cells));
}

function list(title, keys) {
  if (!keys.length) return [];
  const items = keys.map((key) => html("li", {}, link(key),
    html("span", {}, key in scene.nodes ? `${scene.nodes[key].shape}  (${key})` : "")));
  return [html("h3", {}, title), html("ol", {}, ...items)];
}

function aboutNode(node) {
  const cluster = scene.clusters[node.key];
  const facts = [["id", node.key], ["shape", node.shape], ...Object.entries(node.details)];
  if (cluster !== undefined) facts.push([scene.coloring.fact, cluster]);
  if (node.key in scene.times.nodes) facts.push(["time", timeText(scene.times.nodes[node.key]), "number"]);
  return [
    table(facts),
    ...node.statistics.flatMap((values, i, all) => aboutValues(values, i, all)),
    ...list("Computed from", node.children),
    ...list("Used by", users.get(node.key)),
  ];
}

function aboutValues({ gradient, output, ...values }, i, all) {
  if (values.rows) {
    const numbers = values.rows.map(([name, number]) => [name, numberText(number), "number"]);
    return [html("h3", {}, values.title), table(numbers)];
  }
  const outputs = all.filter((other) => !other.gradient).length;
  const title = gradient ? "Gradient" : "Value";
  const whose = outputs > 1 ? ` of output ${gradient ? output : i}` : "";
  const rows = ["values", "min", "max", "mean", "l2 norm"].filter((name) => name in values)
    .map((name) => [name, numberText(values[name]), "number"]);
  rows.push(["NaN", String(values.NaN), values.NaN ? "number bad" : "number"]);
  return [html("h3", {}, title + whose), table(rows)];
}

function numberText(value) {
  if (typeof value !== "number") return value;
  return Number.isInteger(value) && Math.abs(value) < 1e9 ? String(value) : String(Number(value.toPrecision(6)));
}

function aboutBox(box) {
  const inside = Object.values(scene.nodes).filter((node) => pathOf(node.home).includes(box.key));
  const counts = new Map();
  for (const { type } of inside) counts.set(type, (counts.get(type) ?? 0) + 1);
  const types = [...counts].sort((a, b) => b[1] - a[1]).map(([type, count]) => [type, count, "number"]);
  const values = (kind) => box.items.filter(([port]) => port === kind).map(([, key]) => key);
  const isOpen = open.has(box.key);
  const switchIt = () => { setOpen([[box.key, !isOpen]]); goTo(box.key); };
  return [
    html("p", {}, box.summary),
    html("button", { onclick: switchIt }, isOpen ? "Fold" : "Open"),
    ...list("Inputs", values("in")),
    ...list("Outputs", values("out")),
    html("h3", {}, "Nodes by type"),
    table(types),
  ];
}

// -- finding

function find(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hit = ({ key, type, name }) => {
    const all = `${key} ${type} ${name}`.toLowerCase();
    return words.every((word) => all.includes(word));
  };
  const rank = ({ key, type, name }) => {
    const whole = [key, type, name].some((part) => part.toLowerCase() === words[0]);
    return whole ? 0 : name.toLowerCase().includes(words[0]) ? 1 : 2;
  };
  const hits = words.length ? Object.values(scene.nodes).filter(hit) : [];
  const order = new Map(hits.map((node, i) => [node.key, [rank(node), i]]));
  const before = (a, b) => order.get(a)[0] - order.get(b)[0] || order.get(a)[1] - order.get(b)[1];
  found = hits.map((node) => node.key).sort(before);
  current = -1;
  showResults(words.length > 0);
  mark();
}

function showResults(searching) {
  const results = element("results");
  results.hidden = !searching;
  const items = found.slice(0, MOST_RESULTS).map((key, i) => html(
    "li", { onclick: () => choose(i) }, html("span", {}, labelOf(key)),
    html("span", {}, `${scene.nodes[key].shape}  (${key})`)));
  const more = found.length - items.length;
  if (!found.length) items.push(html("li", { className: "note" }, "Nothing found"));
  if (more > 0) items.push(html("li", { className: "note" }, `and ${more} more`));
  results.replaceChildren(...items);
}

function choose(i) {
  if (!found.length) return;
  current = (i + found.length) % found.length;
  [...element("results").children].forEach((item, k) => item.classList.toggle("current", k === current));
  element("results").children[current]?.scrollIntoView({ block: "nearest" });
  goTo(found[current]);
}

// -- listening

function keyUnder(target) {
  return target.closest?.(".node, .box")?.dataset.key ?? null;
}

function listenToPointer() {
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button === 0) drag = { x: event.clientX, y: event.clientY, far: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.far && Math.hypot(dx, dy) < 4) return;
    if (!drag.far) canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("moving");
    glide.turn++;
    look(eye.x + dx, eye.y + dy, eye.scale);
    drag = { x: event.clientX, y: event.clientY, far: true };
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      dragged = drag?.far ?? false;
      drag = null;
      canvas.classList.remove("moving");
    });
  }
  let dragged = false;
  canvas.addEventListener("click", (event) => {
    if (dragged) return;
    const key = keyUnder(event.target), onSign = event.target.closest?.(".sign");
    if (onSign) toggle(key);
    else select(key);
  });
  canvas.addEventListener("dblclick", (event) => {
    const key = keyUnder(event.target);
    if (key in scene.boxes) toggle(key);
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const edge = canvas.getBoundingClientRect(), lines = event.deltaMode === 1 ? 20 : 1;
    const factor = Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015));
    zoom(eye.scale * factor, event.clientX - edge.left, event.clientY - edge.top);
  }, { passive: false });
}

function listenToKeys() {
  const search = element("search");
  search.addEventListener("input", () => find(search.value));
  search.addEventListener("focus", () => showResults(search.value.trim() !== ""));
  search.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1, Enter: event.shiftKey ? -1 : 1 }[event.key];
    if (move) {
      event.preventDefault();
      choose(Math.max(current, -1) + move);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search.value = "";
      search.blur();
      find("");
      select(null);
    } else if (event.target === search || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === "/") {
      event.preventDefault();
      search.select();
    } else if (event.key === "f") {
      fit();
    } else if (event.key === "Enter" && selected in scene.boxes && event.target === document.body) {
      toggle(selected);
    }
  });
  for (const name of ["pointerdown", "wheel"]) {
    document.addEventListener(name, () => { element("hint").hidden = true; }, { once: true, passive: true });
  }
  document.addEventListener("pointerdown", (event) => {
    if (!element("finder").contains(event.target)) element("results").hidden = true;
  });
}

/** The boxes to open at the start: whole levels from the outside in, while at most MOST_SEEN items are seen. */
function firstOpen() {
  const chosen = [];
  let level = scene.boxes[""].inner, seen = scene.boxes[""].items.length;
  while (level.length && (seen += level.flatMap((box) => box.items).length) <= MOST_SEEN) {
    chosen.push(...level);
    level = level.flatMap((box) => box.inner);
  }
  return chosen.map((box) => box.key);
}

function start() {
  const boxes = Object.keys(scene.boxes);
  element("summary").textContent = scene.boxes[""].summary;
  element("fit").onclick = () => fit();
  element("fold").onclick = () => { setOpen(boxes.map((key) => [key, false])); fit(0.35); };
  element("unfold").onclick = () => { setOpen(boxes.map((key) => [key, true])); fit(0.35); };
  for (const name of ["fusion", "times"]) {
    element(name).onclick = () => color(element(name).getAttribute("aria-pressed") === "true" ? "" : name);
  }
  document.addEventListener("drawn", mark);
  listenToPointer();
  listenToKeys();
  offerColors();
  setOpen(firstOpen().map((key) => [key, true]));
  fit(0.5);
}

start();

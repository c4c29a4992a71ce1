// The view: open boxes and the nodes in them as SVG, and the part of the drawing that is in sight.

const scene = JSON.parse(document.getElementById("scene").textContent);
const canvas = document.getElementById("canvas");
const world = document.getElementById("world");
const TIP = 7;
const HINT = 30; // the height of the hint at the bottom

for (const [key, node] of Object.entries(scene.nodes)) node.key = key;
for (const [key, box] of Object.entries(scene.boxes)) {
  box.key = key;
  box.inner = box.items.filter(([kind]) => kind === "box").map(([, inner]) => scene.boxes[inner]);
  box.place = new Map(box.items.map(([kind, item], i) => [`${kind} ${item}`, i]));
  box.number = new Map(box.nets.map(([value], n) => [value, n]));
}

const open = new Set([""]);
const layouts = new Map(); // layouts of open boxes by key; dropped when the box, or one inside it, is opened or folded
const drawn = new Map(); // the elements of the drawn nodes and boxes, by key
let traces = []; // the elements that highlight the wires to and from the selection
const eye = { x: 0, y: 0, scale: 1 }; // where the world's origin is on the canvas, in pixels, and its scale

/** The keys of a box and of the boxes around it, from the outermost. */
function pathOf(key) {
  const parent = scene.boxes[key].parent;
  return parent === null ? [key] : [...pathOf(parent), key];
}

// -- layout: Python's layout, closed up around folded boxes

function layoutOf(box) {
  if (!layouts.has(box.key)) layouts.set(box.key, closedUp(box, box.layouts[depthOf(box)]));
  return layouts.get(box.key);
}

/** How many levels of the boxes inside a box are open; Python made a layout for each number of levels. */
function depthOf(box) {
  return Math.max(0, ...box.inner.map((inner) => open.has(inner.key) ? 1 + depthOf(inner) : 0));
}

function outlineOf(kind, key, [, , , width, height]) {
  if (kind !== "box") return { width, height, port: kind !== "node" };
  const box = scene.boxes[key];
  if (!open.has(key)) return { width: box.folded[0], height: box.folded[1] };
  const inner = layoutOf(box), ports = { in: {}, out: {} };
  box.items.forEach(([port, value], i) => {
    if (port in ports) ports[port][value] = inner.middles[i] - inner.width / 2;
  });
  return { width: inner.width, height: inner.height, open: true, ports };
}

/** Python's layout, adapted to the items' current sizes; items keep their rows and their order. */
function closedUp(box, { size, rows, items, pieces }) {
  const outlines = box.items.map(([kind, key], i) => outlineOf(kind, key, items[i]));
  const ratios = items.map(([, , , width], i) => width ? outlines[i].width / width : 1);
  const across = stretched(items.map(([, left, , width], i) => [left, left + width, ratios[i]]));
  const middles = items.map(([, left, , width]) => (across(left) + across(left + width)) / 2);

  const before = rows.map(() => 0), after = rows.map(() => 0); // each row's tallest item, in Python's layout and now
  items.forEach(([row, , , , height], i) => {
    before[row] = Math.max(before[row], height);
    after[row] = Math.max(after[row], outlines[i].height);
  });
  let shift = 0;
  const bounds = rows.map(([top, bottom], row) => {
    const from = top + shift;
    shift += after[row] - before[row];
    return [from, bottom + shift];
  });
  const tops = items.map(([row, , top], i) =>
    bounds[row][0] + Math.min(top - rows[row][0], after[row] - outlines[i].height));

  const touch = (i, x, value, side) => {
    if (i < 0) return across(x);
    if (outlines[i].open) return middles[i] + (outlines[i].ports[side][value] ?? 0);
    return middles[i] + (x - items[i][1] - items[i][3] / 2) * ratios[i];
  };
  const bottomOf = (i) => tops[i] + outlines[i].height;
  const wires = pieces.map((net, n) => net.map(([row, source, target, x, end]) => {
    const value = box.nets[n][0], upwards = target >= 0 && items[target][0] <= row;
    const start = upwards ? bottomOf(source) : bounds[row][1];
    const stop = upwards ? tops[target] : bounds[row + 1][0];
    return {
      x: touch(source, x, value, "out"), top: source < 0 ? start : bottomOf(source), start,
      across: touch(target, end, value, "in"), end: stop,
      bottom: target < 0 ? bounds[row + 1][1] : tops[target], row, target,
    };
  }));
  const width = Math.max(across(size[0]), box.least);
  return { outlines, middles, tops, width, height: size[1] + shift, pieces: wires };
}

/**
 * A function from x in Python's layout to x in the adapted one, given every item's [left, right, ratio]; the ratio is
 * the new width divided by the old. Each stretch of x is scaled by the largest ratio of the items that cover it, so
 * that all have room; gaps keep their width.
 */
function stretched(items) {
  if (items.every(([, , ratio]) => ratio === 1)) return (x) => x;
  const spans = items.map(([left, right, ratio]) => ratio === 1 ? [left - 8, right + 8, 1] : [left, right, ratio]);
  const ends = [...new Set(spans.flatMap(([left, right]) => [left, right]))].sort((a, b) => a - b);
  const places = [ends[0]];
  for (let i = 1; i < ends.length; i++) {
    const over = spans.filter(([left, right]) => left < ends[i] && right > ends[i - 1]);
    const ratio = over.length ? Math.max(...over.map((span) => span[2])) : 1;
    places.push(places[i - 1] + ratio * (ends[i] - ends[i - 1]));
  }
  return (x) => {
    const i = Math.max(ends.findLastIndex((end) => end <= x), 0);
    const inside = ends[i] < x && i + 1 < ends.length;
    const ratio = inside ? (places[i + 1] - places[i]) / (ends[i + 1] - ends[i]) : 1;
    return places[i] + ratio * (x - ends[i]);
  };
}

/** Open or fold boxes, given as [key, whether to open it], and redraw. */
function setOpen(changes) {
  for (const [key, isOpen] of changes) {
    if (key === "" || open.has(key) === isOpen) continue;
    if (isOpen) open.add(key); else open.delete(key);
    for (const around of pathOf(key)) layouts.delete(around);
  }
  draw();
}

// -- drawing

/** An SVG element; `parts` are elements or texts inside it. */
function svg(name, attributes = {}, ...parts) {
  const element = document.createElementNS(canvas.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...parts);
  return element;
}

const round = (x) => Math.round(x * 10) / 10;

function draw() {
  drawn.clear();
  forgetCrowd();
  world.replaceChildren(...contentsOf(scene.boxes[""], 0, 0));
  showCrowd();
  document.dispatchEvent(new Event("drawn"));
}

/** A box's contents, wires first, so that nodes cover them; `left` and `top` are its corner in the world. */
function contentsOf(box, left, top) {
  const { outlines, middles, tops, pieces } = layoutOf(box);
  const wires = [], parts = [];
  box.nets.forEach(([value], net) => {
    if (!pieces[net].length) return;
    const wire = [svg("path", { class: "wire", "data-from": value, d: pieces[net].map(wirePath).join("") })];
    const ends = pieces[net].filter(({ target }) => target >= 0 && !outlines[target].open && !outlines[target].port);
    const d = ends.map((p) => `M${round(p.across)} ${round(p.bottom)}l${-TIP / 2} ${-TIP}h${TIP}Z`).join("");
    if (d) wire.push(svg("path", { class: "tip", d }));
    wires.push(...wire);
    const point = (x, y) => `${round(left + x)} ${round(top + y)}`;
    const line = pieces[net].map((p) => `M${point(p.x, p.top)}L${point(p.across, p.bottom)}`).join("");
    addToCrowd(wire, null, frameOf(pieces[net], left, top), line);
  });
  const overlay = svg("g", { class: "traces", "data-box": box.key });
  box.items.forEach(([kind, key], i) => {
    if (kind === "node") {
      const { width, height } = outlines[i], x = left + middles[i], y = top + tops[i];
      const element = nodeElement(scene.nodes[key], outlines[i], middles[i], tops[i]);
      addToCrowd([element], key, [x - width / 2, y, x + width / 2, y + height]);
      parts.push(element);
    }
    if (kind === "box") parts.push(boxElement(scene.boxes[key], outlines[i], middles[i], tops[i], left, top));
  });
  return [svg("g", {}, ...wires), overlay, ...parts];
}

/** Left, top, right and bottom of a wire. */
function frameOf(pieces, left, top) {
  const [xs, ys] = [pieces.flatMap((p) => [p.x, p.across]), pieces.flatMap((p) => [p.top, p.bottom])];
  return [left + Math.min(...xs), top + Math.min(...ys), left + Math.max(...xs) + 60, top + Math.max(...ys)];
}

/** A path straight down, or a curve with vertical ends; around on the right if the wire leads upwards. */
function wirePath({ x, top, start, across, end, bottom }) {
  const [a, b, s, e] = [round(x), round(across), round(start), round(end)];
  const middle = round((start + end) / 2);
  if (end < start) {
    const right = Math.max(a, b) + 60;
    return `M${a} ${s}C${a} ${s + 50} ${right} ${s + 50} ${right} ${middle}S${b} ${e - 50} ${b} ${e}`;
  }
  return `M${a} ${round(top)}V${s}C${a} ${middle} ${b} ${middle} ${b} ${e}V${round(bottom)}`;
}

function nodeOutline(form, width, height) {
  const w = width / 2, h = height / 2;
  if (form === "diamond") return `M0 0L${w} ${h}L0 ${height}L${-w} ${h}Z`;
  if (form === "hexagon") {
    return `M${12 - w} 0H${w - 12}L${w} ${h}L${w - 12} ${height}H${12 - w}L${-w} ${h}Z`;
  }
  return `M${-w} 0H${w}V${height}H${-w}Z`;
}

function nodeElement(node, { width, height }, x, y) {
  const count = node.lines.length - 1;
  const start = height / 2 - 7.5 * count - 6.5;
  const texts = node.lines.map((line, i) => i < count
    ? svg("text", { y: start + 15 * i + 12 }, line)
    : svg("text", { y: start + 15 * i + 10, class: "shape" }, line));
  const form = svg("path", { d: nodeOutline(node.form, width, height), fill: node.color });
  const transform = `translate(${round(x)} ${round(y)})`;
  const name = node.name ? svg("title", {}, node.name) : "";
  const element = svg("g", { class: "node", "data-key": node.key, transform }, form, ...texts, name);
  element.classList.toggle("thick", node.thick);
  drawn.set(node.key, element);
  return element;
}

function boxElement(box, outline, x, y, aroundLeft, aroundTop) {
  const { width, height } = outline, isOpen = Boolean(outline.open);
  const cover = (name, shift) => svg("rect", {
    class: name, x: shift, y: shift, width: round(width), height: round(height - (isOpen ? 0 : 4)), rx: 9,
  });
  const sign = (x, y) => svg("path", { class: "sign", d: `M${x - 4} ${y}h8${isOpen ? "" : "m-4 -4v8"}` });
  const left = round(x - width / 2);
  const parts = isOpen
    ? [cover("cover", 0), ...contentsOf(box, aroundLeft + left, aroundTop + y),
      svg("g", { class: "heading" }, sign(14, 15), svg("text", { x: 24, y: 19 }, box.title))]
    : [cover("behind", 4), cover("cover", 0),
      svg("g", { class: "heading" }, sign(14, 14), svg("text", { x: width / 2, y: 20 }, box.title),
        svg("text", { x: width / 2, y: 37, class: "about" }, box.summary))];
  const element = svg("g", {
    class: isOpen ? "box" : "box folded", "data-key": box.key, style: `--tint: ${box.tint}`,
    transform: `translate(${left} ${round(y)})`,
  }, ...parts);
  drawn.set(box.key, element);
  return element;
}

// -- traces: the wires between two nodes, through all boxes

/** Trace these wires, given as [source, target, class], and no others. */
function showTraces(wires) {
  for (const trace of traces) trace.remove();
  traces = [];
  const overlays = new Map([...world.querySelectorAll(".traces")].map((g) => [g.dataset.box, g]));
  for (const [source, target, name] of wires) {
    for (const [box, item] of stepsOf(source, target)) {
      const overlay = overlays.get(box.key);
      if (!overlay) continue;
      const d = trunkTo(box, source, item).map(wirePath).join("");
      const trace = svg("path", { class: `trace ${name}`, d });
      overlay.append(trace);
      traces.push(trace);
    }
  }
}

/** The boxes that a wire passes through, each with the item at which the wire ends in that box. */
function stepsOf(source, target) {
  const up = pathOf(scene.nodes[source].home), down = pathOf(scene.nodes[target].home);
  let shared = 0;
  while (shared < up.length && up[shared] === down[shared]) shared++;
  const steps = up.slice(shared).map((key) => [scene.boxes[key], `out ${source}`]);
  down.slice(shared - 1).forEach((key, i, path) => {
    steps.push([scene.boxes[key], i + 1 < path.length ? `box ${path[i + 1]}` : `node ${target}`]);
  });
  return steps;
}

/** The pieces of a value's net in a box that lead to one item. */
function trunkTo(box, value, item) {
  const target = box.place.get(item), net = box.number.get(value);
  if (target === undefined || net === undefined) return [];
  const pieces = layoutOf(box).pieces[net], ends = pieces.filter((piece) => piece.target === target);
  const last = Math.max(-1, ...ends.map((piece) => piece.row));
  return [...pieces.filter((piece) => piece.target < 0 && piece.row < last), ...ends];
}

// -- the eye

function look(x, y, scale) {
  Object.assign(eye, { x, y, scale });
  world.setAttribute("transform", `translate(${round(x)} ${round(y)}) scale(${scale})`);
  showCrowd();
}

/** Move the eye smoothly, or immediately if the reader prefers reduced motion. */
function glide(x, y, scale, milliseconds = 260) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return look(x, y, scale);
  const from = { ...eye }, began = performance.now(), turn = ++glide.turn;
  const step = (now) => {
    if (turn !== glide.turn) return;
    const t = Math.min(1, Math.max(0, (now - began) / milliseconds)), s = t * t * (3 - 2 * t);
    look(from.x + (x - from.x) * s, from.y + (y - from.y) * s, from.scale + (scale - from.scale) * s);
    if (t < 1) requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}
glide.turn = 0;

/** Set the scale, in canvas pixels per unit of the world; the canvas point (x, y) stays in place. */
function zoom(scale, x, y) {
  const next = Math.min(4, Math.max(0.02, scale)), ratio = next / eye.scale;
  glide.turn++;
  look(x - (x - eye.x) * ratio, y - (y - eye.y) * ratio, next);
}

/** Show the whole graph, or, if its scale would be below `least`, the top of the graph at that scale. */
function fit(least = 0) {
  const { width, height, tops, middles } = layoutOf(scene.boxes[""]), { clientWidth: w, clientHeight: h } = canvas;
  const scale = Math.min(1.25, Math.max(least, Math.min((w - 40) / width, (h - HINT - 40) / height)));
  const room = h - HINT - height * scale;
  glide.turn++;
  const first = middles[tops.indexOf(Math.min(...tops))] ?? 0; // the middle of the topmost item
  look(width * scale > w ? w / 2 - first * scale : (w - width * scale) / 2, room < 40 ? 20 : room / 2, scale);
}

/** The middle of a node or box in the world, and its size. */
function whereIs(key) {
  const frame = frameOnScreen(key), edge = canvas.getBoundingClientRect();
  return {
    x: (frame.left + frame.width / 2 - edge.left - eye.x) / eye.scale,
    y: (frame.top + frame.height / 2 - edge.top - eye.y) / eye.scale,
    width: frame.width / eye.scale,
    height: frame.height / eye.scale,
  };
}

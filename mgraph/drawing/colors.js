// Colours: which nodes share a cluster, and how long they take.

const clusterNames = [...new Set(Object.values(scene.clusters))];
const clusterColors = new Map(clusterNames.map((name, i) =>
  [name, `hsl(${Math.round(i * 137.5) % 360} 70% ${i % 2 ? 78 : 70}%)`]));
const membersOf = (name) => Object.keys(scene.clusters).filter((key) =>
  key in scene.nodes && scene.clusters[key] === name);
let onlyCluster; // the cluster that is highlighted, if any

const longest = Math.max(0, ...Object.values(scene.times.nodes));
const SLOWEST = 20; // how many of the slowest nodes are listed
const heatOf = (seconds) => `${Math.round(100 * Math.sqrt(seconds / longest))}%`;

/** Seconds in the unit that gives one to three digits before the point. */
function timeText(seconds) {
  const units = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]];
  const [unit, size] = units.find(([, size]) => seconds >= size) ?? ["ns", 1e-9];
  return `${Number((seconds / size).toPrecision(3))} ${unit}`;
}

/** Colour by clusters ("fusion"), by time ("times"), or by the kind of each node (""). */
function color(what) {
  world.classList.toggle("fused", what === "fusion");
  world.classList.toggle("timing", what === "times");
  for (const name of ["fusion", "times"]) element(name).setAttribute("aria-pressed", name === what);
  element("colors").hidden = !what;
  element("colors").replaceChildren(...(what === "fusion" ? clusterRows() : what === "times" ? timeRows() : []));
  showOnly(undefined);
  recolorCrowd();
}

/** A node's current colour, for the coarse drawing, in which nodes have no details. */
function fillOf({ key, color }) {
  if (world.classList.contains("timing")) {
    const seconds = scene.times.nodes[key];
    return seconds ? `color-mix(in srgb, #e5482d ${heatOf(seconds)}, #fff1d6)` : "#f1f2f4";
  }
  return world.classList.contains("fused") ? clusterColors.get(scene.clusters[key]) ?? "#e9eaec" : color;
}

function showOnly(name) {
  onlyCluster = name;
  world.classList.toggle("only", name !== undefined);
  for (const row of element("colors").children) {
    row.classList.toggle("current", name !== undefined && row.dataset.name === name);
  }
  mark();
}

/** A row of the list: a colour, a name and a number; `chosen` handles clicks. */
function colorRow(style, name, number, title, chosen) {
  const square = html("i");
  square.style.setProperty(...style);
  return html("div", { title, onclick: chosen }, square, html("span", {}, name), html("span", {}, number));
}

function clusterRows() {
  const seconds = new Map(Object.entries(scene.times.clusters)); // a cluster may be called "constructor"
  const names = [...clusterNames].sort((a, b) => (seconds.get(b) ?? 0) - (seconds.get(a) ?? 0));
  return names.map((name) => {
    const number = seconds.has(name) ? timeText(seconds.get(name)) : String(membersOf(name).length);
    const chosen = () => showOnly(onlyCluster === name ? undefined : name);
    const row = colorRow(["--cluster", clusterColors.get(name)], name, number, "Highlight only these nodes", chosen);
    row.dataset.name = name;
    return row;
  });
}

function timeRows() {
  const slowest = Object.entries(scene.times.nodes).filter(([key]) => key in scene.nodes)
    .sort((a, b) => b[1] - a[1]).slice(0, SLOWEST);
  return [html("p", {}, scene.times.about), ...slowest.map(([key, seconds]) => {
    const row = colorRow(["--heat", heatOf(seconds)], `${labelOf(key)} (${key})`, timeText(seconds),
      "Go to this node", () => goTo(key));
    row.className = "time";
    return row;
  })];
}

function offerColors() {
  element("fusion").hidden = !clusterNames.length;
  element("fusion").textContent = scene.coloring.button;
  element("fusion").title = scene.coloring.about;
  element("times").hidden = !longest;
}

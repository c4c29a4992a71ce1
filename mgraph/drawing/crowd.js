// The crowd: where there are more nodes than a browser moves smoothly, those out of sight are hidden, and where
// too many are in sight, all are drawn as a few plain paths.

const CROWD = 1000, FAR = 600; // so many nodes are moved smoothly, and so many in sight
const crowd = []; // every node and wire that is drawn: its elements, its frame in the world, and whether it is shown
let crowdNodes = 0;
let coarse = null; // the plain paths, once they are needed

function forgetCrowd() {
  crowd.length = crowdNodes = 0;
  coarse?.remove();
  coarse = null;
}

/**
 * Add a node, or a wire, whose `key` is null and whose `line` leads from corner to corner. Browsers lay out texts
 * again at each zoom even where they are not displayed, so what is hidden leaves the document.
 */
function addToCrowd(elements, key, [left, top, right, bottom], line = null) {
  crowdNodes += key !== null;
  crowd.push({ elements, key, left, top, right, bottom, line, home: null, shown: true });
}

/** Show what is in sight, or, where that is too much, what is selected or found; hide the rest. */
function showCrowd() {
  if (crowdNodes <= CROWD) return;
  const { clientWidth: w, clientHeight: h } = canvas, edge = 80;
  const [left, top] = [-(eye.x + edge) / eye.scale, -(eye.y + edge) / eye.scale];
  const [right, bottom] = [(w + edge - eye.x) / eye.scale, (h + edge - eye.y) / eye.scale];
  const isSeen = (one) => one.right > left && one.left < right && one.bottom > top && one.top < bottom;
  const isMarked = ({ elements: [{ classList }] }) => classList.contains("selected") || classList.contains("found");
  const seen = new Set(crowd.filter(isSeen)), nodes = [...seen].filter((one) => one.key !== null);
  const far = nodes.length > FAR;
  world.classList.toggle("far", far);
  for (const one of crowd) {
    const wanted = seen.has(one) && (!far || (one.key !== null && isMarked(one)));
    if (wanted === one.shown) continue;
    one.shown = wanted;
    one.home ??= one.elements[0].parentNode;
    if (wanted) one.home.append(...one.elements);
    else for (const element of one.elements) element.remove();
  }
  if (far) showCoarse();
}

/** The frame of a node or box on the screen, also of one that is hidden. */
function frameOnScreen(key) {
  const element = drawn.get(key), hidden = !element.isConnected && crowd.find((one) => one.key === key);
  if (hidden) hidden.home.append(element);
  const frame = element.getBoundingClientRect();
  if (hidden) element.remove();
  return frame;
}

/** One path of all wires, and one of all nodes of each colour. */
function showCoarse() {
  if (coarse) return;
  const wires = [], nodes = new Map();
  for (const { key, line, left, top, right, bottom } of crowd) {
    if (key === null) wires.push(line);
    else {
      const fill = fillOf(scene.nodes[key]);
      if (!nodes.has(fill)) nodes.set(fill, []);
      nodes.get(fill).push(`M${round(left)} ${round(top)}H${round(right)}V${round(bottom)}H${round(left)}Z`);
    }
  }
  coarse = svg("g", { class: "coarse" }, svg("path", { class: "wire", d: wires.join("") }),
    ...[...nodes].map(([fill, parts]) => svg("path", { style: `fill: ${fill}`, d: parts.join("") })));
  world.append(coarse);
}

/** Draw the plain paths again, in other colours. */
function recolorCrowd() {
  coarse?.remove();
  coarse = null;
  showCrowd();
}

// The crowd: if there are more nodes than a browser moves smoothly, the nodes out of sight are hidden; if too many
// are in sight, a coarse drawing, a few plain paths, stands in for all of them.

const CROWD = 1000, FAR = 600; // most nodes that move smoothly; most in sight that are drawn in detail
const crowd = []; // every node and wire that is drawn: its elements, its frame in the world, and whether it is shown
let crowdNodes = 0;
let coarse = null; // the plain paths, made when first needed

function forgetCrowd() {
  crowd.length = crowdNodes = 0;
  coarse?.remove();
  coarse = null;
}

/**
 * Add a node or a wire. A wire's `key` is null, and its `line` is its path in straight segments. Browsers lay out
 * text at every zoom even if it is not displayed, so hidden elements are removed from the document.
 */
function addToCrowd(elements, key, [left, top, right, bottom], line = null) {
  crowdNodes += key !== null;
  crowd.push({ elements, key, left, top, right, bottom, line, home: null, shown: true });
}

/** Show what is in sight, or, if that is too much, only the selected and found nodes in sight; hide the rest. */
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

/** The frame of a node or box on the screen, even if it is hidden. */
function frameOnScreen(key) {
  const element = drawn.get(key), hidden = !element.isConnected && crowd.find((one) => one.key === key);
  if (hidden) hidden.home.append(element);
  const frame = element.getBoundingClientRect();
  if (hidden) element.remove();
  return frame;
}

/** Draw all wires as one path, and all nodes of each colour as one path. */
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

/** Draw the plain paths again, in the current colours. */
function recolorCrowd() {
  coarse?.remove();
  coarse = null;
  showCrowd();
}

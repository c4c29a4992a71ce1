// Placing: the rows of a box, once its items have sizes, become coordinates and wires.
// The same as placing.py, which says what every step is for; a test holds the two together.

const SWEEPS = 6, THIN = 8, GAP = 16, THIN_GAP = 11, TWIN_GAP = 12, ROW_GAP = 24, MARGIN = 14, HEADER = 26;

const BEND = { width: 0, height: 0, ins: {}, outs: {} };

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const highest = (numbers, least) => numbers.reduce((a, b) => Math.max(a, b), least);

/**
 * Coordinates for a box: {width, height, middles, tops, pieces}.
 * `outlines` are those of its items, {width, height, ins, outs, leaf, port, open, folded}.
 */
function place(box, outlines) {
  const cells = box.rows.map((row) => row.map((entry) => {
    const { width, leaf } = entry < 0 ? BEND : outlines[entry];
    return { width: Math.max(width, THIN), leaf, x: 0, above: [], below: [] };
  }));
  const at = box.rows.map((row, r) => new Map(row.map((entry, i) => [entry, cells[r][i]])));
  const rank = [];
  box.rows.forEach((row, r) => row.forEach((entry) => { if (entry >= 0) rank[entry] = r; }));
  const goesUp = new Set(box.upward.map(([net, target]) => `${net} ${target}`));
  const links = box.nets.map(([name, source, targets], net) =>
    netLinks(net, name, source, targets.filter((t) => !goesUp.has(`${net} ${t}`)), rank, outlines, at));

  setColumns(cells);
  outlines.forEach((outline, i) => {
    if (!outline.folded) return;
    const cell = at[rank[i]].get(i);
    spread(cell.above, outline.width, true);
    spread(cell.below, outline.width, false);
  });
  const width = center(cells, box.width);
  const [bounds, height] = setRows(box, outlines, links.flat());
  const middles = outlines.map((_, i) => at[rank[i]].get(i).x);
  const tops = outlines.map((outline, i) => topOf(outline, ...bounds[rank[i]]));
  const pieces = links.map((found) => found.map((link) => pieceOf(link, outlines, tops, bounds)));
  for (const [net, target] of box.upward) {
    const [name, source] = box.nets[net];
    const y = tops[source] + outlines[source].height, end = tops[target];
    pieces[net].push({
      x: middles[source] + (outlines[source].outs[name] ?? 0), top: y, start: y,
      across: middles[target] + (outlines[target].ins[name] ?? 0), end, bottom: end,
      row: rank[source], target,
    });
  }
  return { width, height, middles, tops, pieces };
}

/** Whether it is an open box that values come into and go out of. */
function isPassed(outline) {
  return Object.keys(outline.ins).length > 0 && Object.keys(outline.outs).length > 0;
}

/** The pieces of one net, row by row: a trunk of bends with a branch to each target. */
function netLinks(net, name, source, targets, rank, outlines, at) {
  const links = [];
  const lowest = highest(targets.map((t) => rank[t]), 0);
  const light = outlines[source].leaf ? 0.02 : 1, bend = -1 - net;
  let entry = source, leaves = outlines[source].outs[name] ?? 0, above = outlines[source];
  for (let row = rank[source]; row < lowest; row++) {
    const upper = at[row].get(entry);
    targets.forEach((target, k) => {
      if (rank[target] !== row + 1) return;
      const same = (t) => t === target;
      const twin = targets.slice(0, k).filter(same).length - (targets.filter(same).length - 1) / 2;
      const enters = (outlines[target].ins[name] ?? 0) + TWIN_GAP * twin;
      const shift = shiftOf(above, outlines[target], leaves, enters);
      const weight = light * (entry < 0 ? 0.2 : 1), lower = at[row + 1].get(target);
      links.push({ upper, lower, leaves, enters, shift, weight, net, row, source: entry, target });
    });
    if (row + 1 < lowest) {
      const shift = shiftOf(above, BEND, leaves, 0);
      const weight = entry < 0 ? 8 : 0.5 * light, lower = at[row + 1].get(bend);
      links.push({ upper, lower, leaves, enters: 0, shift, weight, net, row, source: entry, target: bend });
      entry = bend;
      leaves = 0;
      above = BEND;
    }
  }
  for (const link of links) {
    link.upper.below.push(link);
    link.lower.above.push(link);
  }
  return links;
}

function shiftOf(upper, lower, leaves, enters) {
  if (upper.port || lower.port) return leaves - enters;
  return (isPassed(upper) ? 0 : leaves) - (isPassed(lower) ? 0 : enters);
}

/** Move cells towards their neighbours above and below, in their order and with room between them. */
function setColumns(rows) {
  for (const row of rows) {
    let x = -sum(row.map((cell) => cell.width + GAP)) / 2;
    for (const cell of row) {
      cell.x = x + cell.width / 2;
      x += cell.width + GAP;
    }
  }
  const upwards = [...rows].reverse();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const row of rows) settle(row, true, false);
    for (const row of upwards) settle(row, false, true);
  }
  for (const row of rows) settle(row, true, true);
  for (const row of rows.slice(1)) pool(row, row.map(belowWhatItContinues));
  for (const row of rows.slice(0, -1)) pool(row, row.map(nearUse));
}

/** Move the cells of a row to the mean of their neighbours above, below, or both. */
function settle(row, up, down) {
  pool(row, row.map((cell) => {
    let wanted = cell.x * 1e-3, weight = 1e-3;
    for (const link of up ? cell.above : []) {
      wanted += link.weight * (link.upper.x + link.shift);
      weight += link.weight;
    }
    for (const link of down ? cell.below : []) {
      wanted += link.weight * (link.lower.x - link.shift);
      weight += link.weight;
    }
    return [wanted / weight, weight];
  }));
}

function belowWhatItContinues(cell) {
  const link = heaviest(cell.above);
  if (link && heaviest(link.upper.below) === link) {
    return [link.upper.x + link.shift, link.weight];
  }
  return [cell.x, 0.1];
}

function nearUse(cell) {
  if (!cell.leaf || !cell.below.length) return [cell.x, 100];
  return [sum(cell.below.map((link) => link.lower.x - link.shift)) / cell.below.length, 0.1];
}

/** The one link that is heavier than all others. */
function heaviest(links) {
  const most = highest(links.map((link) => link.weight), 0);
  const found = links.filter((link) => link.weight === most);
  return found.length === 1 ? found[0] : undefined;
}

/** Move the cells to where they wish to be, [place, weight], by pooling cells that push each other. */
function pool(row, wishes) {
  const offsets = [0];
  for (let i = 1; i < row.length; i++) {
    const gap = row[i - 1].width <= THIN || row[i].width <= THIN ? THIN_GAP : GAP;
    offsets.push(offsets[i - 1] + (row[i - 1].width + row[i].width) / 2 + gap);
  }
  const blocks = [];
  wishes.forEach(([wish, weight], i) => {
    let block = { x: wish - offsets[i], weight, count: 1 };
    while (blocks.length && blocks.at(-1).x > block.x) {
      const last = blocks.pop(), both = last.weight + block.weight;
      const x = (last.x * last.weight + block.x * block.weight) / both;
      block = { x, weight: both, count: last.count + block.count };
    }
    blocks.push(block);
  });
  let i = 0;
  for (const block of blocks) {
    for (const end = i + block.count; i < end; i++) row[i].x = block.x + offsets[i];
  }
}

/** Give the wires of a folded box places along its top (or bottom), in the order of their other ends. */
function spread(links, width, up) {
  const ends = new Map();
  for (const link of links) {
    if (!ends.has(link.net)) ends.set(link.net, []);
    ends.get(link.net).push(up ? link.upper.x : link.lower.x);
  }
  const mean = (net) => sum(ends.get(net)) / ends.get(net).length;
  const order = [...ends.keys()].sort((a, b) => mean(a) - mean(b));
  const main = heaviest(links);
  const middle = main ? order.indexOf(main.net) : (order.length - 1) / 2;
  const step = Math.min(TWIN_GAP, 0.4 * width / Math.max(order.length - 1, 1));
  for (const link of links) link[up ? "enters" : "leaves"] = (order.indexOf(link.net) - middle) * step;
}

/** Move all cells into a box around them; returns its width. */
function center(rows, title) {
  const cells = rows.flat();
  const left = cells.reduce((least, c) => Math.min(least, c.x - c.width / 2), cells.length ? Infinity : 0);
  const right = cells.reduce((most, c) => Math.max(most, c.x + c.width / 2), cells.length ? -Infinity : 0);
  const width = Math.max(right - left, title) + 2 * MARGIN;
  for (const cell of cells) cell.x += (width - left - right) / 2;
  return width;
}

/** Top and bottom of every row, and the height of all. */
function setRows(box, outlines, links) {
  const widest = box.rows.map(() => 0);
  for (const link of links) {
    const across = Math.abs(link.upper.x + link.leaves - link.lower.x - link.enters);
    widest[link.row] = Math.max(widest[link.row], across);
  }
  const bounds = [];
  const hasPorts = (row) => row.some((entry) => entry >= 0 && outlines[entry].port);
  let y = 0;
  box.rows.forEach((row, r) => {
    const ports = hasPorts(row);
    if (box.width && r === 0 && !ports) y = HEADER + 8;
    const bottom = y + highest(row.map((entry) => entry >= 0 ? outlines[entry].height : 0), 0);
    bounds.push([y, bottom]);
    y = bottom + ROW_GAP + Math.min(40, 0.07 * widest[r]);
    if (box.width && ports && r === 0) y = Math.max(y, HEADER + 12);
  });
  if (!bounds.length) return [bounds, HEADER + MARGIN];
  return [bounds, bounds.at(-1)[1] + (box.width && !hasPorts(box.rows.at(-1)) ? MARGIN : 0)];
}

function topOf(outline, top, bottom) {
  const room = bottom - top - outline.height;
  return top + (outline.leaf ? room : Math.min(room / 2, 16));
}

/** A piece of wire: at `x` from `top` down to `start`, then to `across` at `end`, then down to `bottom`. */
function pieceOf(link, outlines, tops, bounds) {
  const start = bounds[link.row][1], [end, low] = bounds[link.row + 1];
  return {
    x: link.upper.x + link.leaves,
    top: link.source >= 0 ? tops[link.source] + outlines[link.source].height : start,
    start,
    across: link.lower.x + link.enters,
    end,
    bottom: link.target >= 0 ? tops[link.target] : low,
    row: link.row,
    target: link.target,
  };
}

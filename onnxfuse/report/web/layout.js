"use strict";
// Places the nodes of a graph in layers, what is read above what reads it.

const LAYOUT = { gapX: 18, rowHeight: 54, nodeHeight: 26, thin: 10, longest: 24, sweeps: 6, rounds: 8 };

// graph: {nodes, inputs, outputs, values} as `exhibit` writes them. isShown: which nodes are drawn, by their place.
// Returns {boxes, lines, width, height}; boxes: {id, kind, node, text, x, y, w, h}; lines: {from, to, points, value, cut}.
function layoutGraph(graph, isShown = () => true) {
  const items = graphItems(graph, isShown);
  const links = graphLinks(graph, items);
  rankItems(items, links);
  const { layers, chains } = withThinItems(items, links);
  orderLayers(layers);
  placeLayers(layers);
  const left = layers.flat().reduce((least, item) => Math.min(least, item.x - item.w / 2), Infinity);
  for (const layer of layers) for (const item of layer) item.x -= left - 20;
  const boxes = items.map(({ id, kind, node, text, x, y, w }) => ({ id, kind, node, text, x, y, w, h: LAYOUT.nodeHeight }));
  const width = layers.flat().reduce((most, item) => Math.max(most, item.x + item.w / 2), 1) + 20;
  return { boxes, lines: chains.map(lineOf), width, height: layers.length * LAYOUT.rowHeight + 20 };
}

function graphItems(graph, isShown) {
  const item = (id, kind, node, text) => ({ id, kind, node, text, w: 20 + 7.2 * text.length, above: [], below: [], x: 0, rank: 0 });
  const items = graph.nodes.map((node, i) => item(`n${i}`, "node", i, node.op)).filter((_, i) => isShown(i));
  for (const value of graph.inputs) items.push(item(`i${value}`, "input", null, graph.values[value].name));
  graph.outputs.forEach((value, i) => items.push(item(`o${i}`, "output", null, graph.values[value].name)));
  return items;
}

function graphLinks(graph, items) {
  const byId = new Map(items.map((item) => [item.id, item]));
  const links = [];
  const seen = new Set();
  const add = (value, to) => {
    const made = graph.values[value].from;
    const from = byId.get(made === null ? `i${value}` : `n${made}`);
    const key = from && to && `${from.id} ${to.id}`;
    if (!from || !to || from === to || seen.has(key)) return;
    seen.add(key);
    links.push({ from, to, value });
  };
  graph.nodes.forEach((node, i) => node.reads.forEach((value) => add(value, byId.get(`n${i}`))));
  graph.outputs.forEach((value, i) => add(value, byId.get(`o${i}`)));
  return links;
}

// The longest way from the top; what reads nothing stands right above its first reader.
function rankItems(items, links) {
  const into = new Map(items.map((item) => [item, []])), out = new Map(items.map((item) => [item, []]));
  for (const link of links) { into.get(link.to).push(link); out.get(link.from).push(link); }
  const waiting = new Map(items.map((item) => [item, into.get(item).length]));
  const ready = items.filter((item) => waiting.get(item) === 0);
  while (ready.length) {
    const item = ready.pop();
    for (const { to } of out.get(item)) {
      to.rank = Math.max(to.rank, item.rank + 1);
      waiting.set(to, waiting.get(to) - 1);
      if (waiting.get(to) === 0) ready.push(to);
    }
  }
  for (const item of items) {
    if (into.get(item).length || !out.get(item).length) continue;
    item.rank = Math.max(0, Math.min(...out.get(item).map((link) => link.to.rank)) - 1);
  }
}

// Links over several layers get a thin item in each; longer ones are cut, and drawn as a stub at either end.
function withThinItems(items, links) {
  const layers = Array.from({ length: 1 + items.reduce((most, item) => Math.max(most, item.rank), 0) }, () => []);
  for (const item of items) layers[item.rank].push(item);
  const chains = [];
  for (const { from, to, value } of links) {
    const cut = to.rank - from.rank > LAYOUT.longest;
    const path = [from];
    for (let rank = from.rank + 1; rank < to.rank && !cut; rank++) {
      const thin = { id: null, kind: "thin", w: LAYOUT.thin, above: [], below: [], x: 0, rank };
      layers[rank].push(thin);
      path.push(thin);
    }
    path.push(to);
    for (let i = 0; i + 1 < path.length && !cut; i++) { path[i].below.push(path[i + 1]); path[i + 1].above.push(path[i]); }
    chains.push({ from, to, value, cut, path });
  }
  layers.forEach((layer, rank) => layer.forEach((item, i) => { item.place = i; item.y = rank * LAYOUT.rowHeight + LAYOUT.nodeHeight; }));
  return { layers, chains };
}

// Each layer in the order of the middle of what its items are tied to, down and up in turn.
function orderLayers(layers) {
  for (let sweep = 0; sweep < LAYOUT.sweeps; sweep++) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const item of layer) {
        const tied = down ? item.above : item.below;
        item.wish = tied.length ? tied.reduce((sum, other) => sum + other.place, 0) / tied.length : item.place;
      }
      layer.sort((a, b) => a.wish - b.wish || a.place - b.place);
      layer.forEach((item, i) => { item.place = i; });
    }
  }
}

// Every item as near as can be to the middle of what it is tied to, in the order of its layer and without overlaps.
function placeLayers(layers) {
  for (let round = 0; round < LAYOUT.rounds; round++) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const wishes = layer.map((item) => {
        const tied = round < LAYOUT.rounds - 2 ? (down ? item.above : item.below) : [...item.above, ...item.below];
        return tied.length ? tied.reduce((sum, other) => sum + other.x, 0) / tied.length : item.x;
      });
      spread(layer, wishes);
    }
  }
}

// The positions closest to the wishes (least squares) such that neighbours do not overlap: pool adjacent violators.
function spread(layer, wishes) {
  const offsets = [];
  layer.forEach((item, i) => {
    offsets.push(i ? offsets[i - 1] + (layer[i - 1].w + item.w) / 2 + LAYOUT.gapX : 0);
  });
  const pools = [];
  wishes.forEach((wish, i) => {
    pools.push({ sum: wish - offsets[i], count: 1 });
    while (pools.length > 1 && mean(pools[pools.length - 2]) > mean(pools[pools.length - 1])) {
      const last = pools.pop(), into = pools[pools.length - 1];
      into.sum += last.sum;
      into.count += last.count;
    }
  });
  let i = 0;
  for (const pool of pools) for (let k = 0; k < pool.count; k++, i++) layer[i].x = mean(pool) + offsets[i];
}

const mean = (pool) => pool.sum / pool.count;

function lineOf({ from, to, value, cut, path }) {
  const h = LAYOUT.nodeHeight / 2;
  const points = path.map((item, i) => [item.x, item.y + (i === 0 ? h : i === path.length - 1 ? -h : 0)]);
  return { from: from.id, to: to.id, value, cut, points };
}

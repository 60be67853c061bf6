"use strict";
// The page: draws the graph, the roofline and the table, and prices all decisions anew when the what-if panel moves.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const report = read("report"), exhibit = read("exhibit");
const cost = makeCost(exhibit.tables);
const works = exhibit.works.map((work) => ({ ...exhibit.tables.work, ...work }));
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["#7aa6d6", "#e0a35c", "#86b98a", "#c58fc0", "#d98880", "#6fb7b5", "#b6a672", "#9a93d1", "#d6b13d", "#8f9ba8"];
const MOST_ROWS = 300;

// ---- small helpers

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function shape(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

function scaled(number, units) {
  let unit = 0;
  while (Math.abs(number) >= 999.5 && unit + 1 < units.length) { number /= 1000; unit++; }
  return `${Number.isFinite(number) ? Number(number.toPrecision(3)) : "\u221e"} ${units[unit]}`;
}

const showUs = (us) => scaled(us, ["us", "ms", "s"]);
const showBytes = (bytes) => scaled(bytes, ["B", "kB", "MB", "GB", "TB"]);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const ruleNames = [...new Set(report.decisions.map((d) => d.rule))].sort();
const colour = (rule) => COLOURS[ruleNames.indexOf(rule) % COLOURS.length];
const className = (verdict) => verdict.replaceAll(" ", "-");

// ---- what if: a device, its figures, how fused kernels are launched, and the size of one dim

const FIGURES = {
  bandwidth: { label: "bandwidth GB/s", of: (d) => (d.kind === "cpu" ? d.memory_gbs_all : d.memory_gbs) },
  peak: { label: "peak TFLOP/s", of: (d) => (d.kind === "cpu" ? d.gemm_gflops / 1e3 : cost.peak(d, "float16")) },
  launch: { label: "launch us", of: (d) => (d.kind === "cpu" ? d.node_us : d.launch_us) },
};
const LAUNCH = {
  registers: { label: "registers a thread", max: 255 },
  threads: { label: "threads a block", max: 1024 },
  smem: { label: "shared memory B", max: 233472 },
};
const knownDevices = [exhibit.device, ...exhibit.devices.filter((d) => d.key !== exhibit.device.key)];
const reach = (dim) => Math.max(...exhibit.dims[dim].sizes);
const widest = Object.keys(exhibit.dims).reduce((a, b) => (a === null || reach(b) > reach(a) ? b : a), null);
const start = () => ({ device: exhibit.device, figures: {}, launch: {}, dim: widest, size: null });
let what = start();
let prices = [];

// The device with its figures moved; other figures of the same kind move in proportion.
function movedDevice() {
  const made = { ...what.device };
  const ratio = (name) => (name in what.figures ? what.figures[name] / FIGURES[name].of(what.device) : 1);
  const times = (table, factor) => Object.fromEntries(Object.entries(table).map(([key, value]) => [key, value * factor]));
  if (made.kind === "cpu") {
    made.memory_gbs *= ratio("bandwidth");
    made.memory_gbs_all *= ratio("bandwidth");
    made.gemm_gflops *= ratio("peak");
    made.gemm_rates = times(made.gemm_rates, ratio("peak"));
    for (const name of ["node_us", "operand_us", "fused_node_us", "fused_operand_us"]) made[name] *= ratio("launch");
  } else {
    made.memory_gbs *= ratio("bandwidth");
    made.peak_tflops = times(made.peak_tflops, ratio("peak"));
    made.launch_us *= ratio("launch");
  }
  return made;
}

// The kernels of a decision at the size that is looked at; null when nothing was priced.
function settingOf(decision) {
  const place = exhibit.case_of[decision];
  if (place === null) return null;
  const kinds = exhibit.cases[place];
  const chosen = what.size === null || !what.dim ? kinds.usual : kinds.dims[what.dim][what.size];
  const of = (name) => chosen[name].map((work) => works[work]);
  return { before: of("before"), left: of("left"), after: of("after") };
}

function priceAll() {
  const device = movedDevice();
  const launch = device.kind === "gpu" && Object.keys(what.launch).length ? what.launch : null;
  const known = new Map();
  prices = report.decisions.map((_, i) => {
    const place = exhibit.case_of[i];
    if (place === null) return null;
    if (!known.has(place)) known.set(place, cost.price(settingOf(i), device, launch));
    return known.get(place);
  });
}

const isMoved = () => what.device !== exhibit.device || what.size !== null || Object.keys({ ...what.figures, ...what.launch }).length > 0;

// What the decision would be now, where it hangs on the price alone.
function verdictNow(i) {
  const { verdict } = report.decisions[i];
  if (!prices[i] || !["fused", "not worth it"].includes(verdict)) return verdict;
  return isMoved() ? (prices[i].worth ? "fused" : "not worth it") : verdict;
}

function drawWhatIf() {
  const device = what.device, isGpu = device.kind === "gpu";
  const options = knownDevices.map((d) => element("option", { value: d.key, selected: d === device }, nameOf(d)));
  const choose = (event) => { what = { ...what, device: knownDevices.find((d) => d.key === event.target.value), figures: {}, launch: {} }; redraw(); };
  const rows = [element("div", { class: "row wide" }, element("label", {}, "device"), element("select", { id: "device", onchange: choose }, ...options))];
  rows.push(...sizeRows());
  for (const [name, { label, of }] of Object.entries(FIGURES)) {
    rows.push(numberRow(label, name, what.figures, of(device), of(device) * 8, of(device) / 50, false));
  }
  const facts = isGpu ? factsOfSelected() : { registers: 0, threads: 0, smem: 0 };
  for (const [name, { label, max }] of Object.entries(LAUNCH)) rows.push(numberRow(label, name, what.launch, facts[name], max, 1, !isGpu));
  const reset = element("button", { id: "reset", onclick: () => { what = start(); redraw(); } }, "as in the report");
  $("what-if").replaceChildren(
    element("div", { class: "bar" }, element("h2", {}, "What if"), element("span", { class: "grow" }), isMoved() ? reset : null),
    ...rows, summaryNow());
}

const nameOf = (device) => (device.key === exhibit.device.key ? "as in the report" : device.name.replace("NVIDIA ", ""));

function sizeRows() {
  const dims = Object.keys(exhibit.dims);
  if (!dims.length) return [];
  const { sizes, at } = exhibit.dims[what.dim];
  const now = what.size === null ? at : Number(what.size);
  const pick = (event) => { what = { ...what, dim: event.target.value, size: null }; redraw(); };
  const label = element("b", { id: "size-now" }, now.toLocaleString("en"));
  const move = (event) => {
    const size = sizes[event.target.value];
    what.size = size === at ? null : String(size);
    label.textContent = size.toLocaleString("en");
    refresh();
  };
  const slider = element("input", { type: "range", id: "size", min: 0, max: sizes.length - 1, value: sizes.indexOf(now), oninput: move, onchange: redraw });
  const names = element("select", { id: "dim", onchange: pick }, ...dims.map((dim) => element("option", { selected: dim === what.dim }, dim)));
  return [element("div", { class: "row" }, names, slider, label)];
}

// A slider and a field for one number; the slider is not made anew while it is held.
function numberRow(label, name, moved, usual, max, step, off) {
  const value = name in moved ? moved[name] : usual;
  const set = (text) => {
    const number = Number(text);
    if (text !== "" && (number > 0 || (name === "smem" && number === 0))) moved[name] = number; else delete moved[name];
  };
  const common = { "data-name": name, disabled: off, min: 0 };
  const field = element("input", { ...common, type: "number", max: name in LAUNCH ? max : null, step: "any", value: Number(value.toPrecision(4)) });
  const slider = element("input", { ...common, type: "range", min: name === "smem" ? 0 : step, max, step, value });
  field.addEventListener("change", () => { set(field.value); redraw(); });
  slider.addEventListener("input", () => { set(slider.value); field.value = slider.value; refresh(); });
  slider.addEventListener("change", redraw);
  return element("div", { class: `row${off ? " off" : ""}` }, element("label", {}, label), slider, field);
}

// How the fused kernel of the selected decision is launched; of the first one that is fused, if none is selected.
function factsOfSelected() {
  const first = report.decisions.findIndex((d, i) => d.verdict === "fused" && exhibit.case_of[i] !== null);
  const setting = settingOf(selected ?? first) || { after: [] };
  const work = setting.after.find((w) => w.fused);
  return work ? cost.kernelFacts(work)[0] : { registers: 0, threads: 0, smem: 0 };
}

function summaryNow() {
  const fused = report.decisions.map((d, i) => i).filter((i) => report.decisions[i].verdict === "fused" && prices[i]);
  const changed = report.decisions.filter((d, i) => verdictNow(i) !== d.verdict).length;
  const [before, after] = ["unfused_us", "fused_us"].map((name) => sum(fused.map((i) => prices[i][name])));
  const words = fused.length ? `What is fused: ${showUs(before)} \u2192 ${showUs(after)}` : "Nothing is fused";
  const verdicts = changed ? element("p", { class: "changed" }, `${changed} decision${changed === 1 ? "" : "s"} would be different`) : element("p", { class: "quiet" }, "All decisions as in the report");
  return element("div", { id: "verdicts-now" }, element("div", {}, words), verdicts);
}

// ---- the head

function drawHead() {
  const sizes = Object.entries(report.sizes).map(([name, size]) => `${name}=${size}`).join(", ");
  $("title").textContent = report.model;
  $("subtitle").textContent = [`on ${exhibit.device.name}`, sizes && `at ${sizes}`, `level ${report.level}`].filter(Boolean).join(", ");
  const plans = Object.fromEntries(report.plans.map((plan) => [plan.name, plan]));
  const { none, chosen } = plans;
  const cards = [
    ["Nodes", `${report.nodes_before.toLocaleString("en")} \u2192 ${report.nodes_after.toLocaleString("en")}`],
    ["Fusions", report.decisions.filter((d) => d.verdict === "fused").length.toLocaleString("en")],
  ];
  if (none && chosen) {
    cards.push(
      ["Predicted time", `${showUs(none.time_us)} \u2192 ${showUs(chosen.time_us)}`],
      ["Launches", `${none.launches.toLocaleString("en")} \u2192 ${chosen.launches.toLocaleString("en")}`],
      ["Traffic", `${showBytes(none.bytes)} \u2192 ${showBytes(chosen.bytes)}`],
      ["Peak memory", `${showBytes(none.peak_bytes)} \u2192 ${showBytes(chosen.peak_bytes)}`]);
  }
  $("cards").replaceChildren(...cards.map(([label, value]) => element("div", { class: "card" }, element("b", {}, value), element("span", {}, label))));
  $("foot").textContent = [...report.verified, ...report.not_verified.map((line) => `unchecked: ${line}`)].join(" \u00b7 ");
}

// ---- the graph

const view = { which: "before", scope: 0, x: 0, y: 0, scale: 1, layout: null, boxes: new Map(), matches: [], match: -1 };
let selected = null;

// For each node of the drawn graph the decision it belongs to: in the graph before, all nodes of a fusion; after, its new node.
function ownersOf(graph) {
  const byLabel = new Map(graph.nodes.map((node, i) => [node.label, i]));
  const owners = new Map();
  const add = (label, decision, firm) => { const i = byLabel.get(label); if (i !== undefined && (firm || !owners.has(i))) owners.set(i, decision); };
  report.decisions.forEach((d, i) => {
    if (d.scope !== graph.name || d.verdict !== "fused") return;
    if (view.which === "after") add(d.new_node, i, true); else d.nodes.forEach((label) => add(label, i, true));
  });
  return owners;
}

// The decision that clicking a node shows: the fusion it is in, else any that speaks of it.
function decisionAt(graph, place) {
  const label = graph.nodes[place].label;
  const fused = ownersOf(graph).get(place);
  const speaking = report.decisions.findIndex((d) => d.scope === graph.name && (d.node === label || d.nodes.includes(label)));
  return fused ?? (speaking >= 0 ? speaking : null);
}

const graphShown = () => exhibit[view.which][Math.min(view.scope, exhibit[view.which].length - 1)];

function drawGraph() {
  const graph = graphShown();
  const withSizes = $("with-sizes").checked || graph.nodes.every((node) => node.sizes);
  view.layout = layoutGraph(graph, (i) => withSizes || !graph.nodes[i].sizes);
  view.boxes = new Map();
  const owners = ownersOf(graph);
  const world = shape("g", { id: "world" });
  for (const line of view.layout.lines) drawLine(world, graph, line);
  for (const box of view.layout.boxes) {
    const owner = box.node === null ? undefined : owners.get(box.node);
    const drawn = shape("g", { class: `box ${box.kind}${owner === undefined ? "" : " grouped"}`, "data-id": box.id });
    const fill = owner === undefined ? {} : { style: `fill:${colour(report.decisions[owner].rule)}66;stroke:${colour(report.decisions[owner].rule)}` };
    drawn.append(
      shape("title", {}, box.node === null ? box.text : titleOf(graph, graph.nodes[box.node])),
      shape("rect", { x: box.x - box.w / 2, y: box.y - box.h / 2, width: box.w, height: box.h, rx: 6, ...fill }),
      shape("text", { x: box.x, y: box.y }, box.text));
    view.boxes.set(box.id, { drawn, box });
    world.append(drawn);
  }
  $("drawing").replaceChildren(world);
  drawOverview(owners);
  drawLegend(owners);
  light();
}

function titleOf(graph, node) {
  const value = (i) => `${graph.values[i].name} ${graph.values[i].type}`;
  return [`${node.op} ${node.label}`, ...node.reads.map((i) => `reads ${value(i)}`), ...node.constants.map((c) => `constant ${c}`), ...node.makes.map((i) => `makes ${value(i)}`)].join("\n");
}

function drawLine(world, graph, { from, to, value, cut, points }) {
  const name = graph.values[value].name;
  if (!cut) {
    world.append(shape("path", { class: "edge", d: curve(points), "data-from": from, "data-to": to }));
    return;
  }
  const [[fx, fy], [tx, ty]] = [points[0], points[points.length - 1]];
  world.append(shape("path", { class: "edge", d: `M${fx},${fy}v7`, "data-from": from, "data-to": to }));
  world.append(shape("path", { class: "edge", d: `M${tx},${ty - 7}v7`, "data-from": from, "data-to": to }), shape("text", { class: "stub", x: tx, y: ty - 9 }, name.slice(-24)));
}

function curve(points) {
  return points.map(([x, y], i) => {
    if (!i) return `M${x},${y}`;
    const [px, py] = points[i - 1], middle = (py + y) / 2;
    return px === x ? `V${y}` : `C${px},${middle} ${x},${middle} ${x},${y}`;
  }).join("");
}

// The whole graph, squeezed: fusions as bands over the full width, high enough to be seen.
function drawOverview(owners) {
  const { boxes, width, height } = view.layout;
  const least = height / 280;
  const marks = boxes.map((box) => {
    const owner = box.node === null ? undefined : owners.get(box.node);
    const h = Math.max(box.h, least);
    return owner === undefined
      ? shape("rect", { x: box.x - box.w / 2, y: box.y - h / 2, width: Math.max(box.w, width / 8), height: h, fill: "#d5dbe2" })
      : shape("rect", { x: width * 0.08, y: box.y - h / 2, width: width * 0.84, height: h, fill: colour(report.decisions[owner].rule) });
  });
  $("overview").setAttribute("viewBox", `0 0 ${width} ${height}`);
  $("overview").replaceChildren(...marks, shape("rect", { class: "view", id: "overview-view" }));
}

function drawLegend(owners) {
  const counts = new Map();
  for (const decision of new Set(owners.values())) counts.set(report.decisions[decision].rule, (counts.get(report.decisions[decision].rule) || 0) + 1);
  const entries = [...counts].sort().map(([rule, count]) => element("span", {}, element("i", { style: `background:${colour(rule)}` }), `${rule} (${count})`));
  $("legend").replaceChildren(...(entries.length ? entries : [element("span", { class: "quiet" }, "nothing is fused in this graph")]));
}

function place() {
  $("world").setAttribute("transform", `translate(${view.x},${view.y}) scale(${view.scale})`);
  $("drawing").classList.toggle("far", view.scale < 0.35);
  const { clientWidth: w, clientHeight: h } = $("drawing");
  const seen = { x: -view.x / view.scale, y: -view.y / view.scale, width: w / view.scale, height: h / view.scale };
  for (const [name, value] of Object.entries(seen)) $("overview-view").setAttribute(name, value);
}

function fit() {
  const { clientWidth: w, clientHeight: h } = $("drawing");
  view.scale = Math.min(1.2, w / view.layout.width, h / view.layout.height);
  view.x = (w - view.layout.width * view.scale) / 2;
  view.y = Math.max(0, (h - view.layout.height * view.scale) / 2);
  place();
}

// Small graphs whole; of large ones the top, as wide as the window but never too small to read.
function home() {
  fit();
  if (view.scale >= 0.5) return;
  const { clientWidth: w } = $("drawing");
  view.scale = Math.max(0.5, Math.min(1, w / view.layout.width));
  const first = view.layout.boxes.reduce((a, b) => (b.y < a.y ? b : a));
  const middle = view.layout.width * view.scale <= w ? view.layout.width / 2 : first.x;
  Object.assign(view, { x: w / 2 - middle * view.scale, y: 10 });
  place();
}

function zoom(factor, x = $("drawing").clientWidth / 2, y = $("drawing").clientHeight / 2) {
  const scale = Math.min(4, Math.max(0.01, view.scale * factor));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  place();
}

function goTo(box) {
  view.scale = Math.max(view.scale, 0.8);
  view.x = $("drawing").clientWidth / 2 - box.x * view.scale;
  view.y = $("drawing").clientHeight / 2 - box.y * view.scale;
  place();
}

function light() {
  const owners = ownersOf(graphShown());
  for (const { drawn, box } of view.boxes.values()) {
    drawn.classList.toggle("lit", selected !== null && box.node !== null && (owners.get(box.node) === selected || (owners.get(box.node) === undefined && speaksOf(selected, box.node))));
    drawn.classList.toggle("match", view.matches[view.match] === box.id);
  }
}

function speaksOf(decision, node) {
  const d = report.decisions[decision], label = graphShown().nodes[node].label;
  return d.scope === graphShown().name && view.which === "before" && d.verdict !== "fused" && (d.nodes.includes(label) || d.node === label);
}

function showGraph(which, scope) {
  Object.assign(view, { which, scope, matches: [], match: -1 });
  for (const button of $("which").children) button.classList.toggle("on", button.dataset.which === which);
  $("scope").replaceChildren(...exhibit[which].map((graph, i) => element("option", { value: i, selected: i === scope }, `${graph.name} (${graph.nodes.length} nodes)`)));
  $("scope").style.display = exhibit[which].length > 1 ? "" : "none";
  drawGraph();
  home();
}

function find(text, step) {
  const graph = graphShown(), wanted = text.trim().toLowerCase();
  const says = (node) => [node.op, node.label, ...[...node.reads, ...node.makes].map((i) => graph.values[i].name)].some((word) => word.toLowerCase().includes(wanted));
  view.matches = wanted ? graph.nodes.map((node, i) => [node, `n${i}`]).filter(([node, id]) => view.boxes.has(id) && says(node)).map(([, id]) => id) : [];
  view.match = view.matches.length ? (view.match + step + view.matches.length) % view.matches.length : -1;
  $("found").textContent = wanted ? (view.matches.length ? `${view.match + 1} of ${view.matches.length}` : "nothing found") : "";
  if (view.match >= 0) goTo(view.boxes.get(view.matches[view.match]).box);
  light();
}

function select(decision, goes) {
  selected = decision;
  drawDetails();
  drawWhatIf();
  drawTable();
  drawRoofline();
  if (goes && decision !== null) reveal(report.decisions[decision]);
  light();
}

// Bring the first node of a decision into view.
function reveal(d) {
  const scope = exhibit[view.which].findIndex((graph) => graph.name === d.scope);
  if (scope >= 0 && scope !== view.scope) showGraph(view.which, scope);
  const wanted = view.which === "after" ? [d.new_node] : [d.node, ...d.nodes];
  const i = graphShown().nodes.findIndex((node, i) => view.boxes.has(`n${i}`) && wanted.includes(node.label));
  if (i >= 0) goTo(view.boxes.get(`n${i}`).box);
}

function listenToGraph() {
  const drawing = $("drawing");
  let drag = null;
  drawing.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY); }, { passive: false });
  drawing.addEventListener("pointerdown", (event) => { drag = { x: event.clientX - view.x, y: event.clientY - view.y, moved: false }; });
  window.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const x = event.clientX - drag.x, y = event.clientY - drag.y;
    drag.moved = drag.moved || Math.abs(x - view.x) + Math.abs(y - view.y) > 3;
    if (!drag.moved) return;
    drawing.classList.add("dragging");
    Object.assign(view, { x, y });
    place();
  });
  window.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved && drawing.contains(event.target)) {
      const drawn = event.target.closest(".box");
      const box = drawn && view.boxes.get(drawn.dataset.id).box;
      select(box && box.node !== null ? decisionAt(graphShown(), box.node) : null, false);
    }
    drag = null;
    drawing.classList.remove("dragging");
  });
  $("overview").addEventListener("pointerdown", (event) => {
    const { clientWidth: w, clientHeight: h } = $("overview");
    goTo({ x: (event.offsetX / w) * view.layout.width, y: (event.offsetY / h) * view.layout.height });
  });
  $("with-sizes").addEventListener("change", () => showGraph(view.which, view.scope));
  $("zoom-in").addEventListener("click", () => zoom(1.3));
  $("zoom-out").addEventListener("click", () => zoom(1 / 1.3));
  $("zoom-fit").addEventListener("click", fit);
  $("scope").addEventListener("change", (event) => showGraph(view.which, Number(event.target.value)));
  for (const button of $("which").children) button.addEventListener("click", () => showGraph(button.dataset.which, 0));
  $("find").addEventListener("input", (event) => { view.match = -1; find(event.target.value, 1); });
  $("find").addEventListener("keydown", (event) => { if (event.key === "Enter") find(event.target.value, event.shiftKey ? -1 : 1); });
}

// ---- the roofline

function roofs(device) {
  const isCpu = device.kind === "cpu";
  const peak = isCpu ? (2 * (device.simd_bits / 32) * device.fma_units * device.clock_ghz * device.cores) / 1e3 : device.peak_tflops.fp32;
  const matrix = isCpu ? (device.gemm_gflops * device.cores) / 1e3 : cost.peak(device, "float16");
  const memory = isCpu ? device.memory_gbs_all : device.memory_gbs;
  const levels = isCpu ? device.caches.map((cache) => [`L${cache.level}`, cache.gbs * device.cores]) : [["L2", device.l2_gbs]];
  return { memory, levels, peaks: isCpu ? [["peak", peak]] : [["fp32", peak], ["fp16, matrix units", matrix]] };
}

function roofPoints() {
  const kinds = new Map();
  report.decisions.forEach((d, i) => {
    const wanted = d.verdict === "fused" || (d.verdict === "not worth it" && $("roof-refused").checked);
    if (!wanted || !prices[i] || !prices[i].before.flops || !Number.isFinite(prices[i].after.us)) return;
    const key = `${d.rule} ${exhibit.case_of[i]} ${d.verdict}`;
    if (!kinds.has(key)) kinds.set(key, { decisions: [], rule: d.rule, price: prices[i] });
    kinds.get(key).decisions.push(i);
  });
  const at = ({ flops, bytes, us }) => ({ x: flops / Math.max(1, bytes), y: Math.max(1e-6, flops / us / 1e6) });
  return [...kinds.values()].map((kind) => ({ ...kind, before: at(kind.price.before), after: at(kind.price.after) }));
}

function drawRoofline() {
  const device = movedDevice(), { memory, levels, peaks } = roofs(device), points = roofPoints();
  const W = 900, H = 380, box = { left: 62, right: 20, top: 14, bottom: 40 };
  const xs = points.flatMap((p) => [p.before.x, p.after.x]), ys = points.flatMap((p) => [p.before.y, p.after.y]);
  const top = Math.max(...peaks.map(([, p]) => p)), ridge = (top * 1e3) / memory;
  const decade = (low, high) => [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const [x0, x1] = decade(Math.min(0.1, ...xs), Math.max(ridge * 2, ...xs)), [y0, y1] = decade(Math.min(top / 1e4, ...ys), Math.max(top * 1.2, ...ys));
  const px = (x) => box.left + ((Math.log10(x) - x0) / (x1 - x0)) * (W - box.left - box.right);
  const py = (y) => H - box.bottom - ((Math.log10(y) - y0) / (y1 - y0)) * (H - box.top - box.bottom);
  const svg = shape("svg", { viewBox: `0 0 ${W} ${H}` });
  for (let e = x0; e <= x1; e++) svg.append(shape("line", { class: "grid", x1: px(10 ** e), x2: px(10 ** e), y1: box.top, y2: H - box.bottom }), shape("text", { x: px(10 ** e), y: H - box.bottom + 16, "text-anchor": "middle" }, String(Number((10 ** e).toPrecision(1)))));
  for (let e = y0; e <= y1; e++) svg.append(shape("line", { class: "grid", x1: box.left, x2: W - box.right, y1: py(10 ** e), y2: py(10 ** e) }), shape("text", { x: box.left - 6, y: py(10 ** e) + 4, "text-anchor": "end" }, scaled(10 ** e * 1e6, ["M", "G", "T", "P"])));
  svg.append(shape("text", { x: (W + box.left) / 2, y: H - 6, "text-anchor": "middle" }, "FLOPs for each byte that is read or written"), shape("text", { x: 14, y: H / 2, transform: `rotate(-90 14 ${H / 2})`, "text-anchor": "middle" }, "FLOP/s"));
  const roof = (rate, peak, name, lesser) => {
    const bend = (peak * 1e3) / rate, from = Math.max(10 ** x0, (10 ** y0 * 1e3) / rate);
    svg.append(shape("path", { class: `roof${lesser ? " lesser" : ""}`, d: `M${px(from)},${py((rate * from) / 1e3)}L${px(bend)},${py(peak)}H${lesser === "slope" ? px(bend) : W - box.right}` }));
    const [lx, ly] = lesser === "slope" ? [px(from) + 34, py((rate * from) / 1e3) - 26] : [W - box.right - 4, py(peak) - 5];
    svg.append(shape("text", { x: lx, y: Math.max(ly, 10), "text-anchor": lesser === "slope" ? "start" : "end" }, name));
  };
  for (const [name, gbs] of levels) roof(gbs, top, `${name}, ${Math.round(gbs).toLocaleString("en")} GB/s`, "slope");
  peaks.forEach(([name, peak]) => roof(memory, peak, `${name}, ${Number(peak.toPrecision(3))} TFLOP/s`, peak === top ? "" : "peak"));
  for (const point of points) svg.append(drawnPoint(point, px, py));
  $("roofline").replaceChildren(svg);
}

function drawnPoint({ decisions, rule, price, before, after }, px, py) {
  const group = shape("g", { class: `point${decisions.includes(selected) ? " lit" : ""}` });
  const fill = colour(rule), [ax, ay, bx, by] = [px(before.x), py(before.y), px(after.x), py(after.y)];
  group.append(
    shape("title", {}, `${rule}, ${decisions.length} time${decisions.length === 1 ? "" : "s"}: ${showUs(price.unfused_us)} before, ${showUs(price.fused_us)} fused`),
    shape("line", { x1: ax, y1: ay, x2: bx, y2: by, stroke: fill, "stroke-dasharray": "3 3" }),
    shape("circle", { cx: ax, cy: ay, r: 5, fill: "#fff", stroke: fill, "stroke-width": 2 }),
    shape("circle", { cx: bx, cy: by, r: 6, fill, stroke: fill }));
  group.addEventListener("click", () => select(decisions[0], true));
  return group;
}

// ---- the table

const COLUMNS = [
  { name: "Rule", of: (i) => report.decisions[i].rule, cell: (i) => element("td", {}, element("i", { style: `background:${colour(report.decisions[i].rule)}` }), report.decisions[i].rule) },
  { name: "Verdict", of: (i) => verdictNow(i), cell: (i) => verdictCell(i) },
  { name: "Node", of: (i) => report.decisions[i].node, cell: (i) => element("td", { class: "node" }, report.decisions[i].node) },
  { name: "Nodes", number: true, of: (i) => report.decisions[i].nodes.length },
  { name: "Before", number: true, of: (i) => prices[i]?.unfused_us, show: showUs },
  { name: "Fused", number: true, of: (i) => prices[i]?.fused_us, show: showUs },
  { name: "Saves", number: true, of: (i) => prices[i]?.saved_us, show: showUs },
  { name: "Bytes", number: true, of: (i) => prices[i]?.saved_bytes, show: showBytes },
  { name: "Launches", number: true, of: (i) => prices[i]?.saved_launches, show: String },
  { name: "Limited by", of: (i) => prices[i]?.limiter ?? "", cell: (i) => element("td", {}, prices[i]?.limiter ?? "") },
  { name: "Why", of: (i) => report.decisions[i].reason, cell: (i) => element("td", { class: "why" }, whyOf(i)) },
];
const sorting = { column: 6, down: true };

// The reason, but for what stands in the columns, and the sizes at which the decision is another.
function whyOf(i) {
  const reason = report.decisions[i].reason.replace(/^(not )?worth it: [\d.].*$/, "");
  const flips = Object.values(report.decisions[i].numbers.ranges || {}).filter((range) => range.flips.length).map((range) => range.text);
  return [reason, ...flips].filter(Boolean).join("; ");
}

function verdictCell(i) {
  const now = verdictNow(i), then = report.decisions[i].verdict;
  const words = now === then ? now : `${then} \u2192 ${now}`;
  return element("td", { class: `verdict ${className(now)}${now === then ? "" : " changed"}` }, words);
}

function rowsShown() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), rule = $("filter-rule").value;
  const verdicts = [...$("filter-verdicts").querySelectorAll("input:checked")].map((box) => box.value);
  const says = (i) => { const d = report.decisions[i]; const text = `${d.rule} ${d.verdict} ${d.node} ${d.target} ${whyOf(i)} ${d.ops.join(" ")} ${d.nodes.join(" ")}`.toLowerCase(); return words.every((word) => text.includes(word)); };
  const rows = report.decisions.map((_, i) => i).filter((i) => (!rule || report.decisions[i].rule === rule) && verdicts.includes(report.decisions[i].verdict) && says(i));
  const { of, number } = COLUMNS[sorting.column], sign = sorting.down ? -1 : 1;
  const key = (i) => of(i) ?? (number ? -Infinity : "");
  return rows.sort((a, b) => { const [x, y] = [key(a), key(b)]; return sign * (x < y ? -1 : x > y ? 1 : 0) || a - b; });
}

function drawTable() {
  const rows = rowsShown();
  const heads = COLUMNS.map(({ name, number }, c) => element("th", { class: number ? "number" : null, onclick: () => sortBy(c) }, name + (c === sorting.column ? (sorting.down ? " \u2193" : " \u2191") : "")));
  const cells = (i) => COLUMNS.map(({ cell, of, show, number }) => cell ? cell(i) : element("td", { class: "number" }, of(i) === undefined ? "" : (show || String)(of(i))));
  const body = rows.slice(0, MOST_ROWS).map((i) => element("tr", { class: i === selected ? "on" : null, "data-decision": i, onclick: () => select(i, true) }, ...cells(i)));
  $("table").replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body)));
  $("shown").textContent = rows.length > MOST_ROWS ? `the first ${MOST_ROWS} of ${rows.length.toLocaleString("en")}` : `${rows.length} of ${report.decisions.length.toLocaleString("en")}`;
}

function sortBy(column) {
  sorting.down = sorting.column === column ? !sorting.down : Boolean(COLUMNS[column].number);
  sorting.column = column;
  drawTable();
}

function listenToTable() {
  $("filter-rule").replaceChildren(element("option", { value: "" }, "all rules"), ...ruleNames.map((rule) => element("option", {}, rule)));
  const verdicts = [...new Set(report.decisions.map((d) => d.verdict))];
  $("filter-verdicts").replaceChildren(...verdicts.map((verdict) => element("label", {}, element("input", { type: "checkbox", value: verdict, checked: true, onchange: drawTable }), ` ${verdict} `)));
  for (const id of ["filter", "filter-rule"]) $(id).addEventListener("input", drawTable);
}

// ---- one decision

function drawDetails() {
  if (selected === null) {
    $("details").replaceChildren(element("h2", {}, "Decision"), element("p", { class: "quiet" }, "Click a node, a point or a row."));
    return;
  }
  const d = report.decisions[selected], price = prices[selected];
  const parts = [
    element("h2", {}, element("i", { style: `background:${colour(d.rule)}` }), `${d.rule}${d.target ? ` \u2192 ${d.target}` : ""}`),
    element("p", {}, element("span", { class: `verdict ${className(verdictNow(selected))}` }, verdictNow(selected)), verdictNow(selected) === d.verdict ? "" : ` (in the report: ${d.verdict})`),
    element("p", {}, d.reason),
    ...Object.values(d.numbers.ranges || {}).map((range) => element("p", { class: "quiet" }, range.text)),
  ];
  if (price) parts.push(...priceParts(price));
  if (d.price) parts.push(element("h3", {}, "Checks"), checksOf(d.price), ...d.price.details.notes.map((note) => element("p", { class: "quiet" }, note)));
  parts.push(element("h3", {}, `${d.nodes.length} nodes`), element("div", { class: "nodes" }, d.nodes.map((label, i) => `${d.ops[i]} ${label}`).join(", ") || d.node));
  $("details").replaceChildren(...parts);
}

function priceParts(price) {
  const terms = ["total_us", ...Object.keys(price.kernel || {}).filter((name) => name.endsWith("_us") && name !== "total_us")];
  const total = (kernels, term) => showUs(sum(kernels.map((kernel) => kernel[term])));
  const rows = terms.map((term) => [term.replace("_us", ""), total(price.before.kernels, term), total(price.after.kernels, term)]);
  rows.push(["bytes", showBytes(price.before.bytes), showBytes(price.after.bytes)], ["FLOPs", scaled(price.before.flops, ["", "k", "M", "G", "T"]), scaled(price.after.flops, ["", "k", "M", "G", "T"])]);
  const head = element("tr", {}, ...["", "before", "fused"].map((word) => element("th", { class: "number" }, word)));
  const made = [element("h3", {}, "Predicted"), element("table", {}, head, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", { class: i ? "number" : null }, cell)))))];
  const kernel = price.kernel;
  if (kernel?.occupancy) {
    const { blocks, fraction, limiter } = kernel.occupancy;
    made.push(element("p", { id: "occupancy" }, `Fused kernel: occupancy ${Math.round(fraction * 100)}% (${blocks} blocks an SM, limited by ${limiter}), ${kernel.registers} registers a thread, limited by ${price.limiter}`));
  } else if (kernel) made.push(element("p", {}, `Fused kernel: limited by ${price.limiter}`));
  return [...made, ...price.failures.map((failure) => element("p", { class: "bad" }, failure))];
}

function checksOf(price) {
  const checks = Object.entries(price.details.checks).map(([name, holds]) => element("span", { class: holds ? "good" : "bad" }, `${holds ? "\u2713" : "\u2717"} ${name.replaceAll("_", " ")}  `));
  return element("p", {}, ...checks);
}

// ---- all of it

function refresh() {
  priceAll();
  $("verdicts-now").replaceWith(summaryNow());
  drawDetails();
  drawTable();
  drawRoofline();
}

function redraw() {
  priceAll();
  drawWhatIf();
  refresh();
}

drawHead();
listenToGraph();
listenToTable();
$("roof-refused").addEventListener("change", drawRoofline);
redraw();
showGraph("before", 0);
window.addEventListener("resize", place);

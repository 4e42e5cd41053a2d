// Draws what a profiler counted. Numbers and sentences come from tables that Python made; nothing is
// computed here but places on the screen.
const INDEXES = ["rung_index", "workload_index"];
const DASHES = ["", "9 5", "2 4"];
const SLOPES = [1.5, 6];
const WIDTH = 620;
const HEIGHT = 380;
const EDGE = { left: 100, right: 36, top: 16, bottom: 66 };

const mark = (word) => badge(word, "lt-ncu-badge");

function paragraph(name, children) {
  return html("p", { class: name }, children);
}

// ---------------------------------------------------------------- roofline

function scaleOf(low, high, from, to) {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  return (value) => from + ((Math.log10(value) - a) / (b - a)) * (to - from);
}

// Whole decades that hold every value.
function decades(values) {
  return [10 ** Math.floor(Math.log10(Math.min(...values))),
    10 ** Math.ceil(Math.log10(Math.max(...values)))];
}

function powers([low, high]) {
  const count = Math.round(Math.log10(high / low));
  return Array.from({ length: count + 1 }, (_, place) => low * 10 ** place);
}

function sayPower(value) {
  return value >= 1 ? String(Math.round(value)) : value.toFixed(-Math.round(Math.log10(value)));
}

function drawRoof(tables, row, chosen) {
  const { memory, compute } = tables.ceilings;
  const points = row.map((cell) => cell?.roofline.point ?? null);
  const shown = points.filter((point) => point);
  const highest = Math.max(...compute.map((line) => line.rate), ...shown.map((point) => point[1]));
  const ridges = memory.flatMap((m) => compute.map((c) => (1000 * c.rate) / m.rate));
  const xs = decades([1, ...ridges, ...shown.map((point) => point[0])]);
  const least = Math.min(...memory.map((line) => line.rate)) * xs[0] / 1000;
  const ys = decades([highest, least, ...shown.map((point) => point[1])]);
  const x = scaleOf(...xs, EDGE.left, WIDTH - EDGE.right);
  const y = scaleOf(...ys, HEIGHT - EDGE.bottom, EDGE.top);
  const cell = row[chosen];
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "lt-ncu-roof", role: "img",
    "aria-label": `Roofline on logarithmic axes. ${cell.name}: ${cell.roofline.said}` });
  const line = (from, to, attributes) => svg("line",
    { x1: x(from[0]), y1: y(from[1]), x2: x(to[0]), y2: y(to[1]), ...attributes });
  for (const value of powers(xs)) {
    picture.append(line([value, ys[0]], [value, ys[1]], { class: "lt-ncu-grid" }),
      svg("text", { x: x(value), y: HEIGHT - EDGE.bottom + 22, "text-anchor": "middle" },
        [sayPower(value)]));
  }
  for (const value of powers(ys)) {
    picture.append(line([xs[0], value], [xs[1], value], { class: "lt-ncu-grid" }),
      svg("text", { x: EDGE.left - 8, y: y(value) + 5, "text-anchor": "end" }, [sayPower(value)]));
  }
  const peak = Math.max(...compute.map((one) => one.rate), 0) || ys[1];
  memory.forEach((one, place) => {
    const perByte = one.rate / 1000;
    const from = Math.max(xs[0], ys[0] / perByte);
    const to = Math.min(xs[1], peak / perByte);
    // The two slopes can be a pixel apart: the dashes stand out behind the line.
    picture.append(line([from, from * perByte], [to, to * perByte], { stroke: "currentColor",
      "stroke-width": SLOPES[place], "stroke-dasharray": DASHES[place], class: "lt-ncu-memory" }));
  });
  const fastest = Math.max(...memory.map((one) => one.rate)) / 1000;
  compute.forEach((one, place) => {
    picture.append(line([one.rate / fastest, one.rate], [xs[1], one.rate], { stroke: "currentColor",
      "stroke-width": 2, "stroke-dasharray": DASHES[place], class: "lt-ncu-compute" }));
  });
  points.forEach((point, place) => {
    if (!point || place === chosen) return;
    picture.append(svg("circle", { cx: x(point[0]), cy: y(point[1]), r: 5, class: "lt-ncu-other" },
      [svg("title", {}, [tables.rungs[place]])]));
  });
  if (points[chosen]) {
    const [px, py] = [x(points[chosen][0]), y(points[chosen][1])];
    const left = px > WIDTH * 0.7;
    picture.append(
      svg("circle", { cx: px, cy: py, r: 8, class: "lt-ncu-point" }),
      svg("text", { x: px + (left ? -15 : 15), y: py + 6, "text-anchor": left ? "end" : "start",
        "font-weight": 700 }, [tables.rungs[chosen].split("_")[0]]));
  }
  picture.append(
    svg("text", { x: (EDGE.left + WIDTH) / 2, y: HEIGHT - 12, "text-anchor": "middle" },
      ["operations a byte of DRAM traffic"]),
    svg("text", { x: 18, y: HEIGHT / 2 - 20, "text-anchor": "middle",
      transform: `rotate(-90 18 ${HEIGHT / 2 - 20})` }, ["TFLOP/s"]));
  return picture;
}

function swatch(dash, width = 2) {
  return svg("svg", { viewBox: "0 0 32 14", "aria-hidden": "true" }, [svg("line", { x1: 0, x2: 32,
    y1: 7, y2: 7, stroke: "currentColor", "stroke-width": width, "stroke-dasharray": dash })]);
}

function dot(filled) {
  return svg("svg", { viewBox: "0 0 32 14", "aria-hidden": "true" }, [svg("circle", { cx: 16, cy: 7,
    r: filled ? 6 : 4.5, class: filled ? "lt-ncu-point" : "lt-ncu-other" })]);
}

function roofKeys(tables, cell) {
  const keysOf = (lines, shape, widths) => lines.map((one, place) => html("li", {}, [
    swatch(DASHES[place], widths?.[place]), `${shape}: ${one.label}, ${one.text} `, mark(one.word)]));
  return html("ul", { class: "lt-ncu-keys" }, [
    html("li", {}, [dot(true), `${cell.name}: ${cell.roofline.said} `, mark(cell.word)]),
    html("li", {}, [dot(false), "the other rungs on this workload"]),
    ...keysOf(tables.ceilings.memory, "slope", SLOPES),
    ...keysOf(tables.ceilings.compute, "level")]);
}

// ---------------------------------------------------------------- bars

function bar({ label, share, kind, value, word, about }) {
  return html("div", { class: "lt-ncu-bar" }, [
    html("div", { class: "lt-ncu-label" }, [label]),
    html("div", { class: "lt-ncu-track" }, [
      ...(share === null ? [] : [html("div", { class: `lt-ncu-fill ${kind}`,
        style: `--share:${share.toFixed(4)}`, "aria-hidden": "true" })]),
      html("span", { class: "lt-ncu-value" }, [value, ...(word ? [" ", mark(word)] : [])]),
    ]),
    ...(about ? [paragraph("lt-ncu-about", [about])] : []),
  ]);
}

function drawWaits(cell) {
  const longest = Math.max(...cell.waits.bars.map((one) => one.share), 0.01);
  return html("div", { class: "lt-ncu-bars lt-ncu-waits" }, cell.waits.bars.map((one) => bar({
    label: one.issuing ? `issuing (${one.name})` : one.name,
    share: one.share / longest,
    kind: one.issuing ? "lt-ncu-fill-hatched" : "",
    value: `${(100 * one.share).toFixed(1)} %`,
    about: one.says,
  })));
}

function drawMemory(cell) {
  const { levels, rates } = cell.memory;
  const most = Math.max(...levels.map((one) => one.bytes ?? 0), 1);
  const drawn = levels.map((one) => bar({
    label: one.label,
    share: one.bytes === null ? null : one.bytes / most,
    kind: { computed: "lt-ncu-fill-open", forecast: "lt-ncu-fill-hatched" }[one.word] ?? "",
    value: one.text,
    word: one.bytes === null ? null : one.word,
    about: one.bytes === null || one.word === "forecast" ? one.about : null,
  }));
  const said = (one) => html("div", { class: "lt-ncu-rate" }, [`${one.label}: ${one.text} `,
    ...(one.percent === null ? [] : [mark(one.word)])]);
  // The L1 answers before the L2 is asked, the L2 before DRAM is.
  return html("div", { class: "lt-ncu-bars lt-ncu-memory-chart" },
    [drawn[0], said(rates[0]), drawn[1], said(rates[1]), drawn[2], drawn[3]]);
}

function drawCounters(tables, cell) {
  const row = ({ name, value }) => html("div", { class: "lt-ncu-counter" }, [
    html("div", {}, [html("strong", {}, [tables.meanings[name].label]), value]),
    html("div", {}, [tables.meanings[name].means]),
    html("div", {}, [tables.meanings[name].not]),
  ]);
  return html("div", { class: "lt-ncu-counters" }, cell.counters.map(row));
}

// ---------------------------------------------------------------- the whole

function summary(cell) {
  const { bound } = cell;
  const times = [`${cell.profiled ?? "a missing time"} under the profiler`];
  if (cell.time !== null) times.push(`${cell.time} as timed`);
  const parts = [
    html("div", {}, [html("span", { class: "lt-ncu-bound" }, [`bound: ${bound.counted} `]),
      mark(cell.word)]),
    html("div", {}, [`By the one rule: ${bound.reason}`]),
    html("div", {}, [html("strong", {}, [cell.name]), `, ${cell.title}. ${times.join(", ")}. `,
      `${cell.where}.`]),
  ];
  if (cell.apart) {
    parts.push(html("div", { class: "lt-ncu-apart", role: "note" }, [cell.apart]));
  }
  if (bound.forecast !== null) {
    parts.push(html("div", { class: "lt-ncu-forecast" }, [
      `${bound.why} `,
      mark("forecast")]));
  }
  return html("div", { class: "lt-ncu-now", "aria-live": "polite" }, parts);
}

function render({ model, el }) {
  const root = html("section", { class: "lt-ncu", "aria-label": "What the profiler counted" });
  el.append(root);

  function draw() {
    const tables = model.get("tables");
    const [chosen, workload] = INDEXES.map((name) => model.get(name));
    const row = tables.cells[workload];
    const cell = row[chosen];
    if (!cell) {
      const there = tables.rungs.filter((_, place) => row[place]);
      root.replaceChildren(html("div", { class: "lt-ncu-now lt-ncu-none", "aria-live": "polite" },
        [`${tables.empty[chosen]} There are some of ${there.join(", ")}.`]));
      return;
    }
    root.replaceChildren(
      summary(cell),
      html("h4", {}, ["Roofline"]), drawRoof(tables, row, chosen), roofKeys(tables, cell),
      html("h4", {}, ["Where a warp's time goes ", mark(cell.word)]), drawWaits(cell),
      paragraph("lt-ncu-said", [cell.waits.said]),
      html("h4", {}, ["From the kernel down to DRAM"]), drawMemory(cell),
      paragraph("lt-ncu-said", [cell.memory.said]),
      html("h4", {}, ["What each counter means, and what not ", mark(cell.word)]),
      drawCounters(tables, cell),
      paragraph("lt-ncu-said lt-ncu-missing", [cell.missing.length
        ? `Not in this record: ${cell.missing.join(", ")}. What is missing is not zero.`
        : "No counter of this list is missing."]),
    );
  }

  return drawAndRedraw(model, el, [...INDEXES, "tables"], draw);
}

export default { render };

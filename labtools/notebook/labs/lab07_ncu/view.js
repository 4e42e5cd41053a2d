// Draws what a profiler counted. Numbers and sentences come from tables that Python made; nothing is
// computed here but places on the screen.
const DASHES = ["", "9 5", "2 4"];
const SLOPES = [1.5, 6];
const [WIDTH, HEIGHT] = [620, 380];
const EDGE = { left: 100, right: 36, top: 16, bottom: 66 };

// ---------------------------------------------------------------- roofline

// Whole decades that hold every value, from the first to the last.
function decades(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)].map(Math.log10);
  const count = Math.ceil(high) - Math.floor(low);
  return Array.from({ length: count + 1 }, (_, place) => 10 ** (Math.floor(low) + place));
}

function sayPower(value) {
  return value >= 1 ? String(Math.round(value)) : value.toFixed(-Math.round(Math.log10(value)));
}

function drawRoof(tables, row, chosen) {
  const { memory, compute } = tables.ceilings;
  const points = row.map((cell) => cell?.roofline.point ?? null);
  const shown = points.filter((point) => point);
  const ridges = memory.flatMap((m) => compute.map((c) => (1000 * c.rate) / m.rate));
  const xs = decades([1, ...ridges, ...shown.map((point) => point[0])]);
  const lowest = (Math.min(...memory.map((one) => one.rate)) * xs[0]) / 1000;
  const ys = decades([...compute.map((one) => one.rate), lowest, ...shown.map((point) => point[1])]);
  const [first, last] = [xs[0], xs[xs.length - 1]];
  const x = logScale([first, last], EDGE.left, WIDTH - EDGE.right);
  const y = logScale([ys[0], ys[ys.length - 1]], HEIGHT - EDGE.bottom, EDGE.top);
  const between = (from, to, attributes) =>
    line(x(from[0]), y(from[1]), x(to[0]), y(to[1]), attributes);
  const grid = { class: "lt-grid" };
  const peak = Math.max(...compute.map((one) => one.rate), 0) || ys[ys.length - 1];
  const fastest = Math.max(...memory.map((one) => one.rate)) / 1000;
  const cell = row[chosen];
  const drawn = picture(WIDTH, HEIGHT,
    `Roofline on logarithmic axes. ${cell.name}: ${cell.roofline.said}`, "lt-ncu-roof", [
      ...xs.flatMap((value) => [between([value, ys[0]], [value, ys[ys.length - 1]], grid),
        words(x(value), HEIGHT - EDGE.bottom + 22, sayPower(value), MIDDLE)]),
      ...ys.flatMap((value) => [between([first, value], [last, value], grid),
        words(EDGE.left - 8, y(value) + 5, sayPower(value), { "text-anchor": "end" })]),
      ...memory.map((one, place) => {
        const perByte = one.rate / 1000;
        const from = Math.max(first, ys[0] / perByte);
        const to = Math.min(last, peak / perByte);
        // The two slopes can be a pixel apart: the dashes stand out behind the line.
        return between([from, from * perByte], [to, to * perByte],
          { "stroke-width": SLOPES[place], "stroke-dasharray": DASHES[place] });
      }),
      ...compute.map((one, place) => between([one.rate / fastest, one.rate], [last, one.rate],
        { "stroke-width": 2, "stroke-dasharray": DASHES[place] })),
      words((EDGE.left + WIDTH) / 2, HEIGHT - 12, "operations per byte of DRAM traffic", MIDDLE),
      words(18, HEIGHT / 2 - 20, "TFLOP/s",
        { ...MIDDLE, transform: `rotate(-90 18 ${HEIGHT / 2 - 20})` }),
    ]);
  const dotAt = (point, r, name, children = []) =>
    svg("circle", { cx: x(point[0]), cy: y(point[1]), r, class: name }, children);
  points.forEach((point, place) => {
    if (!point || place === chosen) return;
    drawn.append(dotAt(point, 5, "lt-ncu-other", [svg("title", {}, [tables.rungs[place]])]));
  });
  if (points[chosen]) {
    const left = x(points[chosen][0]) > WIDTH * 0.7;
    drawn.append(dotAt(points[chosen], 8, "lt-ncu-point"), words(
      x(points[chosen][0]) + (left ? -15 : 15), y(points[chosen][1]) + 6,
      tables.rungs[chosen].split("_")[0],
      { "text-anchor": left ? "end" : "start", "font-weight": 700 }));
  }
  return drawn;
}

const look = (drawn) => svg("svg", { viewBox: "0 0 32 14", "aria-hidden": "true" }, [drawn]);
const dot = (r, name) => look(svg("circle", { cx: 16, cy: 7, r, class: name }));

function roofKeys(tables, cell) {
  const keysOf = (ceilings, shape, widths = []) => ceilings.map((one, place) => [
    look(line(0, 7, 32, 7, { "stroke-width": widths[place] ?? 2, "stroke-dasharray": DASHES[place] })),
    `${shape}: ${one.label}, ${one.text} `, mark(one.word)]);
  return bullets([
    [dot(6, "lt-ncu-point"), `${cell.name}: ${cell.roofline.said} `, mark(cell.word)],
    [dot(4.5, "lt-ncu-other"), "the other rungs on this workload"],
    ...keysOf(tables.ceilings.memory, "slope", SLOPES),
    ...keysOf(tables.ceilings.compute, "level"),
  ], "lt-drawn-keys");
}

// ---------------------------------------------------------------- bars

function bar({ label, share, kind = "", value, word, about }) {
  return html("div", { class: "lt-ncu-bar" }, [
    html("div", { class: "lt-ncu-label" }, [label]),
    html("div", { class: "lt-ncu-track" }, [
      share !== null && html("div", { class: `lt-ncu-fill ${kind}`,
        style: `--share:${share.toFixed(4)}`, "aria-hidden": "true" }),
      html("span", { class: "lt-ncu-value" }, [value, word && [" ", mark(word)]]),
    ]),
    about && paragraph([about], "lt-ncu-about"),
  ]);
}

function drawWaits({ bars }) {
  const longest = Math.max(...bars.map((one) => one.share), 0.01);
  return html("div", { class: "lt-ncu-bars lt-ncu-waits" }, bars.map((one) => bar({
    label: one.issuing ? `issuing (${one.name})` : one.name,
    share: one.share / longest,
    kind: one.issuing ? "lt-hatched" : "",
    value: percent(one.share),
    about: one.says,
  })));
}

function drawMemory({ levels, rates }) {
  const most = Math.max(...levels.map((one) => one.bytes ?? 0), 1);
  const drawn = levels.map((one) => bar({
    label: one.label,
    share: one.bytes === null ? null : one.bytes / most,
    kind: { computed: "lt-ncu-open", forecast: "lt-hatched" }[one.word],
    value: one.text,
    word: one.bytes === null ? null : one.word,
    about: one.bytes === null || one.word === "forecast" ? one.about : null,
  }));
  const said = (one) => html("div", { class: "lt-ncu-rate" }, [`${one.label}: ${one.text} `,
    one.percent !== null && mark(one.word)]);
  // The L1 answers before the L2 is asked, the L2 before DRAM is.
  return html("div", { class: "lt-ncu-bars" },
    [drawn[0], said(rates[0]), drawn[1], said(rates[1]), drawn[2], drawn[3]]);
}

function drawCounters(meanings, counters) {
  return html("div", { class: "lt-ncu-counters" }, counters.map(({ name, value }) =>
    html("div", { class: "lt-ncu-counter" }, [
      html("div", {}, [strong(meanings[name].label), value]),
      html("div", {}, [meanings[name].means]),
      html("div", {}, [meanings[name].not]),
    ])));
}

// ---------------------------------------------------------------- the whole

function summary(cell) {
  const { bound } = cell;
  const times = [`${cell.profiled ?? "a missing time"} under the profiler`];
  if (cell.time !== null) times.push(`${cell.time} as timed`);
  return now([
    html("div", {}, [html("span", { class: "lt-value lt-ncu-bound" }, [`bound: ${bound.counted} `]),
      mark(cell.word)]),
    html("div", {}, [strong(cell.name), `, ${times.join(", ")}. ${cell.where}.`]),
    cell.apart && html("div", { class: "lt-ncu-apart", role: "note" }, [cell.apart]),
  ]);
}

let open = 0; // the part that is shown, also of the next kernel

// Buttons, each with a part of the view that it shows in place of the others.
function turned(named) {
  const parts = Object.values(named).map((children) => html("div", {}, children));
  const buttons = Object.keys(named).map((name, place) => button(name, () => show(place)));
  function show(place) {
    open = place;
    parts.forEach((part, number) => { part.hidden = number !== place; });
    buttons.forEach((one, number) => one.setAttribute("aria-pressed", number === place));
  }
  show(open);
  return [tools(buttons), parts];
}

function draw(tables, chosen, workload) {
  const row = tables.cells[workload];
  const cell = row[chosen];
  if (!cell) {
    const there = tables.rungs.filter((_, place) => row[place]);
    return [now([`${tables.empty[chosen]} There are some of ${there.join(", ")}.`], "lt-ncu-none")];
  }
  return [
    summary(cell),
    turned({
      "Roofline": [drawRoof(tables, row, chosen), roofKeys(tables, cell)],
      "Why this bound": [
        paragraph([`${cell.title}. By the one rule: ${cell.bound.reason} `, mark(cell.word)]),
        cell.bound.forecast !== null && paragraph([`${cell.bound.why} `, mark("forecast")])],
      "Where a warp's time goes": [drawWaits(cell.waits),
        paragraph([`${cell.waits.said} `, mark(cell.word)], "lt-note")],
      "From the kernel down to DRAM": [drawMemory(cell.memory),
        paragraph([cell.memory.said], "lt-note")],
      "What each counter means, and what not": [drawCounters(tables.meanings, cell.counters),
        paragraph([cell.missing.length
          ? `Not in this record: ${cell.missing.join(", ")}. What is missing is not zero. `
          : "No counter of this list is missing. ", mark(cell.word)], "lt-note lt-ncu-missing")],
    }),
  ];
}

export default viewOf("lt-ncu", "What the profiler counted", ["rung", "workload"], draw);

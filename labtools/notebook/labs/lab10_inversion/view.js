// A proposed tile against the limits. Everything shown is looked up in tables that Python made;
// nothing is computed here but places on the screen and whether a number is within its limit.
const WATCHED = ["choice", "at", "built", "busy", "live", "tables"];
const CHOICES = ["gpu", "op", "shape", "precision"];
const FIXED = 4; // entries of a cell before its constraints
const BEYOND = 1.3; // how far past its limit a bar is drawn

function say(value) {
  if (value === null || value === undefined) return "-";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return value.toPrecision(Math.abs(value) >= 100 ? 4 : 3);
}

// Each constraint of a proposal with its number, its limit and whether it holds.
function judge(tables, [a, b, c, layout]) {
  const cell = tables.cells[a][b][c];
  const [fixed, rows, cannot, time] = cell;
  const [, share, beside, turns, refused] = tables.layouts[layout];
  const found = [
    { ...tables.smem, value: Math.round(fixed + rows * share), limit: tables.smem_limit },
    ...tables.constraints.map((one, place) => {
      const [value, limit] = cell[FIXED + place];
      return { ...one, value, limit };
    }),
    { ...tables.alignment, value: beside, limit: 0, why: refused, refused },
    { ...tables.conflicts, value: turns, limit: 1,
      why: turns === null ? "an access faults, so there are no turns to count" : "" },
  ];
  for (const one of found) {
    one.kept = !one.refused && one.value !== null
      && (one.at_most ? one.value <= one.limit : one.value >= one.limit);
  }
  return { found, cannot, time, runs: !cannot && found.every((one) => one.kept || !one.hard) };
}

function figures(one) {
  if (one.limit === 0) return `${say(one.value)} ${one.unit}`;
  return `${say(one.value)} of ${one.at_most ? "at most" : "at least"} ${say(one.limit)} ${one.unit}`;
}

function drawBar(one) {
  const part = Math.min(BEYOND, (one.value ?? 0) / (one.limit || 1)) / BEYOND;
  const word = one.kept ? "holds" : "fails";
  return html("div", { class: "lt-budget-row" }, [
    strong(one.name),
    html("div", { class: "lt-budget-track", role: "img",
      "aria-label": `${one.name}: ${figures(one)}, ${word}` }, [
      html("div", { class: `lt-budget-fill-${word}`, style: `width:${100 * part}%` }),
      html("div", { class: "lt-budget-limit", style: `left:${100 / BEYOND}%` }),
    ]),
    html("div", { class: "lt-note" }, [figures(one)]),
  ]);
}

function drawConstraint(one) {
  const verdict = one.kept ? "✓ holds" : one.hard ? "✗ fails" : "✗ costs time";
  const reason = one.why || (one.kept ? one.holds : one.fails);
  return [one.name,
    html("span", { class: `lt-budget-verdict lt-budget-${one.kept ? "holds" : "fails"}` }, [verdict]),
    `${figures(one)}: ${reason}.`];
}

function drawBuilt(tables, built, derivedCell) {
  if (built.failed) return [paragraph([built.failed])];
  const registers = tables.constraints.findIndex((one) => one.name === "registers");
  return [
    built.not_compiled ? paragraph([`Not compiled. ${built.not_compiled}`]) : paragraph([
      `Compiled: ${say(built.registers)} registers per thread at the launch (` +
      `${say(derivedCell[FIXED + registers][0])} were estimated for a thread that multiplies), ` +
      `${say(built.spilled)} bytes spilled, ${say(built.smem)} bytes of shared memory, ` +
      `${say(built.blocks)} blocks of ${say(built.threads)} threads `, mark("computed")],
    "lt-budget-compiled"),
    paragraph(built.not_forecast ? [`The forecast is refused. ${built.not_forecast}`] : [
      `Forecast from its machine code: ${say(built.time)} us, bound by ${built.bound}` +
      `${built.calibrated ? "" : "; uncalibrated: nobody measured this GPU's latencies here"} `,
      mark("forecast")], "lt-budget-forecast"),
  ];
}

function drawKernel(tables, { busy, built, live, derivedCell }) {
  if (!tables.kernel) {
    return [paragraph(["No shipped kernel computes this operation: what is derived is a " +
      "specification."])];
  }
  const knobs = tables.knobs.map(([name, value]) => `${name} ${value}`).join(", ");
  const wait = "Compiling and forecasting. This takes some seconds.";
  return [
    paragraph(["What is derived specifies ", code(tables.kernel),
      knobs ? ` with ${knobs}` : " with its usual knobs", "."]),
    busy ? html("p", { role: "status" }, [wait]) : built ? drawBuilt(tables, built, derivedCell)
      : !live && paragraph(["This page has no Python to compile it. On the command line: ",
        code(tables.command)]),
  ];
}

function render({ model, el }) {
  const root = startView(el, "lt-budget", "A tile against the limits");
  let every = unpackTables(model.get("tables"));

  // The choice that fits the wanted value, and as much of the others as it can.
  function choose(field, value) {
    const now = { ...every[model.get("choice")], [field]: value };
    const score = (one) => CHOICES.reduce((sum, name) =>
      sum + (one[name] === now[name] ? (name === field ? 100 : 1) : 0), 0);
    const best = every.reduce((place, one, n) => (score(one) > score(every[place]) ? n : place), 0);
    const { sizes, op } = every[best];
    const within = (place, n) => (n < 3 ? Math.min(place, sizes[n][1].length - 1) : place);
    setAll(model, { choice: best,
      at: op === every[model.get("choice")].op ? model.get("at").map(within) : [0, 0, 0, 0] });
  }

  function choiceOf(name, field, fits) {
    const values = [...new Set(every.filter(fits).map((one) => one[field]))];
    return dropdown(name, values, values.indexOf(every[model.get("choice")][field]), (place) =>
      choose(field, values[place]));
  }

  function draw() {
    const number = model.get("choice");
    const tables = every[number];
    const at = model.get("at").map((place, n) =>
      Math.min(place, (n < 3 ? tables.sizes[n][1] : tables.layouts).length - 1));
    const state = judge(tables, at);
    const sameGpu = (one) => one.gpu === tables.gpu;
    const sameOp = (one) => sameGpu(one) && one.op === tables.op;
    const move = (n) => (place) => setAll(model, { at: at.map((old, m) => (m === n ? place : old)) });
    const [a, b, c] = tables.derived;
    const derivedCell = tables.cells[a][b][c];
    const derived = tables.derived.every((place, n) => place === at[n]);
    const [busy, live] = [model.get("busy") === `${number}`, model.get("live")];
    const failing = state.found.filter((one) => !one.kept);
    const said = state.cannot ? `No such block: ${state.cannot}.`
      : failing.length === 0 ? "Every constraint holds."
        : `${failing.length} of ${state.found.length} constraints do not hold.`;
    const budgets = state.found.filter((one) => one.budget);

    replaceKeepingFocus(root, [
      html("div", { class: "lt-budget-controls" }, [
        choiceOf("GPU", "gpu", () => true),
        choiceOf("operation", "op", sameGpu),
        choiceOf("workload", "shape", sameOp),
        choiceOf("precision", "precision", sameOp),
        ...tables.sizes.map(([name, values], n) => dropdown(name, values, at[n], move(n))),
        dropdown("rows in shared memory", tables.layouts.map(([name]) => name), at[3], move(3)),
      ]),
      tools([
        button("Derive", () => setAll(model, { at: tables.derived }), { off: derived }),
        tables.kernel && live && button("Compile and forecast",
          () => model.send({ kind: "build" }), { off: busy }),
      ]),
      now([
        html("div", { class: "lt-value lt-budget-headline" }, [said]),
        html("div", {}, state.runs && state.time !== null
          ? [`Expected: ${say(state.time)} us where rows lie without conflicts; the derived one: ` +
            `${say(derivedCell[3])} us `, mark("computed")]
          : ["This kernel cannot run as it is, so it has no time."]),
        html("div", {}, [`No kernel can beat the ${tables.bound} here.${tables.calibrated ? ""
          : " This GPU's latencies and rates were not measured by this project."}`]),
      ], "lt-budget-now"),
      html("h4", {}, ["Budgets ", mark("computed")]),
      ...budgets.map(drawBar),
      paragraph([`The line is the limit. ${budgets.every((one) => one.at_most)
        ? "No bar may pass it." : "Bytes on the way must reach it, the others must not pass it."} ` +
        "A plain bar holds, a hatched one does not."], "lt-note"),
      html("h4", {}, ["Constraints ", mark("computed")]),
      table([], state.found.map(drawConstraint),
        { label: "Constraints", name: "lt-budget-table", rowClass: () => "lt-budget-constraint" }),
      html("div", { class: "lt-budget-panel" }, [
        derived && [html("h4", {}, ["What was decided"]), bullets(tables.steps.map(
          ([question, decision]) => [strong(question), ` ${decision}.`]), "lt-budget-steps", "ol")],
        drawKernel(tables, { busy, live, derivedCell, built: model.get("built")[`${number}`] }),
      ]),
    ]);
  }

  model.on("change:tables", () => { every = unpackTables(model.get("tables")); });
  return drawAndRedraw(model, el, WATCHED, draw);
}

export default { render };

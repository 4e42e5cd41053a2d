// A proposed tile against the limits. Everything shown is looked up in tables that Python made;
// nothing is computed here but places on the screen and whether a number is within its limit.
const WATCHED = ["choice", "at", "built", "busy", "live", "tables"];
const FIXED = 4; // entries of a cell before its constraints

function say(value) {
  if (value === null || value === undefined) return "-";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return value.toPrecision(Math.abs(value) >= 100 ? 4 : 3);
}

function mark(word) {
  return badge(word, "lt-budget-badge");
}

// Each constraint of a proposal with its number, its limit and whether it holds.
function judge(table, at) {
  const [a, b, c, layout] = at;
  const cell = table.cells[a][b][c];
  const [fixed, rows, cannot, time] = cell;
  const [, share, beside, turns, refused] = table.layouts[layout];
  const bytes = Math.round(fixed + rows * share);
  const keep = (one, value, limit) => (one.at_most ? value <= limit : value >= limit);
  const found = [{ ...table.smem, value: bytes, limit: table.smem_limit }];
  table.constraints.forEach((one, place) => {
    const [value, limit] = cell[FIXED + place];
    found.push({ ...one, value, limit });
  });
  found.push({ ...table.alignment, value: beside, limit: 0, why: refused });
  found.push({ ...table.conflicts, value: turns, limit: 1,
    why: turns === null ? "an access faults, so there are no turns to count" : "" });
  for (const one of found) {
    one.kept = one.value !== null && keep(one, one.value, one.limit);
    if (one.name === table.alignment.name && refused) one.kept = false;
  }
  const runs = !cannot && found.every((one) => one.kept || !one.hard);
  return { found, cannot, time, runs, layoutTurns: turns };
}

function verdict(one) {
  const word = one.kept ? "holds" : "fails";
  return html("span", { class: `lt-budget-verdict lt-budget-${word}` },
    [one.kept ? "✓ holds" : one.hard ? "✗ fails" : "✗ costs time"]);
}

function reason(one) {
  return one.why || (one.kept ? one.holds : one.fails);
}

function figures(one) {
  if (one.limit === 0) return `${say(one.value)} ${one.unit}`;
  const sign = one.at_most ? "at most" : "at least";
  return `${say(one.value)} of ${sign} ${say(one.limit)} ${one.unit}`;
}

function drawBar(one) {
  const most = 1.3;
  const part = Math.min(most, (one.value ?? 0) / (one.limit || 1));
  const word = one.kept ? "holds" : "fails";
  return html("div", { class: "lt-budget-row" }, [
    html("div", { class: "lt-budget-name" }, [one.name]),
    html("div", { class: "lt-budget-track", role: "img",
      "aria-label": `${one.name}: ${figures(one)}, ${one.kept ? "holds" : "fails"}` }, [
      html("div", { class: `lt-budget-fill lt-budget-fill-${word}`,
        style: `width:${(100 * part) / most}%` }),
      html("div", { class: "lt-budget-limit", style: `left:${100 / most}%` }),
    ]),
    html("div", { class: "lt-budget-value" }, [figures(one)]),
  ]);
}

function drawConstraint(one) {
  return html("tr", { class: "lt-budget-constraint" }, [
    html("th", { scope: "row" }, [one.name]),
    html("td", {}, [verdict(one)]),
    html("td", {}, [`${figures(one)}: ${reason(one)}.`]),
  ]);
}

function control(name, values, chosen, change) {
  const select = html("select", { "aria-label": name, "data-focus": name },
    values.map((text, place) => {
      const option = html("option", { value: place }, [`${text}`]);
      if (place === chosen) option.selected = true;
      return option;
    }));
  select.addEventListener("change", () => change(Number(select.value)));
  return html("label", { class: "lt-budget-control" }, [html("span", {}, [name]), select]);
}

function button(text, pressed, disabled = false) {
  const node = html("button", { type: "button", class: "lt-budget-button", "data-focus": text },
    [text]);
  node.disabled = disabled;
  node.addEventListener("click", pressed);
  return node;
}

function drawBuilt(table, built) {
  if (built.failed) return [html("p", {}, [built.failed])];
  const lines = [];
  if (built.not_compiled) lines.push(html("p", {}, [`Not compiled. ${built.not_compiled}`]));
  else {
    const cell = table.cells[table.derived[0]][table.derived[1]][table.derived[2]];
    const estimated = cell[FIXED + table.constraints.findIndex((one) => one.name === "registers")][0];
    lines.push(html("p", { class: "lt-budget-compiled" }, [
      `Compiled: ${say(built.registers)} registers a thread at the launch (${say(estimated)} were ` +
      `estimated for a thread that multiplies), ${say(built.spilled)} bytes spilled, ${
        say(built.smem)} bytes of shared memory, ${say(built.blocks)} blocks of ${
        say(built.threads)} threads `, mark("computed")]));
  }
  if (built.not_forecast) {
    lines.push(html("p", { class: "lt-budget-forecast" },
      [`The forecast is refused. ${built.not_forecast}`]));
  } else {
    lines.push(html("p", { class: "lt-budget-forecast" }, [
      `Forecast from its machine code: ${say(built.time)} us, bound by ${built.bound}${
        built.calibrated ? "" : "; uncalibrated: nobody measured this GPU's latencies here"} `,
      mark("forecast")]));
  }
  return lines;
}

function render({ model, el }) {
  const root = html("section", { class: "lt-budget", "aria-label": "A tile against the limits" });
  el.append(root);
  let every = unpackTables(model.get("tables"));

  function set(values) {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
  }

  // The choice that fits the wanted values, those named first above all.
  function choose(wanted) {
    const names = ["gpu", "op", "shape", "precision"];
    const now = every[model.get("choice")];
    const strict = Object.keys(wanted);
    const score = (one) => names.reduce((sum, name) => sum +
      (one[name] === { ...now, ...wanted }[name] ? (strict.includes(name) ? 100 : 1) : 0), 0);
    let best = 0;
    every.forEach((one, place) => { if (score(one) > score(every[best])) best = place; });
    const kept = model.get("at");
    const sizes = every[best].sizes;
    const same = every[best].op === now.op;
    set({ choice: best,
      at: same ? kept.map((place, n) => (n < 3 ? Math.min(place, sizes[n][1].length - 1) : place))
        : [0, 0, 0, 0] });
  }

  function select(name, field, fits) {
    const now = every[model.get("choice")];
    const values = [...new Set(every.filter(fits).map((one) => one[field]))];
    return control(name, values, values.indexOf(now[field]), (place) =>
      choose({ [field]: values[place] }));
  }

  function draw() {
    const number = model.get("choice");
    const table = every[number];
    const at = model.get("at").map((place, n) =>
      Math.min(place, (n < 3 ? table.sizes[n][1] : table.layouts).length - 1));
    const state = judge(table, at);
    const now = (one) => one.op === table.op;
    const move = (n) => (place) => set({ at: at.map((old, m) => (m === n ? place : old)) });
    const derived = table.derived.every((place, n) => place === at[n]);
    const built = model.get("built")[`${number}`];
    const busy = model.get("busy") === `${number}`;
    const failing = state.found.filter((one) => !one.kept);
    const focus = root.contains(document.activeElement) ? document.activeElement.dataset.focus : "";

    let headline = `${failing.length} of ${state.found.length} constraints do not hold.`;
    if (state.cannot) headline = `No such block: ${state.cannot}.`;
    else if (failing.length === 0) headline = "Every constraint holds.";
    const timed = state.runs && state.time !== null;
    const derivedCell = table.cells[table.derived[0]][table.derived[1]][table.derived[2]];

    const actions = [button("Derive", () => set({ at: table.derived }), derived)];
    if (table.kernel && model.get("live")) {
      actions.push(button("Compile and forecast", () => model.send({ kind: "build" }), busy));
    }
    const panel = [];
    if (derived) {
      panel.push(html("h4", {}, ["What was decided"]),
        html("ol", { class: "lt-budget-steps" }, table.steps.map(([question, decision]) =>
          html("li", {}, [html("strong", {}, [question]), ` ${decision}.`]))));
    }
    if (!table.kernel) {
      panel.push(html("p", {}, ["No shipped kernel computes this operation: what is derived is a " +
        "specification."]));
    } else {
      panel.push(html("p", {}, ["What is derived specifies ", html("code", {}, [table.kernel]),
        table.knobs.length ? ` with ${table.knobs.map(([name, value]) => `${name} ${value}`).join(", ")}`
          : " with its usual knobs", "."]));
      if (busy) panel.push(html("p", { class: "lt-budget-busy", role: "status" },
        ["Compiling and forecasting. This takes some seconds."]));
      else if (built) panel.push(...drawBuilt(table, built));
      else if (!model.get("live")) panel.push(html("p", {}, ["This page has no Python to compile " +
        "it. On the command line: ", html("code", {}, [table.command])]));
    }

    root.replaceChildren(
      html("div", { class: "lt-budget-controls" }, [
        select("GPU", "gpu", () => true),
        select("operation", "op", (one) => one.gpu === table.gpu),
        select("workload", "shape", (one) => now(one) && one.gpu === table.gpu),
        select("precision", "precision", (one) => now(one) && one.gpu === table.gpu),
        ...table.sizes.map(([name, values], n) => control(name, values, at[n], move(n))),
        control("rows in shared memory", table.layouts.map(([name]) => name), at[3], move(3)),
      ]),
      html("div", { class: "lt-budget-actions" }, actions),
      html("div", { class: "lt-budget-now", "aria-live": "polite" }, [
        html("div", { class: "lt-budget-headline" }, [headline]),
        html("div", {}, timed ? [`Expected: ${say(state.time)} us where rows lie without conflicts; ` +
          `the derived one: ${say(derivedCell[3])} us `, mark("computed")]
          : ["This kernel cannot run as it is, so it has no time."]),
        html("div", {}, [`No kernel can beat the ${table.bound} here.${table.calibrated ? ""
          : " This GPU's latencies and rates were not measured by this project."}`]),
      ]),
      html("h4", {}, ["Budgets ", mark("computed")]),
      ...state.found.filter((one) => one.budget).map(drawBar),
      html("p", { class: "lt-budget-note" }, ["The line is the limit. " +
        (state.found.some((one) => one.budget && !one.at_most)
          ? "Bytes on the way must reach it, the others must not pass it. "
          : "No bar may pass it. ") + "A plain bar holds, a hatched one does not."]),
      html("h4", {}, ["Constraints ", mark("computed")]),
      html("table", { class: "lt-budget-table", "aria-label": "Constraints" },
        [html("tbody", {}, state.found.map(drawConstraint))]),
      html("div", { class: "lt-budget-panel" }, panel),
    );
    if (focus) {
      const again = [...root.querySelectorAll("[data-focus]")].find((one) =>
        one.dataset.focus === focus && !one.disabled);
      if (again) again.focus({ preventScroll: true });
    }
  }

  model.on("change:tables", () => { every = unpackTables(model.get("tables")); });
  return drawAndRedraw(model, el, WATCHED, draw);
}

export default { render };

// Draws one SM. Everything shown is looked up in tables that Python made; nothing is computed here
// but places on the screen and the least of the limits.
const LIMIT_NAMES = {
  warps: "warp slots", blocks: "block slots", registers: "registers",
  shared_memory: "shared memory", max_blocks: "your own limit",
};
const INDEXES = ["gpu", "threads", "registers", "smem", "max_blocks", "grid"].map((n) => `${n}_index`);
const LIMITS_TITLE = "Blocks that each resource lets onto one SM";
const SLOT = 22;
const GAP = 4;

// The state of the controls, looked up.
function lookUp(tables, index) {
  const gpu = tables.gpus[index.gpu_index];
  const limits = {
    warps: gpu.warps[index.threads_index],
    blocks: gpu.blocks,
    registers: tables.register_limits[gpu.register_limits][index.threads_index][index.registers_index],
    shared_memory: gpu.shared_memory[index.smem_index],
    max_blocks: tables.max_blocks[index.max_blocks_index],
  };
  const allowed = Object.values(limits).filter((limit) => limit !== null);
  const blocks = Math.min(...allowed);
  const deciding = Object.keys(limits).filter((name) => limits[name] === blocks);
  const warps = tables.warps[index.threads_index];
  const share = gpu.occupancy[warps][blocks];
  const [most, least, smsWithMost] = gpu.spread[blocks][index.grid_index];
  return {
    gpu, limits, blocks, deciding, warps,
    theoretical: share?.theoretical ?? 0,
    achieved: share?.achieved[index.grid_index] ?? 0,
    spread: { most, least, smsWithMost },
    grid: tables.grid[index.grid_index],
  };
}

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function hatch(id) {
  return svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)" },
    [svg("line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: "currentColor", "stroke-width": 1.5 })]);
}

function drawSm(state, patternId) {
  const { gpu, warps, blocks } = state;
  const columns = Math.ceil(gpu.max_warps / gpu.sub_partitions);
  const left = 96;
  const width = left + columns * (SLOT + GAP);
  const height = gpu.sub_partitions * (SLOT + GAP);
  const present = state.spread.most * warps;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "lt-occ-sm", role: "img" },
    [svg("defs", {}, [hatch(patternId)])]);
  for (let part = 0; part < gpu.sub_partitions; part += 1) {
    picture.append(svg("text", { x: 0, y: part * (SLOT + GAP) + SLOT * 0.7, class: "lt-occ-label" },
      [`partition ${part}`]));
  }
  for (let slot = 0; slot < gpu.max_warps; slot += 1) {
    const x = left + Math.floor(slot / gpu.sub_partitions) * (SLOT + GAP);
    const y = (slot % gpu.sub_partitions) * (SLOT + GAP) + 1;
    const kind = slot < present ? "here" : slot < blocks * warps ? "room" : "closed";
    const fill = { here: "currentColor", room: `url(#${patternId})`, closed: "none" }[kind];
    const stroke = kind === "closed" ? { "stroke-dasharray": "2 3", "stroke-opacity": 0.6 } : {};
    picture.append(svg("rect", { x, y, width: SLOT, height: SLOT - 1, rx: 3, fill,
      stroke: "currentColor", class: `lt-occ-${kind}`, ...stroke }));
    if (kind === "here") {
      picture.append(svg("text", { x: x + SLOT / 2, y: y + SLOT * 0.66, class: "lt-occ-number" },
        [`${Math.floor(slot / warps)}`]));
    }
  }
  picture.setAttribute("aria-label",
    `One SM of ${gpu.title} with ${gpu.max_warps} warp slots: ${present} hold a warp of this grid, ` +
    `${blocks * warps - present} could and stay empty, ` +
    `${gpu.max_warps - blocks * warps} are closed by the limits.`);
  return picture;
}

function drawGpu(state) {
  const { gpu, spread } = state;
  const perRow = 33;
  const cell = 14;
  const full = Math.max(state.blocks, 1);
  const rows = Math.ceil(gpu.sms / perRow);
  const picture = svg("svg", { viewBox: `0 0 ${perRow * cell} ${rows * (cell + 6)}`,
    class: "lt-occ-gpu", role: "img" });
  for (let sm = 0; sm < gpu.sms; sm += 1) {
    const x = (sm % perRow) * cell;
    const y = Math.floor(sm / perRow) * (cell + 6);
    const count = sm < spread.smsWithMost ? spread.most : spread.least;
    const level = (cell * count) / full;
    picture.append(
      svg("rect", { x, y: y + cell - level, width: cell - 3, height: level, fill: "currentColor" }),
      svg("rect", { x, y, width: cell - 3, height: cell, fill: "none", stroke: "currentColor",
        "stroke-opacity": 0.6 }));
  }
  const others = gpu.sms - spread.smsWithMost;
  picture.setAttribute("aria-label",
    `${plural(gpu.sms, "SM")}: ${spread.smsWithMost} with ${plural(spread.most, "block")}, ` +
    `${others} with ${spread.least}, of ${full} that would fit.`);
  return picture;
}

function drawLimits(state) {
  const rows = Object.entries(state.limits).filter(([name, limit]) =>
    name !== "max_blocks" || limit !== null);
  const body = rows.map(([name, limit]) => {
    const decides = state.deciding.includes(name);
    return html("tr", { class: decides ? "lt-occ-decides" : "" }, [
      html("th", { scope: "row" }, [LIMIT_NAMES[name]]),
      html("td", {}, [limit === null ? "no limit" : plural(limit, "block")]),
      html("td", {}, [decides ? "decides" : ""]),
    ]);
  });
  return html("table", { class: "lt-occ-limits", "aria-label": LIMITS_TITLE },
    [html("tbody", {}, body)]);
}

function plainBadge() {
  return html("span", { class: "prov prov-computed lt-occ-badge" }, ["computed"]);
}

function figure(name, number, share, text) {
  return html("div", { class: "lt-occ-figure" }, [
    html("div", {}, [name, " ", plainBadge()]),
    html("div", { class: "lt-occ-value", "data-value": name }, [number]),
    html("div", { class: "lt-occ-bar", "aria-hidden": "true" },
      [html("div", { style: `width:${Math.min(100, 100 * share)}%` })]),
    html("div", {}, [text]),
  ]);
}

function key(fillClass, text) {
  return html("span", { class: "lt-occ-key" }, [html("span", { class: fillClass }), ` ${text}`]);
}

function render({ model, el }) {
  const patternId = freshId("lt-occ-hatch");
  const root = html("section", { class: "lt-occ", "aria-label": "Occupancy of one SM" });
  el.append(root);

  function draw() {
    const index = Object.fromEntries(INDEXES.map((name) => [name, model.get(name)]));
    const state = lookUp(model.get("tables"), index);
    const { gpu, blocks, warps, spread } = state;
    const cannot = blocks === 0;
    const names = state.deciding.map((name) => LIMIT_NAMES[name]).join(" and ");
    const theory = cannot
      ? `This block does not fit an SM: ${names} forbid it.`
      : `${plural(blocks, "block")} of ${plural(warps, "warp")} fit: ${blocks * warps} of ` +
        `${gpu.max_warps} warp slots. Limited by ${names}.`;
    const even = spread.smsWithMost === gpu.sms;
    const dealt = even
      ? `${spread.most} on each at a time.`
      : `${spread.smsWithMost} with ${spread.most}, ${gpu.sms - spread.smsWithMost} with ` +
        `${spread.least}.`;
    const reality = cannot
      ? "Nothing runs."
      : `${plural(state.grid, "block")} for ${plural(gpu.sms, "SM")}: ${dealt}`;
    root.replaceChildren(
      html("div", { class: "lt-occ-figures", "aria-live": "polite" }, [
        figure("theoretical", percent(state.theoretical), state.theoretical, theory),
        figure("achieved", percent(state.achieved), state.achieved, reality),
      ]),
      html("h4", {}, [`One SM of ${gpu.title}`]),
      drawSm(state, patternId),
      html("p", { class: "lt-occ-keys" }, [
        key("lt-occ-key-here", "a warp of your grid, with its block's number"),
        key("lt-occ-key-room", "room that the grid leaves empty"),
        key("lt-occ-key-closed", "closed by the limits"),
      ]),
      html("h4", {}, ["The whole GPU: how full each SM is"]),
      drawGpu(state),
      html("h4", {}, [LIMITS_TITLE]),
      drawLimits(state),
    );
  }

  return drawAndRedraw(model, el, [...INDEXES, "tables"], draw);
}

export default { render };

// Draws one SM. Everything shown is looked up in tables that Python made; nothing is computed here
// but places on the screen and the least of the limits.
const LIMIT_NAMES = {
  warps: "warp slots", blocks: "block slots", registers: "registers",
  shared_memory: "shared memory", max_blocks: "your own limit",
};
const LIMITS_TITLE = "Blocks that each resource lets onto one SM";
const SLOT = 22;
const STEP = SLOT + 4;

// Where the controls stand, looked up.
function lookUp(tables, gpuIndex, threads, registers, smem, maxBlocks, grid) {
  const gpu = tables.gpus[gpuIndex];
  const limits = {
    warps: gpu.warps[threads],
    blocks: gpu.blocks,
    registers: tables.register_limits[gpu.register_limits][threads][registers],
    shared_memory: gpu.shared_memory[smem],
    max_blocks: tables.max_blocks[maxBlocks],
  };
  const blocks = Math.min(...Object.values(limits).filter((limit) => limit !== null));
  const warps = tables.warps[threads];
  const share = gpu.occupancy[warps][blocks];
  const [most, least, smsWithMost] = gpu.spread[blocks][grid];
  return {
    gpu, limits, blocks, warps, most, least, smsWithMost, grid: tables.grid[grid],
    deciding: Object.keys(limits).filter((name) => limits[name] === blocks),
    theoretical: share?.theoretical ?? 0,
    achieved: share?.achieved[grid] ?? 0,
  };
}

function drawSm({ gpu, warps, blocks, most }) {
  const id = freshId("lt-occ");
  const left = 96;
  const present = most * warps;
  const width = left + Math.ceil(gpu.max_warps / gpu.sub_partitions) * STEP;
  const label = `One SM of ${gpu.title} with ${gpu.max_warps} warp slots: ${present} hold a warp ` +
    `of this grid, ${blocks * warps - present} could and stay empty, ` +
    `${gpu.max_warps - blocks * warps} are closed by the limits.`;
  const drawn = picture(width, gpu.sub_partitions * STEP, label, "lt-occ-sm", [patterns(id)]);
  for (let part = 0; part < gpu.sub_partitions; part += 1) {
    drawn.append(words(0, part * STEP + SLOT * 0.7, `partition ${part}`));
  }
  for (let slot = 0; slot < gpu.max_warps; slot += 1) {
    const x = left + Math.floor(slot / gpu.sub_partitions) * STEP;
    const y = (slot % gpu.sub_partitions) * STEP + 1;
    const look = slot < present ? { fill: "currentColor" }
      : slot < blocks * warps ? { fill: `url(#${id}-hatch)` }
        : { fill: "none", "stroke-dasharray": "2 3", "stroke-opacity": 0.6 };
    drawn.append(rect(x, y, SLOT, SLOT - 1, { rx: 3, ...look }));
    if (slot < present) {
      drawn.append(words(x + SLOT / 2, y + SLOT * 0.66, Math.floor(slot / warps),
        { class: "lt-occ-number" }));
    }
  }
  return drawn;
}

function drawGpu({ gpu, blocks, most, least, smsWithMost }) {
  const perRow = 33;
  const cell = 14;
  const full = Math.max(blocks, 1);
  const label = `${plural(gpu.sms, "SM")}: ${smsWithMost} with ${plural(most, "block")}, ` +
    `${gpu.sms - smsWithMost} with ${least}, of ${full} that would fit.`;
  const drawn = picture(perRow * cell, Math.ceil(gpu.sms / perRow) * (cell + 6), label, "lt-occ-gpu");
  for (let sm = 0; sm < gpu.sms; sm += 1) {
    const [x, y] = [(sm % perRow) * cell, Math.floor(sm / perRow) * (cell + 6)];
    const level = (cell * (sm < smsWithMost ? most : least)) / full;
    drawn.append(
      rect(x, y + cell - level, cell - 3, level, { fill: "currentColor", stroke: "none" }),
      rect(x, y, cell - 3, cell, { fill: "none", "stroke-opacity": 0.6 }));
  }
  return drawn;
}

function drawLimits({ limits, deciding }) {
  const shown = Object.entries(limits).filter(([name, limit]) =>
    name !== "max_blocks" || limit !== null);
  const decides = ([name]) => deciding.includes(name);
  return table([], shown.map((one) => [LIMIT_NAMES[one[0]],
    one[1] === null ? "no limit" : plural(one[1], "block"), decides(one) ? "decides" : ""]),
  { label: LIMITS_TITLE, rowClass: (n) => (decides(shown[n]) ? "lt-occ-decides" : "") });
}

function figure(name, share, text) {
  return html("div", { class: "lt-now" }, [
    html("div", {}, [name, " ", mark("computed")]),
    html("div", { class: "lt-value", "data-value": name }, [percent(share)]),
    html("div", { class: "lt-occ-bar", "aria-hidden": "true" },
      [html("div", { style: `width:${Math.min(100, 100 * share)}%` })]),
    html("div", {}, [text]),
  ]);
}

function draw(tables, ...indexes) {
  const state = lookUp(tables, ...indexes);
  const { gpu, blocks, warps, most, least, smsWithMost } = state;
  const names = state.deciding.map((name) => LIMIT_NAMES[name]).join(" and ");
  const dealt = smsWithMost === gpu.sms ? `${most} on each at a time.`
    : `${smsWithMost} with ${most}, ${gpu.sms - smsWithMost} with ${least}.`;
  const [theory, reality] = blocks === 0
    ? [`This block does not fit an SM: ${names} forbid it.`, "Nothing runs."]
    : [`${plural(blocks, "block")} of ${plural(warps, "warp")} fit: ${blocks * warps} of ` +
        `${gpu.max_warps} warp slots. Limited by ${names}.`,
      `${plural(state.grid, "block")} for ${plural(gpu.sms, "SM")}: ${dealt}`];
  return [
    html("div", { class: "lt-occ-figures", "aria-live": "polite" }, [
      figure("theoretical", state.theoretical, theory),
      figure("achieved", state.achieved, reality),
    ]),
    html("h4", {}, [`One SM of ${gpu.title}`]),
    drawSm(state),
    keys([
      [swatch("lt-occ-here"), "a warp of your grid, with its block's number"],
      [swatch("lt-hatched"), "room that the grid leaves empty"],
      [swatch("lt-occ-closed"), "closed by the limits"],
    ]),
    html("h4", {}, ["The whole GPU: how full each SM is"]),
    drawGpu(state),
    html("h4", {}, [LIMITS_TITLE]),
    drawLimits(state),
  ];
}

export default viewOf("lt-occ", "Occupancy of one SM",
  ["gpu", "threads", "registers", "smem", "max_blocks", "grid"], draw);

// Words and drawings of the game: small parts, and the plot at its end.
const OVER_SHOWN = [0.005, 2];
const OVER_TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2];
const RUN_TICKS = [1, 2, 5, 10, 20, 50, 100];
const CURVE_DASHES = ["2 3", "7 3", "10 3 2 3", "", "16 4", "2 9"];
const PLOT = { width: 440, height: 300, left: 58, right: 428, top: 12, bottom: 256 };

// ---------------------------------------------------------------- words

const us = (time) => `${time.toFixed(2)} us`;
const signed = (share) => `${share > 0 ? "+" : ""}${percent(share)}`;
// A gain in words; what is no gain is a loss.
const sayGain = (share) => `${share < 0 ? "loses" : "gains"} ${percent(Math.abs(share))}`;
const sayClass = (tables, number) => tables.classes[number].replace("_", " ");
// Where a point of the frontier comes from, by the number of its round.
const sayOrigin = (number) => (number ? `a candidate of round ${number}` : "the start");

function titles(tables, methods) {
  return methods.map((m) => tables.methods[m].title).join(" + ") || "no method, other sizes alone";
}

const sayKnob = (tables, n, value) => `${tables.knobs[n]}=${value}`;
const sayForm = (form) => Object.entries(form).map(([knob, value]) => `${knob}=${value}`).join(" ");

// The knobs in which some points differ; of one point those in which it differs from another.
function sayKnobs(tables, place, others) {
  const told = tables.points[place].knobs.map((value, n) => [n, value]).filter(([n, value]) =>
    others.some((other) => tables.points[other].knobs[n] !== value));
  return told.map(([n, value]) => sayKnob(tables, n, value)).join(" ") || "the same knobs";
}

function sayRetry(tables, m, { form, knob, value }) {
  return [...(form === null ? [] : [sayForm(tables.methods[m].forms[form])]),
    ...(knob === null ? [] : [sayKnob(tables, knob, value)])].join(" beside ");
}

function sayRatio(ratio) {
  const factor = Math.max(ratio, 1 / ratio);
  if (factor.toFixed(2) === "1.00") return "the same";
  return `${factor.toFixed(factor < 10 ? 2 : 1)} times ${ratio >= 1 ? "faster" : "slower"}`;
}

// What the knobs are, folded: the values of each, what it changes, and what of a round sets it.
function foldKnobs(tables) {
  const setBy = ({ name }) => tables.methods
    .map((one) => [one.title, new Set(one.forms.map((form) => form[name]))])
    .filter(([, values]) => !values.has(undefined))
    .map(([title, values]) => `“${title}” (${[...values].join(", ")})`).join(", ");
  return fold("What the knobs mean", [
    paragraph(["In brackets stand the values of a knob, and those that a method sets."]),
    bullets(tables.knobs_told.map((knob) => [
      code(knob.name), ` (${knob.values.join(", ")}). ${capital(knob.doc)}.`,
      setBy(knob) && ` Set by ${setBy(knob)}.`, knob.size && " Branches try its values."])),
  ], "lt-loop-knobs");
}

// ---------------------------------------------------------------- drawings

function gapBar(gap) {
  if (gap === null) return "missing";
  return html("span", { class: "lt-loop-gap" }, [
    html("span", { class: "lt-loop-bar lt-hatched", style: `--share:${gap.toFixed(3)}`,
      "aria-hidden": "true" }), html("span", {}, [gap.toFixed(2)])]);
}

// The reader's run beside the searches: the best time so far against the candidates timed.
function drawSearches(tables, state) {
  const curves = [
    ...tables.searches.map((one, n) => ({ best: one.best_us,
      title: one.title, told: `${one.title}, median of ${plural(one.seeds, "seed")}`,
      look: { "stroke-width": 1.6, "stroke-dasharray": CURVE_DASHES[n % CURVE_DASHES.length] } })),
    { title: "you", told: "you", best: bestAfter(state.runs),
      look: { "stroke-width": 4, "stroke-dasharray": "" } },
  ];
  const most = Math.max(...curves.map((one) => one.best.length));
  const x = logScale([1, most], PLOT.left, PLOT.right);
  const inside = (over) => Math.min(Math.max(over, OVER_SHOWN[0]), OVER_SHOWN[1]);
  const upwards = logScale(OVER_SHOWN, PLOT.bottom, PLOT.top);
  const y = (over) => upwards(inside(over));
  const over = (time) => time / tables.best_us - 1;
  const across = (height, look) => line(PLOT.left, height, PLOT.right, height, look);
  const pathOf = (best) => best.reduce((path, time, n) => {
    if (time === null) return path;
    const [px, py] = [x(n + 1).toFixed(1), y(over(time)).toFixed(1)];
    return path ? `${path}H${px}V${py}` : `M${px} ${py}`;
  }, "");
  const said = curves.map(({ title, best }) => {
    const last = best[best.length - 1];
    return `${title}: ${last === null ? "no time" : percent(over(last))} over it after ${best.length}`;
  });
  const mine = curves[curves.length - 1].best;
  const near = tables.near - 1;
  const drawn = picture(PLOT.width, PLOT.height, "The best time so far, over the fastest point of the " +
    `grid, against the candidates timed, both on logarithmic axes. ${said.join("; ")}.`,
  "lt-loop-plot", [
    ...OVER_TICKS.flatMap((share) => [across(y(share), { class: "lt-grid" }),
      words(PLOT.left - 6, y(share) + 5, `${100 * share} %`, { "text-anchor": "end" })]),
    ...RUN_TICKS.filter((count) => count <= most).flatMap((count) => [
      line(x(count), PLOT.top, x(count), PLOT.bottom, { class: "lt-grid" }),
      words(x(count), PLOT.bottom + 18, count, MIDDLE)]),
    across(y(near), { "stroke-dasharray": "1 3" }),
    ...curves.map(({ best, look }) => svg("path", { d: pathOf(best), fill: "none", ...INK, ...look })),
    svg("circle", { cx: x(mine.length), cy: y(over(mine[mine.length - 1])), r: 6, fill: "currentColor" }),
    words((PLOT.left + PLOT.right) / 2, PLOT.height - 8, "candidates timed", MIDDLE),
  ]);
  return html("figure", { class: "lt-loop-figure" }, [
    drawn,
    bullets(curves.map(({ told, look }) => [
      svg("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" }, [line(0, 6, 36, 6, look)]), told]),
    "lt-drawn-keys"),
    html("figcaption", {}, ["Best so far, in percent over the fastest of all " +
      `${tables.points_in_all} recorded points, against candidates timed. The dotted line is ` +
      `${percent(near, 0)}. A curve at the lower edge is ${percent(OVER_SHOWN[0])} off or less. `,
    mark(tables.word)]),
  ]);
}

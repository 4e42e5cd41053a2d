// How the effect of leaving a method out is drawn, and what the machine code says of it: for every
// view that shows one. A ratio is the time without the method over the time with it.
const EDGE = 10; // the scale goes from 1/10 to 10 times

// Percent of the width. Around 1 the scale is stretched, so that the threshold can be seen.
function placeOf(ratio, threshold) {
  const bend = (value) => Math.asinh(Math.log(value) / threshold);
  return 50 + 49 * Math.max(-1, Math.min(1, bend(ratio) / bend(EDGE)));
}

function span(name, from, to, threshold) {
  const [left, right] = [placeOf(from, threshold), placeOf(to, threshold)];
  return html("div", { class: name, "aria-hidden": "true",
    style: `left:${left.toFixed(2)}%;width:${(right - left).toFixed(2)}%` });
}

function spot(name, ratio, threshold) {
  return html("div", { class: name, "aria-hidden": "true",
    style: `left:${placeOf(ratio, threshold).toFixed(2)}%` });
}

// The scale with its marks: the threshold on both sides of 1, then what is given.
const track = (threshold, marks) => html("div", { class: "lt-effect-track" }, [
  span("lt-effect-band", 1 - threshold, 1 + threshold, threshold),
  spot("lt-effect-one", 1, threshold), ...marks]);

function intervalOf(cell, threshold) {
  return [span("lt-effect-interval", cell.low, cell.high, threshold),
    spot("lt-effect-point", cell.ratio, threshold)];
}

// What was looked for in the machine code, counted with the method and without.
function proofTable({ kind, rows }, options) {
  const head = kind === "signature" ? "instructions that match" : "number";
  return rows.length > 0 && table([head, "with it", "without it"],
    rows.map(([name, ...counts]) => [code(name), ...counts]), options);
}

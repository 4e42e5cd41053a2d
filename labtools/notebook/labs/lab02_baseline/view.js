// Draws what is inside one timed call: one bar cut into its steps, and one for what was measured.
// All numbers and sentences were made by Python.
const WIDTH = 640;
const ROW = 34;

function draw(tables, candidate, gpu, size) {
  const id = freshId("lt-tl");
  const { longest_us: longest, floor_us: floorUs, floor_text: floorText, candidates } =
    tables.cells[gpu][size];
  const cell = candidates[candidate];
  const scale = WIDTH / longest;
  const fills = [{ fill: "currentColor", "fill-opacity": 0.75 },
    ...["hatch", "dots", "cross"].map((name) => ({ fill: `url(#${id}-${name})` })), { fill: "none" }];
  const fillOf = (number) => fills[number % fills.length];
  const bar = (row, start, length, fill) => rect(2 + start * scale, 4 + row * ROW,
    Math.max(length * scale, 0.6), ROW - 10, fill);
  const height = (1 + cell.measured.length) * ROW;
  const floor = 2 + floorUs * scale;
  return [
    html("div", { "aria-live": "polite" }, [
      headline(cell.total_text, "by bytes", "computed"),
      ...cell.measured.map((one) => headline(one.time_text, one.what, one.word)),
      headline(floorText, "floor (dashed)", "computed"),
      ...cell.notes.map((note) => paragraph([note])),
    ]),
    picture(WIDTH + 4, height + 4, cell.alt, "lt-tl-picture", [
      patterns(id),
      ...cell.steps.map((step, n) => bar(0, step.start_us, step.time_us, fillOf(n))),
      ...cell.measured.map((one, n) =>
        bar(n + 1, 0, one.time_us, { fill: "currentColor", "fill-opacity": 0.25 })),
      line(floor, 0, floor, height, { "stroke-dasharray": "4 3", "stroke-width": 2 }),
    ]),
    table(["", "inside the timed call", "bytes", "time"], cell.steps.map((step, n) => [
      svg("svg", { width: 22, height: 16, "aria-hidden": "true" }, [rect(1, 1, 20, 14, fillOf(n))]),
      step.label, step.bytes_text, step.time_text]), { name: "lt-tl-steps" }),
  ];
}

export default viewOf("lt-tl", "Inside the timed call", ["candidate", "gpu", "size"], draw);

// Draws where the rows of a tile begin and what the tools said. Everything shown is looked up in
// tables that Python made; nothing is computed here.
const COPY = 16;
const COLUMNS = ["halves per row", "the kernel", "bytes per row", "copies that miss",
  "16-byte copy, ways", "matrix load, ways", "down a column, ways"];

const quoted = (text) => html("div", { class: "lt-sanitizer-code" }, [text]);

const [LANE, CELL, TALL] = [8, 48, 20]; // rows a line, and the place of one

function drawRows(starts) {
  const id = freshId("lt-sanitizer");
  const isOff = (start) => start % COPY !== 0;
  const look = (off) => `lt-sanitizer-row lt-sanitizer-row-${off ? "off" : "on"}`;
  const label = `${starts.filter(isOff).length} of ${starts.length} rows begin at no multiple of ` +
    `${COPY} bytes`;
  const cells = starts.flatMap((start, row) => {
    const [x, y] = [1 + CELL * (row % LANE), 1 + TALL * Math.floor(row / LANE)];
    const box = rect(x, y, CELL - 3, TALL - 3, { class: look(isOff(start)),
      fill: isOff(start) ? `url(#${id}-hatch)` : "none" });
    box.append(svg("title", {}, [`row ${row} begins at 0x${start.toString(16)}`]));
    return [box, words(x + CELL / 2 - 1.5, y + TALL / 2 + 3, start.toString(16))];
  });
  return [
    paragraph(["Where the rows of a tile begin, in bytes (hexadecimal) ", mark("computed")]),
    picture(CELL * LANE, TALL * Math.ceil(starts.length / LANE), label, "lt-sanitizer-rows",
      [patterns(id), ...cells]),
    keys([[swatch(look(false)), `a multiple of ${COPY}`], [swatch(look(true)), "not"]]),
  ];
}

function sayRun(run) {
  const where = run.file === null ? "" : `${run.file}, line ${run.line}, ` +
    `block (${run.block.join(", ")}), thread (${run.thread.join(", ")}): `;
  return [
    html("div", { class: "lt-value lt-sanitizer-outcome", "aria-live": "polite" },
      [`${run.outcome} `, mark("computed")]),
    html("div", {}, [`The CPU runner: ${where}${run.message}.`]),
    run.code && quoted(`${run.line} | ${run.code}`),
  ];
}

function sayReport(report) {
  if (!report?.verdict) {
    return [html("div", {}, ["No report of compute-sanitizer was recorded for this point."])];
  }
  return [html("div", {}, [`compute-sanitizer, memcheck: ${report.verdict}, ${report.where} `,
    mark("recorded")]), report.lines.map(quoted)];
}

function draw(tables, stride, repair) {
  const cell = tables.cells[stride];
  return [
    html("div", { class: "lt-now" }, [
      html("div", {}, [`p01, ${tables.strides[stride]} halves per row, ${cell.row_bytes} bytes; ` +
        `repaired of its arithmetic: ${tables.repairs[repair]}`]),
      ...sayRun(cell.runs[repair]),
      ...sayReport(cell.reports[repair]),
    ]),
    ...drawRows(cell.starts),
    table(COLUMNS, tables.cells.map((one, place) => [tables.strides[place],
      one.runs[repair].outcome, one.row_bytes, `${one.missing} of ${one.copies}`,
      ...one.ways.map((ways) => ways ?? "faults")]), {
      label: "Every length of a row, in numbers", name: "lt-numbers lt-stacks",
      rowClass: (place) => (place === stride ? "lt-chosen" : "") }),
  ];
}

export default viewOf("lt-sanitizer", "What the length of a row does to p01", ["stride", "repair"],
  draw);

// Draws what a split call is made of. Everything shown is looked up in tables that Python made;
// nothing is computed here but places on the screen.
const PARTS = { decode: "decode launch", merge: "merge launch", launch: "launching" };
const COLUMNS = ["pieces", "blocks", "rows per block", "decode us", "merge us", "launching us",
  "forecast us", "recorded us", "KiB in flight per SM", "L2 in use %", "bound"];
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [560, 300, 56, 46, 26];

const say = (us) => (us >= 100 ? us.toFixed(0) : us.toPrecision(3));

function drawBars(row, pieces, chosen) {
  const id = freshId("lt-split");
  const fills = { decode: "currentColor", merge: `url(#${id}-hatch)`, launch: `url(#${id}-dots)` };
  const most = 1.12 * Math.max(...row.map((cell) => Math.max(cell.time, cell.recorded ?? 0)));
  const y = (us) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * us) / most;
  const step = (WIDTH - LEFT) / row.length;
  const label = `Time of a call by pieces, forecast: ${row.map((cell, place) =>
    `${plural(pieces[place], "piece")} ${say(cell.time)} microseconds, bound by ${cell.bound}`)
    .join("; ")}.`;
  const drawn = picture(WIDTH, HEIGHT, label, "lt-split-bars", [
    patterns(id),
    line(LEFT, y(0), WIDTH, y(0)),
    words(LEFT - 8, y(0) + 4, "0", { "text-anchor": "end" }),
    words(LEFT - 8, TOP - 8, "us", { "text-anchor": "end" }),
    words((LEFT + WIDTH) / 2, HEIGHT - 4, "pieces of a sequence", MIDDLE),
    line(LEFT, y(row[0].memory), WIDTH, y(row[0].memory), { "stroke-dasharray": "7 4" }),
    line(LEFT, y(row[0].l2), WIDTH, y(row[0].l2), { "stroke-dasharray": "2 3" }),
  ]);
  row.forEach((cell, place) => {
    const x = LEFT + place * step + 0.18 * step;
    const wide = 0.64 * step;
    let below = 0;
    for (const part of Object.keys(PARTS)) {
      const above = below + cell[part];
      drawn.append(rect(x, y(above), wide, y(below) - y(above), { fill: fills[part],
        "fill-opacity": part === "decode" ? 0.55 : 1, class: `lt-split-${part}` }));
      below = above;
    }
    drawn.append(
      words(x + wide / 2, y(cell.time) - 6, say(cell.time), MIDDLE),
      words(x + wide / 2, HEIGHT - BOTTOM + 18, pieces[place],
        { ...MIDDLE, "font-weight": place === chosen ? 700 : 400 }));
    if (cell.recorded !== null) {
      drawn.append(svg("circle", { cx: x + wide, cy: y(cell.recorded), r: 5,
        class: "lt-split-recorded" }));
    }
    if (place === chosen) {
      drawn.append(rect(x - 5, TOP - 4, wide + 10, HEIGHT - BOTTOM - TOP + 29,
        { fill: "none", "stroke-width": 2.5, rx: 4 }));
    }
  });
  return drawn;
}

function draw(tables, batch, length, chosen) {
  const row = tables.cells[batch][length];
  const cell = row[chosen];
  const fastest = row.reduce((best, one, place) => (one.time < row[best].time ? place : best), 0);
  const said = cell.recorded === null ? ["not measured yet"]
    : [`recorded ${say(cell.recorded)} us `, mark("recorded")];
  return [
    now([
      html("div", { class: "lt-value" }, [`${say(cell.time)} us `, mark("forecast")]),
      html("div", {}, [`${tables.rung}, batch ${tables.batches[batch]}, ` +
        `${tables.lengths[length]} tokens, ${plural(tables.pieces[chosen], "piece")}: bound by `,
      html("strong", { class: "lt-split-bound" }, [cell.bound]),
      `. ${cell.blocks} blocks of ${cell.rows} rows.`]),
      html("div", {}, ["On ", tables.gpu, ": ", ...said, "."]),
      html("div", {}, [`The fastest of these bars is ${plural(tables.pieces[fastest], "piece")}, ` +
        `${say(row[fastest].time)} us `, mark("forecast")]),
    ]),
    drawBars(row, tables.pieces, chosen),
    keys([
      ...Object.entries(PARTS).map(([part, text]) =>
        [swatch(part === "merge" ? "lt-hatched" : `lt-split-of-${part}`), text]),
      [swatch("lt-split-of-memory"), `K and V from memory alone, ${say(row[0].memory)} us`],
      [swatch("lt-split-of-l2"), `all requests from the L2 alone, ${say(row[0].l2)} us`],
      [swatch("lt-split-of-recorded"), "recorded, where it is there"],
    ]),
    table(COLUMNS, row.map((one, place) => [tables.pieces[place], one.blocks, one.rows,
      say(one.decode), say(one.merge), say(one.launch), say(one.time),
      one.recorded === null ? "-" : say(one.recorded), one.in_flight_kib, one.l2_pct, one.bound]), {
      label: "The same in numbers, a row for each number of pieces",
      name: "lt-numbers lt-stacks lt-split-table",
      rowClass: (place) => (place === chosen ? "lt-chosen" : "") }),
  ];
}

export default viewOf("lt-split", "What a split call is made of", ["batch", "length", "pieces"], draw);

// Draws what a split call is made of. Everything shown is looked up in tables that Python made;
// nothing is computed here but places on the screen.
const INDEXES = ["batch_index", "length_index", "pieces_index"];
const PARTS = [
  ["decode", "decode launch"],
  ["merge", "merge launch"],
  ["launch", "launching"],
];
const WIDTH = 560;
const HEIGHT = 300;
const LEFT = 56;
const BOTTOM = 46;
const TOP = 26;

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function say(us) {
  return us >= 100 ? us.toFixed(0) : us.toPrecision(3);
}

function plainBadge(word) {
  return html("span", { class: `prov prov-${word} lt-split-badge` }, [word]);
}

function patterns(ids) {
  const line = { x1: 0, y1: 0, x2: 0, y2: 6, stroke: "currentColor", "stroke-width": 2 };
  return svg("defs", {}, [
    svg("pattern", { id: ids.merge, width: 6, height: 6, patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)" }, [svg("line", line)]),
    svg("pattern", { id: ids.launch, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
      [svg("circle", { cx: 3, cy: 3, r: 1.1, fill: "currentColor" })]),
  ]);
}

function fills(ids) {
  return { decode: "currentColor", merge: `url(#${ids.merge})`, launch: `url(#${ids.launch})` };
}

function drawBars(state, ids) {
  const { row, pieces, chosen } = state;
  const most = 1.12 * Math.max(...row.map((cell) => Math.max(cell.time, cell.recorded ?? 0)));
  const y = (us) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * us) / most;
  const step = (WIDTH - LEFT) / row.length;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "lt-split-bars",
    role: "img" }, [patterns(ids)]);
  picture.append(
    svg("line", { x1: LEFT, x2: WIDTH, y1: y(0), y2: y(0), stroke: "currentColor" }),
    svg("text", { x: LEFT - 8, y: y(0) + 4, class: "lt-split-scale" }, ["0"]),
    svg("text", { x: LEFT - 8, y: TOP - 8, class: "lt-split-scale" }, ["us"]),
    svg("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, class: "lt-split-axis" },
      ["pieces of a sequence"]),
  );
  for (const [name, dash] of [["memory", "7 4"], ["l2", "2 3"]]) {
    const level = y(row[0][name]);
    picture.append(svg("line", { x1: LEFT, x2: WIDTH, y1: level, y2: level,
      stroke: "currentColor", "stroke-dasharray": dash, class: `lt-split-limit-${name}` }));
  }
  row.forEach((cell, place) => {
    const x = LEFT + place * step + 0.18 * step;
    const wide = 0.64 * step;
    let below = 0;
    for (const [part] of PARTS) {
      const tall = y(below) - y(below + cell[part]);
      picture.append(svg("rect", { x, y: y(below + cell[part]), width: wide, height: tall,
        fill: fills(ids)[part], stroke: "currentColor", "fill-opacity": part === "decode" ? 0.55 : 1,
        class: `lt-split-${part}` }));
      below += cell[part];
    }
    picture.append(svg("text", { x: x + wide / 2, y: y(cell.time) - 6, class: "lt-split-value" },
      [say(cell.time)]));
    picture.append(svg("text", { x: x + wide / 2, y: HEIGHT - BOTTOM + 18,
      class: `lt-split-pieces${place === chosen ? " lt-split-chosen" : ""}` }, [`${pieces[place]}`]));
    if (cell.recorded !== null) {
      picture.append(svg("circle", { cx: x + wide, cy: y(cell.recorded), r: 5,
        class: "lt-split-recorded" }));
    }
    if (place === chosen) {
      picture.append(svg("rect", { x: x - 5, y: TOP - 4, width: wide + 10,
        height: HEIGHT - BOTTOM - TOP + 29, fill: "none", stroke: "currentColor",
        "stroke-width": 2.5, rx: 4, class: "lt-split-frame" }));
    }
  });
  picture.setAttribute("aria-label", `Time of a call by pieces, forecast: ${row.map((cell, place) =>
    `${plural(pieces[place], "piece")} ${say(cell.time)} microseconds, bound by ${cell.bound}`).join("; ")}.`);
  return picture;
}

function swatch(name) {
  return html("span", { class: `lt-split-swatch lt-split-swatch-${name}`, "aria-hidden": "true" });
}

function keys(row) {
  const items = PARTS.map(([part, text]) =>
    html("span", { class: "lt-split-key" }, [swatch(part), ` ${text}`]));
  items.push(
    html("span", { class: "lt-split-key" }, [swatch("memory"),
      ` K and V from memory alone, ${say(row[0].memory)} us`]),
    html("span", { class: "lt-split-key" }, [swatch("l2"),
      ` all requests from the L2 alone, ${say(row[0].l2)} us`]),
    html("span", { class: "lt-split-key" }, [swatch("recorded"), " recorded, where it is there"]));
  return html("p", { class: "lt-split-keys" }, items);
}

function drawTable(state) {
  const columns = ["pieces", "blocks", "rows a block", "decode us", "merge us", "launching us",
    "forecast us", "recorded us", "KiB in flight an SM", "L2 in use %", "bound"];
  const body = state.row.map((cell, place) => html("tr",
    { class: place === state.chosen ? "lt-split-chosen" : "" }, [
      html("th", { scope: "row", "data-column": columns[0] }, [`${state.pieces[place]}`]),
      ...[cell.blocks, cell.rows, say(cell.decode), say(cell.merge), say(cell.launch),
        say(cell.time), cell.recorded === null ? "-" : say(cell.recorded), cell.in_flight_kib,
        cell.l2_pct, cell.bound].map((text, n) =>
        html("td", { "data-column": columns[n + 1] }, [`${text}`])),
    ]));
  const table = html("table", { "aria-label": "The same in numbers" }, [
    html("thead", {}, [html("tr", {}, columns.map((name) => html("th", { scope: "col" }, [name])))]),
    html("tbody", {}, body),
  ]);
  return html("div", { class: "lt-split-table", tabindex: "0", role: "region",
    "aria-label": "The same in numbers, a row for each number of pieces" }, [table]);
}

function render({ model, el }) {
  const ids = { merge: freshId("lt-split-merge"), launch: freshId("lt-split-launch") };
  const root = html("section", { class: "lt-split", "aria-label": "What a split call is made of" });
  el.append(root);

  function draw() {
    const tables = model.get("tables");
    const [batch, length, chosen] = INDEXES.map((name) => model.get(name));
    const row = tables.cells[batch][length];
    const cell = row[chosen];
    const state = { row, chosen, pieces: tables.pieces };
    const fastest = row.reduce((best, one, place) => (one.time < row[best].time ? place : best), 0);
    const said = cell.recorded === null ? ["not measured yet"]
      : [`recorded ${say(cell.recorded)} us `, plainBadge("recorded")];
    root.replaceChildren(
      html("div", { class: "lt-split-now", "aria-live": "polite" }, [
        html("div", { class: "lt-split-time" }, [`${say(cell.time)} us `, plainBadge("forecast")]),
        html("div", {}, [`${tables.rung}, batch ${tables.batches[batch]}, ` +
          `${tables.lengths[length]} tokens, ${plural(tables.pieces[chosen], "piece")}: bound by `,
          html("strong", { class: "lt-split-bound" }, [cell.bound]),
          `. ${cell.blocks} blocks of ${cell.rows} rows.`]),
        html("div", {}, ["On ", tables.gpu, ": ", ...said, "."]),
        html("div", {}, [`The fastest of these bars is ${plural(tables.pieces[fastest], "piece")}, ` +
          `${say(row[fastest].time)} us `, plainBadge("forecast")]),
      ]),
      drawBars(state, ids),
      keys(row),
      drawTable(state),
    );
  }

  return drawAndRedraw(model, el, [...INDEXES, "tables"], draw);
}

export default { render };

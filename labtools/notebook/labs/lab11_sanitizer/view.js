// Draws where the rows of a tile begin and what the tools said. Everything shown is looked up in
// tables that Python made; nothing is computed here.
const INDEXES = ["stride_index", "repair_index"];
const COPY = 16;

function hex(number) {
  return number.toString(16);
}

function mark(word) {
  return badge(word, "lt-sanitizer-badge");
}

function drawRows(cell) {
  const off = (start) => start % COPY !== 0;
  const text = `${cell.starts.filter(off).length} of ${cell.starts.length} rows begin at no ` +
    `multiple of ${COPY} bytes`;
  const boxes = cell.starts.map((start, row) => html("span", {
    class: `lt-sanitizer-row lt-sanitizer-row-${off(start) ? "off" : "on"}`,
    title: `row ${row} begins at 0x${hex(start)}`,
  }, [hex(start)]));
  return [
    html("p", { style: "margin:0.8em 0 0" },
      ["Where the rows of a tile begin, in bytes, hexadecimal, eight rows a line ", mark("computed")]),
    html("div", { class: "lt-sanitizer-rows", role: "img", "aria-label": text }, boxes),
    html("p", { class: "lt-sanitizer-keys" }, [
      html("span", {}, [html("span", { class: "lt-sanitizer-row lt-sanitizer-row-on lt-sanitizer-swatch" }),
        ` a multiple of ${COPY}`]),
      html("span", {}, [html("span", { class: "lt-sanitizer-row lt-sanitizer-row-off lt-sanitizer-swatch" }),
        " not"]),
    ]),
  ];
}

function drawRun(run) {
  const parts = [html("div", { class: "lt-sanitizer-outcome", "aria-live": "polite" },
    [`${run.outcome} `, mark("computed")])];
  const where = run.file === null ? "" : `${run.file}, line ${run.line}, ` +
    `block (${run.block.join(", ")}), thread (${run.thread.join(", ")}): `;
  parts.push(html("div", {}, [`The CPU runner: ${where}${run.message}.`]));
  if (run.code) parts.push(html("div", { class: "lt-sanitizer-code" }, [`${run.line} | ${run.code}`]));
  return parts;
}

function drawReport(report) {
  if (!report || !report.verdict) {
    return [html("div", {}, ["No report of compute-sanitizer was recorded for this point."])];
  }
  const parts = [html("div", {}, [`compute-sanitizer, memcheck: ${report.verdict}, ${report.where} `,
    mark("recorded")])];
  for (const line of report.lines) parts.push(html("div", { class: "lt-sanitizer-code" }, [line]));
  return parts;
}

function drawTable(tables, stride, repair) {
  const columns = ["halfs a row", "the kernel", "bytes a row", "copies that miss",
    "16-byte copy, ways", "matrix load, ways", "down a column, ways"];
  const body = tables.cells.map((cell, place) => html("tr",
    { class: place === stride ? "lt-sanitizer-chosen" : "" }, [
      html("th", { scope: "row", "data-column": columns[0] }, [`${tables.strides[place]}`]),
      ...[cell.runs[repair].outcome, cell.row_bytes, `${cell.missing} of ${cell.copies}`,
        ...cell.ways.map((ways) => (ways === null ? "faults" : ways))].map((text, n) =>
        html("td", { "data-column": columns[n + 1] }, [`${text}`])),
    ]));
  const table = html("table", { "aria-label": "Every length of a row" }, [
    html("thead", {}, [html("tr", {}, columns.map((name) => html("th", { scope: "col" }, [name])))]),
    html("tbody", {}, body),
  ]);
  return html("div", { class: "lt-sanitizer-table", tabindex: "0", role: "region",
    "aria-label": "Every length of a row, in numbers" }, [table]);
}

function render({ model, el }) {
  const root = html("section", { class: "lt-sanitizer",
    "aria-label": "What the length of a row does to p01" });
  el.append(root);

  function draw() {
    const tables = model.get("tables");
    const [stride, repair] = INDEXES.map((name) => model.get(name));
    const cell = tables.cells[stride];
    root.replaceChildren(
      html("div", { class: "lt-sanitizer-now" }, [
        html("div", {}, [`p01, ${tables.strides[stride]} halfs a row, ${cell.row_bytes} bytes; ` +
          `repaired of its arithmetic: ${tables.repairs[repair]}`]),
        ...drawRun(cell.runs[repair]),
        ...drawReport(cell.reports[repair]),
      ]),
      ...drawRows(cell),
      drawTable(tables, stride, repair),
    );
  }

  return drawAndRedraw(model, el, [...INDEXES, "tables"], draw);
}

export default { render };

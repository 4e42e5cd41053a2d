// Draws what is inside one timed call: one bar cut into its steps, and one for what was measured.
// All numbers and sentences were made by Python.
const INDEXES = ["candidate_index", "gpu_index", "size_index"];
const WIDTH = 640;
const ROW = 34;
const FILLS = ["solid", "hatch", "dots", "cross", "empty"];

function patterns(id) {
  const line = (x1, y1, x2, y2) => svg("line", { x1, y1, x2, y2, stroke: "currentColor" });
  const make = (name, size, children, transform) =>
    svg("pattern", { id: `${id}-${name}`, width: size, height: size,
      patternUnits: "userSpaceOnUse", ...(transform ? { patternTransform: transform } : {}) },
      children);
  return svg("defs", {}, [
    make("hatch", 6, [line(0, 0, 0, 6)], "rotate(45)"),
    make("dots", 6, [svg("circle", { cx: 3, cy: 3, r: 1.3, fill: "currentColor" })]),
    make("cross", 7, [line(0, 0, 0, 7), line(0, 0, 7, 0)], "rotate(45)"),
  ]);
}

function fillOf(id, position) {
  const name = FILLS[position % FILLS.length];
  if (name === "solid") return { fill: "currentColor", "fill-opacity": 0.75 };
  if (name === "empty") return { fill: "none" };
  return { fill: `url(#${id}-${name})` };
}

function headline(number, what, word) {
  return html("p", { class: "lt-tl-headline" }, [
    html("span", { class: "lt-tl-value" }, [number]), ` ${what} `, badge(word, "lt-tl-badge")]);
}

function render({ model, el }) {
  const id = freshId("lt-tl");
  const root = html("section", { class: "lt-tl", "aria-label": "Inside the timed call" });
  el.append(root);

  function bar(y, start, length, fill) {
    return svg("rect", { x: start, y, width: Math.max(length, 0.6), height: ROW - 10,
      stroke: "currentColor", ...fill });
  }

  function draw() {
    const tables = model.get("tables");
    const [c, g, s] = INDEXES.map((name) => model.get(name));
    const cell = tables.cells[g][s].candidates[c];
    const scale = WIDTH / tables.cells[g][s].longest_us;
    const height = (1 + cell.measured.length) * ROW;
    const picture = svg("svg", { viewBox: `-2 0 ${WIDTH + 4} ${height + 4}`, role: "img",
      class: "lt-tl-picture", "aria-label": cell.alt }, [patterns(id)]);
    cell.steps.forEach((step, i) => {
      picture.append(bar(4, step.start_us * scale, step.time_us * scale, fillOf(id, i)));
    });
    for (const [i, measured] of cell.measured.entries()) {
      picture.append(bar(4 + (i + 1) * ROW, 0, measured.time_us * scale,
        { fill: "currentColor", "fill-opacity": 0.25 }));
    }
    const floor = tables.cells[g][s].floor_us * scale;
    picture.append(svg("line", { x1: floor, x2: floor, y1: 0, y2: height, stroke: "currentColor",
      "stroke-dasharray": "4 3", "stroke-width": 2 }));

    const steps = cell.steps.map((step, i) => {
      const swatch = svg("svg", { width: 22, height: 16, "aria-hidden": "true" },
        [svg("rect", { x: 1, y: 1, width: 20, height: 14, stroke: "currentColor",
          ...fillOf(id, i) })]);
      return html("tr", {}, [html("td", {}, [swatch]), html("td", {}, [step.label]),
        html("td", { class: "lt-tl-right" }, [step.bytes_text]),
        html("td", { class: "lt-tl-right" }, [step.time_text])]);
    });
    root.replaceChildren(
      html("div", { "aria-live": "polite" }, [
        headline(cell.total_text, "by bytes", "computed"),
        ...cell.measured.map((one) => headline(one.time_text, one.what, one.word)),
        headline(tables.cells[g][s].floor_text, "floor (dashed)", "computed"),
        ...cell.notes.map((note) => html("p", {}, [note])),
      ]),
      picture,
      html("table", { class: "lt-tl-steps" }, [
        html("thead", {}, [html("tr", {}, ["", "inside the timed call", "bytes", "time"].map(
          (text) => html("th", { scope: "col" }, [text])))]),
        html("tbody", {}, steps),
      ]),
    );
  }

  return drawAndRedraw(model, el, [...INDEXES, "tables"], draw);
}

export default { render };

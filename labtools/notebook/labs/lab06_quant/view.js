// Draws every scheme of the chosen number of bits as a point, error against bytes, and marks the
// chosen one. All numbers and sentences were made by Python.
const INDEXES = ["bits_index", "k_index", "v_index", "outliers_index"];
const WIDTH = 560;
const HEIGHT = 300;
const LEFT = 78;
const BOTTOM = 44;
const TOP = 34;

function headline(number, what, word) {
  return html("p", { class: "lt-qu-headline" }, [
    html("span", { class: "lt-qu-value" }, [number]), ` ${what} `, badge(word, "lt-qu-badge")]);
}

const text = (x, y, content, anchor = "middle") =>
  svg("text", { x, y, "text-anchor": anchor, class: "lt-qu-label" }, [content]);

function percent(error) {
  return `${(100 * error).toPrecision(3)} %`;
}

// Places on the picture: bytes from left to right, the logarithm of the error from bottom to top.
function scales(points, limit) {
  const bytes = points.map((point) => point.bytes);
  const errors = points.map((point) => point.worst).concat(limit === null ? [] : [limit]);
  const [least, most] = [Math.min(...bytes), Math.max(...bytes)];
  const low = Math.floor(Math.log10(Math.min(...errors)));
  const high = Math.ceil(Math.log10(Math.max(...errors)));
  const span = Math.max(most - least, 1e-9);
  return {
    low, high, least, most,
    x: (value) => LEFT + 14 + (WIDTH - LEFT - 50) * (value - least) / span,
    y: (value) => TOP + (HEIGHT - TOP - BOTTOM) * (high - Math.log10(value)) / (high - low || 1),
  };
}

function draw(points, chosen, limit, alt) {
  const { low, high, least, most, x, y } = scales(points, limit);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    class: "lt-qu-picture", "aria-label": alt });
  for (let power = low; power <= high; power += 1) {
    const height = y(10 ** power);
    picture.append(
      svg("line", { x1: LEFT, x2: WIDTH - 6, y1: height, y2: height, stroke: "currentColor",
        "stroke-opacity": 0.2 }),
      text(LEFT - 6, height + 4, `${Number((100 * 10 ** power).toPrecision(3))} %`, "end"));
  }
  for (const value of [least, (least + most) / 2, most]) {
    picture.append(text(x(value), HEIGHT - BOTTOM + 18, value.toFixed(3)));
  }
  picture.append(text(WIDTH / 2, HEIGHT - 6, "bytes an element"), text(4, 16, "worst error", "start"));
  if (limit !== null) {
    picture.append(svg("line", { x1: LEFT, x2: WIDTH - 6, y1: y(limit), y2: y(limit),
      stroke: "currentColor", "stroke-dasharray": "5 3" }));
  }
  for (const point of points) {
    picture.append(svg("circle", { cx: x(point.bytes), cy: y(point.worst), r: 3.2, fill: "none",
      stroke: "currentColor", "stroke-opacity": 0.65 }));
  }
  picture.append(svg("circle", { cx: x(chosen.bytes), cy: y(chosen.worst), r: 7,
    fill: "currentColor", stroke: "currentColor" }));
  return picture;
}

function render({ model, el }) {
  const root = html("section", { class: "lt-qu", "aria-label": "Error, bytes and time" });
  el.append(root);

  function show() {
    const tables = model.get("tables");
    const [b, k, v, o] = INDEXES.map((name) => model.get(name));
    const cell = tables.cells[b][k][v];
    const [worst, median] = tables.errors[o][b][k][v];
    const limit = tables.limits[b];
    const points = tables.cells[b].flatMap((row, i) => row.map((one, j) => ({
      bytes: one.bytes, worst: tables.errors[o][b][i][j][0] })));
    const better = points.filter((one) => one.bytes <= cell.bytes + 1e-9 && one.worst < worst);
    const rank = better.length === 0
      ? "No scheme of as many bits and at no more bytes has a smaller worst error."
      : `${better.length} of ${points.length} schemes have a smaller worst error at no more bytes.`;
    const verdict = limit === null ? ""
      : ` The limit of ${percent(limit)} (dashed) is ${worst <= limit ? "met" : "missed"}.`;
    const alt = `Error against bytes of ${points.length} schemes of ${tables.bits[b]} bits, ` +
      `outliers: ${tables.outliers[o]}. K ${cell.k}, V ${cell.v}: ${cell.bytes} bytes an element, ` +
      `worst error ${percent(worst)}. ${rank}`;
    const times = cell.times.length
      ? cell.times.map((one) => headline(one.text, one.what, one.word))
      : [html("p", {}, ["No kernel of the ladder reads a cache of this scheme."])];
    root.replaceChildren(
      html("div", { "aria-live": "polite" }, [
        headline(percent(worst), `worst error, median ${percent(median)}`, "computed"),
        headline(String(cell.bytes), "bytes an element, scales included", "computed"),
        headline(cell.floor_text, `least time by bytes, ${tables.where}`, "computed"),
        ...times,
        html("p", {}, [rank + verdict]),
      ]),
      draw(points, { bytes: cell.bytes, worst }, limit, alt),
      html("p", { class: "lt-qu-note" }, [
        `Each ring is a pair of schemes of ${tables.bits[b]} bits; the disc is yours. Error against ` +
        `the unquantised oracle, ${tables.sample}.`]),
    );
  }

  return drawAndRedraw(model, el, [...INDEXES, "tables"], show);
}

export default { render };

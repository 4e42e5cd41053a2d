// Draws every scheme of the chosen number of bits as a point, error against bytes, and marks the
// chosen one. All numbers and sentences were made by Python.
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [560, 300, 78, 44, 34];

const sayError = (error) => `${(100 * error).toPrecision(3)} %`;

// Places: bytes from left to right, the logarithm of the error from bottom to top.
function drawSchemes(points, chosen, limit, label) {
  const bytes = points.map((point) => point.bytes);
  const errors = points.map((point) => point.worst).concat(limit === null ? [] : [limit]);
  const [least, most] = [Math.min(...bytes), Math.max(...bytes)];
  const low = Math.floor(Math.log10(Math.min(...errors)));
  const high = Math.ceil(Math.log10(Math.max(...errors)));
  const x = (value) =>
    LEFT + 14 + ((WIDTH - LEFT - 50) * (value - least)) / Math.max(most - least, 1e-9);
  const y = (value) =>
    TOP + ((HEIGHT - TOP - BOTTOM) * (high - Math.log10(value))) / (high - low || 1);
  const across = (height, attributes) => line(LEFT, height, WIDTH - 6, height, attributes);
  const circle = (point, r, attributes) =>
    svg("circle", { cx: x(point.bytes), cy: y(point.worst), r, ...INK, ...attributes });
  const drawn = picture(WIDTH, HEIGHT, label, "");
  for (let power = low; power <= high; power += 1) {
    const height = y(10 ** power);
    drawn.append(across(height, { class: "lt-grid" }), words(LEFT - 6, height + 4,
      `${Number((100 * 10 ** power).toPrecision(3))} %`, { "text-anchor": "end" }));
  }
  for (const value of [least, (least + most) / 2, most]) {
    drawn.append(words(x(value), HEIGHT - BOTTOM + 18, value.toFixed(3), MIDDLE));
  }
  drawn.append(words(WIDTH / 2, HEIGHT - 6, "bytes an element", MIDDLE), words(4, 16, "worst error"));
  if (limit !== null) drawn.append(across(y(limit), { "stroke-dasharray": "5 3" }));
  drawn.append(
    ...points.map((point) => circle(point, 3.2, { fill: "none", "stroke-opacity": 0.65 })),
    circle(chosen, 7, { fill: "currentColor" }));
  return drawn;
}

function draw(tables, b, k, v, o) {
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
    : ` The limit of ${sayError(limit)} (dashed) is ${worst <= limit ? "met" : "missed"}.`;
  const label = `Error against bytes of ${points.length} schemes of ${tables.bits[b]} bits, ` +
    `outliers: ${tables.outliers[o]}. K ${cell.k}, V ${cell.v}: ${cell.bytes} bytes an element, ` +
    `worst error ${sayError(worst)}. ${rank}`;
  const times = cell.times.length
    ? cell.times.map((one) => headline(one.text, one.what, one.word))
    : [paragraph(["No kernel of the ladder reads a cache of this scheme."])];
  return [
    html("div", { "aria-live": "polite" }, [
      headline(sayError(worst), `worst error, median ${sayError(median)}`, "computed"),
      headline(String(cell.bytes), "bytes an element, scales included", "computed"),
      headline(cell.floor_text, `least time by bytes, ${tables.where}`, "computed"),
      ...times,
      paragraph([rank + verdict]),
    ]),
    drawSchemes(points, { bytes: cell.bytes, worst }, limit, label),
    paragraph([`Each ring is a pair of schemes of ${tables.bits[b]} bits; the disc is yours. Error ` +
      `against the unquantised oracle, ${tables.sample}.`], "lt-note"),
  ];
}

export default viewOf("lt-qu", "Error, bytes and time", ["bits", "k", "v", "outliers"], draw);

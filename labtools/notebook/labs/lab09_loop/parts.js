// Words and drawings of the game: small parts, and the plot at its end.
const CLASS_WORDS = {
  effective: "effective",
  ineffective: "ineffective",
  implementation_failed: "implementation failed",
  undecided: "undecided",
};
const OVER_SHOWN = [0.005, 2];
const OVER_TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2];
const THRESHOLDS_SHOWN = 5;
const RUN_TICKS = [1, 2, 5, 10, 20, 50, 100];
const CURVE_DASHES = ["2 3", "7 3", "10 3 2 3", "", "16 4", "2 9"];
const PLOT = { width: 440, height: 300, left: 58, right: 12, top: 12, bottom: 44 };

// ---------------------------------------------------------------- words

const us = (time) => `${time.toFixed(2)} us`;
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const signed = (share) => `${share > 0 ? "+" : ""}${percent(share)}`;
// A gain in words; what is no gain is a loss.
const sayGain = (share) => `${share < 0 ? "loses" : "gains"} ${percent(Math.abs(share))}`;
const mark = (word) => badge(word, "lt-loop-badge");

function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

function titles(tables, methods) {
  return methods.length
    ? methods.map((m) => tables.methods[m].title).join(" + ")
    : "no method, other sizes alone";
}

// Where a point of the frontier comes from, by the number of its round.
function sayOrigin(number) {
  return number ? `a candidate of round ${number}` : "the start";
}

// The knobs in which some points differ; of one point those in which it differs from another.
function sayKnobs(tables, place, others) {
  const mine = tables.points[place].knobs;
  const told = tables.knobs
    .map((name, n) => [name, mine[n], n])
    .filter(([, value, n]) => others.some((other) => tables.points[other].knobs[n] !== value));
  return told.map(([name, value]) => `${name}=${value}`).join(" ") || "the same knobs";
}

function sayRatio(ratio) {
  const factor = Math.max(ratio, 1 / ratio);
  if (factor.toFixed(2) === "1.00") return "the same";
  return `${factor.toFixed(factor < 10 ? 2 : 1)} times ${ratio >= 1 ? "faster" : "slower"}`;
}

// ---------------------------------------------------------------- parts of the screen

function para(children, name = "") {
  return html("p", name ? { class: name } : {}, children);
}

function press(text, onClick, attributes = {}) {
  const made = html("button", { type: "button", class: "lt-gate-button", ...attributes }, [text]);
  made.addEventListener("click", onClick);
  return made;
}

function table(heads, rows, name = "") {
  const cell = (tag, child, named = {}) =>
    html(tag, named, Array.isArray(child) ? child : [child]);
  return html(
    "div",
    {
      class: `lt-loop-wide ${name}`,
      tabindex: "0",
      role: "region",
      "aria-label": heads.join(", "),
    },
    [
      html("table", {}, [
        html("thead", {}, [
          html(
            "tr",
            {},
            heads.map((head) => cell("th", head)),
          ),
        ]),
        html(
          "tbody",
          {},
          rows.map((row) =>
            html(
              "tr",
              {},
              row.map((child, n) => cell("td", child, { "data-column": heads[n] })),
            ),
          ),
        ),
      ]),
    ],
  );
}

function gapBar(tables, gap) {
  if (gap === null) return "missing";
  return html("span", { class: "lt-loop-gap" }, [
    html("span", {
      class: "lt-loop-bar",
      style: `--share:${gap.toFixed(3)}`,
      "aria-hidden": "true",
    }),
    html("span", {}, [gap.toFixed(2)]),
  ]);
}

// What the knobs are, folded: the values of each, what it changes, and what of a round sets it.
function foldKnobs(tables) {
  const setBy = ({ name }) =>
    tables.methods
      .map((one) => [one.title, new Set(one.forms.map((form) => form[name]))])
      .filter(([, values]) => !values.has(undefined))
      .map(([title, values]) => `“${title}” (${[...values].join(", ")})`);
  const saySetBy = (one) => {
    const methods = setBy(one).join(", ");
    return (methods && ` Set by ${methods}.`) + (one.size ? " Branches try its values." : "");
  };
  return html("details", { class: "lt-loop-knobs" }, [
    html("summary", {}, ["What the knobs mean"]),
    para(["In brackets stand the values of a knob, and those that a method sets."]),
    html(
      "ul",
      {},
      tables.knobs_told.map((one) =>
        html("li", {}, [
          html("code", {}, [one.name]),
          ` (${one.values.join(", ")}). ${one.doc[0].toUpperCase()}${one.doc.slice(1)}.${saySetBy(one)}`,
        ]),
      ),
    ),
  ]);
}

// What lies far off stands at the drawing's edge, or the threshold could not be seen.
function endOfDrawing(tables) {
  return THRESHOLDS_SHOWN * tables.threshold;
}

function sayBeyond(tables, one) {
  const most = endOfDrawing(tables);
  if (Math.abs(one.relative) < most) return "";
  return `The arrow: it is beyond the end of the drawing, at ${signed(Math.sign(one.relative) * most)}.`;
}

// The interval of an effect on a line, with the threshold on both sides of nothing.
function drawInterval(tables, one) {
  const most = endOfDrawing(tables);
  const x = (value) => 110 + (100 * Math.min(Math.max(value, -most), most)) / most;
  const line = (from, to, y, attributes) =>
    svg("line", { x1: x(from), x2: x(to), y1: y, y2: y, stroke: "currentColor", ...attributes });
  const tick = (value, dash) =>
    svg("line", {
      x1: x(value),
      x2: x(value),
      y1: 3,
      y2: 25,
      stroke: "currentColor",
      "stroke-width": 1,
      "stroke-dasharray": dash,
    });
  const said =
    `${signed(one.relative)}, 95 % interval ${signed(one.low)} to ${signed(one.high)}; ` +
    `threshold ${percent(tables.threshold)}. ${sayBeyond(tables, one)}`.trim();
  return svg(
    "svg",
    { viewBox: "0 0 220 28", class: "lt-loop-interval", role: "img", "aria-label": said },
    [
      tick(0, ""),
      tick(tables.threshold, "2 2"),
      tick(-tables.threshold, "2 2"),
      line(one.low, one.high, 14, { "stroke-width": 3 }),
      Math.abs(one.relative) < most
        ? svg("circle", { cx: x(one.relative), cy: 14, r: 4.5, fill: "currentColor" })
        : svg("path", {
            d: one.relative > 0 ? "M202 7l14 7l-14 7z" : "M18 7l-14 7l14 7z",
            fill: "currentColor",
          }),
    ],
  );
}

// ---------------------------------------------------------------- the plot at the end

function drawSearches(tables, state) {
  const mine = bestAfter(state.runs);
  const curves = [
    ...tables.searches.map((one) => ({ title: one.title, seeds: one.seeds, best: one.best_us })),
    { title: "you", best: mine },
  ];
  const most = Math.max(...curves.map((one) => one.best.length));
  const log = (value, [low, high], from, to) =>
    from + ((Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (to - from);
  const x = (count) => log(count, [1, most], PLOT.left, PLOT.width - PLOT.right);
  const y = (over) =>
    log(
      Math.min(Math.max(over, OVER_SHOWN[0]), OVER_SHOWN[1]),
      OVER_SHOWN,
      PLOT.height - PLOT.bottom,
      PLOT.top,
    );
  const over = (time) => time / tables.best_us - 1;
  const said = curves.map((one) => {
    const last = one.best[one.best.length - 1];
    const where = last === null ? "no time" : percent(over(last));
    return `${one.title}: ${where} over it after ${one.best.length}`;
  });
  const picture = svg("svg", {
    viewBox: `0 0 ${PLOT.width} ${PLOT.height}`,
    class: "lt-loop-plot",
    role: "img",
    "aria-label":
      "The best time so far, over the fastest point of the grid, against the " +
      `candidates timed, both on logarithmic axes. ${said.join("; ")}.`,
  });
  const text = (words, attributes) => svg("text", attributes, [words]);
  for (const tick of OVER_TICKS) {
    picture.append(
      svg("line", {
        x1: PLOT.left,
        x2: PLOT.width - PLOT.right,
        y1: y(tick),
        y2: y(tick),
        class: "lt-loop-grid",
      }),
      text(`${100 * tick} %`, { x: PLOT.left - 6, y: y(tick) + 5, "text-anchor": "end" }),
    );
  }
  for (const tick of RUN_TICKS.filter((count) => count <= most)) {
    picture.append(
      svg("line", {
        x1: x(tick),
        x2: x(tick),
        y1: PLOT.top,
        y2: PLOT.height - PLOT.bottom,
        class: "lt-loop-grid",
      }),
      text(String(tick), {
        x: x(tick),
        y: PLOT.height - PLOT.bottom + 18,
        "text-anchor": "middle",
      }),
    );
  }
  const near = tables.near - 1;
  picture.append(
    svg("line", {
      x1: PLOT.left,
      x2: PLOT.width - PLOT.right,
      y1: y(near),
      y2: y(near),
      stroke: "currentColor",
      "stroke-width": 1,
      "stroke-dasharray": "1 3",
    }),
  );
  const shape = (best) => {
    const steps = [];
    best.forEach((time, n) => {
      if (time === null) return;
      const [px, py] = [x(n + 1).toFixed(1), y(over(time)).toFixed(1)];
      steps.push(steps.length ? `H${px}V${py}` : `M${px} ${py}`);
    });
    return steps.join("");
  };
  curves.forEach((one, n) => {
    const me = one.title === "you";
    picture.append(
      svg("path", {
        d: shape(one.best),
        fill: "none",
        stroke: "currentColor",
        "stroke-width": me ? 4 : 1.6,
        "stroke-dasharray": me ? "" : CURVE_DASHES[n % CURVE_DASHES.length],
      }),
    );
  });
  const last = mine.length;
  picture.append(
    svg("circle", { cx: x(last), cy: y(over(mine[last - 1])), r: 6, fill: "currentColor" }),
    text("candidates timed", {
      x: (PLOT.left + PLOT.width) / 2,
      y: PLOT.height - 8,
      "text-anchor": "middle",
    }),
  );
  const key = (one, n) =>
    html("li", {}, [
      svg("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" }, [
        svg("line", {
          x1: 0,
          x2: 36,
          y1: 6,
          y2: 6,
          stroke: "currentColor",
          "stroke-width": one.title === "you" ? 4 : 1.6,
          "stroke-dasharray": one.title === "you" ? "" : CURVE_DASHES[n % CURVE_DASHES.length],
        }),
      ]),
      one.title === "you" ? "you" : `${one.title}, median of ${plural(one.seeds, "seed")}`,
    ]);
  return html("figure", { class: "lt-loop-figure" }, [
    picture,
    html("ul", { class: "lt-loop-keys" }, curves.map(key)),
    html("figcaption", {}, [
      "Best so far, in percent over the fastest of all ",
      `${tables.points_in_all} recorded points, against candidates timed. The dotted line is `,
      `${percent(near, 0)}. A curve at the lower edge is ${percent(OVER_SHOWN[0])} off or less. `,
      mark(tables.word),
    ]),
  ]);
}

// The optimisation loop, played on a recorded grid. What a point took, which points a round can try
// and what class a method is of are looked up in tables that Python made. A game is the text of its
// moves; everything on the screen follows from that text.
const TEXT_VERSION = "1";
const CLASS_WORDS = {
  effective: "effective", ineffective: "ineffective",
  implementation_failed: "implementation failed", undecided: "undecided",
};
const OVER_SHOWN = [0.005, 2];
const OVER_TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2];
const THRESHOLDS_SHOWN = 5;
const RUN_TICKS = [1, 2, 5, 10, 20, 50, 100];
const CURVE_DASHES = ["2 3", "7 3", "10 3 2 3", "", "16 4"];
const PLOT = { width: 440, height: 300, left: 58, right: 12, top: 12, bottom: 44 };

// ---------------------------------------------------------------- the rules of a round

function countAxes(tables, methods) {
  return tables.axes.map((axis) => methods.filter((m) => tables.methods[m].axis === axis).length);
}

// What stands against a method: the four checks at this point, then what earlier rounds found.
function refusalOf(tables, state, method) {
  const [, why] = tables.points[state.at].checks[method];
  if (why >= 0) return tables.texts[why];
  return tables.settled[state.classes[method]] ?? "";
}

// Points that a choice of methods can try and that were not timed before.
function untried(tables, state, methods) {
  const reached = tables.points[state.at].moves[methods.join(",")] ?? [];
  return reached.filter((place) => !state.known.has(place));
}

function whyNothing(tables, state, methods) {
  const point = tables.points[state.at];
  const name = methods.join(",");
  if (point.moves[name]) return "all that comes out of these methods was timed before";
  return name in point.refused ? tables.texts[point.refused[name]] : tables.no_point;
}

// Choices with something to try, for which every method passes.
function openChoices(tables, state) {
  return Object.keys(tables.points[state.at].moves)
    .map((name) => (name === "" ? [] : name.split(",").map(Number)))
    .filter((methods) => methods.every((m) => refusalOf(tables, state, m) === "")
      && untried(tables, state, methods).length);
}

// How many methods an axis may take: its slots, and those that no method of another axis can use.
function roomFor(tables, state, slots) {
  const able = countAxes(tables, tables.methods.map((_, m) => m)
    .filter((m) => refusalOf(tables, state, m) === ""));
  const spare = slots.reduce((sum, count, a) => sum + Math.max(0, count - able[a]), 0);
  return slots.map((count) => Math.min(tables.cap, count + spare));
}

function whyNotSlots(tables, state, slots) {
  const gaps = tables.points[state.at].gaps;
  const total = slots.reduce((sum, count) => sum + count, 0);
  const tiny = slots.findIndex((count, a) => count && (gaps[a] === null || gaps[a] < tables.negligible));
  if (tiny >= 0) return `The ${tables.axes[tiny]} gap is negligible, so it gets no slot.`;
  if (total > tables.slots) return `There are ${tables.slots} slots, and you gave ${total}.`;
  return total ? "" : "Give at least one slot.";
}

function whyNotMethods(tables, state, slots, methods) {
  const refused = methods.find((m) => refusalOf(tables, state, m) !== "");
  if (refused !== undefined) return `${tables.methods[refused].title}: ${refusalOf(tables, state, refused)}.`;
  const room = roomFor(tables, state, slots);
  const over = countAxes(tables, methods).findIndex((count, a) => count > room[a]);
  if (over >= 0) return `You have ${room[over]} slots for ${tables.axes[over]}.`;
  const total = slots.reduce((sum, count) => sum + count, 0);
  if (methods.length > total) return `You gave ${total} slots, and chose ${methods.length} methods.`;
  if (untried(tables, state, methods).length) return "";
  if (!methods.length && !("" in tables.points[state.at].moves)) return "Choose methods.";
  return `This leads nowhere: ${whyNothing(tables, state, methods)}.`;
}

function removalOf(tables, place, method) {
  const row = tables.points[place].removals[method];
  return Object.fromEntries(tables.columns.map((name, n) => [name, row[n]]));
}

// ---------------------------------------------------------------- the moves as text

function sayGuessText({ direction, ratio }) {
  if (direction === "same") return "e";
  return `${direction[0]}${Math.max(101, Math.round(100 * Math.max(ratio, 1 / ratio)))}`;
}

function readGuess(text) {
  const found = /^(?:e|([fs])([0-9]{1,7}))$/.exec(text);
  if (!found) return null;
  if (text === "e") return { direction: "same", ratio: 1 };
  const factor = Number(found[2]) / 100;
  if (!(factor > 1)) return null;
  return found[1] === "f" ? { direction: "faster", ratio: factor }
    : { direction: "slower", ratio: 1 / factor };
}

function readNumbers(text) {
  if (text === "") return [];
  return text.split(".").map((part) => (/^[0-9]{1,5}$/.test(part) ? Number(part) : NaN));
}

// Game -> text: version, table, then a part a round: slots-methods-guess-branches-classes. A round that
// begins from the frontier names the point behind its slots.
function writeMoves(tables, moves) {
  const rounds = moves.rounds.map((one) => {
    const parts = [one.slots.join("") + (one.begin === undefined ? "" : `_${one.begin}`)];
    if (one.methods) parts.push(one.methods.join("."));
    if (one.guess) parts.push(sayGuessText(one.guess));
    if (one.branches) parts.push(one.branches.join("."));
    if (one.ablated) parts.push(`x${(one.classes ?? []).join("")}`);
    return parts.join("-");
  });
  return [TEXT_VERSION, tables.version, ...rounds, ...(moves.ended ? ["end"] : [])].join("~");
}

// Text -> the moves, as far as they keep to the rules, and what is wrong with the rest.
function readMoves(tables, text) {
  const [version, table, ...parts] = text.trim().split("~");
  const moves = { rounds: [], ended: false };
  if (version !== TEXT_VERSION || !table) return [moves, "These are no moves of this game."];
  if (table !== tables.version) {
    return [moves, "These moves are of another version of the grid, so they cannot be played here."];
  }
  for (const part of parts) {
    if (part === "end") {
      moves.ended = play(tables, moves).rounds.length > 0;
      continue;
    }
    if (moves.ended || play(tables, moves).step !== "slots") {
      return [moves, `Round ${moves.rounds.length + 1} of these moves cannot be played.`];
    }
    const one = {};
    moves.rounds.push(one);
    const [first, methods, guess, branches, last] = part.split("-");
    const [slots, begin] = first.split("_");
    const add = (name, value) => {
      if (value === undefined) return true;
      one[name] = value;
      if (play(tables, moves).wrong === "") return true;
      delete one[name];
      return false;
    };
    const fine = add("begin", begin === undefined ? undefined : readNumbers(begin)[0])
      && add("slots", slots.split("").map(Number))
      && add("methods", methods === undefined ? undefined : readNumbers(methods))
      && add("guess", guess === undefined ? undefined : readGuess(guess))
      && add("branches", branches === undefined ? undefined : readNumbers(branches))
      && add("ablated", last === undefined ? undefined : last[0] === "x" || null)
      && add("classes", last === undefined || last === "x" ? undefined
        : last.slice(1).split("").map(Number));
    if (!fine) {
      if (!one.slots) moves.rounds.pop();
      return [moves, `Round ${moves.rounds.length} of these moves does not keep to the rules.`];
    }
  }
  return [moves, ""];
}

// ---------------------------------------------------------------- from moves to where one stands

// Plays all moves. `step` is what comes next, `wrong` what a move breaks.
function play(tables, moves) {
  const state = {
    at: 0, time: tables.points[0].time_us, known: new Set([0]), classes: {}, runs: [], rounds: [],
    frontier: new Map(), step: "slots", wrong: "", ended: moves.ended,
  };
  for (const move of moves.rounds) {
    const round = { ...move, number: state.rounds.length + 1 };
    playRound(tables, state, round);
    state.now = round;
    if (state.wrong || state.step !== "slots") return state;
    state.rounds.push(round);
    state.now = null;
  }
  return state;
}

function playRound(tables, state, round) {
  const stop = (step, wrong = "") => Object.assign(state, { step, wrong });
  if (round.begin !== undefined) {
    if (!state.frontier.has(round.begin)) return stop("slots", "begin");
    beginFrom(tables, state, round.begin);
  }
  [round.from, round.before] = [state.at, state.time];
  if (!round.slots) return stop("slots");
  const three = round.slots.length === tables.axes.length
    && round.slots.every((n) => n >= 0 && n <= tables.cap);
  if (!three) return stop("slots", "no slots");
  if (whyNotSlots(tables, state, round.slots)) return stop("slots", "slots");
  if (!("methods" in round)) return stop("methods");
  const sorted = round.methods.every((m, n) => tables.methods[m] && (n === 0 || round.methods[n - 1] < m));
  if (!sorted || whyNotMethods(tables, state, round.slots, round.methods)) return stop("methods", "methods");
  round.candidates = untried(tables, state, round.methods);
  if (!("guess" in round)) return stop("guess");
  if (round.guess === null) return stop("guess", "guess");
  if (!("branches" in round)) return stop("branches");
  const some = new Set(round.branches).size === round.branches.length && round.branches.length > 0
    && round.branches.length <= tables.branches
    && round.branches.every((place) => round.candidates.includes(place));
  if (!some) return stop("branches", "branches");
  for (const place of round.branches) {
    const time = tables.points[place].time_us;
    state.runs.push({ round: round.number, what: "branch", time });
  }
  round.champion = round.branches.reduce((best, place) =>
    tables.points[place].time_us < tables.points[best].time_us ? place : best);
  round.ratio = round.before / tables.points[round.champion].time_us;
  if (round.methods.length && !("ablated" in round)) return stop("ablate");
  if ("ablated" in round && round.ablated !== true) return stop("ablate", "ablated");
  round.removals = round.methods.map((m) => removalOf(tables, round.champion, m));
  const seen = new Set();
  for (const one of round.removals) {
    if (seen.has(one.point)) continue;
    seen.add(one.point);
    state.runs.push({ round: round.number, what: "ablation", time: one.time_us });
  }
  if (round.methods.length && !("classes" in round)) return stop("classes");
  const classes = round.classes ?? [];
  const named = classes.length === round.methods.length && classes.every((n) => n in tables.classes);
  if (!named) return stop("classes", "classes");
  settle(tables, state, round);
  return stop("slots");
}

function beginFrom(tables, state, place) {
  [state.at, state.time] = [place, tables.points[place].time_us];
}

// What the round taught, and where the next one begins: as TuningLoop.update decides it.
function settle(tables, state, round) {
  round.methods.forEach((m, n) => {
    state.classes[m] = tables.classes[round.removals[n].class];
    if (round.removals[n].leads >= 0) state.known.add(round.removals[n].leads);
  });
  for (const place of [...round.branches, round.from]) state.known.add(place);
  let [leader, gain] = [round.champion, round.ratio - 1];
  const harmed = round.removals.filter((one) => one.harms);
  if (harmed.length) {
    const worst = harmed.reduce((least, one) => (one.relative < least.relative ? one : least));
    [leader, gain] = [worst.leads, (1 + gain) / (1 + worst.relative) - 1];
    round.without = round.methods[round.removals.indexOf(worst)];
  }
  round.gain = gain;
  round.taken = gain > tables.least;
  if (round.taken) beginFrom(tables, state, leader);
  round.next = state.at;
  for (const place of round.branches) {
    if (place !== round.next) state.frontier.set(place, round.number);
  }
}

function bestAfter(runs) {
  let best = Infinity;
  return runs.map((run) => (best = Math.min(best, run.time)));
}

// ---------------------------------------------------------------- words

const us = (time) => `${time.toFixed(2)} us`;
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const signed = (share) => `${share > 0 ? "+" : ""}${percent(share)}`;
const mark = (word) => badge(word, "lt-loop-badge");

function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

function titles(tables, methods) {
  return methods.length ? methods.map((m) => tables.methods[m].title).join(" + ")
    : "no method, other sizes alone";
}

// The knobs in which some points differ; of one point those in which it differs from another.
function sayKnobs(tables, place, others) {
  const mine = tables.points[place].knobs;
  const told = tables.knobs.map((name, n) => [name, mine[n], n]).filter(([, value, n]) =>
    others.some((other) => tables.points[other].knobs[n] !== value));
  return told.map(([name, value]) => `${name}=${value}`).join(" ") || "the same knobs";
}

function sayRatio(ratio) {
  const factor = Math.max(ratio, 1 / ratio);
  if (factor.toFixed(2) === "1.00") return "the same";
  return `${factor < 10 ? factor.toFixed(2) : factor.toFixed(1)} times ${ratio >= 1 ? "faster" : "slower"}`;
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
  const cell = (tag, child) => html(tag, {}, Array.isArray(child) ? child : [child]);
  return html("div", { class: `lt-loop-wide ${name}`, tabindex: "0", role: "region",
    "aria-label": heads.join(", ") }, [
    html("table", {}, [
      html("thead", {}, [html("tr", {}, heads.map((head) => cell("th", head)))]),
      html("tbody", {}, rows.map((row) => html("tr", {}, row.map((child) => cell("td", child))))),
    ]),
  ]);
}

function gapBar(tables, gap) {
  if (gap === null) return "missing";
  return html("span", { class: "lt-loop-gap" }, [
    html("span", { class: "lt-loop-bar", style: `--share:${gap.toFixed(3)}`, "aria-hidden": "true" }),
    html("span", {}, [gap.toFixed(2)]),
  ]);
}

// The interval of an effect on a line, with the threshold on both sides of nothing.
function drawInterval(tables, one) {
  // What lies far off stands at the edge, or the threshold could not be seen.
  const most = THRESHOLDS_SHOWN * tables.threshold;
  const x = (value) => 110 + (100 * Math.min(Math.max(value, -most), most)) / most;
  const line = (from, to, y, attributes) => svg("line",
    { x1: x(from), x2: x(to), y1: y, y2: y, stroke: "currentColor", ...attributes });
  const tick = (value, dash) => svg("line", { x1: x(value), x2: x(value), y1: 3, y2: 25,
    stroke: "currentColor", "stroke-width": 1, "stroke-dasharray": dash });
  const said = `${signed(one.relative)}, 95 % interval ${signed(one.low)} to ${signed(one.high)}; `
    + `threshold ${percent(tables.threshold)}`;
  return svg("svg", { viewBox: "0 0 220 28", class: "lt-loop-interval", role: "img", "aria-label": said }, [
    tick(0, ""), tick(tables.threshold, "2 2"), tick(-tables.threshold, "2 2"),
    line(one.low, one.high, 14, { "stroke-width": 3 }),
    Math.abs(one.relative) < most
      ? svg("circle", { cx: x(one.relative), cy: 14, r: 4.5, fill: "currentColor" })
      : svg("path", { d: one.relative > 0 ? "M202 7l14 7l-14 7z" : "M18 7l-14 7l14 7z", fill: "currentColor" }),
  ]);
}

// ---------------------------------------------------------------- the plot at the end

function drawSearches(tables, state) {
  const mine = bestAfter(state.runs);
  const curves = [...tables.searches.map((one) => ({ title: one.title, seeds: one.seeds, best: one.best_us })),
    { title: "you", best: mine }];
  const most = Math.max(...curves.map((one) => one.best.length));
  const log = (value, [low, high], from, to) =>
    from + ((Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (to - from);
  const x = (count) => log(count, [1, most], PLOT.left, PLOT.width - PLOT.right);
  const y = (over) => log(Math.min(Math.max(over, OVER_SHOWN[0]), OVER_SHOWN[1]), OVER_SHOWN,
    PLOT.height - PLOT.bottom, PLOT.top);
  const over = (time) => time / tables.best_us - 1;
  const said = curves.map((one) => {
    const last = one.best[one.best.length - 1];
    return `${one.title}: ${last === null ? "no time" : percent(over(last))} over it after ${one.best.length}`;
  });
  const picture = svg("svg", { viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, class: "lt-loop-plot",
    role: "img", "aria-label": "The best time so far, over the fastest point of the grid, against the "
      + `candidates timed, both on logarithmic axes. ${said.join("; ")}.` });
  const text = (words, attributes) => svg("text", attributes, [words]);
  for (const tick of OVER_TICKS) {
    picture.append(svg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(tick), y2: y(tick),
      class: "lt-loop-grid" }), text(`${100 * tick} %`, { x: PLOT.left - 6, y: y(tick) + 5, "text-anchor": "end" }));
  }
  for (const tick of RUN_TICKS.filter((count) => count <= most)) {
    picture.append(svg("line", { x1: x(tick), x2: x(tick), y1: PLOT.top, y2: PLOT.height - PLOT.bottom,
      class: "lt-loop-grid" }), text(String(tick), { x: x(tick), y: PLOT.height - PLOT.bottom + 18, "text-anchor": "middle" }));
  }
  const near = tables.near - 1;
  picture.append(svg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(near), y2: y(near),
    stroke: "currentColor", "stroke-width": 1, "stroke-dasharray": "1 3" }));
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
    picture.append(svg("path", { d: shape(one.best), fill: "none", stroke: "currentColor",
      "stroke-width": me ? 4 : 1.6, "stroke-dasharray": me ? "" : CURVE_DASHES[n % CURVE_DASHES.length] }));
  });
  const last = mine.length;
  picture.append(
    svg("circle", { cx: x(last), cy: y(over(mine[last - 1])), r: 6, fill: "currentColor" }),
    text("candidates timed", { x: (PLOT.left + PLOT.width) / 2, y: PLOT.height - 8, "text-anchor": "middle" }),
  );
  const key = (one, n) => html("li", {}, [
    svg("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" }, [svg("line", { x1: 0, x2: 36, y1: 6, y2: 6,
      stroke: "currentColor", "stroke-width": one.title === "you" ? 4 : 1.6,
      "stroke-dasharray": one.title === "you" ? "" : CURVE_DASHES[n % CURVE_DASHES.length] })]),
    one.title === "you" ? "you" : `${one.title}, median of ${plural(one.seeds, "seed")}`,
  ]);
  return html("figure", { class: "lt-loop-figure" }, [
    picture, html("ul", { class: "lt-loop-keys" }, curves.map(key)),
    html("figcaption", {}, ["Best so far, in percent over the fastest of all ",
      `${tables.points_in_all} recorded points, against candidates timed. The dotted line is `,
      `${percent(near, 0)}. A curve at the lower edge is ${percent(OVER_SHOWN[0])} off or less. `,
      mark(tables.word)]),
  ]);
}

// ---------------------------------------------------------------- the game

function renderGame({ model, el }) {
  const id = freshId("lt-loop");
  const onSite = "fieldguide" in window;
  const root = html("section", { class: "lt-loop", "aria-label": "The optimisation loop as a game",
    "data-lm-suppress-shortcuts": "true" });
  // Jupyter would take letters and arrows for shortcuts.
  root.addEventListener("keydown", (event) => event.stopPropagation());
  el.append(root);
  let tables, moves, message;
  let begin; // chosen of the frontier, not committed yet

  function load() {
    tables = model.get("tables");
    const linked = onSite ? new URLSearchParams(location.hash.slice(1)).get("loop") : null;
    const text = linked ?? model.get("moves");
    [moves, message] = text ? readMoves(tables, text) : [{ rounds: [], ended: false }, ""];
    draw(false);
    if (linked) root.scrollIntoView();
  }

  function keep(state) {
    const text = moves.rounds.length ? writeMoves(tables, moves) : "";
    if (text !== model.get("moves")) {
      model.set("moves", text);
      model.set("runs_us", state.runs.map((run) => run.time));
      model.save_changes();
    }
    // A link to a part of the page stays as it is until there is a run to be kept.
    if (onSite && (text || location.hash.startsWith("#loop="))) {
      history.replaceState(null, "", text ? `#loop=${text}` : location.pathname + location.search);
    }
    return text;
  }

  // One more move; `change` writes it into the round that is under way.
  function move(change) {
    const rounds = moves.rounds.map((one) => ({ ...one }));
    moves = { ...moves, rounds };
    message = "";
    begin = undefined;
    change(rounds);
    draw(true);
  }
  const inRound = (values) => move((rounds) => Object.assign(rounds[rounds.length - 1], values));

  // ---- steps

  // The point that leads, or a right candidate that no round began from.
  function chooseBeginning(state, leading) {
    if (!state.frontier.size) return [];
    const name = (place, words) => {
      const option = html("option", { value: tables.points[place].number }, [words]);
      option.selected = place === state.at;
      return option;
    };
    const others = [...state.frontier].filter(([place]) => place !== leading)
      .sort(([a], [b]) => tables.points[a].time_us - tables.points[b].time_us);
    const select = html("select", { id: `${id}-begin`, class: "lt-loop-begin" }, [
      name(leading, `the point that leads, ${us(tables.points[leading].time_us)}`),
      ...others.map(([place, number]) => name(place, `a candidate of round ${number}, `
        + `${us(tables.points[place].time_us)}: ${sayKnobs(tables, place, [leading])}`)),
    ]);
    select.addEventListener("change", () => {
      begin = [leading, ...others.map(([place]) => place)][select.selectedIndex];
      if (begin === leading) begin = undefined;
      draw(false);
      root.querySelector(".lt-loop-begin").focus();
    });
    return [html("label", { for: `${id}-begin` }, ["This round begins from "]), select];
  }

  function stepSlots(state, _, leading) {
    const point = tables.points[state.at];
    const beginning = chooseBeginning(state, leading);
    if (!openChoices(tables, state).length) {
      return [...beginning, para(["No choice of methods leads from here to a recorded point that was not timed "
        + `before. ${beginning.length ? "Begin from another candidate, or end" : "End"} the game.`])];
    }
    const error = para([], "lt-loop-error");
    const chosen = tables.axes.map(() => 0);
    const rows = tables.axes.map((axis, a) => html("fieldset", { class: "lt-loop-axis" }, [
      html("legend", {}, [axis]), gapBar(tables, point.gaps[a]),
      html("span", { class: "lt-loop-slots" }, Array.from({ length: tables.cap + 1 }, (_, count) => {
        const radio = html("input", { type: "radio", name: `${id}-slots-${a}`, value: count });
        radio.checked = count === 0;
        radio.addEventListener("change", () => { chosen[a] = count; check(); });
        return html("label", { class: "lt-gate-choice" }, [radio, ` ${count}`]);
      })),
    ]));
    const commit = press("Commit the slots", () => {
      const from = begin === undefined ? {} : { begin };
      move((rounds) => rounds.push({ ...from, slots: [...chosen] }));
    });
    function check() {
      const why = whyNotSlots(tables, state, chosen);
      error.textContent = why;
      commit.disabled = why !== "";
    }
    check();
    return [
      ...beginning,
      para([`It takes ${us(state.time)} `, mark(tables.word), `. Its bound is `,
        `${point.bound}, and the longest wait of a warp is “${point.waits_for.replaceAll("_", " ")}”. The bars are what is `,
        "left of each utilisation ", mark("forecast"), "."]),
      para([`Share out ${tables.slots} slots for methods, at most ${tables.cap} to an axis.`]),
      ...rows, error, commit,
    ];
  }

  function doneSlots(round) {
    const { budgets } = tables.points[round.from];
    const said = tables.rules.map((rule, n) => `${rule} ${budgets[n].join("/")}`).join(", ");
    const again = round.begin === undefined ? "" : `Begun from an earlier candidate, ${us(round.before)}. `;
    return para([`${again}Slots ${round.slots.join("/")} for ${tables.axes.join("/")}. By rule: ${said}.`]);
  }

  function stepMethods(state, round) {
    const error = para([], "lt-loop-error");
    error.setAttribute("role", "status");
    const boxes = new Map();
    const commit = press("Take these methods", () => inRound({ methods: chosen() }));
    const chosen = () => [...boxes].filter(([, box]) => box.checked).map(([m]) => m);
    const room = roomFor(tables, state, round.slots);
    function check() {
      const methods = chosen();
      const why = whyNotMethods(tables, state, round.slots, methods);
      const left = untried(tables, state, methods).length;
      error.textContent = why || `${plural(left, "recorded candidate")}, not timed yet.`;
      commit.disabled = why !== "";
    }
    const groups = tables.axes.map((axis, a) => {
      const mine = tables.methods.map((one, m) => [one, m]).filter(([one]) => one.axis === axis);
      const able = mine.filter(([, m]) => refusalOf(tables, state, m) === "");
      const rest = mine.filter(([, m]) => refusalOf(tables, state, m) !== "");
      able.sort(([, m], [, n]) => tables.points[state.at].checks[n][0] - tables.points[state.at].checks[m][0]);
      return html("fieldset", { class: "lt-loop-methods" }, [
        html("legend", {}, [`${axis}: ${plural(room[a], "method")} at most`]),
        ...able.map(([one, m]) => {
          const box = html("input", { type: "checkbox", "data-method": one.id });
          box.addEventListener("change", check);
          boxes.set(m, box);
          return html("label", { class: "lt-loop-method" }, [box, html("span", {}, [
            html("strong", {}, [one.title]),
            ` (strength ${tables.points[state.at].checks[m][0].toFixed(2)}): ${one.idea}`])]);
        }),
        ...(able.length ? [] : [para(["No method of this axis passes the four checks."])]),
        html("details", {}, [html("summary", {}, [`${rest.length} refused by the checks`]),
          html("ul", {}, rest.map(([one, m]) =>
            html("li", {}, [`${one.title}: ${refusalOf(tables, state, m)}`])))]),
      ]);
    });
    check();
    // The order of the boxes on the screen is by strength; a choice is kept in the family's order.
    const inOrder = [...boxes].sort(([m], [n]) => m - n);
    boxes.clear();
    for (const [m, box] of inOrder) boxes.set(m, box);
    return [
      para(["These methods pass the four checks; the strength is that of their trigger ", mark("forecast"),
        ". A slot that no method of its axis can use may go to another."]),
      ...groups, error,
      html("div", { class: "lt-loop-buttons" }, [commit,
        press("Share the slots out again", () => move((rounds) => rounds.pop()))]),
    ];
  }

  function stepGuess(state, round) {
    const place = html("div");
    const name = titles(tables, round.methods);
    const asked = new Asked({
      text: `Round ${round.number}: ${name}. The fastest candidate, against the ${us(round.before)} of the `
        + "point that leads?",
      baseline: "the point that leads", candidate: "the fastest candidate", again_message: "",
      state: { committed: false, message: "", final: true },
    }, ({ direction, ratio }) => inRound({ guess: readGuess(sayGuessText({ direction, ratio })) ?? { direction, ratio } }));
    render({ model: asked, el: place });
    return [place];
  }

  function stepBranches(state, round) {
    const byForecast = [...round.candidates].sort((a, b) =>
      (tables.points[a].forecast_us ?? Infinity) - (tables.points[b].forecast_us ?? Infinity));
    const boxes = byForecast.map((place) => {
      const box = html("input", { type: "checkbox", "data-point": tables.points[place].number });
      box.checked = byForecast.length <= tables.branches;
      box.addEventListener("change", check);
      return [place, box];
    });
    const chosen = () => boxes.filter(([, box]) => box.checked).map(([place]) => place);
    const error = para([], "lt-loop-error");
    error.setAttribute("role", "status");
    const commit = press("Time them", () => inRound({ branches: chosen() }));
    function check() {
      const count = chosen().length;
      commit.disabled = count === 0 || count > tables.branches;
      error.textContent = count > tables.branches ? `A round times at most ${tables.branches} branches.`
        : count ? `${plural(count, "run")}.` : "Choose at least one.";
    }
    check();
    const first = press(`Take the forecast's first ${tables.branches}`, () => {
      boxes.forEach(([, box], n) => { box.checked = n < tables.branches; });
      check();
    });
    return [
      para([byForecast.length === 1 ? "One recorded candidate has these methods."
        : `${byForecast.length} recorded candidates have these methods. Choose at most ${tables.branches} to time.`]),
      html("fieldset", { class: "lt-loop-methods" }, [
        html("legend", {}, ["Branches, by forecast"]),
        ...boxes.map(([place, box]) => {
          const told = tables.points[place].forecast_us;
          return html("label", { class: "lt-loop-method" }, [box, html("span", {}, [
            html("code", {}, [sayKnobs(tables, place, byForecast.length > 1 ? byForecast : [round.from])]), " ",
            ...(told === null ? ["no forecast"] : [us(told), " ", mark("forecast")])])]);
        }),
      ]),
      error,
      html("div", { class: "lt-loop-buttons" },
        [commit, ...(byForecast.length > tables.branches ? [first] : [])]),
    ];
  }

  function doneBranches(round) {
    const ranked = [...round.branches].sort((a, b) => tables.points[a].time_us - tables.points[b].time_us);
    const rows = ranked.map((place) => {
      const point = tables.points[place];
      return [html("code", {}, [sayKnobs(tables, place, ranked.length > 1 ? ranked : [round.from])]),
        point.forecast_us === null ? "none" : us(point.forecast_us),
        us(point.time_us), sayRatio(round.before / point.time_us)];
    });
    const guessed = sayRatio(round.guess.ratio);
    return [
      table(["branch", "forecast", "time", "against the leader"], rows, "lt-loop-branches"),
      para([`You said: ${guessed}. It is ${sayRatio(round.ratio)} `, mark(tables.word), ". ",
        verdict(round.guess, { ratio: round.ratio, interval: null })], "lt-loop-verdict"),
    ];
  }

  function stepAblate(round) {
    const count = new Set(round.methods.map((m) => removalOf(tables, round.champion, m).point)).size;
    return [
      para(["What is each method worth? Leave each out alone, and time what is left."]),
      press(`Ablate: ${plural(count, "run")}`, () => inRound({ ablated: true })),
    ];
  }

  // What was looked for in the machine code; what follows from it is the reader's to say.
  function showEvidence({ kind, rows, note }) {
    const head = kind === "signature" ? "instructions that match" : "number";
    const told = kind === "proof" ? `No opcode of its own. Its proof is ${note}.` : note && `Here ${note}.`;
    return [
      ...(rows.length ? [table([head, "with it", "without"],
        rows.map(([name, ...counts]) => [html("code", {}, [name]), ...counts]), "lt-loop-evidence")] : []),
      ...(told ? [para([told], "lt-loop-note")] : []),
    ];
  }

  function showRemoval(method, one, more) {
    const gone = tables.texts[one.gone];
    return html("div", { class: "lt-loop-removal" }, [
      html("strong", {}, [tables.methods[method].title]),
      html("div", {}, [`Without it ${us(one.time_us)}: ${signed(one.relative)}, 95 % interval ${signed(one.low)} `,
        `to ${signed(one.high)} `, mark(tables.word), drawInterval(tables, one)]),
      ...(gone ? [html("div", {}, [`With it goes: ${gone}.`])] : []),
      ...showEvidence(JSON.parse(tables.texts[one.evidence])),
      ...more,
    ]);
  }

  function stepClasses(round) {
    const picked = round.methods.map(() => null);
    const commit = press("Commit the classes", () => inRound({ classes: [...picked] }));
    commit.disabled = true;
    const parts = round.methods.map((m, n) => showRemoval(m, round.removals[n], [
      html("fieldset", { class: "lt-loop-classes" }, [
        html("legend", {}, [`${tables.methods[m].title} is`]),
        ...tables.classes.map((name, number) => {
          const radio = html("input", { type: "radio", name: `${id}-class-${n}`, value: number });
          radio.addEventListener("change", () => {
            picked[n] = number;
            commit.disabled = picked.includes(null);
          });
          return html("label", { class: "lt-gate-choice" }, [radio, ` ${CLASS_WORDS[name]}`]);
        }),
      ])]));
    return [
      para([`An effect counts from ${percent(tables.threshold)} on; the dashed lines show that. A method that the `,
        "machine code does not show failed, whatever the time did. Class each method."]),
      para(["Before a pattern “>=8” asks for so many instructions and “!” for none; “more” and “fewer” compare with ",
        "the code without the method. All patterns of a method must hold."]),
      ...parts, commit,
    ];
  }

  function doneClasses(round) {
    return round.methods.map((m, n) => {
      const [mine, right] = [round.classes[n], round.removals[n].class];
      const word = (number) => CLASS_WORDS[tables.classes[number]];
      return showRemoval(m, round.removals[n], [para([
        mine === right ? "You were right: " : `You said ${word(mine)}. It is `,
        html("strong", {}, [word(right)]), `: ${tables.class_words[right]}.`], "lt-loop-verdict")]);
    });
  }

  function doneRound(round) {
    const least = percent(tables.least, 2);
    if (!round.taken) {
      return para([`The gain, ${signed(round.gain)}, is not above the ${least} that can be told here. The next round `,
        "begins where this one began."]);
    }
    const without = round.without === undefined ? ""
      : ` without ${tables.methods[round.without].title}, which harms`;
    return para([`A gain of ${signed(round.gain)}. The next round begins from the champion${without}, at `,
      `${us(tables.points[round.next].time_us)}.`]);
  }

  const STEPS = {
    slots: ["Gaps and slots", stepSlots], methods: ["Methods", stepMethods],
    guess: ["Your prediction", stepGuess], branches: ["Branches", stepBranches],
    ablate: ["Ablation", (_, round) => stepAblate(round)],
    classes: ["Classes", (_, round) => stepClasses(round)],
  };

  // What of a round is committed, in its order.
  function shownRound(round) {
    const shown = [];
    if (round.slots) shown.push(doneSlots(round));
    if (round.methods) shown.push(para([`Methods: ${titles(tables, round.methods)}.`]));
    if (round.champion !== undefined) shown.push(...doneBranches(round));
    if (round.classes) shown.push(...doneClasses(round));
    if (round.next !== undefined) shown.push(doneRound(round));
    return shown;
  }

  // ---- the whole

  function scores(state) {
    const rounds = state.rounds;
    const right = rounds.filter((one) => directionOf(one.guess.ratio, null) === directionOf(one.ratio, null)).length;
    const off = rounds.map((one) => Math.max(one.guess.ratio / one.ratio, one.ratio / one.guess.ratio))
      .sort((a, b) => a - b);
    const middle = (off[(off.length - 1) >> 1] + off[off.length >> 1]) / 2;
    const classed = rounds.flatMap((one) => one.methods.map((_, n) =>
      (one.classes[n] === one.removals[n].class ? 1 : 0)));
    const ruled = rounds.filter((one) =>
      tables.points[one.from].budgets[0].join() === one.slots.join()).length;
    const hits = classed.reduce((sum, one) => sum + one, 0);
    return html("ul", { class: "lt-loop-scores" }, [
      `Directions right: ${right} of ${rounds.length}; magnitude off by ${middle.toFixed(2)} times in the median.`,
      `Classes right: ${hits} of ${classed.length}.`,
      `Slots as ${tables.rules[0]} shares them out: ${ruled} of ${rounds.length}.`,
    ].map((text) => html("li", {}, [text])));
  }

  function migration(state) {
    const heads = ["round", ...tables.axes.map((axis) => `${axis} gap`), "bound", "slots", "runs", "champion",
      "gain"];
    return table(heads, state.rounds.map((one) => {
      const point = tables.points[one.from];
      return [String(one.number), ...point.gaps.map((gap) => (gap === null ? "missing" : gap.toFixed(2))),
        point.bound, one.slots.join("/"),
        String(state.runs.filter((run) => run.round === one.number).length),
        us(tables.points[one.champion].time_us), signed(one.gain)];
    }), "lt-loop-migration");
  }

  function showEnd(state) {
    const reached = Math.min(...bestAfter(state.runs));
    return [
      para([html("strong", {}, [`The fastest that you timed takes ${us(reached)} `]), mark(tables.word),
        `, after ${plural(state.runs.length, "run")} in ${plural(state.rounds.length, "round")}. The fastest of all `,
        `${tables.points_in_all} recorded points takes ${us(tables.best_us)}: you are at `,
        html("strong", {}, [`${(reached / tables.best_us).toFixed(3)} times`]), " that. The fastest that a round may ",
        `lead with takes ${us(tables.best.time_us)}: `, html("code", {}, [tables.best.key]), "."], "lt-loop-result"),
      scores(state), drawSearches(tables, state),
      html("h4", {}, ["How the bottleneck moved"]), migration(state),
    ];
  }

  function showShare(text) {
    const link = onSite ? `${location.href.split("#")[0]}#loop=${text}` : text;
    const field = html("input", { type: "text", readonly: "", id: `${id}-link`, class: "lt-loop-field" });
    field.value = link;
    field.addEventListener("focus", () => field.select());
    const copied = html("span", { role: "status" });
    const copy = press("Copy", async () => {
      try {
        await navigator.clipboard.writeText(link);
        copied.textContent = " Copied.";
      } catch {
        field.focus();
        copied.textContent = " Selected: copy it with your keyboard or menu.";
      }
    });
    const other = html("input", { type: "text", id: `${id}-open`, class: "lt-loop-field" });
    const open = press("Open", () => {
      const given = other.value.trim();
      const [found, wrong] = readMoves(tables, given.split("#loop=").pop());
      if (wrong && !found.rounds.length) {
        message = wrong;
      } else {
        [moves, message] = [found, wrong];
      }
      draw(true);
    });
    return html("details", { class: "lt-loop-share" }, [
      html("summary", {}, ["Share this run, or open another"]),
      ...(text ? [html("label", { for: `${id}-link` }, [onSite ? "A link to this run" : "The moves of this run"]),
        html("div", { class: "lt-loop-buttons" }, [field, copy, copied])] : []),
      html("label", { for: `${id}-open` }, ["A link or the moves of a run"]),
      html("div", { class: "lt-loop-buttons" }, [other, open]),
    ]);
  }

  function draw(moved) {
    const state = play(tables, moves);
    const text = keep(state);
    const leading = state.at;
    if (begin !== undefined && state.frontier.has(begin)) beginFrom(tables, state, begin);
    const share = root.querySelector(".lt-loop-share")?.open;
    const status = para([state.ended ? "" : `Round ${state.rounds.length + 1}. `, `${us(state.time)} `,
      mark(tables.word), ` leads after ${plural(state.runs.length, "run")}.`], "lt-loop-status");
    const heading = html("h4", { tabindex: "-1" }, [""]);
    const past = state.rounds.map((round, n) => {
      const latest = n === state.rounds.length - 1 && !state.now && !state.ended;
      return html("details", { class: "lt-loop-past", ...(latest ? { open: "" } : {}) }, [
        html("summary", {}, [`Round ${round.number}: ${titles(tables, round.methods)}, `,
          `${us(round.before)} to ${us(tables.points[round.next].time_us)}`]), ...shownRound(round)]);
    });
    let now;
    if (state.ended) {
      heading.textContent = "The end";
      now = [heading, ...showEnd(state)];
    } else {
      const [title, step] = STEPS[state.step];
      heading.textContent = `Round ${state.rounds.length + 1}: ${title}`;
      now = [...(state.now ? shownRound(state.now) : []), heading, ...step(state, state.now, leading)];
    }
    const buttons = [];
    if (!state.ended && state.step === "slots" && state.rounds.length) {
      buttons.push(press("End the game", () => move(() => { moves.ended = true; })));
    }
    if (moves.rounds.length) {
      buttons.push(press("Start over", () => {
        [moves, message] = [{ rounds: [], ended: false }, `The moves of the run that you left: ${text}`];
        draw(true);
      }));
    }
    const shared = showShare(text);
    shared.open = share ?? false;
    root.replaceChildren(
      status, para([message], "lt-loop-error"), ...past,
      html("div", { class: "lt-loop-now" }, now),
      html("div", { class: "lt-loop-buttons" }, buttons), shared,
    );
    if (moved) {
      // What had the focus is gone; reading goes on at the new step.
      heading.focus({ preventScroll: true });
      heading.scrollIntoView({ block: "nearest" });
    }
  }

  load();
  const changed = () => { if (model.get("tables") !== tables) load(); };
  const linked = () => {
    if (new URLSearchParams(location.hash.slice(1)).has("loop")) load();
  };
  model.on("change:tables", changed);
  if (onSite) window.addEventListener("hashchange", linked);
  return () => {
    model.off("change:tables", changed);
    window.removeEventListener("hashchange", linked);
  };
}

export default { render: renderGame };

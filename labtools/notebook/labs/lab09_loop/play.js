// The rules of the game: which moves there are, and what follows from them. Times, candidates, checks
// and classes are looked up in tables that Python made. A game is the text of its moves; where one
// stands follows from that text.
const TEXT_VERSION = "1";
const MOST_SAID = 160; // characters of what a reader writes about a method that is tried again

// ---------------------------------------------------------------- the rules of a round

function countAxes(tables, methods) {
  return tables.axes.map((axis) => methods.filter((m) => tables.methods[m].axis === axis).length);
}

// What stands against a method: the four checks at this point, then what earlier rounds found. One
// that the compiler dropped may be tried again, where the reader said what is different.
function refusalOf(tables, state, method, said = {}) {
  const [, why] = tables.points[state.at].checks[method];
  if (why >= 0) return tables.texts[why];
  const words = (said[method] ?? "").trim();
  if (!wasDropped(tables, state, method) || !words)
    return tables.settled[state.classes[method]] ?? "";
  const retry = readRetry(tables, method, words);
  if (!retry.namesSomething) return tables.again.why.nothing;
  return retry.forms && retriedForm(tables, state, method, retry) === undefined
    ? tables.again.why["no form"]
    : "";
}

function wasNotCompiled(state, method) {
  return state.classes[method] === "implementation_failed";
}

function wasDropped(tables, state, method) {
  const [, why] = tables.points[state.at].checks[method];
  return why < 0 && wasNotCompiled(state, method);
}

// What words say is different, as `read_retry` of labtools reads them: forms that agree with them,
// or null, and other knobs.
function readRetry(tables, method, words) {
  const { setting, form, elsewhere } = tables.again.patterns;
  const forms = tables.methods[method].forms;
  const mine = new Set(forms.flatMap(Object.keys));
  const [own, settings] = [{}, {}];
  for (const [, name, value] of words.matchAll(new RegExp(setting, "gi"))) {
    const knob = name.toLowerCase();
    (mine.has(knob) ? own : settings)[knob] ??= Number(value);
  }
  const numbers = [...words.matchAll(new RegExp(form, "gi"))].map(([, number]) => Number(number));
  const ownNamed = Object.entries(own);
  const agrees = (one, n) =>
    ownNamed.every(([knob, value]) => one[knob] === value) &&
    (!numbers.length || numbers.includes(n));
  const named = ownNamed.length > 0 || numbers.length > 0;
  return {
    forms: named ? forms.map((_, n) => n).filter((n) => agrees(forms[n], n)) : null,
    settings,
    namesSomething:
      named || Object.keys(settings).length > 0 || new RegExp(elsewhere, "i").test(words),
  };
}

// The form in which a method that the compiler dropped is tried again, as `retried_form` of labtools
// has it; undefined where none is left.
function retriedForm(tables, state, method, { forms, settings }) {
  const dropped = state.dropped[method] ?? [];
  const every = forms ?? tables.methods[method].forms.map((_, n) => n);
  const left = every.find((n) => !dropped.includes(n));
  return left ?? (Object.keys(settings).length ? forms?.[0] : undefined);
}

function holds(tables, place, knobs) {
  return Object.entries(knobs).every(
    ([knob, value]) => tables.points[place].knobs[tables.knobs.indexOf(knob)] === value,
  );
}

// The number of the form that a method has at a point; undefined where it is off.
function formAt(tables, place, method) {
  return tables.points[place].forms[method];
}

// Points that a choice of methods can try and that were not timed before. A method that the compiler
// dropped keeps its form there, or has what was said of it.
function untried(tables, state, methods, said = {}) {
  const reached = tables.points[state.at].moves[methods.join(",")] ?? [];
  const dropped = Object.keys(state.classes).map(Number).filter((m) => wasNotCompiled(state, m));
  const rules = dropped.map((m) => {
    const isForm = (place, form) => form === undefined || formAt(tables, place, m) === form;
    if (!methods.includes(m)) {
      const before = formAt(tables, state.at, m);
      return (place) => formAt(tables, place, m) === undefined || isForm(place, before);
    }
    if (!said[m]) return () => true;
    const retry = readRetry(tables, m, said[m]);
    const form = retriedForm(tables, state, m, retry);
    return (place) => isForm(place, form) && holds(tables, place, retry.settings);
  });
  return reached.filter(
    (place) => !state.known.has(place) && rules.every((allows) => allows(place)),
  );
}

function whyNothing(tables, state, methods, said) {
  const point = tables.points[state.at];
  const name = methods.join(",");
  if (untried(tables, { ...state, classes: {} }, methods).length)
    return methods.some((m) => said[m])
      ? "nothing that comes out of these methods is what you wrote"
      : "all that comes out of these methods gives another form to one that the compiler dropped";
  if (point.moves[name]) return "all that comes out of these methods was timed before";
  return name in point.refused ? tables.texts[point.refused[name]] : tables.no_point;
}

// Choices with something to try, for which every method passes, or would with a few words.
function openChoices(tables, state) {
  return Object.keys(tables.points[state.at].moves)
    .map((name) => (name === "" ? [] : name.split(",").map(Number)))
    .filter(
      (methods) =>
        methods.every(
          (m) => refusalOf(tables, state, m) === "" || wasDropped(tables, state, m),
        ) &&
        untried(tables, state, methods).length,
    );
}

// How many methods an axis may take: its slots, and those that no strong method of another axis can
// use.
function roomFor(tables, state, slots, said = {}) {
  const { checks } = tables.points[state.at];
  const able = countAxes(
    tables,
    tables.methods
      .map((_, m) => m)
      .filter((m) => refusalOf(tables, state, m, said) === "" && checks[m][0] >= tables.weak),
  );
  const spare = slots.reduce((sum, count, a) => sum + Math.max(0, count - able[a]), 0);
  return slots.map((count) => Math.min(tables.cap, count + spare));
}

function whyNotSlots(tables, state, slots) {
  const gaps = tables.points[state.at].gaps;
  const total = slots.reduce((sum, count) => sum + count, 0);
  const tiny = slots.findIndex(
    (count, a) => count && (gaps[a] === null || gaps[a] < tables.negligible),
  );
  if (tiny >= 0) return `The ${tables.axes[tiny]} gap is negligible, so it gets no slot.`;
  if (total > tables.slots)
    return `There are ${plural(tables.slots, "slot")}, and you gave ${total}.`;
  return total ? "" : "Give at least one slot.";
}

function whyNotMethods(tables, state, slots, methods, said = {}) {
  const refused = methods.find((m) => refusalOf(tables, state, m, said) !== "");
  if (refused !== undefined)
    return `${tables.methods[refused].title}: ${refusalOf(tables, state, refused, said)}.`;
  const room = roomFor(tables, state, slots, said);
  const over = countAxes(tables, methods).findIndex((count, a) => count > room[a]);
  if (over >= 0) return `You have ${plural(room[over], "slot")} for ${tables.axes[over]}.`;
  const total = slots.reduce((sum, count) => sum + count, 0);
  if (methods.length > total)
    return `You gave ${plural(total, "slot")}, and chose ${plural(methods.length, "method")}.`;
  if (untried(tables, state, methods, said).length) return "";
  if (!methods.length && !("" in tables.points[state.at].moves)) return "Choose methods.";
  return `This leads nowhere: ${whyNothing(tables, state, methods, said)}.`;
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
  return found[1] === "f"
    ? { direction: "faster", ratio: factor }
    : { direction: "slower", ratio: 1 / factor };
}

function readNumbers(text) {
  if (text === "") return [];
  return text.split(".").map((part) => (/^[0-9]{1,5}$/.test(part) ? Number(part) : NaN));
}

// Words of a reader, in characters that mean nothing in an address or in these moves.
function writeWords(words) {
  const hex = (one) => `!${one.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(words).replace(/[-_.!~*'()]/g, hex).replaceAll("%", "!");
}

function readWords(text) {
  try {
    return decodeURIComponent(text.replaceAll("!", "%"));
  } catch {
    return null;
  }
}

// Methods as text: their numbers, then the number and the words of each that is tried again.
function writeMethods({ methods, said = {} }) {
  const again = methods.filter((m) => said[m]).map((m) => `*${m}*${writeWords(said[m])}`);
  return methods.join(".") + again.join("");
}

function readMethods(text) {
  const [numbers, ...again] = text.split("*");
  const said = {};
  for (let n = 0; n < again.length; n += 2) said[again[n]] = readWords(again[n + 1] ?? "!");
  return { methods: readNumbers(numbers), ...(again.length ? { said } : {}) };
}

// Game -> text: version, table, then a part a round: slots-methods-guess-branches-classes. A round that
// begins from the frontier names the point behind its slots.
function writeMoves(tables, moves) {
  const rounds = moves.rounds.map((one) => {
    const parts = [one.slots.join("") + (one.begin === undefined ? "" : `_${one.begin}`)];
    if (one.methods) parts.push(writeMethods(one));
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
    return [
      moves,
      "These moves are of another version of the grid, so they cannot be played here.",
    ];
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
    const fine =
      add("begin", begin === undefined ? undefined : readNumbers(begin)[0]) &&
      add("slots", slots.split("").map(Number)) &&
      add("said", methods === undefined ? undefined : readMethods(methods).said) &&
      add("methods", methods === undefined ? undefined : readMethods(methods).methods) &&
      add("guess", guess === undefined ? undefined : readGuess(guess)) &&
      add("branches", branches === undefined ? undefined : readNumbers(branches)) &&
      add("ablated", last === undefined ? undefined : last[0] === "x" || null) &&
      add(
        "classes",
        last === undefined || last === "x" ? undefined : last.slice(1).split("").map(Number),
      );
    if (!fine) {
      const number = moves.rounds.length;
      if (!one.slots) moves.rounds.pop();
      return [moves, `Round ${number} of these moves does not keep to the rules.`];
    }
  }
  return [moves, ""];
}

// Whether the moves of a text are the first of another's. A part may go on only behind its "x".
function isBeginning(text, whole) {
  return whole.startsWith(text) && (/^[-~]/.test(whole.slice(text.length)) || text.endsWith("-x"));
}

// ---------------------------------------------------------------- from moves to where one stands

// Plays all moves. `step` is what comes next, `wrong` what a move breaks.
function play(tables, moves) {
  const state = {
    at: 0,
    time: tables.points[0].time_us,
    known: new Set([0]),
    classes: {},
    dropped: {}, // by method, the forms that the compiler dropped
    runs: [],
    rounds: [],
    frontier: new Map(),
    step: "slots",
    wrong: "",
    ended: moves.ended,
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
    round.begunOf = state.frontier.get(round.begin);
    // Where one stood stays in the frontier, so that it can be had again.
    if (!state.frontier.has(state.at)) state.frontier.set(state.at, roundThatLedTo(state, state.at));
    beginFrom(tables, state, round.begin);
    // The way there is left, and with it what was found out on it; what the compiler dropped stays.
    for (const m of Object.keys(state.classes))
      if (!wasNotCompiled(state, m)) delete state.classes[m];
  }
  [round.from, round.before] = [state.at, state.time];
  if (!round.slots) return stop("slots");
  const three =
    round.slots.length === tables.axes.length &&
    round.slots.every((n) => n >= 0 && n <= tables.cap);
  if (!three) return stop("slots", "no slots");
  if (whyNotSlots(tables, state, round.slots)) return stop("slots", "slots");
  if (!("methods" in round)) return stop("methods");
  const sorted = round.methods.every(
    (m, n) => tables.methods[m] && (n === 0 || round.methods[n - 1] < m),
  );
  round.said ??= {};
  const words = Object.entries(round.said).every(
    ([m, said]) =>
      round.methods.includes(Number(m)) &&
      wasDropped(tables, state, m) &&
      said !== null &&
      said.length <= MOST_SAID,
  );
  if (!sorted || !words || whyNotMethods(tables, state, round.slots, round.methods, round.said))
    return stop("methods", "methods");
  round.candidates = untried(tables, state, round.methods, round.said);
  if (!("guess" in round)) return stop("guess");
  if (round.guess === null) return stop("guess", "guess");
  if (!("branches" in round)) return stop("branches");
  const some =
    new Set(round.branches).size === round.branches.length &&
    round.branches.length > 0 &&
    round.branches.length <= tables.branches &&
    round.branches.every((place) => round.candidates.includes(place));
  if (!some) return stop("branches", "branches");
  for (const place of round.branches) {
    const time = tables.points[place].time_us;
    state.runs.push({ round: round.number, what: "branch", time });
  }
  round.champion = round.branches.reduce((best, place) =>
    tables.points[place].time_us < tables.points[best].time_us ? place : best,
  );
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
  const named =
    classes.length === round.methods.length && classes.every((n) => n in tables.classes);
  if (!named) return stop("classes", "classes");
  settle(tables, state, round);
  return stop("slots");
}

// What a guess is scored against: two times are the same where identical kernels differ as much.
function scoredAgainst(tables, { ratio }) {
  return { ratio, interval: [ratio / (1 + tables.least), ratio * (1 + tables.least)] };
}

// The round whose gain made a point the one that leads, or 0 of the start.
function roundThatLedTo(state, place) {
  return state.rounds.find((one) => one.taken && one.next === place)?.number ?? 0;
}

function beginFrom(tables, state, place) {
  [state.at, state.time] = [place, tables.points[place].time_us];
}

// What the round taught, and where the next one begins: as TuningLoop.update decides it.
function settle(tables, state, round) {
  for (const one of round.removals) {
    if (one.leads >= 0) state.known.add(one.leads);
  }
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
  const classes = round.removals.map((one) => tables.classes[one.class]);
  // What was judged at a point that nobody goes on from may be taken again: see `settled`.
  const lost = round.ratio - 1 < -tables.least && !classes.includes("effective");
  round.methods.forEach((m, n) => {
    const found = classes[n];
    const open = found === "effective" || (found === "ineffective" && lost);
    state.classes[m] = open && !round.taken ? "" : found;
    if (wasNotCompiled(state, m))
      state.dropped[m] = [...(state.dropped[m] ?? []), formAt(tables, round.champion, m)];
  });
  for (const place of round.branches) {
    if (place !== round.next) state.frontier.set(place, round.number);
  }
}

function bestAfter(runs) {
  let best = Infinity;
  return runs.map((run) => (best = Math.min(best, run.time)));
}

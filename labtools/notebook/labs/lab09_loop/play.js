// From moves to where a game stands. What is allowed, what it leads to and how a round ends is looked
// up in tables that Python made; here moves are kept, counted and written as text.
const TEXT_VERSION = "2";
const STEPS = ["slots", "methods", "guess", "branches", "ablated", "classes"];

// ---------------------------------------------------------------- what the tables answer

// Why slots cannot be shared out so, or nothing.
function slotsTold(tables, place, slots) {
  return tables.points[place].slots[slots.join("")] ?? "There are no such slots.";
}

// Where a choice of methods leads: each place with the number of the round's end there.
function movesOf(tables, place, methods) {
  const found = tables.points[place].moves[methods.join(",")] ?? [];
  return found.flatMap((one, n) => (n % 2 ? [] : [[one, found[n + 1]]]));
}

const isDropped = (state, m) => state.classes[m] === "implementation_failed";
const droppedForms = (state, m) => [...new Set(state.dropped[m] ?? [])].sort().join(".");

// Whether a method may be taken again with nothing but a retry against it.
function isForRetry(tables, state, m) {
  return isDropped(state, m) && !tables.points[state.at].checks[m][1];
}

// With what a method that the compiler dropped may be tried again: the `forms` that are left, and
// the form `beside` another knob, -1 for any.
const retriesOf = (tables, state, m) => tables.retries[m][droppedForms(state, m)];

function isRetry(tables, state, m, { form, knob, value }) {
  if (!isForRetry(tables, state, m)) return false;
  if (knob === null) return retriesOf(tables, state, m).forms.includes(form);
  const values = tables.methods[m].beside.includes(knob) ? tables.knobs_told[knob].values : [];
  return values.includes(value) && (form === null || form in tables.methods[m].forms);
}

// What stands against a method: the four checks at this point, then what earlier rounds found.
function refusalOf(tables, state, m, again = {}) {
  const why = tables.points[state.at].checks[m][1];
  if (why) return why;
  if (again[m] && isRetry(tables, state, m, again[m])) return "";
  return tables.settled[state.classes[m]] ?? "";
}

// Points that a choice of methods can try and that were not timed before. A method that the compiler
// dropped keeps its form there, or has that of its retry.
function untried(tables, state, methods, again = {}, drops = Object.keys(state.classes)) {
  const reached = movesOf(tables, state.at, methods).map(([place]) => place);
  const rules = drops.map(Number).filter((m) => isDropped(state, m)).map((m) => {
    const formAt = (place) => tables.points[place].forms[m];
    if (!methods.includes(m)) {
      const before = formAt(state.at);
      return (place) => before === undefined || [undefined, before].includes(formAt(place));
    }
    if (!again[m]) return () => true;
    const { form, knob, value } = again[m];
    const wanted = form ?? retriesOf(tables, state, m).beside;
    return (place) => (wanted < 0 || formAt(place) === wanted)
      && (knob === null || tables.points[place].knobs[knob] === value);
  });
  return reached.filter((place) => !state.known.has(place) && rules.every((rule) => rule(place)));
}

// Whether a choice of methods leads to something that was not timed before.
function hasOpenChoice(tables, state) {
  return Object.keys(tables.points[state.at].moves).some((name) => {
    const methods = name === "" ? [] : name.split(",").map(Number);
    const may = (m) => refusalOf(tables, state, m) === "" || isForRetry(tables, state, m);
    return methods.every(may) && untried(tables, state, methods).length > 0;
  });
}

function countAxes(tables, methods) {
  return tables.axes.map((axis) => methods.filter((m) => tables.methods[m].axis === axis).length);
}

// How many methods an axis may take: it depends on how many strong ones each has.
function roomFor(tables, state, slots, again = {}) {
  const { checks } = tables.points[state.at];
  const strong = tables.methods.map((_, m) => m).filter((m) =>
    checks[m][0] >= tables.weak && refusalOf(tables, state, m, again) === "");
  const counts = countAxes(tables, strong).map((count) => Math.min(count, tables.cap));
  return [...tables.room[slots.join("")][counts.join("")]].map(Number);
}

// Why a round cannot take some methods, or nothing.
function methodsTold(tables, state, { slots, methods, again = {} }) {
  const refused = methods.find((m) => refusalOf(tables, state, m, again) !== "");
  if (refused !== undefined) {
    return `${tables.methods[refused].title}: ${refusalOf(tables, state, refused, again)}.`;
  }
  const room = roomFor(tables, state, slots, again);
  const over = countAxes(tables, methods).findIndex((count, a) => count > room[a]);
  if (over >= 0) return `You have ${plural(room[over], "slot")} for ${tables.axes[over]}.`;
  const given = slots.reduce((sum, count) => sum + count, 0);
  if (methods.length > given) {
    return `You gave ${plural(given, "slot")}, and chose ${plural(methods.length, "method")}.`;
  }
  if (untried(tables, state, methods, again).length) return "";
  const { moves, refused: families } = tables.points[state.at];
  const name = methods.join(",");
  if (!methods.length && !(name in moves)) return "Choose methods.";
  let why = families[name] ?? tables.no_point;
  if (untried(tables, state, methods, {}, []).length) {
    why = Object.keys(again).length ? "nothing that comes out of these methods is what you chose"
      : "all that comes out of these methods gives another form to one that the compiler dropped";
  } else if (moves[name]) why = "all that comes out of these methods was timed before";
  return `This leads nowhere: ${why}.`;
}

function removalOf(tables, place, method) {
  const row = tables.points[place].removals[method];
  return Object.fromEntries(tables.columns.map((name, n) => [name, row[n]]));
}

// What a guess is scored against: two times are the same where identical kernels differ as much.
function scoredAgainst(tables, { ratio }) {
  return { ratio, interval: [ratio / (1 + tables.least), ratio * (1 + tables.least)] };
}

// ---------------------------------------------------------------- from moves to where one stands

// Plays all moves. `step` is what comes next; `wrong` says that a move breaks a rule there.
function play(tables, moves) {
  const state = { at: 0, known: new Set([0]), classes: {}, dropped: {}, runs: [], rounds: [],
    frontier: new Map(), now: null, step: "slots", wrong: false, ended: moves.ended };
  for (const move of moves.rounds) {
    const round = { ...move, number: state.rounds.length + 1 };
    [state.step, state.wrong = false] = playRound(tables, state, round);
    state.now = round;
    if (state.wrong || state.step !== "next") return state;
    state.rounds.push(round);
    Object.assign(state, { now: null, step: "slots" });
  }
  return state;
}

// The step of a round that comes next, "next" where it is over, and whether its move is wrong.
function playRound(tables, state, round) {
  const { points } = tables;
  if (round.begin !== undefined) {
    if (!state.frontier.has(round.begin)) return ["slots", true];
    leaveFor(tables, state, round);
  }
  [round.from, round.before] = [state.at, points[state.at].time_us];
  if (!round.slots) return ["slots"];
  if (slotsTold(tables, state.at, round.slots)) return ["slots", true];
  if (!round.methods) return ["methods"];
  const { methods, again = {} } = round;
  const sorted = methods.every((m, n) => tables.methods[m] && (n === 0 || methods[n - 1] < m));
  const retries = Object.keys(again).map(Number).every((m) =>
    methods.includes(m) && isRetry(tables, state, m, again[m]));
  if (!sorted || !retries || methodsTold(tables, state, round)) return ["methods", true];
  round.candidates = untried(tables, state, methods, again);
  if (round.guess === undefined) return ["guess"];
  if (round.guess === null) return ["guess", true];
  if (!round.branches) return ["branches"];
  const { branches } = round;
  const may = branches.length > 0 && branches.length <= tables.branches
    && new Set(branches).size === branches.length
    && branches.every((place) => round.candidates.includes(place));
  if (!may) return ["branches", true];
  const time = (what, us) => state.runs.push({ round: round.number, what, time: us });
  for (const place of branches) time("branch", points[place].time_us);
  round.champion = branches.reduce((best, place) =>
    (points[place].time_us < points[best].time_us ? place : best));
  round.ratio = round.before / points[round.champion].time_us;
  if (methods.length && round.ablated === undefined) return ["ablated"];
  round.removals = methods.map((m) => removalOf(tables, round.champion, m));
  const apart = new Map(round.removals.map((one) => [one.point, one.time_us]));
  for (const us of apart.values()) time("ablation", us);
  if (methods.length && !round.classes) return ["classes"];
  const named = (round.classes ?? []).filter((n) => n in tables.classes);
  if (named.length !== methods.length) return ["classes", true];
  endRound(tables, state, round);
  return ["next"];
}

// Begin from another point of the frontier. The way here is left, and with it what was found out on
// it; what the compiler dropped stays.
function leaveFor(tables, state, round) {
  const { begin } = round;
  round.begunOf = state.frontier.get(begin);
  if (!state.frontier.has(state.at)) {
    const led = state.rounds.find((one) => one.end.taken && one.next === state.at);
    state.frontier.set(state.at, led?.number ?? 0);
  }
  state.at = begin;
  for (const m of Object.keys(state.classes)) if (!isDropped(state, m)) delete state.classes[m];
}

// What the round taught, and where the next one begins, as the table says.
function endRound(tables, state, round) {
  const { methods, champion, removals } = round;
  const [, end] = movesOf(tables, round.from, methods).find(([place]) => place === champion);
  round.end = tables.ends[end];
  const harm = round.end.without === null ? null : removals[methods.indexOf(round.end.without)];
  round.gain = harm ? round.ratio / (1 + harm.relative) - 1 : round.ratio - 1;
  if (round.end.taken) state.at = harm ? harm.leads : champion;
  round.next = state.at;
  for (const place of [...round.branches, round.from]) state.known.add(place);
  for (const one of removals) if (one.leads >= 0) state.known.add(one.leads);
  methods.forEach((m, n) => {
    state.classes[m] = round.end.classes[n];
    if (isDropped(state, m)) {
      state.dropped[m] = [...(state.dropped[m] ?? []), tables.points[champion].forms[m]];
    }
  });
  for (const place of round.branches) {
    if (place !== round.next) state.frontier.set(place, round.number);
  }
}

function bestAfter(runs) {
  let best = Infinity;
  return runs.map((run) => (best = Math.min(best, run.time)));
}

// ---------------------------------------------------------------- the moves as text

function writeGuess({ direction, ratio }) {
  if (direction === "same") return "e";
  return `${direction[0]}${Math.max(101, Math.round(100 * Math.max(ratio, 1 / ratio)))}`;
}

function readGuess(text) {
  if (text === "e") return { direction: "same", ratio: 1 };
  const [, letter, hundredths] = /^([fs])([0-9]{3,7})$/.exec(text) ?? [];
  const factor = Number(hundredths) / 100;
  if (!(factor > 1)) return null;
  return letter === "f" ? { direction: "faster", ratio: factor }
    : { direction: "slower", ratio: 1 / factor };
}

const readNumber = (text) => (/^[0-9]{1,5}$/.test(text) ? Number(text) : NaN);
const readNumbers = (text) => (text === "" ? [] : text.split(".").map(readNumber));
const readDigits = (text) => [...text].map(readNumber);

// Methods as text: their numbers, then of each that is tried again its number, form, knob and value.
function writeMethods({ methods, again = {} }) {
  const retries = Object.entries(again).map(([m, { form, knob, value }]) =>
    `*${[m, form ?? "", knob ?? "", value ?? ""].join(".")}`);
  return methods.join(".") + retries.join("");
}

function readMethods(text) {
  const [numbers, ...retries] = text.split("*");
  const again = Object.fromEntries(retries.map((retry) => {
    const [m, ...fields] = retry.split(".");
    const [form, knob, value] = fields.map((one) => (one === "" ? null : readNumber(one)));
    return [m, { form, knob, value }];
  }));
  return { methods: readNumbers(numbers), again };
}

// Game -> text: version, table, then a part a round: slots-methods-guess-branches-xclasses. A round
// that begins from the frontier names the point behind its slots.
function writeMoves(tables, moves) {
  const rounds = moves.rounds.map((one) => [
    one.slots.join("") + (one.begin === undefined ? "" : `_${one.begin}`),
    ...(one.methods ? [writeMethods(one)] : []),
    ...(one.guess ? [writeGuess(one.guess)] : []),
    ...(one.branches ? [one.branches.join(".")] : []),
    ...(one.ablated ? [`x${(one.classes ?? []).join("")}`] : []),
  ].join("-"));
  return [TEXT_VERSION, tables.version, ...rounds, ...(moves.ended ? ["end"] : [])].join("~");
}

function readRound(part) {
  const [first, methods, guess, branches, last] = part.split("-");
  const [slots, begin] = first.split("_");
  return {
    slots: readDigits(slots),
    ...(begin === undefined ? {} : { begin: readNumber(begin) }),
    ...(methods === undefined ? {} : readMethods(methods)),
    ...(guess === undefined ? {} : { guess: readGuess(guess) }),
    ...(branches === undefined ? {} : { branches: readNumbers(branches) }),
    ...(last === undefined ? {} : { ablated: true }),
    ...(last && last !== "x" ? { classes: readDigits(last.slice(1)) } : {}),
  };
}

// Text -> the moves, as far as they keep to the rules, and what is wrong with the rest.
function readMoves(tables, text) {
  const [version, table, ...parts] = text.trim().split("~");
  const nothing = { rounds: [], ended: false };
  if (!/^[0-9]+$/.test(version) || !table) return [nothing, "These are no moves of this game."];
  if (version !== TEXT_VERSION || table !== tables.version) {
    return [nothing,
      "These moves are of another version of the grid, so they cannot be played here."];
  }
  const ended = parts[parts.length - 1] === "end";
  const moves = { rounds: (ended ? parts.slice(0, -1) : parts).map(readRound), ended: false };
  const state = play(tables, moves);
  const played = state.rounds.length;
  if (!state.wrong && moves.rounds.length <= played + 1) {
    return [{ ...moves, ended: ended && played > 0 && !state.now }, ""];
  }
  const begun = { ...moves.rounds[played] };
  if (state.wrong) for (const step of STEPS.slice(STEPS.indexOf(state.step))) delete begun[step];
  if (!begun.methods) delete begun.again;
  return [{ rounds: [...moves.rounds.slice(0, played), ...(begun.slots ? [begun] : [])], ended: false },
    `Round ${played + (state.wrong ? 1 : 2)} of these moves does not keep to the rules.`];
}

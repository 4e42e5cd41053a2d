// The game on the screen, a step after the other. What follows from moves is in play.js, its words
// and drawings in parts.js.
const OWN_RUN = "fieldguide:loop"; // in the browser's storage: the reader's own run, as text

// A browser may refuse to keep anything; then the run lasts as long as the page.
function ownRun(text) {
  try {
    if (text !== undefined) window.localStorage.setItem(OWN_RUN, text);
    return window.localStorage.getItem(OWN_RUN) ?? "";
  } catch {
    return "";
  }
}

function renderGame({ model, el }) {
  const id = freshId("lt-loop");
  const onSite = "fieldguide" in window;
  const root = startView(el, "lt-loop", "The optimisation loop as a game");
  let packed, tables, moves, message;
  let readOnly = false; // a run that a link or a text opened; the reader's own is kept
  let begin; // chosen of the frontier, not committed yet

  const linkedRun = () => new URLSearchParams(location.hash.slice(1)).get("loop") || "";
  const textOf = () => (moves.rounds.length ? writeMoves(tables, moves) : "");
  const read = (text) => (text ? readMoves(tables, text) : [{ rounds: [], ended: false }, ""]);

  function showOwn(told = "") {
    const [found, wrong] = read(ownRun() || model.get("moves"));
    [moves, message, readOnly] = [found, `${told} ${wrong}`.trim(), false];
  }

  function showLinked(text) {
    const [found, wrong] = read(text);
    if (!found.rounds.length) return wrong || "There is no round in these moves.";
    [moves, message, readOnly] = [found, wrong, text !== ownRun()];
    return "";
  }

  function load() {
    packed = model.get("tables");
    tables = unpackTables(packed);
    const linked = onSite ? linkedRun() : "";
    const refused = linked ? showLinked(linked) : "";
    if (!linked || refused) showOwn(refused && `${refused} Your own run is shown.`);
    draw();
    if (linked) root.scrollIntoView({ block: "start" });
  }

  // The own run is kept in the browser, by Python, and on the site in the page's address.
  function keep(state) {
    const text = textOf();
    if (text !== model.get("moves")) {
      setAll(model, { moves: text, runs_us: state.runs.map((run) => run.time) });
    }
    // A link to a part of the page stays as it is until there is a run to be kept.
    if (onSite && (text || linkedRun())) {
      history.replaceState(null, "", text ? `#loop=${text}` : location.pathname + location.search);
    }
    return text;
  }

  // One more move; `change` writes it into the rounds.
  function move(change) {
    moves = { ...moves, rounds: moves.rounds.map((round) => ({ ...round })) };
    [message, begin] = ["", undefined];
    change(moves.rounds);
    ownRun(textOf());
    draw(true);
  }
  const inRound = (values) => move((rounds) => Object.assign(rounds[rounds.length - 1], values));

  const press = (text, act, off = false) => button(text, act, { off });
  const told = (text = "") => html("p", { class: "lt-loop-told", role: "status" }, [text]);
  const field = (legend, name, parts) =>
    html("fieldset", { class: name }, [html("legend", {}, [legend]), parts]);
  const title = (m) => tables.methods[m].title;
  const timeOf = (place) => tables.points[place].time_us;
  const sayTime = (place) => us(timeOf(place));

  // Radio buttons side by side.
  const choices = (name, texts, chosen, change) =>
    html("span", { class: "lt-loop-choices" }, texts.map((text, n) => tick("radio",
      { name: `${id}-${name}`, checked: n === chosen }, () => change(n), [` ${text}`], "lt-gate-choice")));

  // A checkbox that keeps a value in a set.
  const member = (set, value, attributes, change, words) => tick("checkbox", attributes, (box) => {
    set[box.checked ? "add" : "delete"](value);
    change();
  }, [html("span", {}, words)], "lt-loop-method");

  // A form whose button is pressed only where nothing stands against what is chosen.
  function checked(text, whyNot, act, hint = () => "") {
    const [line_, commit] = [told(), press(text, act)];
    const check = () => {
      const why = whyNot();
      line_.textContent = why || hint();
      commit.disabled = why !== "";
    };
    return { line: line_, commit, check };
  }

  // ---- steps

  // The point where the last round ended, or another of the frontier.
  function chooseBeginning(state, leading) {
    if (!state.frontier.size) return null;
    const others = [...state.frontier].filter(([place]) => place !== leading)
      .sort(([a], [b]) => timeOf(a) - timeOf(b));
    const places = [leading, ...others.map(([place]) => place)];
    const here = state.rounds.length ? "where the last round ended" : "the start";
    const list = dropdown("This round begins from", [`${here}, ${sayTime(leading)}`,
      ...others.map(([place, number]) =>
        `${sayOrigin(number)}, ${sayTime(place)}: ${sayKnobs(tables, place, [leading])}`)],
    places.indexOf(state.at), (n) => {
      begin = n ? places[n] : undefined;
      draw();
    });
    list.querySelectorAll("option").forEach((option, n) => {
      option.value = tables.points[places[n]].number;
    });
    return list;
  }

  function stepSlots(state, _, leading) {
    const point = tables.points[state.at];
    const beginning = chooseBeginning(state, leading);
    if (!hasOpenChoice(tables, state)) {
      return [beginning, paragraph(["No choice of methods leads from here to a recorded point that " +
        `was not timed before. ${beginning ? "Begin from another candidate, or end" : "End"} the game.`])];
    }
    const slots = tables.axes.map(() => 0);
    const counts = Array.from({ length: tables.cap + 1 }, (__, count) => count);
    const form = checked("Commit the slots", () => slotsTold(tables, state.at, slots), () => {
      const from = begin === undefined ? {} : { begin };
      move((rounds) => rounds.push({ ...from, slots }));
    });
    const rows = tables.axes.map((axis, a) => field(axis, "lt-loop-axis", [gapBar(point.gaps[a]),
      choices(`slots-${a}`, counts, 0, (count) => {
        slots[a] = count;
        form.check();
      })]));
    form.check();
    return [
      beginning,
      paragraph([`It takes ${us(point.time_us)} `, mark(tables.word), `. Its bound is ${point.bound}, ` +
        `and the longest wait of a warp is “${point.waits_for.replaceAll("_", " ")}”.`]),
      paragraph(["The first two bars are what is left of a utilisation. The third is the largest share " +
        "of a warp's time in one kind of wait ", mark("forecast"), `. ${tables.gaps_note}`]),
      paragraph([`Share out ${tables.slots} slots for methods, at most ${tables.cap} to an axis.`]),
      rows, form.line, tools([form.commit]),
    ];
  }

  function doneSlots(round) {
    const { budgets } = tables.points[round.from];
    const rules = tables.rules.map((rule, n) => `${rule} ${[...budgets[n]].join("/")}`).join(", ");
    const again = round.begin === undefined ? ""
      : `Begun from ${sayOrigin(round.begunOf)}, ${us(round.before)}. `;
    return [
      paragraph([`${again}Slots ${round.slots.join("/")} for ${tables.axes.join("/")}.`]),
      fold("What each rule gives", [paragraph([`${rules}.`])], "lt-loop-rules"),
    ];
  }

  // The fields by which a method that the compiler dropped is tried again: a form, another knob.
  function retryFields(state, m, change) {
    const { forms: all, beside } = tables.methods[m];
    const { forms } = retriesOf(tables, state, m);
    const formAlone = { form: forms[0] ?? null, knob: null, value: null };
    const retry = { ...formAlone };
    const place = html("div", { class: "lt-loop-retry" });
    const set = (values) => {
      Object.assign(retry, values);
      show();
      change();
    };
    function show() {
      const offered = retry.knob === null ? forms : [null, ...all.keys()];
      const values = retry.knob === null ? [] : tables.knobs_told[retry.knob].values;
      replaceKeepingFocus(place, [
        dropdown("form", offered.map((n) => (n === null ? "any that is left" : sayForm(all[n]))),
          offered.indexOf(retry.form), (n) => set({ form: offered[n] })),
        dropdown("another knob", ["none", ...beside.map((n) => tables.knobs[n])],
          retry.knob === null ? 0 : beside.indexOf(retry.knob) + 1, (n) => set(n
            ? { knob: beside[n - 1], value: tables.knobs_told[beside[n - 1]].values[0] } : formAlone)),
        values.length > 0 && dropdown("its value", values, values.indexOf(retry.value),
          (n) => set({ value: values[n] })),
      ]);
    }
    show();
    return [place, retry];
  }

  function stepMethods(state, round) {
    const { checks } = tables.points[state.at];
    const room = roomFor(tables, state, round.slots);
    const taken = new Set();
    const retries = new Map(); // what is different, of each method that the compiler dropped
    const choice = () => {
      const methods = [...taken].sort((a, b) => a - b);
      const again = methods.filter((m) => retries.has(m)).map((m) => [m, { ...retries.get(m) }]);
      return { slots: round.slots, methods, again: Object.fromEntries(again) };
    };
    const form = checked("Take these methods", () => methodsTold(tables, state, choice()),
      () => inRound(choice()), () => {
        const { methods, again } = choice();
        const count = untried(tables, state, methods, again).length;
        return `${plural(count, "recorded candidate")}, not timed yet.`;
      });
    // Where an axis has no room, nothing of it can be chosen.
    const choose = (m, a, text) => member(taken, m, { "data-method": tables.methods[m].id,
      disabled: room[a] === 0 }, form.check, [strong(title(m)), text]);
    const groups = tables.axes.map((axis, a) => {
      const mine = [...tables.methods.keys()].filter((m) => tables.methods[m].axis === axis);
      const able = mine.filter((m) => refusalOf(tables, state, m) === "")
        .sort((m, n) => checks[n][0] - checks[m][0]);
      const dropped = mine.filter((m) => isForRetry(tables, state, m));
      const rest = mine.filter((m) => !able.includes(m) && !dropped.includes(m));
      return field(room[a] ? `${axis}: ${plural(room[a], "method")} at most` : `${axis}: no slot`,
        "lt-loop-methods", [
          able.map((m) => choose(m, a,
            ` (strength ${checks[m][0].toFixed(2)}): ${tables.methods[m].idea}`)),
          !able.length && paragraph(["No method of this axis passes the four checks."]),
          dropped.map((m) => {
            const [place, retry] = retryFields(state, m, () => form.check());
            retries.set(m, retry);
            return html("div", { class: "lt-loop-again" }, [choose(m, a, ": the compiler dropped it. " +
              "Try it again? Say what is different this time."), place]);
          }),
          fold(`${rest.length} refused by the checks`,
            [bullets(rest.map((m) => `${title(m)}: ${refusalOf(tables, state, m)}`))]),
        ]);
    });
    form.check();
    return [
      paragraph(["These methods pass the four checks; the strength is that of their trigger ",
        mark("forecast"), ". A slot that no method of its axis can use may go to another."]),
      groups, retries.size > 0 && foldKnobs(tables), form.line,
      tools([form.commit, press("Share the slots out again", () => move((rounds) => rounds.pop()))]),
    ];
  }

  function stepGuess(state, round) {
    const place = html("div");
    const asked = new Asked({
      text: `Round ${round.number}: ${titles(tables, round.methods)}. The fastest candidate, against ` +
        `the ${us(round.before)} of the point that the round begins from?`,
      form: { kind: "ratio", baseline: "the point that the round begins from",
        candidate: "the fastest candidate" },
      again_message: "",
      state: { committed: false, message: "", final: true },
    }, ({ direction, ratio }) => inRound({ guess: readGuess(writeGuess({ direction, ratio })) }));
    render({ model: asked, el: place });
    return [place];
  }

  // The knobs that tell some candidates apart; of a single one those that the round changed.
  const sayBranch = (round, place, places) =>
    code(sayKnobs(tables, place, places.length > 1 ? places : [round.from]));

  function stepBranches(state, round) {
    const forecast = (place) => tables.points[place].forecast_us;
    const ranked = [...round.candidates].sort((a, b) =>
      (forecast(a) ?? Infinity) - (forecast(b) ?? Infinity));
    const many = ranked.length > tables.branches;
    const chosen = new Set(many ? [] : ranked);
    const form = checked("Time them", () => {
      if (chosen.size > tables.branches) return `A round times at most ${tables.branches} branches.`;
      return chosen.size ? "" : "Choose at least one.";
    }, () => inRound({ branches: ranked.filter((place) => chosen.has(place)) }),
    () => `${plural(chosen.size, "run")}.`);
    const rows = ranked.map((place) => member(chosen, place,
      { "data-point": tables.points[place].number, checked: !many }, form.check,
      [sayBranch(round, place, ranked), " ", forecast(place) === null ? "no forecast"
        : [us(forecast(place)), " ", mark("forecast")]]));
    const first = press(`Take the forecast's first ${tables.branches}`, () => {
      rows.forEach((row, n) => {
        const box = row.querySelector("input");
        if (box.checked !== n < tables.branches) box.click();
      });
    });
    form.check();
    return [
      paragraph([ranked.length === 1 ? "One recorded candidate has these methods."
        : `${ranked.length} recorded candidates have these methods. Choose at most ` +
          `${tables.branches} to time.`]),
      field("Branches, by forecast", "lt-loop-methods", rows),
      foldKnobs(tables), form.line, tools([form.commit, many && first]),
    ];
  }

  function doneBranches(round) {
    const ranked = [...round.branches].sort((a, b) => timeOf(a) - timeOf(b));
    return [
      table(["branch", "forecast", "time", "against its beginning"], ranked.map((place) => {
        const { forecast_us: forecast } = tables.points[place];
        return [sayBranch(round, place, ranked), forecast === null ? "none" : us(forecast),
          sayTime(place), sayRatio(round.before / timeOf(place))];
      }), { name: "lt-loop-branches" }),
      paragraph([`You said: ${sayRatio(round.guess.ratio)}. It is ${sayRatio(round.ratio)} `,
        mark(tables.word), ". ", verdict(round.guess, scoredAgainst(tables, round))], "lt-loop-verdict"),
    ];
  }

  function stepAblate(state, round) {
    const points = round.methods.map((m) => removalOf(tables, round.champion, m).point);
    return [
      paragraph(["What is each method worth? Leave each out alone, and time what is left."]),
      tools([press(`Ablate: ${plural(new Set(points).size, "run")}`, () => inRound({ ablated: true }))]),
    ];
  }

  // What was looked for in the machine code; what follows from it is the reader's to say.
  function showEvidence(proof) {
    const said = proof.kind === "proof" ? `No opcode of its own. It is proved where ${proof.note}.`
      : proof.note && `Here ${proof.note}.`;
    return [proofTable(proof), said && paragraph([said], "lt-note")];
  }

  function showRemoval(m, one, more) {
    const [ratio, low, high] = [one.relative, one.low, one.high].map((effect) => 1 + effect);
    return html("div", { class: "lt-loop-removal" }, [
      strong(title(m)),
      html("div", {}, [`Without it ${us(one.time_us)}: ${signed(one.relative)}, 95 % interval ` +
        `${signed(one.low)} to ${signed(one.high)} `, mark(tables.word)]),
      track(tables.threshold, intervalOf({ ratio, low, high }, tables.threshold)),
      one.gone && html("div", {}, [`With it goes: ${one.gone}.`]),
      showEvidence(one.evidence),
      more,
    ]);
  }

  function stepClasses(state, round) {
    const picked = round.methods.map(() => null);
    const commit = press("Commit the classes", () => inRound({ classes: picked }), true);
    const names = tables.classes.map((_, number) => sayClass(tables, number));
    const parts = round.methods.map((m, n) => showRemoval(m, round.removals[n],
      field(`${title(m)} is`, "lt-loop-classes", [choices(`class-${n}`, names, null, (number) => {
        picked[n] = number;
        commit.disabled = picked.includes(null);
      })])));
    return [
      paragraph([`An effect counts from ${percent(tables.threshold)} on; the grey band shows that. A ` +
        "method that the machine code does not show failed, whatever the time did. Class each method."]),
      paragraph(["Before a pattern “>=8” asks for so many instructions and “!” for none; “more” and " +
        "“fewer” compare with the code without the method. All patterns of a method must hold."]),
      parts, tools([commit]),
    ];
  }

  function doneClasses(round) {
    return round.methods.map((m, n) => {
      const [mine, right] = [round.classes[n], round.removals[n].class];
      return showRemoval(m, round.removals[n], paragraph([
        mine === right ? "You were right: " : `You said ${sayClass(tables, mine)}. It is `,
        strong(sayClass(tables, right)), `: ${tables.class_words[right]}.`], "lt-loop-verdict"));
    });
  }

  function doneRound(round) {
    const harm = round.end.without === null ? null : title(round.end.without);
    if (!round.end.taken) {
      const without = harm ? `, and without ${harm}, which harms, it ${sayGain(round.gain)}` : "";
      return paragraph([`The champion ${sayGain(round.ratio - 1)}${without}. That is no gain above the ` +
        `${percent(tables.least, 2)} that can be told here. The next round begins where this one began.`]);
    }
    return paragraph([`A gain of ${percent(round.gain)}. The next round begins from the champion` +
      `${harm ? ` without ${harm}, which harms` : ""}, at ${sayTime(round.next)}.`]);
  }

  const SHOWN = {
    slots: ["Gaps and slots", stepSlots], methods: ["Methods", stepMethods],
    guess: ["Your prediction", stepGuess], branches: ["Branches", stepBranches],
    ablated: ["Ablation", stepAblate], classes: ["Classes", stepClasses],
  };

  // What of a round is committed, in its order.
  function shownRound(round) {
    return [
      round.slots && doneSlots(round),
      round.methods && paragraph([`Methods: ${titles(tables, round.methods)}.`]),
      Object.entries(round.again ?? {}).map(([m, retry]) =>
        paragraph([`${title(m)}, tried again: ${sayRetry(tables, m, retry)}`])),
      round.champion !== undefined && doneBranches(round),
      round.end && [doneClasses(round), doneRound(round)],
    ];
  }

  // ---- the end

  function scores(rounds) {
    const right = rounds.filter((round) => {
      const { ratio, interval } = scoredAgainst(tables, round);
      return round.guess.direction === directionOf(ratio, interval);
    });
    const off = rounds.map(({ guess, ratio }) => Math.max(guess.ratio / ratio, ratio / guess.ratio))
      .sort((a, b) => a - b);
    const middle = (off[(off.length - 1) >> 1] + off[off.length >> 1]) / 2;
    const classed = rounds.flatMap((round) =>
      round.methods.map((_, n) => round.classes[n] === round.removals[n].class));
    const ruled = rounds.filter((round) =>
      tables.points[round.from].budgets[0] === round.slots.join(""));
    return bullets([
      `Directions right: ${right.length} of ${rounds.length}; magnitude off by ${middle.toFixed(2)} ` +
        "times in the median.",
      `Classes right: ${classed.filter(Boolean).length} of ${classed.length}.`,
      `Slots as ${tables.rules[0]} shares them out: ${ruled.length} of ${rounds.length}.`,
    ], "lt-loop-scores");
  }

  // What a round left to the next one, and how it came about.
  function sayKept({ next, end }) {
    if (!end.taken) return `${sayTime(next)}, where it began`;
    return `${sayTime(next)}, ${end.without === null ? "the champion" : `without “${title(end.without)}”`}`;
  }

  function migration(state) {
    const heads = ["round", "from", `gaps, ${tables.axes.join(" / ")}`, "bound", "slots", "runs",
      "champion", "kept", "gain of what is kept"];
    return table(heads, state.rounds.map((round) => {
      const { gaps, bound } = tables.points[round.from];
      return [
        round.number,
        us(round.before) + (round.begin === undefined ? "" : `, ${sayOrigin(round.begunOf)}`),
        gaps.map((gap) => (gap === null ? "missing" : gap.toFixed(2))).join("/"),
        bound, round.slots.join("/"),
        state.runs.filter((run) => run.round === round.number).length,
        sayTime(round.champion), sayKept(round), round.end.taken ? signed(round.gain) : "none",
      ];
    }), { name: "lt-loop-migration lt-stacks" });
  }

  function showEnd(state) {
    const reached = Math.min(...bestAfter(state.runs));
    return [
      paragraph([strong(`The fastest that you timed takes ${us(reached)} `), mark(tables.word),
        `, after ${plural(state.runs.length, "run")} in ${plural(state.rounds.length, "round")}. The ` +
        `fastest of all ${tables.points_in_all} recorded points takes ${us(tables.best_us)}: you are at `,
        strong(`${(reached / tables.best_us).toFixed(3)} times`),
        ` that. The fastest that a round may lead with takes ${us(tables.best.time_us)}: `,
        code(tables.best.key), "."], "lt-loop-result"),
      scores(state.rounds),
      drawSearches(tables, state),
      html("h4", {}, ["How the bottleneck moved"]),
      paragraph(["Kept is what the next round begins from, unless you begin it elsewhere. It is the " +
        "champion, the champion without a method that harms, or the point where the round began."]),
      migration(state),
    ];
  }

  // ---- the whole

  function showShare(text, open) {
    const wide = (label, readonly) => {
      const input = html("input", { type: "text", class: "lt-loop-field", readonly });
      return [html("label", {}, [`${label} `, input]), input];
    };
    const [link, linkField] = wide(onSite ? "A link to this run" : "The moves of this run", true);
    linkField.value = onSite ? `${location.href.split("#")[0]}#loop=${text}` : text;
    linkField.addEventListener("focus", () => linkField.select());
    const copied = html("span", { role: "status" });
    const copy = press("Copy", async () => {
      try {
        await navigator.clipboard.writeText(linkField.value);
        copied.textContent = "Copied.";
      } catch {
        linkField.focus();
        copied.textContent = "Selected: copy it with your keyboard or menu.";
      }
    });
    const [other, otherField] = wide("A link or the moves of a run", false);
    const refused = told();
    return fold("Share this run, or open another", [
      text && tools([link, copy, copied]),
      tools([other, press("Open", () => {
        refused.textContent = showLinked(otherField.value.trim().split("#loop=").pop());
        if (!refused.textContent) draw(true);
        else refused.scrollIntoView({ block: "nearest" });
      })]),
      refused,
    ], "lt-loop-share", open);
  }

  // A run that was opened is looked at; the own one is kept until its reader decides otherwise.
  function showReadOnly(text) {
    return html("div", { class: "lt-loop-apart" }, [
      paragraph(["This run was opened from a link or a text. Your own is kept."]),
      tools([
        press("Back to your own run", () => {
          showOwn();
          draw(true);
        }),
        press("Keep it as your own", () => {
          const left = ownRun();
          ownRun(text);
          [readOnly, message] = [false, left && `The moves of the run that you left: ${left}`];
          draw(true);
        }),
      ]),
    ]);
  }

  function showNow(state, heading, leading) {
    const [name, step] = state.ended ? [] : SHOWN[state.step];
    heading.textContent = state.ended ? "The end" : `Round ${state.rounds.length + 1}: ${name}`;
    if (state.ended) return [heading, showEnd(state)];
    return [state.now && shownRound(state.now), heading, !readOnly && step(state, state.now, leading)];
  }

  function draw(moved = false) {
    const state = play(tables, moves);
    const text = keep(state);
    const leading = state.at;
    if (state.frontier.has(begin)) state.at = begin;
    const heading = html("h4", { tabindex: "-1" });
    const past = state.rounds.map((round, n) => fold(
      `Round ${round.number}: ${titles(tables, round.methods)}, ${us(round.before)} to ` +
        sayTime(round.next), shownRound(round), "lt-loop-past",
      n === state.rounds.length - 1 && !state.now && !state.ended));
    const where = state.ended ? "The last round ended at" : `Round ${state.rounds.length + 1} begins from`;
    const fastest = state.runs.length ? ` The fastest after ${plural(state.runs.length, "run")} takes ` +
      `${us(Math.min(...bestAfter(state.runs)))}.` : "";
    const canEnd = !readOnly && !state.ended && state.step === "slots" && state.rounds.length > 0;
    replaceKeepingFocus(root, [
      paragraph([`${where} ${sayTime(state.at)} `, mark(tables.word), ".", fastest], "lt-loop-status"),
      readOnly && showReadOnly(text),
      past,
      told(message),
      html("div", { class: "lt-now lt-loop-now" }, showNow(state, heading, leading)),
      tools([
        canEnd && press("End the game", () => move(() => { moves.ended = true; })),
        moves.rounds.length > 0 && !readOnly && press("Start over", () => {
          move(() => { moves = { rounds: [], ended: false }; });
          message = `The moves of the run that you left: ${text}`;
          draw(true);
        }),
      ]),
      showShare(text, root.querySelector(".lt-loop-share")?.open),
    ]);
    if (moved) {
      // What had the focus is gone; reading goes on at the new step.
      heading.focus({ preventScroll: true });
      heading.scrollIntoView({ block: "nearest" });
    }
  }

  // A link within the page leads to its place, and then the address holds the run again.
  const linked = () => {
    if (linkedRun()) load();
    else setTimeout(() => keep(play(tables, moves)));
  };
  load();
  const changed = () => { if (model.get("tables") !== packed) load(); };
  model.on("change:tables", changed);
  if (onSite) window.addEventListener("hashchange", linked);
  return () => {
    model.off("change:tables", changed);
    window.removeEventListener("hashchange", linked);
  };
}

export default { render: renderGame };

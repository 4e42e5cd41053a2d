// The game on the screen, a step after the other. Its rules are in play.js, its parts in parts.js.
const OWN_RUN = "fieldguide:loop"; // in the browser's storage: the reader's own run, as text

function renderGame({ model, el }) {
  const id = freshId("lt-loop");
  const onSite = "fieldguide" in window;
  const root = html("section", {
    class: "lt-loop",
    "aria-label": "The optimisation loop as a game",
    "data-lm-suppress-shortcuts": "true",
  });
  // Jupyter would take letters and arrows for shortcuts.
  root.addEventListener("keydown", (event) => event.stopPropagation());
  el.append(root);
  let tables, moves, message;
  let apart = false; // the reader's own run is another, and is kept beside the one that is shown
  let begin; // chosen of the frontier, not committed yet
  const told = para([], "lt-loop-error");
  told.setAttribute("role", "status");

  function load() {
    tables = model.get("tables");
    const held = onSite && isHeldByUs();
    const linked = onSite && !held ? hashOfRun() : null;
    take(...read(held ? ownRun() : linked || model.get("moves")));
    draw(false);
    if (linked) (message ? told : root).scrollIntoView({ block: message ? "center" : "start" });
  }

  // The moves of a text, and what is wrong with them; where there is no text, nothing is.
  function read(text) {
    const [found, wrong] = readMoves(tables, text ?? "");
    return [found, text ? wrong : ""];
  }

  // Show a run, or the reader's own where there is nothing of it. Another's is kept apart from the
  // own one.
  function take(found, wrong) {
    const [own, unread] = read(ownRun());
    [moves, message] = [found, wrong];
    begin = undefined;
    if (!found.rounds.length && own.rounds.length) {
      moves = own;
      if (wrong) message = `${wrong} Your own run is shown.`;
    }
    if (unread && unread !== wrong) {
      message = `${message} This browser kept moves of yours. ${unread}`.trim();
    }
    apart = own.rounds.length > 0 && textOf(own) !== textOf(moves);
  }

  // The moves that the page's address names.
  function hashOfRun() {
    return new URLSearchParams(location.hash.slice(1)).get("loop");
  }

  // Whether the address was written here, from the reader's own run, and that can still be played.
  // Then it is the newer one.
  function isHeldByUs() {
    return history.state?.loop === "own" && read(ownRun())[0].rounds.length > 0;
  }

  function textOf(found) {
    return found.rounds.length ? writeMoves(tables, found) : "";
  }

  function holdInAddress(text) {
    const address = text ? `#loop=${text}` : location.pathname + location.search;
    history.replaceState({ loop: apart ? "other" : "own" }, "", address);
  }

  function keep(state) {
    const text = textOf(moves);
    if (text !== model.get("moves")) {
      model.set("moves", text);
      model.set(
        "runs_us",
        state.runs.map((run) => run.time),
      );
      model.save_changes();
    }
    // A link to a part of the page stays as it is until there is a run to be kept.
    if (onSite && (text || location.hash.startsWith("#loop="))) holdInAddress(text);
    return text;
  }

  // A browser may refuse to keep anything; then the run lasts as long as the page.
  function ownRun(text) {
    try {
      if (text !== undefined) window.localStorage.setItem(OWN_RUN, text);
      return window.localStorage.getItem(OWN_RUN);
    } catch {
      return null;
    }
  }

  // One more move; `change` writes it into the round that is under way.
  function move(change) {
    const rounds = moves.rounds.map((one) => ({ ...one }));
    moves = { ...moves, rounds };
    message = "";
    begin = undefined;
    change(rounds);
    draw(true);
    if (!apart) ownRun(model.get("moves"));
  }
  const inRound = (values) => move((rounds) => Object.assign(rounds[rounds.length - 1], values));

  // ---- steps

  // The point where the last round ended, or another of the frontier.
  function chooseBeginning(state, leading) {
    if (!state.frontier.size) return [];
    const name = (place, words) => {
      const option = html("option", { value: tables.points[place].number }, [words]);
      option.selected = place === state.at;
      return option;
    };
    const others = [...state.frontier]
      .filter(([place]) => place !== leading)
      .sort(([a], [b]) => tables.points[a].time_us - tables.points[b].time_us);
    const select = html("select", { id: `${id}-begin`, class: "lt-loop-begin" }, [
      name(
        leading,
        `${state.rounds.length ? "where the last round ended" : "the start"}, ` +
          us(tables.points[leading].time_us),
      ),
      ...others.map(([place, number]) =>
        name(
          place,
          `${sayOrigin(number)}, ${us(tables.points[place].time_us)}: ${sayKnobs(tables, place, [leading])}`,
        ),
      ),
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
    const wait = point.waits_for.replaceAll("_", " ");
    if (!openChoices(tables, state).length) {
      return [
        ...beginning,
        para([
          "No choice of methods leads from here to a recorded point that was not timed " +
            `before. ${beginning.length ? "Begin from another candidate, or end" : "End"} the game.`,
        ]),
      ];
    }
    const error = para([], "lt-loop-error");
    const chosen = tables.axes.map(() => 0);
    const rows = tables.axes.map((axis, a) =>
      html("fieldset", { class: "lt-loop-axis" }, [
        html("legend", {}, [axis]),
        gapBar(tables, point.gaps[a]),
        html(
          "span",
          { class: "lt-loop-slots" },
          Array.from({ length: tables.cap + 1 }, (_, count) => {
            const radio = html("input", { type: "radio", name: `${id}-slots-${a}`, value: count });
            radio.checked = count === 0;
            radio.addEventListener("change", () => {
              chosen[a] = count;
              check();
            });
            return html("label", { class: "lt-gate-choice" }, [radio, ` ${count}`]);
          }),
        ),
      ]),
    );
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
      para([
        `It takes ${us(state.time)} `,
        mark(tables.word),
        `. Its bound is `,
        `${point.bound}, and the longest wait of a warp is “${wait}”.`,
      ]),
      para([
        "The first two bars are what is left of a utilisation. The third is the largest share of a " +
          "warp's time in one kind of wait ",
        mark("forecast"),
        `. ${tables.gaps_note}`,
      ]),
      para([`Share out ${tables.slots} slots for methods, at most ${tables.cap} to an axis.`]),
      ...rows,
      error,
      commit,
    ];
  }

  function doneSlots(round) {
    const { budgets } = tables.points[round.from];
    const said = tables.rules.map((rule, n) => `${rule} ${budgets[n].join("/")}`).join(", ");
    const again =
      round.begin === undefined
        ? ""
        : `Begun from ${sayOrigin(round.begunOf)}, ${us(round.before)}. `;
    return [
      para([`${again}Slots ${round.slots.join("/")} for ${tables.axes.join("/")}.`]),
      html("details", { class: "lt-loop-rules" }, [
        html("summary", {}, ["What each rule gives"]),
        para([`${said}.`]),
      ]),
    ];
  }

  function stepMethods(state, round) {
    const error = para([], "lt-loop-error");
    error.setAttribute("role", "status");
    const boxes = new Map();
    const fields = new Map(); // what is different, of each method that the compiler dropped
    const commit = press("Take these methods", () => inRound({ methods: chosen(), said: said() }));
    const chosen = () => [...boxes].filter(([, box]) => box.checked).map(([m]) => m);
    const said = () =>
      Object.fromEntries(
        chosen()
          .filter((m) => fields.has(m))
          .map((m) => [m, fields.get(m).value.trim()]),
      );
    const room = roomFor(tables, state, round.slots);
    // Where an axis has no room, nothing of it can be chosen.
    const choose = (one, m, a) => {
      const box = html("input", { type: "checkbox", "data-method": one.id });
      box.disabled = room[a] === 0;
      box.addEventListener("change", check);
      boxes.set(m, box);
      return box;
    };
    function check() {
      const methods = chosen();
      const why = whyNotMethods(tables, state, round.slots, methods, said());
      const left = untried(tables, state, methods, said()).length;
      error.textContent = why || `${plural(left, "recorded candidate")}, not timed yet.`;
      commit.disabled = why !== "";
    }
    const groups = tables.axes.map((axis, a) => {
      const mine = tables.methods.map((one, m) => [one, m]).filter(([one]) => one.axis === axis);
      const able = mine.filter(([, m]) => refusalOf(tables, state, m) === "");
      const rest = mine.filter(
        ([, m]) => refusalOf(tables, state, m) !== "" && !wasDropped(tables, state, m),
      );
      const dropped = mine.filter(([, m]) => wasDropped(tables, state, m));
      able.sort(
        ([, m], [, n]) =>
          tables.points[state.at].checks[n][0] - tables.points[state.at].checks[m][0],
      );
      return html("fieldset", { class: "lt-loop-methods" }, [
        html("legend", {}, [
          room[a] ? `${axis}: ${plural(room[a], "method")} at most` : `${axis}: no slot`,
        ]),
        ...able.map(([one, m]) => {
          const box = choose(one, m, a);
          return html("label", { class: "lt-loop-method" }, [
            box,
            html("span", {}, [
              html("strong", {}, [one.title]),
              ` (strength ${tables.points[state.at].checks[m][0].toFixed(2)}): ${one.idea}`,
            ]),
          ]);
        }),
        ...(able.length ? [] : [para(["No method of this axis passes the four checks."])]),
        ...dropped.map(([one, m]) => {
          const box = choose(one, m, a);
          const field = html("input", {
            type: "text",
            maxlength: MOST_SAID,
            class: "lt-loop-field",
            "data-said": one.id,
          });
          field.disabled = room[a] === 0;
          field.addEventListener("input", check);
          fields.set(m, field);
          return html("div", { class: "lt-loop-again" }, [
            html("label", { class: "lt-loop-method" }, [
              box,
              html("span", {}, [
                html("strong", {}, [one.title]),
                ": the compiler dropped it. Try it again?",
              ]),
            ]),
            html("label", {}, [
              "What is different this time? Name the form, as knob=value, a flag, or the registers. ",
              field,
            ]),
          ]);
        }),
        html("details", {}, [
          html("summary", {}, [`${rest.length} refused by the checks`]),
          html(
            "ul",
            {},
            rest.map(([one, m]) =>
              html("li", {}, [`${one.title}: ${refusalOf(tables, state, m)}`]),
            ),
          ),
        ]),
      ]);
    });
    check();
    // The order of the boxes on the screen is by strength; a choice is kept in the family's order.
    const inOrder = [...boxes].sort(([m], [n]) => m - n);
    boxes.clear();
    for (const [m, box] of inOrder) boxes.set(m, box);
    return [
      para([
        "These methods pass the four checks; the strength is that of their trigger ",
        mark("forecast"),
        ". A slot that no method of its axis can use may go to another.",
      ]),
      ...groups,
      ...(fields.size ? [foldKnobs(tables)] : []),
      error,
      html("div", { class: "lt-loop-buttons" }, [
        commit,
        press("Share the slots out again", () => move((rounds) => rounds.pop())),
      ]),
    ];
  }

  function stepGuess(state, round) {
    const place = html("div");
    const name = titles(tables, round.methods);
    const asked = new Asked(
      {
        text:
          `Round ${round.number}: ${name}. The fastest candidate, against the ${us(round.before)} of the ` +
          "point that the round begins from?",
        baseline: "the point that the round begins from",
        candidate: "the fastest candidate",
        again_message: "",
        state: { committed: false, message: "", final: true },
      },
      ({ direction, ratio }) =>
        inRound({ guess: readGuess(sayGuessText({ direction, ratio })) ?? { direction, ratio } }),
    );
    render({ model: asked, el: place });
    return [place];
  }

  function stepBranches(state, round) {
    const byForecast = [...round.candidates].sort(
      (a, b) =>
        (tables.points[a].forecast_us ?? Infinity) - (tables.points[b].forecast_us ?? Infinity),
    );
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
      error.textContent =
        count > tables.branches
          ? `A round times at most ${tables.branches} branches.`
          : count
            ? `${plural(count, "run")}.`
            : "Choose at least one.";
    }
    check();
    const first = press(`Take the forecast's first ${tables.branches}`, () => {
      boxes.forEach(([, box], n) => {
        box.checked = n < tables.branches;
      });
      check();
    });
    return [
      para([
        byForecast.length === 1
          ? "One recorded candidate has these methods."
          : `${byForecast.length} recorded candidates have these methods. Choose at most ${tables.branches} to time.`,
      ]),
      html("fieldset", { class: "lt-loop-methods" }, [
        html("legend", {}, ["Branches, by forecast"]),
        ...boxes.map(([place, box]) => {
          const told = tables.points[place].forecast_us;
          return html("label", { class: "lt-loop-method" }, [
            box,
            html("span", {}, [
              html("code", {}, [
                sayKnobs(tables, place, byForecast.length > 1 ? byForecast : [round.from]),
              ]),
              " ",
              ...(told === null ? ["no forecast"] : [us(told), " ", mark("forecast")]),
            ]),
          ]);
        }),
      ]),
      foldKnobs(tables),
      error,
      html("div", { class: "lt-loop-buttons" }, [
        commit,
        ...(byForecast.length > tables.branches ? [first] : []),
      ]),
    ];
  }

  function doneBranches(round) {
    const ranked = [...round.branches].sort(
      (a, b) => tables.points[a].time_us - tables.points[b].time_us,
    );
    const rows = ranked.map((place) => {
      const point = tables.points[place];
      return [
        html("code", {}, [sayKnobs(tables, place, ranked.length > 1 ? ranked : [round.from])]),
        point.forecast_us === null ? "none" : us(point.forecast_us),
        us(point.time_us),
        sayRatio(round.before / point.time_us),
      ];
    });
    const guessed = sayRatio(round.guess.ratio);
    return [
      table(["branch", "forecast", "time", "against its beginning"], rows, "lt-loop-branches"),
      para(
        [
          `You said: ${guessed}. It is ${sayRatio(round.ratio)} `,
          mark(tables.word),
          ". ",
          verdict(round.guess, scoredAgainst(tables, round)),
        ],
        "lt-loop-verdict",
      ),
    ];
  }

  function stepAblate(round) {
    const count = new Set(round.methods.map((m) => removalOf(tables, round.champion, m).point))
      .size;
    return [
      para(["What is each method worth? Leave each out alone, and time what is left."]),
      press(`Ablate: ${plural(count, "run")}`, () => inRound({ ablated: true })),
    ];
  }

  // What was looked for in the machine code; what follows from it is the reader's to say.
  function showEvidence({ kind, rows, note }) {
    const head = kind === "signature" ? "instructions that match" : "number";
    const told =
      kind === "proof" ? `No opcode of its own. It is proved where ${note}.` : note && `Here ${note}.`;
    return [
      ...(rows.length
        ? [
            table(
              [head, "with it", "without"],
              rows.map(([name, ...counts]) => [html("code", {}, [name]), ...counts]),
              "lt-loop-evidence",
            ),
          ]
        : []),
      ...(told ? [para([told], "lt-loop-note")] : []),
    ];
  }

  function showRemoval(method, one, more) {
    const gone = tables.texts[one.gone];
    const beyond = sayBeyond(tables, one);
    return html("div", { class: "lt-loop-removal" }, [
      html("strong", {}, [tables.methods[method].title]),
      html("div", {}, [
        `Without it ${us(one.time_us)}: ${signed(one.relative)}, 95 % interval ${signed(one.low)} `,
        `to ${signed(one.high)} `,
        mark(tables.word),
        drawInterval(tables, one),
      ]),
      ...(beyond ? [para([beyond], "lt-loop-note")] : []),
      ...(gone ? [html("div", {}, [`With it goes: ${gone}.`])] : []),
      ...showEvidence(JSON.parse(tables.texts[one.evidence])),
      ...more,
    ]);
  }

  function stepClasses(round) {
    const picked = round.methods.map(() => null);
    const commit = press("Commit the classes", () => inRound({ classes: [...picked] }));
    commit.disabled = true;
    const parts = round.methods.map((m, n) =>
      showRemoval(m, round.removals[n], [
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
        ]),
      ]),
    );
    return [
      para([
        `An effect counts from ${percent(tables.threshold)} on; the dashed lines show that. A method that the `,
        "machine code does not show failed, whatever the time did. Class each method.",
      ]),
      para([
        "Before a pattern “>=8” asks for so many instructions and “!” for none; “more” and “fewer” compare with ",
        "the code without the method. All patterns of a method must hold.",
      ]),
      ...parts,
      commit,
    ];
  }

  function doneClasses(round) {
    return round.methods.map((m, n) => {
      const [mine, right] = [round.classes[n], round.removals[n].class];
      const word = (number) => CLASS_WORDS[tables.classes[number]];
      return showRemoval(m, round.removals[n], [
        para(
          [
            mine === right ? "You were right: " : `You said ${word(mine)}. It is `,
            html("strong", {}, [word(right)]),
            `: ${tables.class_words[right]}.`,
          ],
          "lt-loop-verdict",
        ),
      ]);
    });
  }

  function doneRound(round) {
    const least = percent(tables.least, 2);
    if (!round.taken) {
      const without =
        round.without === undefined
          ? ""
          : `, and without ${tables.methods[round.without].title}, which harms, it ${sayGain(round.gain)}`;
      return para([
        `The champion ${sayGain(round.ratio - 1)}${without}. That is no gain above the ${least} that `,
        "can be told here. The next round begins where this one began.",
      ]);
    }
    const without =
      round.without === undefined
        ? ""
        : ` without ${tables.methods[round.without].title}, which harms`;
    return para([
      `A gain of ${percent(round.gain)}. The next round begins from the champion${without}, at `,
      `${us(tables.points[round.next].time_us)}.`,
    ]);
  }

  const STEPS = {
    slots: ["Gaps and slots", stepSlots],
    methods: ["Methods", stepMethods],
    guess: ["Your prediction", stepGuess],
    branches: ["Branches", stepBranches],
    ablate: ["Ablation", (_, round) => stepAblate(round)],
    classes: ["Classes", (_, round) => stepClasses(round)],
  };

  // What of a round is committed, in its order.
  function shownRound(round) {
    const shown = [];
    if (round.slots) shown.push(...doneSlots(round));
    if (round.methods) shown.push(para([`Methods: ${titles(tables, round.methods)}.`]));
    for (const [m, words] of Object.entries(round.said ?? {}))
      shown.push(para([`${tables.methods[m].title}, tried again: “${words}”`], "lt-loop-said"));
    if (round.champion !== undefined) shown.push(...doneBranches(round));
    if (round.classes) shown.push(...doneClasses(round));
    if (round.next !== undefined) shown.push(doneRound(round));
    return shown;
  }

  // ---- the whole

  function scores(state) {
    const rounds = state.rounds;
    const right = rounds.filter((one) => {
      const { ratio, interval } = scoredAgainst(tables, one);
      return one.guess.direction === directionOf(ratio, interval);
    }).length;
    const off = rounds
      .map((one) => Math.max(one.guess.ratio / one.ratio, one.ratio / one.guess.ratio))
      .sort((a, b) => a - b);
    const middle = (off[(off.length - 1) >> 1] + off[off.length >> 1]) / 2;
    const classed = rounds.flatMap((one) =>
      one.methods.map((_, n) => (one.classes[n] === one.removals[n].class ? 1 : 0)),
    );
    const magnitude = `magnitude off by ${middle.toFixed(2)} times in the median`;
    const ruled = rounds.filter(
      (one) => tables.points[one.from].budgets[0].join() === one.slots.join(),
    ).length;
    const hits = classed.reduce((sum, one) => sum + one, 0);
    return html(
      "ul",
      { class: "lt-loop-scores" },
      [
        `Directions right: ${right} of ${rounds.length}; ${magnitude}.`,
        `Classes right: ${hits} of ${classed.length}.`,
        `Slots as ${tables.rules[0]} shares them out: ${ruled} of ${rounds.length}.`,
      ].map((text) => html("li", {}, [text])),
    );
  }

  // What a round left to the next one, and how it came about.
  function sayKept(one) {
    const time = us(tables.points[one.next].time_us);
    if (!one.taken) return `${time}, where it began`;
    return one.without === undefined
      ? `${time}, the champion`
      : `${time}, without “${tables.methods[one.without].title}”`;
  }

  function migration(state) {
    const heads = [
      "round",
      "from",
      `gaps, ${tables.axes.join(" / ")}`,
      "bound",
      "slots",
      "runs",
      "champion",
      "kept",
      "gain of what is kept",
    ];
    return table(
      heads,
      state.rounds.map((one) => {
        const point = tables.points[one.from];
        return [
          String(one.number),
          us(one.before) + (one.begin === undefined ? "" : `, ${sayOrigin(one.begunOf)}`),
          point.gaps.map((gap) => (gap === null ? "missing" : gap.toFixed(2))).join("/"),
          point.bound,
          one.slots.join("/"),
          String(state.runs.filter((run) => run.round === one.number).length),
          us(tables.points[one.champion].time_us),
          sayKept(one),
          one.taken ? signed(one.gain) : "none",
        ];
      }),
      "lt-loop-migration",
    );
  }

  function showEnd(state) {
    const reached = Math.min(...bestAfter(state.runs));
    return [
      para(
        [
          html("strong", {}, [`The fastest that you timed takes ${us(reached)} `]),
          mark(tables.word),
          `, after ${plural(state.runs.length, "run")} in ${plural(state.rounds.length, "round")}. The fastest of all `,
          `${tables.points_in_all} recorded points takes ${us(tables.best_us)}: you are at `,
          html("strong", {}, [`${(reached / tables.best_us).toFixed(3)} times`]),
          " that. The fastest that a round may ",
          `lead with takes ${us(tables.best.time_us)}: `,
          html("code", {}, [tables.best.key]),
          ".",
        ],
        "lt-loop-result",
      ),
      scores(state),
      drawSearches(tables, state),
      html("h4", {}, ["How the bottleneck moved"]),
      para([
        "Kept is what the next round begins from, unless you begin it elsewhere. It is the champion, the " +
          "champion without a method that harms, or the point where the round began.",
      ]),
      migration(state),
    ];
  }

  function showShare(text) {
    const link = onSite ? `${location.href.split("#")[0]}#loop=${text}` : text;
    const field = html("input", {
      type: "text",
      readonly: "",
      id: `${id}-link`,
      class: "lt-loop-field",
    });
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
    const other = html("input", {
      type: "text",
      id: `${id}-open`,
      class: "lt-loop-field",
      "aria-describedby": `${id}-refused`,
    });
    const refused = para([], "lt-loop-error");
    refused.id = `${id}-refused`;
    refused.setAttribute("role", "status");
    const open = press("Open", () => {
      const [found, wrong] = readMoves(tables, other.value.trim().split("#loop=").pop());
      if (!found.rounds.length) {
        refused.textContent = wrong || "There is no round in these moves.";
        refused.scrollIntoView({ block: "nearest" });
        return;
      }
      take(found, wrong);
      draw(true);
    });
    return html("details", { class: "lt-loop-share" }, [
      html("summary", {}, ["Share this run, or open another"]),
      ...(text
        ? [
            html("label", { for: `${id}-link` }, [
              onSite ? "A link to this run" : "The moves of this run",
            ]),
            html("div", { class: "lt-loop-buttons" }, [field, copy, copied]),
          ]
        : []),
      html("label", { for: `${id}-open` }, ["A link or the moves of a run"]),
      html("div", { class: "lt-loop-buttons" }, [other, open]),
      refused,
    ]);
  }

  // Where the run is not the reader's own as it stands: what becomes of it, and the way back.
  function showApart(text) {
    const own = ownRun() ?? "";
    const whose = isBeginning(text, own)
      ? "This is an earlier state of your own run."
      : "This run is not your own.";
    return html("div", { class: "lt-loop-apart" }, [
      para([`${whose} Your own is kept, and what you do here leaves it as it is.`]),
      html("div", { class: "lt-loop-buttons" }, [
        press("Back to your own run", () => {
          take(...read(own));
          draw(true);
        }),
        press("Keep it as your own", () => {
          ownRun(text);
          take(moves, `The moves of the run that you left: ${own}`);
          draw(true);
        }),
      ]),
    ]);
  }

  function draw(moved) {
    const state = play(tables, moves);
    const text = keep(state);
    const leading = state.at;
    if (begin !== undefined && state.frontier.has(begin)) beginFrom(tables, state, begin);
    const share = root.querySelector(".lt-loop-share")?.open;
    const status = para(
      [
        state.ended
          ? "The last round ended at "
          : `Round ${state.rounds.length + 1} begins from `,
        `${us(state.time)} `,
        mark(tables.word),
        ".",
        ...(state.runs.length
          ? [
              ` The fastest after ${plural(state.runs.length, "run")} takes `,
              `${us(Math.min(...bestAfter(state.runs)))}.`,
            ]
          : []),
      ],
      "lt-loop-status",
    );
    const heading = html("h4", { tabindex: "-1" }, [""]);
    const past = state.rounds.map((round, n) => {
      const latest = n === state.rounds.length - 1 && !state.now && !state.ended;
      return html("details", { class: "lt-loop-past", ...(latest ? { open: "" } : {}) }, [
        html("summary", {}, [
          `Round ${round.number}: ${titles(tables, round.methods)}, `,
          `${us(round.before)} to ${us(tables.points[round.next].time_us)}`,
        ]),
        ...shownRound(round),
      ]);
    });
    let now;
    if (state.ended) {
      heading.textContent = "The end";
      now = [heading, ...showEnd(state)];
    } else {
      const [title, step] = STEPS[state.step];
      heading.textContent = `Round ${state.rounds.length + 1}: ${title}`;
      now = [
        ...(state.now ? shownRound(state.now) : []),
        heading,
        ...step(state, state.now, leading),
      ];
    }
    const buttons = [];
    if (!state.ended && state.step === "slots" && state.rounds.length) {
      buttons.push(
        press("End the game", () =>
          move(() => {
            moves.ended = true;
          }),
        ),
      );
    }
    if (moves.rounds.length && !apart) {
      buttons.push(
        press("Start over", () => {
          move(() => {
            moves = { rounds: [], ended: false };
            message = `The moves of the run that you left: ${text}`;
          });
        }),
      );
    }
    const shared = showShare(text);
    shared.open = share ?? false;
    told.textContent = message;
    root.replaceChildren(
      status,
      ...(apart ? [showApart(text)] : []),
      ...past,
      told,
      html("div", { class: "lt-loop-now" }, now),
      html("div", { class: "lt-loop-buttons" }, buttons),
      shared,
    );
    if (moved) {
      // What had the focus is gone; reading goes on at the new step.
      heading.focus({ preventScroll: true });
      heading.scrollIntoView({ block: "nearest" });
    }
  }

  load();
  const changed = () => {
    if (model.get("tables") !== tables) load();
  };
  // A link within the page leads to its place, and then the address holds the run again.
  const linked = () => {
    if (hashOfRun() !== null) load();
    else if (moves.rounds.length) setTimeout(() => holdInAddress(model.get("moves")));
  };
  // The own run is the same in every tab: where it is shown, it is shown as it stands.
  const elsewhere = (event) => {
    const [own, unread] = read(ownRun());
    if (event.key !== OWN_RUN || unread) return;
    if (textOf(moves) !== textOf(read(event.oldValue)[0])) take(moves, message);
    else take(own, "Your own run was changed in another tab. It is shown as it stands there.");
    draw(false);
  };
  model.on("change:tables", changed);
  window.addEventListener("storage", elsewhere);
  if (onSite) window.addEventListener("hashchange", linked);
  return () => {
    model.off("change:tables", changed);
    window.removeEventListener("storage", elsewhere);
    window.removeEventListener("hashchange", linked);
  };
}

export default { render: renderGame };

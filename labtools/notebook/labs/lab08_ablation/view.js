// Draws a kernel with its methods, and what taking one or two of them out does. Numbers and
// sentences come from tables that Python made; nothing is computed here but places on the screen,
// and how many guesses were right.
const WATCHED = ["workload_index", "kernel_index", "out", "guesses", "tables"];
const MOST_OUT = 2;
const TICKS = [0.25, 0.9, 1, 1.1, 4];
const GUESSES = ["slower", "same", "faster"];
const PAIR_OUTCOMES = {
  less: "less than the product",
  as: "as the product, within what can be told",
  more: "more than the product",
};
const SKIPPED = "skipped";

// ---------------------------------------------------------------- rows

// A row of the picture: what it is of, its marks on the scale, and their value.
function rowOf(label, threshold, marks, value, name = "") {
  return html("div", { class: `lt-ablation-row ${name}` }, [label, track(threshold, marks),
    html("div", { class: "lt-ablation-value" }, [value])]);
}

const label = (parts) => html("div", { class: "lt-ablation-label" }, parts);

function axis(threshold) {
  return html("div", { class: "lt-ablation-row lt-ablation-axis", "aria-hidden": "true" }, [
    label(["time without / time with it"]),
    html("div", { class: "lt-effect-track" }, TICKS.map((tick) => html("span", {
      style: `left:${placeOf(tick, threshold).toFixed(2)}%` }, [`${tick}`]))),
    html("div", { class: "lt-ablation-value" }),
  ]);
}

// ---------------------------------------------------------------- machine code

function changeWord(before, after) {
  if (after === 0) return "vanishes";
  if (before === 0) return "appears";
  return after > before ? `+${after - before}` : `${after - before}`;
}

function drawProof(proof) {
  const isProof = proof.kind === "proof";
  return [
    html("h4", {}, ["Claimed against compiled"]),
    proofTable(proof, { label: "What the method promises, scrolls sideways", name: "lt-numbers" }),
    paragraph([isProof && `No opcode of its own. It is proved where ${proof.note}. `,
      `${capital(proof.said)}. `, !isProof && proof.note && `${capital(proof.note)}. `,
      mark("recorded")]),
  ];
}

function drawOpcodes(change, opcodes) {
  const same = (text) => [paragraph([`${text} `, mark("recorded")], "lt-ablation-same")];
  if (change.same) return same("Nothing. The compiler makes the same code with it and without it.");
  if (!change.known) return [paragraph(["The opcodes of this kernel were not kept."])];
  if (change.opcodes.length === 0) {
    return same("No opcode is there more often or less often. Registers, addresses or the order differ.");
  }
  const others = change.others ? `The largest changes; ${change.others} more opcodes differ. `
    : "No other opcode differs. ";
  return [
    table(["opcode", "with", "without", "change", "what it does"], change.opcodes.map(
      ([name, before, after]) => [code(name), before, after, changeWord(before, after),
        opcodes[name.split(".")[0]] ?? ""]), {
      label: "How often each opcode stands in the code, scrolls sideways",
      name: "lt-numbers lt-ablation-opcodes" }),
    paragraph([others, mark("recorded")], "lt-note"),
  ];
}

function drawChange(change, opcodes) {
  const moved = change.numbers.filter(([, held, then]) => held !== then);
  const still = change.numbers.filter(([, held, then]) => held === then && held !== "-");
  return [
    html("h4", {}, ["What changes in the machine code"]),
    drawOpcodes(change, opcodes),
    moved.length > 0 && table(["", "with", "without", "kind"],
      moved.map(([name, held, then, word]) => [name, held, then, mark(word)]),
      { label: "Numbers of the kernel, scrolls sideways", name: "lt-numbers" }),
    still.length > 0 && paragraph([`The same: ${still.map(([name, held]) =>
      `${name} ${held}`).join("; ")}.`], "lt-note"),
  ];
}

// ---------------------------------------------------------------- the whole

function render({ model, el }) {
  const root = startView(el, "lt-ablation", "A kernel with a method out");
  let packed, every; // the tables of each workload, unpacked once
  let shown = model.get("kernel_index");
  let tables, kernel, out; // what is shown now

  const set = (values) => setAll(model, values);
  const link = (text, act) => button(text, act, { name: "lt-link" });
  const nameIn = (where, of, key) => `${where.workload}/${of.name}/${key}`;
  const nameOf = (key) => nameIn(tables, kernel, key);
  const guessOf = (key) => model.get("guesses")[nameOf(key)];
  const guess = (key, said) => set({ guesses: { ...model.get("guesses"), [nameOf(key)]: said } });

  function toggle(number) {
    const left = out.includes(number) ? out.filter((one) => one !== number)
      : [...out, number].slice(-MOST_OUT);
    set({ out: left.sort((a, b) => a - b) });
  }

  function showAll() {
    const seen = { ...model.get("guesses") };
    kernel.methods.forEach((_, number) => { seen[nameOf(number)] ??= SKIPPED; });
    set({ guesses: seen });
  }

  function drawMethod(method, number) {
    const cell = kernel.cells[number];
    const seen = cell && guessOf(number) !== undefined;
    const isOut = out.includes(number);
    const named = tick("checkbox", { "data-focus": `method-${number}`, checked: !isOut },
      () => toggle(number), [` ${method.title}`], "lt-ablation-label");
    return rowOf(named, tables.threshold, seen ? intervalOf(cell, tables.threshold) : [],
      !cell ? "no time" : seen ? cell.said : html("span", { title: "not seen yet" }, ["?"]),
      isOut ? "lt-ablation-out" : "");
  }

  // ------------------------------------------------------------ what is out

  function askFor(key, text, outcomes) {
    return [
      paragraph([text]),
      tools(Object.entries(outcomes).map(([name, said]) => button(said, () => guess(key, name))),
        { role: "group", "aria-label": text }),
      link("Show it without a guess", () => guess(key, SKIPPED)),
    ];
  }

  function sayGuess(key, outcome, outcomes) {
    const said = guessOf(key);
    if (said === SKIPPED) return [];
    if (said === outcome) return [paragraph(["You were right."])];
    const open = outcome === "open" ? " The record leaves it open." : "";
    return [paragraph([`You said: ${outcomes[said]}.${open}`])];
  }

  function sayTimes(cell) {
    const turns = cell.turns ? " Both are among the best points, which were timed again in turns: " +
      "the ratio is of those samples." : "";
    return paragraph([`${kernel.time} us with, ${cell.time} us without `, mark("recorded"), turns],
      "lt-ablation-times");
  }

  function drawOne(number) {
    const [method, cell] = [kernel.methods[number], kernel.cells[number]];
    const head = [html("h4", { class: "lt-ablation-head" }, [`Without: ${method.title}`]),
      paragraph([`The method, for ${method.axis}: ${method.idea}.`])];
    if (!cell) return [head, paragraph(["The kernel without it has no time."])];
    if (cell.goes.length) head.push(paragraph([`With it goes what needs it: ${cell.goes.join("; ")}.`]));
    if (guessOf(number) === undefined) {
      const outcomes = Object.fromEntries(GUESSES.map((name) => [name, tables.outcomes[name]]));
      return [head, askFor(number, "Without it, the kernel is", outcomes)];
    }
    return [head,
      sayTimes(cell),
      paragraph([`${cell.said} times as long, ${cell.percent}. ${cell.verdict} `, mark("recorded")]),
      sayGuess(number, cell.outcome, tables.outcomes),
      paragraph(["Class: ", strong(cell.class), `, because ${cell.why}.`]),
      drawProof(cell.proof),
      drawChange(cell.change, tables.opcodes)];
  }

  function drawTwo() {
    const titles = out.map((number) => kernel.methods[number].title);
    const head = [html("h4", { class: "lt-ablation-head" }, [`Without both: ${titles.join("; ")}`])];
    const [first, second] = out.map(String);
    for (const [one, other] of [[first, second], [second, first]]) {
      if (kernel.with[one].includes(other)) {
        return [head, paragraph([`“${kernel.methods[other].title}” needs ` +
          `“${kernel.methods[one].title}” and goes with it. Both out is the latter out.`])];
      }
    }
    const key = out.join("+");
    const cell = kernel.cells[key];
    if (!cell) {
      return [head, paragraph(["The recorded grid does not have the kernel without both. It has " +
        "every single removal, and of pairs only those that it met by the way. A GPU can time it: " +
        "see the end of this page."])];
    }
    const unseen = out.filter((number) => guessOf(number) === undefined);
    if (unseen.length) {
      return [head, paragraph(["Take each out alone first. What two do together is held against " +
        "that."]), unseen.map((number) => button(
        `Only without: ${kernel.methods[number].title}`, () => set({ out: [number] })))];
    }
    head.push(paragraph([`Alone they cost ${cell.alone.join(" and ")} `, mark("recorded"),
      `. If each did the same without the other, both would cost their product, ${cell.product} `,
      mark("computed"), "."]));
    if (guessOf(key) === undefined) {
      return [head, askFor(key, "Taking both out costs", PAIR_OUTCOMES)];
    }
    const [interval, point] = intervalOf(cell, tables.threshold);
    return [head,
      sayTimes(cell),
      rowOf(label(["both; the open mark is the product"]), tables.threshold,
        [interval, spot("lt-effect-point lt-ablation-product", cell.product_ratio,
          tables.threshold), point], cell.said),
      paragraph([`Together ${cell.percent} `, mark("recorded"), `. The product would be ` +
        `${cell.product}, the sum ${cell.sum} `, mark("computed"), `. ${cell.outcome === "as"
        ? "Within what can be told the two do not interact."
        : "The two interact: neither has an effect of its own that could be added."}`]),
      sayGuess(key, cell.outcome, PAIR_OUTCOMES),
      drawChange(cell.change, tables.opcodes)];
  }

  function drawOut() {
    if (out.length === 0) {
      return [paragraph(["Untick a method, or two."])];
    }
    return [out.length === 1 ? drawOne(out[0]) : drawTwo(),
      paragraph([`The kernel: ${kernel.about}`], "lt-note"),
      fold("Its knobs", [code(kernel.key)])];
  }

  function score() {
    const answered = every.flatMap((where) => where.kernels.flatMap((of) =>
      Object.entries(of.cells).map(([key, cell]) =>
        [model.get("guesses")[nameIn(where, of, key)], cell.outcome]))).filter(([said, outcome]) =>
      said !== undefined && said !== SKIPPED && outcome !== "open");
    const right = answered.filter(([said, outcome]) => said === outcome).length;
    return answered.length ? `You guessed ${right} of ${answered.length} right.` : "";
  }

  function draw() {
    const index = model.get("kernel_index");
    if (index !== shown) {
      shown = index;
      if (model.get("out").length) {
        set({ out: [] }); // its numbers are of another kernel; this draws again
        return;
      }
    }
    if (model.get("tables") !== packed) {
      packed = model.get("tables");
      every = unpackTables(packed);
    }
    tables = every[model.get("workload_index")];
    kernel = tables.kernels[index];
    out = model.get("out").filter((number) => number < kernel.methods.length);
    const { threshold, identical } = tables;
    const anySeen = kernel.methods.some((_, number) => guessOf(number) !== undefined);
    replaceKeepingFocus(root, [
      html("div", { class: "lt-now" }, [
        html("div", { class: "lt-value" }, [`${kernel.time} us `, mark("recorded")]),
        html("div", {}, [strong(kernel.name)]),
        html("div", {}, [`${tables.workload}. ${tables.where}.`]),
      ]),
      axis(threshold),
      rowOf(label([html("em", {}, [`identical kernels, ${identical.length} pairs`])]), threshold,
        identical.map((ratio) => spot("lt-ablation-dot", ratio, threshold)),
        `least effect ${percent(tables.least)}`),
      ...kernel.methods.map(drawMethod),
      paragraph([`The grey band is the threshold, ${percent(threshold)}. ` +
        (anySeen ? "A bar is a 95 % interval. " : ""), mark("recorded")], "lt-note"),
      tools([
        link("Put all back", () => set({ out: [] })),
        link("Show all single ones without a guess", showAll),
        html("strong", { class: "lt-ablation-score", role: "status" }, [score()]),
      ]),
      now(drawOut(), "lt-ablation-panel"),
    ], ".lt-ablation-head"); // where a button is gone, reading goes on where its answer stands
  }

  return drawAndRedraw(model, el, WATCHED, draw);
}

export default { render };

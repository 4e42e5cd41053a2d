// Draws a kernel with its methods, and what taking one or two of them out does. Numbers and
// sentences come from tables that Python made; nothing is computed here but places on the screen,
// and how many guesses were right.
const WATCHED = ["workload_index", "kernel_index", "out", "guesses", "tables"];
const MOST_OUT = 2;
const EDGE = 10; // the scale goes from 1/10 to 10 times
const TICKS = [0.25, 0.9, 1, 1.1, 4];
const GUESSES = ["slower", "same", "faster"];
const PAIR_OUTCOMES = {
  less: "less than the product",
  as: "as the product, within what can be told",
  more: "more than the product",
};
const SKIPPED = "skipped";

const mark = (word) => badge(word, "lt-ablation-badge");

// ---------------------------------------------------------------- places

// Percent of the width. Around 1 the scale is stretched, so that the threshold can be seen.
function placeOf(ratio, threshold) {
  const bend = (value) => Math.asinh(Math.log(value) / threshold);
  const place = bend(ratio) / bend(EDGE);
  return 50 + 49 * Math.max(-1, Math.min(1, place));
}

function span(name, from, to, threshold) {
  const [left, right] = [placeOf(from, threshold), placeOf(to, threshold)];
  return html("div", { class: name,
    style: `left:${left.toFixed(2)}%;width:${(right - left).toFixed(2)}%`, "aria-hidden": "true" });
}

function spot(name, ratio, threshold) {
  return html("div", { class: name, style: `left:${placeOf(ratio, threshold).toFixed(2)}%`,
    "aria-hidden": "true" });
}

function track(threshold, children) {
  return html("div", { class: "lt-ablation-track" }, [
    span("lt-ablation-band", 1 - threshold, 1 + threshold, threshold),
    spot("lt-ablation-one", 1, threshold), ...children]);
}

function axis(threshold) {
  return html("div", { class: "lt-ablation-row lt-ablation-axis", "aria-hidden": "true" }, [
    html("div", { class: "lt-ablation-label" }, ["time without / time with it"]),
    html("div", { class: "lt-ablation-track" }, TICKS.map((tick) => html("span", {
      style: `left:${placeOf(tick, threshold).toFixed(2)}%` }, [`${tick}`]))),
    html("div", { class: "lt-ablation-value" }),
  ]);
}

// ---------------------------------------------------------------- small parts

function button(text, act, name = "lt-ablation-button", focus = "") {
  const made = html("button", { type: "button", class: name, "data-focus": focus || text }, [text]);
  made.addEventListener("click", act);
  return made;
}

function table(columns, rows, label, name) {
  const cells = (row) => row.map((cell, place) => (place === 0
    ? html("th", { scope: "row" }, [cell]) : html("td", {}, [cell])));
  return html("div", { class: `lt-ablation-table ${name}`, tabindex: "0", role: "region",
    "aria-label": `${label}, scrolls sideways` }, [
    html("table", { "aria-label": label }, [
      html("thead", {}, [html("tr", {}, columns.map((one) =>
        html("th", { scope: "col" }, [one])))]),
      html("tbody", {}, rows.map((row) => html("tr", {}, cells(row)))),
    ])]);
}

const line = (name, children) => html("p", { class: name }, children);
const quote = (name) => html("strong", {}, [name]);

// ---------------------------------------------------------------- machine code

function changeWord(before, after) {
  if (after === 0) return "vanishes";
  if (before === 0) return "appears";
  return after > before ? `+${after - before}` : `${after - before}`;
}

function drawProof(proof) {
  const head = proof.kind === "signature" ? "instructions that match" : "number";
  const rows = proof.rows.map(([name, held, then]) => [html("code", {}, [name]), held, then]);
  const told = [`${proof.said[0].toUpperCase()}${proof.said.slice(1)}. `];
  if (proof.kind === "proof") told.unshift(`No opcode of its own. It is proved where ${proof.note}. `);
  else if (proof.note) told.push(`${proof.note[0].toUpperCase()}${proof.note.slice(1)}. `);
  return [
    html("h4", {}, ["Claimed against compiled"]),
    ...(rows.length ? [table([head, "with it", "without it"], rows, "What the method promises",
      "lt-ablation-proof")] : []),
    line("lt-ablation-proved", [...told, mark("recorded")]),
  ];
}

function drawChange(change, words) {
  const head = html("h4", {}, ["What changes in the machine code"]);
  const parts = [head];
  if (change.same) {
    parts.push(line("lt-ablation-same", ["Nothing. The compiler makes the same code with it and " +
      "without it. ", mark("recorded")]));
  } else if (!change.known) {
    parts.push(line("lt-ablation-unknown", ["The opcodes of this kernel were not kept."]));
  } else if (change.opcodes.length === 0) {
    parts.push(line("lt-ablation-same", ["No opcode is there more often or less often. Registers, " +
      "addresses or the order differ. ", mark("recorded")]));
  } else {
    parts.push(
      table(["opcode", "with", "without", "change", "what it does"], change.opcodes.map(
        ([name, before, after]) => [html("code", {}, [name]), `${before}`, `${after}`,
          changeWord(before, after), words[name.split(".")[0]] ?? ""]),
      "How often each opcode stands in the code", "lt-ablation-opcodes"),
      line("lt-ablation-others", [change.others
        ? `The largest changes; ${change.others} more opcodes differ. ` : "No other opcode differs. ",
      mark("recorded")]));
  }
  const moved = change.numbers.filter(([, held, then]) => held !== then);
  const still = change.numbers.filter(([, held, then]) => held === then && held !== "-");
  if (moved.length) {
    parts.push(table(["", "with", "without", "kind"],
      moved.map(([name, held, then, word]) => [name, held, then, mark(word)]),
      "Numbers of the kernel", "lt-ablation-numbers"));
  }
  if (still.length) {
    parts.push(line("lt-ablation-still", [`The same: ${still.map(([name, held]) =>
      `${name} ${held}`).join("; ")}.`]));
  }
  return parts;
}

// ---------------------------------------------------------------- the whole

function render({ model, el }) {
  const root = html("section", { class: "lt-ablation", "aria-label": "A kernel with a method out" });
  el.append(root);

  const set = (values) => {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
  };
  let packed, every; // the tables of each workload, unpacked once
  function tablesNow() {
    if (model.get("tables") !== packed) {
      packed = model.get("tables");
      every = unpackTables(packed);
    }
    return every[model.get("workload_index")];
  }
  const kernelNow = () => tablesNow().kernels[model.get("kernel_index")];
  const nameIn = (tables, kernel, key) => `${tables.workload}/${kernel.name}/${key}`;
  const nameOf = (key) => nameIn(tablesNow(), kernelNow(), key);
  const guessOf = (key) => model.get("guesses")[nameOf(key)];
  const guess = (key, said) => set({ guesses: { ...model.get("guesses"), [nameOf(key)]: said } });

  function toggle(number) {
    const out = model.get("out");
    const left = out.includes(number) ? out.filter((one) => one !== number)
      : [...out, number].slice(-MOST_OUT);
    set({ out: left.sort((a, b) => a - b) });
  }

  function showAll() {
    const kernel = kernelNow();
    const seen = { ...model.get("guesses") };
    kernel.methods.forEach((_, number) => { seen[nameOf(number)] ??= SKIPPED; });
    set({ guesses: seen });
  }

  // ------------------------------------------------------------ rows

  function drawIdentical(tables) {
    const { identical, threshold, least } = tables;
    const percent = `${(100 * least).toFixed(1)} %`;
    return html("div", { class: "lt-ablation-row lt-ablation-identical" }, [
      html("div", { class: "lt-ablation-label" }, ["identical kernels, ",
        `${identical.length} pairs`]),
      track(threshold, identical.map((ratio) => spot("lt-ablation-dot", ratio, threshold))),
      html("div", { class: "lt-ablation-value" }, [`least effect ${percent}`]),
    ]);
  }

  function drawMethod(kernel, method, number, tables) {
    const cell = kernel.cells[number];
    const seen = cell && guessOf(number) !== undefined;
    const out = model.get("out").includes(number);
    const box = html("input", { type: "checkbox", "data-focus": `method-${number}` });
    box.checked = !out;
    box.addEventListener("change", () => toggle(number));
    const marks = seen ? [span("lt-ablation-interval", cell.low, cell.high, tables.threshold),
      spot("lt-ablation-point", cell.ratio, tables.threshold)] : [];
    const value = !cell ? "no time" : seen ? cell.said : "not seen yet";
    return html("div", { class: `lt-ablation-row${out ? " lt-ablation-out" : ""}` }, [
      html("label", { class: "lt-ablation-label" }, [box, ` ${method.title} `,
        html("span", { class: "lt-ablation-axis-of" }, [method.axis])]),
      track(tables.threshold, marks),
      html("div", { class: "lt-ablation-value" }, [value]),
    ]);
  }

  // ------------------------------------------------------------ what is out

  function askFor(key, text, outcomes) {
    return [
      line("lt-ablation-question", [text]),
      html("div", { class: "lt-ablation-choices", role: "group", "aria-label": text },
        Object.entries(outcomes).map(([name, said]) => button(said, () => guess(key, name)))),
      button("Show it without a guess", () => guess(key, SKIPPED), "lt-ablation-link"),
    ];
  }

  function sayGuess(key, outcome, outcomes) {
    const said = guessOf(key);
    if (said === SKIPPED) return [];
    let end = said === outcome ? "You were right." : `You said: ${outcomes[said]}.`;
    if (outcome === "open") end = `You said: ${outcomes[said]}. The record leaves it open.`;
    return [line("lt-ablation-guess", [end])];
  }

  function sayTimes(kernel, cell) {
    const turns = cell.turns ? " Both are among the best points, which were timed again in turns: " +
      "the ratio is of those samples." : "";
    return line("lt-ablation-times", [`${kernel.time} us with, ${cell.time} us without `,
      mark("recorded"), turns]);
  }

  function drawOne(kernel, number, tables) {
    const method = kernel.methods[number];
    const cell = kernel.cells[number];
    const head = [html("h4", { class: "lt-ablation-head" }, [`Without: ${method.title}`]),
      line("", [`The method: ${method.idea}.`])];
    if (!cell) return [...head, line("", ["The kernel without it has no time."])];
    if (cell.goes.length) {
      head.push(line("lt-ablation-goes", [`With it goes what needs it: ${cell.goes.join("; ")}.`]));
    }
    if (guessOf(number) === undefined) {
      const outcomes = Object.fromEntries(GUESSES.map((name) => [name, tables.outcomes[name]]));
      return [...head, ...askFor(number, "Without it, the kernel is", outcomes)];
    }
    return [...head,
      sayTimes(kernel, cell),
      line("lt-ablation-ratio", [`${cell.said} times as long, ${cell.percent}. ${cell.verdict} `,
        mark("recorded")]),
      ...sayGuess(number, cell.outcome, tables.outcomes),
      line("lt-ablation-class", ["Class: ", quote(cell.class), `, because ${cell.why}.`]),
      ...drawProof(cell.proof),
      ...drawChange(cell.change, tables.opcodes)];
  }

  function drawTwo(kernel, out, tables) {
    const titles = out.map((number) => kernel.methods[number].title);
    const head = [html("h4", { class: "lt-ablation-head" }, [`Without both: ${titles.join("; ")}`])];
    const [first, second] = out.map(String);
    for (const [one, other] of [[first, second], [second, first]]) {
      if (kernel.with[one].includes(other)) {
        return [...head, line("lt-ablation-none", [`“${kernel.methods[other].title}” needs ` +
          `“${kernel.methods[one].title}” and goes with it. Both out is the latter out.`])];
      }
    }
    const key = out.join("+");
    const cell = kernel.cells[key];
    if (!cell) {
      return [...head, line("lt-ablation-none", ["The recorded grid does not have the kernel " +
        "without both. It has every single removal, and of pairs only those that it met by the " +
        "way. A GPU can time it: see the end of this page."])];
    }
    const unseen = out.filter((number) => guessOf(number) === undefined);
    if (unseen.length) {
      return [...head, line("lt-ablation-none", ["Take each out alone first. What two do together " +
        "is held against that."]), ...unseen.map((number) => button(
        `Only without: ${kernel.methods[number].title}`, () => set({ out: [number] })))];
    }
    head.push(line("lt-ablation-alone", [`Alone they cost ${cell.alone.join(" and ")} `,
      mark("recorded"), `. If each did the same without the other, both would cost their product, ` +
      `${cell.product} `, mark("computed"), "."]));
    if (guessOf(key) === undefined) {
      return [...head, ...askFor(key, "Taking both out costs", PAIR_OUTCOMES)];
    }
    return [...head,
      sayTimes(kernel, cell),
      html("div", { class: "lt-ablation-row" }, [
        html("div", { class: "lt-ablation-label" }, ["both; the open mark is the product"]),
        track(tables.threshold, [
          span("lt-ablation-interval", cell.low, cell.high, tables.threshold),
          spot("lt-ablation-product", cell.product_ratio, tables.threshold),
          spot("lt-ablation-point", cell.ratio, tables.threshold)]),
        html("div", { class: "lt-ablation-value" }, [cell.said]),
      ]),
      line("lt-ablation-ratio", [`Together ${cell.percent} `, mark("recorded"), `. The product ` +
        `would be ${cell.product}, the sum ${cell.sum} `, mark("computed"), `. ${
        cell.outcome === "as" ? "Within what can be told the two do not interact."
          : "The two interact: neither has an effect of its own that could be added."}`]),
      ...sayGuess(key, cell.outcome, PAIR_OUTCOMES),
      ...drawChange(cell.change, tables.opcodes)];
  }

  function drawOut(kernel, tables) {
    const out = model.get("out").filter((number) => number < kernel.methods.length);
    if (out.length === 0) {
      return [line("lt-ablation-none", ["Untick a method to take it out. Untick a second one to " +
        "take out both."])];
    }
    return out.length === 1 ? drawOne(kernel, out[0], tables) : drawTwo(kernel, out, tables);
  }

  function score() {
    let [right, asked] = [0, 0];
    const kernels = every.flatMap((tables) => tables.kernels.map((one) => [tables, one]));
    for (const [tables, kernel] of kernels) {
      for (const [key, cell] of Object.entries(kernel.cells)) {
        const said = model.get("guesses")[nameIn(tables, kernel, key)];
        if (said === undefined || said === SKIPPED || cell.outcome === "open") continue;
        asked += 1;
        if (said === cell.outcome) right += 1;
      }
    }
    return asked ? `You guessed ${right} of ${asked} right.` : "";
  }

  let shown = model.get("kernel_index");

  function draw() {
    const index = model.get("kernel_index");
    if (index !== shown) {
      shown = index;
      if (model.get("out").length) {
        set({ out: [] }); // its numbers are of another kernel; this draws again
        return;
      }
    }
    const tables = tablesNow();
    const kernel = kernelNow();
    const focus = root.contains(document.activeElement) ? document.activeElement.dataset.focus : "";
    root.replaceChildren(
      html("div", { class: "lt-ablation-now" }, [
        html("div", { class: "lt-ablation-time" }, [`${kernel.time} us `, mark("recorded")]),
        html("div", {}, [quote(kernel.name), `. ${kernel.about}`]),
        html("div", { class: "lt-ablation-key" }, [html("code", {}, [kernel.key])]),
        html("div", {}, [`${tables.workload}. ${tables.where}.`]),
      ]),
      axis(tables.threshold),
      drawIdentical(tables),
      ...kernel.methods.map((method, number) => drawMethod(kernel, method, number, tables)),
      line("lt-ablation-said", [`The grey band is the threshold, ${(100 * tables.threshold)
        .toFixed(1)} %: an effect counts from there on. A bar is a 95 % interval. `,
      mark("recorded")]),
      html("div", { class: "lt-ablation-tools" }, [
        button("Put all back", () => set({ out: [] }), "lt-ablation-link"),
        button("Show all single ones without a guess", showAll, "lt-ablation-link"),
        html("span", { class: "lt-ablation-score", role: "status" }, [score()]),
      ]),
      html("div", { class: "lt-ablation-panel", "aria-live": "polite" }, drawOut(kernel, tables)),
    );
    if (focus) {
      const again = [...root.querySelectorAll("[data-focus]")].find((one) =>
        one.dataset.focus === focus);
      const panel = root.querySelector(".lt-ablation-head");
      if (again) again.focus({ preventScroll: true });
      else if (panel) { // the button is gone: reading goes on where its answer stands
        panel.tabIndex = -1;
        panel.focus({ preventScroll: true });
      }
    }
  }

  return drawAndRedraw(model, el, WATCHED, draw);
}

export default { render };

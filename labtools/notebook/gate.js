// The view of one question. The guess is kept by Python; this file only collects it.
const SLIDER_LIMIT = 1000; // the slider runs from 1/1000 to 1000
const SLIDER_BEND = 1.5; // and its steps grow from the middle to the ends
const SAME_BELOW = Math.log2(1.05);
const ANSWER_WITHIN_MS = 8000;
// Run All ends with a jump to the last cell, and cells take their real height only when they come
// into sight, so one scroll does not arrive.
const SCROLL_EVERY_MS = 300;
const MOST_SCROLLS = 8;

const sayFactor = (factor) => factor.toFixed(factor < 10 ? 2 : 1);

// A place on the slider, from -1 to 1, and the log2 of the ratio that it stands for.
const sliderLog = (place) =>
  Math.sign(place) * Math.log2(SLIDER_LIMIT) * Math.abs(place) ** SLIDER_BEND;
const sliderAt = (log) =>
  Math.sign(log) * Math.min(1, Math.abs(log) / Math.log2(SLIDER_LIMIT)) ** (1 / SLIDER_BEND);

function radioButtons(name, words) {
  const radios = words.map((word) => html("input", { type: "radio", name, value: word }));
  const labels = radios.map((radio) =>
    html("label", { class: "lt-gate-choice" }, [radio, ` ${radio.value}`]));
  return [radios, html("div", { class: "lt-gate-choices" }, labels)];
}

// What each kind of question puts into its form: the rows; `guess`, what they say, or null while
// undecided; and `say`, the same in a sentence. They call `changed` when it has changed.
const FIELDS = {
  ratio({ baseline, candidate }, id, changed) {
    const words = ["faster", "same", "slower"];
    const [radios, choices] = radioButtons(id, words);
    const radioOf = (word) => radios[words.indexOf(word)];
    const direction = html("fieldset", { class: "lt-gate-field" }, [
      html("legend", {}, [`Against ${baseline}, ${candidate} is`]),
      choices,
    ]);

    const number = html("input", { type: "number", id: `${id}-number`, min: "1", step: "any",
      inputmode: "decimal", class: "lt-gate-number" });
    const slider = html("input", { type: "range", id: `${id}-slider`, min: "-1", max: "1",
      step: "0.01", class: "lt-gate-slider",
      "aria-label": "or on the scale, slower on the left, faster on the right" });
    slider.value = "0";
    const size = html("div", { class: "lt-gate-field" }, [
      html("label", { for: `${id}-number` }, ["by a factor of "]), number,
      html("label", { for: `${id}-slider`, class: "lt-gate-block" },
        ["or on the scale"]),
      slider,
      html("div", { class: "lt-gate-scale", "aria-hidden": "true" },
        [`${SLIDER_LIMIT}x slower`, "same", `${SLIDER_LIMIT}x faster`].map((text) =>
          html("span", {}, [text]))),
    ]);

    const note = html("input", { type: "text", id: `${id}-note`, maxlength: "500" });
    const why = html("div", { class: "lt-gate-field" }, [
      html("label", { for: `${id}-note` }, ["Why? (optional)"]), note,
    ]);

    const chosen = () => radios.find((radio) => radio.checked)?.value ?? null;

    // The ratio that the controls say: baseline time / candidate time, or null while undecided.
    function ratio() {
      const picked = chosen();
      if (picked === null) return null;
      if (picked === "same") return 1;
      const factor = Number(number.value);
      if (!(factor > 1) || !Number.isFinite(factor)) return null;
      return picked === "faster" ? factor : 1 / factor;
    }

    function say() {
      const [value, picked] = [ratio(), chosen()];
      number.disabled = picked === "same";
      const sentence =
        value === null
          ? picked === null ? "Choose a direction." : "Give a factor above 1."
          : picked === "same"
            ? `You say: ${candidate} and ${baseline} take the same time.`
            : `You say: ${candidate} is ${sayFactor(Math.max(value, 1 / value))}x ${picked}.`;
      slider.setAttribute("aria-valuetext", sentence);
      return sentence;
    }

    // Never while the slider itself moves: its steps around "same" would be taken back.
    function moveSlider() {
      const value = ratio();
      if (value !== null) slider.value = `${sliderAt(Math.log2(value))}`;
    }

    for (const radio of radios) {
      radio.addEventListener("change", () => {
        if (radio.value === "same") number.value = "1";
        else if (!(Number(number.value) > 1)) number.value = "2";
        moveSlider();
        changed();
      });
    }
    number.addEventListener("input", () => { moveSlider(); changed(); });
    slider.addEventListener("input", () => {
      const log = sliderLog(Number(slider.value));
      const picked = Math.abs(log) < SAME_BELOW ? "same" : log > 0 ? "faster" : "slower";
      radioOf(picked).checked = true;
      number.value = picked === "same" ? "1" : (2 ** Math.abs(log)).toFixed(2);
      changed();
    });

    const guess = () =>
      ratio() === null ? null : { direction: chosen(), ratio: ratio(), note: note.value };
    return { rows: [direction, size, why], guess, say };
  },

  choice({ choices }, id, changed) {
    const [radios, labels] = radioButtons(id, choices);
    const chosen = () => radios.find((radio) => radio.checked);
    const field = html("fieldset", { class: "lt-gate-field", "aria-labelledby": `${id}-text` },
      [labels]);
    field.addEventListener("change", changed);
    const guess = () => chosen() ? { choice: chosen().value } : null;
    const say = () => chosen() ? `You say: ${chosen().value}.` : "Choose one.";
    return { rows: [field], guess, say };
  },

  numbers({ labels }, id, changed) {
    const inputs = labels.map((_, place) => html("input", { type: "number",
      id: `${id}-number${place}`, step: "any", class: "lt-gate-number" }));
    const field = html("div", { class: "lt-gate-field" }, inputs.map((input, place) =>
      html("p", {}, [html("label", { for: input.id }, [`${labels[place]}: `]), input])));
    field.addEventListener("input", changed);
    function guess() {
      const written = inputs.every((input) => input.value.trim() !== "");
      return written ? { numbers: inputs.map((input) => Number(input.value)) } : null;
    }
    const say = () => guess() ? `You say: ${guess().numbers.join(", ")}.` : "Give each number.";
    return { rows: [field], guess, say };
  },
};

function render({ model, el }) {
  const id = freshId("lt-gate");
  const asked = model.get("form");
  const what = asked.kind === "ratio" ? "prediction" : "answer";
  let answerTimer = null;

  const fields = FIELDS[asked.kind](asked, id, show);
  const preview = html("p", { class: "lt-gate-preview", "aria-live": "polite" });
  const commit = html("button", { type: "button", class: "lt-gate-button" });
  const form = html("div", {}, [fields.rows, preview, commit]);
  const status = html("p", { class: "lt-gate-status", role: "status" });
  const again = html("button", { type: "button", class: "lt-gate-button" }, ["Guess again"]);
  const text = html("p", { class: "lt-gate-question", id: `${id}-text` });

  // Lumino and Jupyter would take arrow keys and letters for shortcuts.
  const root = html("section", {
    class: "lt-gate", "data-lm-suppress-shortcuts": "true", "aria-labelledby": `${id}-text`,
  }, [html("strong", {}, [`Your ${what}`]), text, form, status, again]);

  function show() {
    preview.textContent = fields.say();
    commit.disabled = fields.guess() === null;
  }

  function fromState() {
    clearTimeout(answerTimer);
    const state = model.get("state");
    text.textContent = model.get("text");
    form.hidden = state.committed;
    again.hidden = !state.committed || state.final === true;
    status.textContent = `${state.message} ${state.todo ?? ""}`.trim();
    root.dataset.committed = state.committed;
    commit.textContent = `Commit ${what}`;
    show();
  }

  commit.addEventListener("click", () => {
    commit.disabled = true;
    commit.textContent = "Writing it down";
    answerTimer = setTimeout(() => {
      status.textContent =
        "The kernel has not answered yet, so the guess may not be kept. " +
        "If a cell is running, wait; otherwise run the cell above and commit again.";
      commit.textContent = `Commit ${what}`;
      show();
    }, ANSWER_WITHIN_MS);
    model.send({ kind: "commit", ...fields.guess() });
  });
  again.addEventListener("click", () => {
    form.hidden = false;
    again.hidden = true;
    status.textContent = model.get("again_message");
    form.querySelector("input").focus();
  });
  // Radios, sliders and fields use the keys themselves; the notebook must not see them.
  root.addEventListener("keydown", (event) => event.stopPropagation());

  // A result was refused: bring the reader here, or a stopped Run All would look like a finished
  // one. Where a guess has just set the run going again, its result is what the reader looks at.
  function onMessage(message) {
    const page = document.documentElement.dataset;
    if (message?.kind === "waiting") {
      status.textContent = page.ltGoesOn
        ? "Here the run has stopped. It goes on when you have committed."
        : "Here the run has stopped. Commit a guess, then run the cells below this one.";
      if (!page.ltUnderWay) scrollHere();
    } else if (message?.kind === "go on") {
      // Whoever can run the cells of this page takes the event; see jupyter_config/labextensions.
      const event = new CustomEvent("lt-go-on", { bubbles: true, cancelable: true });
      if (!root.dispatchEvent(event)) {
        status.textContent = `${model.get("state").message} The cells below run now.`;
      }
    }
  }

  function scrollHere() {
    let left = MOST_SCROLLS;
    const hands = new AbortController(); // a reader who moves the page is not pulled back
    const timer = setInterval(() => {
      left -= 1;
      if (left < 0 || hands.signal.aborted) {
        clearInterval(timer);
        hands.abort();
      } else {
        root.scrollIntoView({ block: "center" });
      }
    }, SCROLL_EVERY_MS);
    for (const event of ["wheel", "pointerdown", "keydown", "touchstart"]) {
      window.addEventListener(event, () => hands.abort(),
        { signal: hands.signal, capture: true, passive: true });
    }
  }

  model.on("change:state", fromState);
  model.on("msg:custom", onMessage);
  el.append(root);
  fromState();
  return () => {
    clearTimeout(answerTimer);
    model.off("change:state", fromState);
    model.off("msg:custom", onMessage);
  };
}

export default { render };

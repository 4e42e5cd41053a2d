// The view of one question. The guess is kept by Python; this file only collects it.
const SLIDER_LIMIT = 5; // log2: the slider runs from 1/32 to 32
const SAME_BELOW = Math.log2(1.05);
const ANSWER_WITHIN_MS = 8000;
// Run All ends with a jump to the last cell, and cells take their real height only when they come
// into sight, so one scroll does not arrive.
const SCROLL_EVERY_MS = 300;
const MOST_SCROLLS = 8;

const sayFactor = (factor) => factor.toFixed(factor < 10 ? 2 : 1);

function render({ model, el }) {
  const id = freshId("lt-gate");
  const candidate = model.get("candidate");
  const baseline = model.get("baseline");
  let answerTimer = null;

  const radios = {};
  const choices = html("div", { class: "lt-gate-choices" });
  for (const word of ["faster", "same", "slower"]) {
    radios[word] = html("input", { type: "radio", name: id, value: word });
    choices.append(html("label", { class: "lt-gate-choice" }, [radios[word], ` ${word}`]));
  }
  const direction = html("fieldset", { class: "lt-gate-field" }, [
    html("legend", {}, [`Against ${baseline}, ${candidate} is`]),
    choices,
  ]);

  const number = html("input", { type: "number", id: `${id}-number`, min: "1", step: "any",
    inputmode: "decimal", class: "lt-gate-number" });
  const slider = html("input", { type: "range", id: `${id}-slider`, min: `${-SLIDER_LIMIT}`,
    max: `${SLIDER_LIMIT}`, step: "0.05", class: "lt-gate-slider" });
  slider.value = "0";
  const size = html("div", { class: "lt-gate-field" }, [
    html("label", { for: `${id}-number` }, ["by a factor of "]), number,
    html("label", { for: `${id}-slider`, class: "lt-gate-block" },
      ["or on the scale (slower on the left, faster on the right)"]),
    slider,
    html("div", { class: "lt-gate-scale", "aria-hidden": "true" },
      ["32x slower", "same", "32x faster"].map((text) => html("span", {}, [text]))),
  ]);

  const note = html("input", { type: "text", id: `${id}-note`, maxlength: "500" });
  const why = html("div", { class: "lt-gate-field" }, [
    html("label", { for: `${id}-note` }, ["Why? (for yourself, optional)"]), note,
  ]);

  const preview = html("p", { class: "lt-gate-preview", "aria-live": "polite" });
  const commit = html("button", { type: "button", class: "lt-gate-button" });
  const form = html("div", {}, [direction, size, why, preview, commit]);
  const status = html("p", { class: "lt-gate-status", role: "status" });
  const again = html("button", { type: "button", class: "lt-gate-button" }, ["Guess again"]);
  const text = html("p", { class: "lt-gate-question", id: `${id}-text` });

  // Lumino and Jupyter would take arrow keys and letters for shortcuts.
  const root = html("section", {
    class: "lt-gate", "data-lm-suppress-shortcuts": "true", "aria-labelledby": `${id}-text`,
  }, [html("strong", {}, ["Your prediction"]), text, form, status, again]);

  const chosen = () => Object.keys(radios).find((name) => radios[name].checked) ?? null;

  // The ratio that the controls say: baseline time / candidate time, or null while undecided.
  function ratio() {
    const picked = chosen();
    if (picked === null) return null;
    if (picked === "same") return 1;
    const factor = Number(number.value);
    if (!(factor > 1) || !Number.isFinite(factor)) return null;
    return picked === "faster" ? factor : 1 / factor;
  }

  function show() {
    const value = ratio();
    const picked = chosen();
    number.disabled = picked === "same";
    const sentence =
      value === null
        ? picked === null ? "Choose a direction." : "Give a factor above 1."
        : picked === "same"
          ? `You say: ${candidate} and ${baseline} take the same time.`
          : `You say: ${candidate} is ${sayFactor(Math.max(value, 1 / value))}x ${picked}.`;
    preview.textContent = sentence;
    slider.setAttribute("aria-valuetext", sentence);
    commit.disabled = value === null;
  }

  // Never while the slider itself moves: its steps around "same" would be taken back.
  function moveSlider() {
    const value = ratio();
    if (value === null) return;
    slider.value = `${Math.max(-SLIDER_LIMIT, Math.min(SLIDER_LIMIT, Math.log2(value)))}`;
  }

  function fromSlider() {
    const log = Number(slider.value);
    const picked = Math.abs(log) < SAME_BELOW ? "same" : log > 0 ? "faster" : "slower";
    radios[picked].checked = true;
    number.value = picked === "same" ? "1" : (2 ** Math.abs(log)).toFixed(2);
    show();
  }

  function fromState() {
    clearTimeout(answerTimer);
    const state = model.get("state");
    text.textContent = model.get("text");
    form.hidden = state.committed;
    again.hidden = !state.committed || state.final === true;
    status.textContent = `${state.message} ${state.todo ?? ""}`.trim();
    root.dataset.committed = state.committed;
    commit.textContent = "Commit prediction";
    show();
  }

  for (const radio of Object.values(radios)) {
    radio.addEventListener("change", () => {
      if (radio.value === "same") number.value = "1";
      else if (!(Number(number.value) > 1)) number.value = "2";
      moveSlider();
      show();
    });
  }
  number.addEventListener("input", () => { moveSlider(); show(); });
  slider.addEventListener("input", fromSlider);
  commit.addEventListener("click", () => {
    commit.disabled = true;
    commit.textContent = "Writing it down";
    const message = { kind: "commit", direction: chosen(), ratio: ratio(), note: note.value };
    answerTimer = setTimeout(() => {
      status.textContent =
        "The kernel has not answered yet, so the guess may not be kept. " +
        "If a cell is running, wait; otherwise run the cell above and commit again.";
      commit.textContent = "Commit prediction";
      show();
    }, ANSWER_WITHIN_MS);
    model.send(message);
  });
  again.addEventListener("click", () => {
    form.hidden = false;
    again.hidden = true;
    status.textContent = model.get("again_message");
    radios.faster.focus();
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

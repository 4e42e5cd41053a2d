// Draws one trip of a kernel's loop in time, and what a warp waits for. All numbers and sentences
// were made by Python; here they are looked up and placed on the screen.
const WIDTH = 640;
const ANSWER_WITHIN_MS = 20000;
const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

const coloured = (colour) => swatch("", `background:${colour}`);

function drawStack(pinned, shown) {
  const bars = pinned === shown ? [["now", shown]] : [["pinned", pinned], ["now", shown]];
  const longest = Math.max(...bars.map(([, state]) => state.stack_cycles));
  return html("div", {}, bars.map(([name, state]) => html("div", { class: "lt-ch-row" }, [
    html("span", { class: "lt-ch-name" }, [name]),
    html("div", { class: "lt-ch-track" }, [html("div", { class: "lt-ch-bar", role: "img",
      style: `width:${Math.max(1, (100 * state.stack_cycles) / longest)}%`,
      "aria-label": `${name}: ${state.stack.map((part) =>
        `${part.name} ${part.share_text}`).join(", ")}` },
    state.stack.map((part) => html("span", {
      style: `background:${part.colour};flex-grow:${part.cycles}`,
      title: `${part.name}: ${part.share_text}` })))]),
  ])));
}

function drawStackTable(content, shown, change) {
  const meanings = Object.fromEntries(content.legend.map((one) => [one.name, one.meaning]));
  const [rows, heads] = change.rows.length
    ? [change.rows, ["waits for", "now", "share", "pinned", "change"]]
    : [shown.stack_rows, ["waits for", "cycles", "share"]];
  return table(heads, rows.map(([name, colour, ...numbers]) => [
    html("span", { title: meanings[name] ?? name }, colour ? [coloured(colour), " ", name] : [name]),
    ...numbers]), {
    label: "What one warp waits for, in cycles from its start to its end",
    name: "lt-numbers lt-ch-causes" });
}

// The rows of a trip in time, and the same rows as a list; one of them is chosen in both.
function drawChain(state) {
  const rows = state.rows;
  const rowHeight = Math.max(1.2, Math.min(7, 420 / Math.max(1, rows.length)));
  const height = rows.length * rowHeight;
  const scale = WIDTH / Math.max(1, state.cycles);
  const marks = svg("g", {});
  const steps = [0, 0.25, 0.5, 0.75, 1];
  const drawn = svg("svg", { viewBox: `-2 -2 ${WIDTH + 4} ${height + 4}`, role: "img",
    class: "lt-ch-picture", "aria-label": state.alt, preserveAspectRatio: "none",
    style: `height:${Math.max(120, height)}px` }, [
    ...steps.map((step) => line(step * WIDTH, 0, step * WIDTH, height, { class: "lt-grid" })),
    ...rows.flatMap((row, i) => row.parts.map(([colour, start, length]) => svg("rect", {
      x: start * scale, y: i * rowHeight, width: Math.max(0.8, length * scale),
      height: Math.max(1, rowHeight), fill: colour }))),
    marks]);
  const detail = html("div", { class: "lt-ch-detail", "aria-live": "polite" });
  let selected = -1;

  const frame = table(["", "waits", "instruction", "for", "from", "line"], rows.map((row, i) => [
    `${i}`, row.wait.toFixed(0), code(row.text), [coloured(row.colour), " ", row.cause],
    `${row.producer ?? ""}`, row.line]),
  { label: "Instructions in order; arrow keys move", name: "lt-ch-list" });
  const list = frame.querySelector("tbody");
  [...list.children].forEach((node, i) => {
    node.tabIndex = -1;
    node.addEventListener("click", () => select(i, { focus: true, scroll: false }));
    node.addEventListener("focus", () => { if (selected !== i) select(i, { scroll: false }); });
  });

  const strip = (i, kind) => svg("rect", { x: 0, y: i * rowHeight - 2, width: WIDTH,
    height: rowHeight + 4, class: `lt-ch-mark-${kind}` });

  function select(i, { focus = false, scroll = true } = {}) {
    if (!rows.length) return;
    for (const node of list.querySelectorAll(".lt-ch-on, .lt-ch-from")) {
      node.classList.remove("lt-ch-on", "lt-ch-from");
      node.removeAttribute("aria-current");
      node.tabIndex = -1;
    }
    selected = Math.max(0, Math.min(rows.length - 1, i));
    const [row, node] = [rows[selected], list.children[selected]];
    node.classList.add("lt-ch-on");
    node.setAttribute("aria-current", "true");
    node.tabIndex = 0;
    marks.replaceChildren(strip(selected, "on"));
    const { producer } = row;
    if (producer !== null) {
      list.children[producer].classList.add("lt-ch-from");
      marks.append(strip(producer, "from"), line(rows[producer].issue * scale,
        (producer + 0.5) * rowHeight, row.issue * scale, (selected + 0.5) * rowHeight,
        { class: "lt-ch-arrow" }));
    }
    toProducer.disabled = producer === null;
    detail.replaceChildren(paragraph([code(row.text)]), paragraph([row.said]), paragraph(
      row.line ? [`${row.line}  `, code(row.source)] : ["no source line"], "lt-ch-source"));
    if (focus) node.focus({ preventScroll: true });
    if (scroll) {
      const [box, place] = [frame.getBoundingClientRect(), node.getBoundingClientRect()];
      const top = box.top + 30; // the heading stays in sight
      if (place.top < top) frame.scrollTop += place.top - top;
      else if (place.bottom > box.bottom) frame.scrollTop += place.bottom - box.bottom;
    }
  }

  list.addEventListener("keydown", (event) => {
    if (!(event.key in MOVES)) return;
    event.preventDefault();
    select(selected + MOVES[event.key], { focus: true });
  });
  drawn.addEventListener("pointermove", (event) => {
    const box = drawn.getBoundingClientRect();
    const place = Math.floor(((event.clientY - box.top) / box.height) * rows.length);
    if (place !== selected) select(place);
  });
  const toProducer = button("What it waited for", () => select(rows[selected].producer));
  if (state.longest !== null) requestAnimationFrame(() => select(state.longest));
  const used = [...new Map(rows.map((row) => [row.cause, row.colour]))];
  return [
    drawn,
    html("div", { class: "lt-ch-scale", "aria-hidden": "true" },
      steps.map((step) => html("span", {}, [Math.round(step * state.cycles).toString()]))),
    keys(used.map(([cause, colour]) => [coloured(colour), cause])),
    tools([button("Longest wait", () => select(state.longest)), toProducer,
      button("Before", () => select(selected - 1)), button("After", () => select(selected + 1))]),
    detail,
    frame,
  ];
}

function drawState(content) {
  const shown = content.states[content.shown];
  const pinned = content.states[content.pinned];
  if (shown.message) {
    return [html("p", { class: "lt-ch-message", role: "alert" }, [shown.message])];
  }
  const change = content.changes[`${content.pinned},${content.shown}`] ?? { text: "", rows: [] };
  const heading = (text) => html("h4", {}, [text, " ", mark("forecast")]);
  return [
    headline(shown.time_text, shown.band_text, "forecast"),
    change.text && paragraph([change.text], "lt-ch-change"),
    shown.note && paragraph([shown.note], "lt-note"),
    heading("What one warp waits for"),
    drawStack(change.rows.length ? pinned : shown, shown),
    drawStackTable(content, shown, change),
    heading(`In time: ${shown.where}, ${shown.cycles_text}`),
    ...drawChain(shown),
    html("h4", {}, ["In numbers"]),
    table([], shown.facts.map(([name, value, word]) => [name, [value, " ", mark(word)]]),
      { label: "In numbers" }),
    content.live && paragraph([shown.answer_text], "lt-note"),
  ];
}

function render({ model, el }) {
  const root = startView(el, "lt-ch", "The chain of a kernel's loop");
  const bar = tools([]);
  const status = html("p", { class: "lt-ch-status", role: "status" });
  const body = html("div", { class: "lt-ch-body" });
  root.append(bar, status, body);
  let local = null; // where a page without a kernel keeps its choice
  let timer = null;

  function at() {
    const content = model.get("content");
    return content.live ? content : { ...content, ...local };
  }

  function choose(place) {
    local = { ...local, ...place };
    draw();
  }

  function drawTools(content) {
    const { live, states, shown, pinned } = content;
    const pin = () => (live ? model.send({ kind: "pin" }) : choose({ pinned: shown }));
    replaceKeepingFocus(bar, [
      !live && dropdown("setting", states.map((state) => state.title), shown,
        (place) => choose({ shown: place })),
      button("Pin this setting", pin, { off: Boolean(states[shown].message) }),
      pinned !== shown && paragraph([`Pinned: ${states[pinned].title}`]),
      !live && paragraph(["In JupyterLab every knob has a slider."]),
    ]);
  }

  function sayBusy() {
    const busy = model.get("busy");
    clearTimeout(timer);
    root.classList.toggle("lt-ch-busy", Boolean(busy)); // the status is seen only while busy
    root.setAttribute("aria-busy", busy ? "true" : "false");
    if (busy) {
      status.textContent = busy;
      timer = setTimeout(() => {
        status.textContent = "No answer yet. If the kernel was stopped, run this cell again.";
      }, ANSWER_WITHIN_MS);
      return;
    }
    const content = at();
    const state = content.states[content.shown];
    const change = content.changes[`${content.pinned},${content.shown}`];
    status.textContent = state.message ? ""
      : [`${state.time_text} forecast`, change?.text].filter(Boolean).join("; ");
  }

  function draw() {
    const content = at();
    drawTools(content);
    sayBusy();
    body.replaceChildren(...present(drawState(content)));
  }

  const ends = [drawAndRedraw(model, el, ["content"], draw), drawAndRedraw(model, el, ["busy"], sayBusy)];
  return () => {
    clearTimeout(timer);
    for (const end of ends) end();
  };
}

export default { render };

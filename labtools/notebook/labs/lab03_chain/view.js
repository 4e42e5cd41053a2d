// Draws one trip of a kernel's loop in time, and what a warp waits for. All numbers and sentences
// were made by Python; here they are looked up and placed on the screen.
const WIDTH = 640;
const ANSWER_WITHIN_MS = 20000;

function swatch(colour) {
  return html("span", { class: "lt-ch-swatch", style: `background:${colour}`,
    "aria-hidden": "true" });
}

function drawStack(pinned, shown) {
  const bars = pinned === shown ? [["now", shown]] : [["pinned", pinned], ["now", shown]];
  const longest = Math.max(...bars.map(([, state]) => state.stack_cycles));
  return html("div", { class: "lt-ch-stack" }, bars.map(([name, state]) => {
    const parts = state.stack.map((part) => html("span", {
      style: `background:${part.colour};flex-grow:${part.cycles}`,
      title: `${part.name}: ${part.share_text}`,
    }));
    const width = Math.max(1, (100 * state.stack_cycles) / longest);
    const spoken = state.stack.map((part) => `${part.name} ${part.share_text}`).join(", ");
    return html("div", { class: "lt-ch-row" }, [
      html("span", { class: "lt-ch-name" }, [name]),
      html("div", { class: "lt-ch-track" }, [
        html("div", { class: "lt-ch-bar", role: "img", style: `width:${width}%`,
          "aria-label": `${name}: ${spoken}` }, parts)]),
    ]);
  }));
}

function drawStackTable(content, shown, change) {
  const meanings = Object.fromEntries(content.legend.map((one) => [one.name, one.meaning]));
  const compared = change.rows.length > 0;
  const rows = compared ? change.rows : shown.stack_rows;
  const head = compared ? ["waits for", "now", "share", "pinned", "change"]
    : ["waits for", "cycles", "share"];
  return html("div", { class: "lt-ch-scroll", tabindex: "0", role: "region",
    "aria-label": "What one warp waits for, in cycles from its start to its end" }, [
    html("table", { class: "lt-ch-causes" }, [
      html("thead", {}, [html("tr", {}, head.map((text, i) =>
        html("th", { scope: "col", ...(i ? { class: "lt-ch-right" } : {}) }, [text])))]),
      html("tbody", {}, rows.map(([name, colour, ...numbers]) => html("tr", {}, [
        html("th", { scope: "row", title: meanings[name] ?? name },
          colour ? [swatch(colour), name] : [name]),
        ...numbers.map((text) => html("td", { class: "lt-ch-right" }, [text])),
      ]))),
    ])]);
}

function drawFacts(state) {
  return html("table", { class: "lt-ch-facts" }, [html("tbody", {}, state.facts.map(
    ([name, value, word]) => html("tr", {}, [html("th", { scope: "row" }, [name]),
      html("td", {}, [value, " ", badge(word, "lt-ch-badge")])])))]);
}

function render({ model, el }) {
  const id = freshId("lt-ch");
  const root = html("section", { class: "lt-ch", "aria-label": "The chain of a kernel's loop",
    "data-lm-suppress-shortcuts": "true" });
  const bar = html("div", { class: "lt-ch-tools" });
  const status = html("p", { class: "lt-ch-status", role: "status" });
  const body = html("div", {});
  root.append(bar, status, body);
  el.append(root);
  let local = null; // where a page without a kernel keeps its choice
  let timer = null;

  function at() {
    const content = model.get("content");
    return content.live ? content : { ...content, ...local };
  }

  function button(text, action, attributes = {}) {
    const node = html("button", { type: "button", ...attributes }, [text]);
    node.addEventListener("click", action);
    return node;
  }

  function pin() {
    if (model.get("content").live) {
      model.send({ kind: "pin" });
    } else {
      local = { ...local, pinned: at().shown };
      draw();
    }
  }

  function drawTools(content) {
    const pinned = content.states[content.pinned];
    const children = [];
    if (!content.live) {
      const select = html("select", { id: `${id}-setting` }, content.states.map((state, i) =>
        html("option", { value: i, ...(i === content.shown ? { selected: "" } : {}) },
          [state.title])));
      select.addEventListener("change", () => {
        local = { ...local, shown: Number(select.value) };
        draw();
        root.querySelector("select").focus();
      });
      children.push(html("label", { for: `${id}-setting` }, ["setting"]), select);
    }
    const cannot = content.states[content.shown].message ? { disabled: "" } : {};
    children.push(button("Pin this setting", pin, { class: "lt-ch-pin", ...cannot }),
      html("p", {}, [`Pinned: ${pinned.title}`]));
    if (!content.live) {
      children.push(html("p", {}, [
        "These settings were worked out when the page was made. In JupyterLab this bench has a " +
        "slider for every knob."]));
    }
    bar.replaceChildren(...children);
  }

  function sayBusy() {
    const busy = model.get("busy");
    clearTimeout(timer);
    root.classList.toggle("lt-ch-busy", Boolean(busy));  // the status is seen only while busy
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

  function drawChain(state) {
    const rows = state.rows;
    const rowHeight = Math.max(1.2, Math.min(7, 420 / Math.max(1, rows.length)));
    const height = rows.length * rowHeight;
    const scale = WIDTH / Math.max(1, state.cycles);
    const layer = svg("g", {});
    const marks = svg("g", { class: "lt-ch-marks" });
    rows.forEach((row, i) => {
      for (const [colour, start, length] of row.parts) {
        layer.append(svg("rect", { x: start * scale, y: i * rowHeight,
          width: Math.max(0.8, length * scale), height: Math.max(1, rowHeight), fill: colour }));
      }
    });
    const steps = [0, 0.25, 0.5, 0.75, 1];
    const axis = steps.map((step) => svg("line", { x1: step * WIDTH, x2: step * WIDTH, y1: 0,
      y2: height, class: "lt-ch-grid" }));
    const picture = svg("svg", { viewBox: `-2 -2 ${WIDTH + 4} ${height + 4}`, role: "img",
      class: "lt-ch-picture", "aria-label": state.alt, preserveAspectRatio: "none",
      style: `height:${Math.max(120, height)}px` }, [...axis, layer, marks]);
    const scaleText = html("div", { class: "lt-ch-scale", "aria-hidden": "true" },
      steps.map((step) => html("span", {}, [Math.round(step * state.cycles).toString()])));
    const detail = html("div", { class: "lt-ch-detail", "aria-live": "polite" });
    const list = html("tbody", {});
    let selected = -1;

    function strip(i, kind) {
      return svg("rect", { x: 0, y: i * rowHeight - 2, width: WIDTH, height: rowHeight + 4,
        class: `lt-ch-mark-${kind}` });
    }

    function select(i, { focus = false, scroll = true } = {}) {
      if (!rows.length) return;
      const place = Math.max(0, Math.min(rows.length - 1, i));
      const row = rows[place];
      for (const node of list.querySelectorAll(".lt-ch-on, .lt-ch-from, [tabindex='0']")) {
        node.classList.remove("lt-ch-on", "lt-ch-from");
        node.removeAttribute("aria-current");
        node.tabIndex = -1;
      }
      selected = place;
      const node = list.children[place];
      node.classList.add("lt-ch-on");
      node.setAttribute("aria-current", "true");
      node.tabIndex = 0;
      marks.replaceChildren(strip(place, "on"));
      const producer = row.producer;
      if (producer !== null) {
        list.children[producer].classList.add("lt-ch-from");
        const from = rows[producer];
        marks.append(strip(producer, "from"), svg("line", {
          x1: from.issue * scale, y1: (producer + 0.5) * rowHeight,
          x2: row.issue * scale, y2: (place + 0.5) * rowHeight, class: "lt-ch-arrow" }));
      }
      toProducer.disabled = producer === null;
      detail.replaceChildren(
        html("p", {}, [html("code", {}, [row.text])]),
        html("p", {}, [row.said]),
        html("p", { class: "lt-ch-source" }, row.line ? [`${row.line}  `,
          html("code", {}, [row.source])] : ["no source line"]));
      if (focus) node.focus({ preventScroll: true });
      if (scroll) {
        const box = frame.getBoundingClientRect();
        const line = node.getBoundingClientRect();
        const top = box.top + 30; // the heading stays in sight
        if (line.top < top) frame.scrollTop += line.top - top;
        else if (line.bottom > box.bottom) frame.scrollTop += line.bottom - box.bottom;
      }
    }

    rows.forEach((row, i) => {
      const name = row.producer === null ? "" : `${row.producer}`;
      const line = html("tr", { tabindex: "-1" }, [
        html("td", { class: "lt-ch-right" }, [`${i}`]),
        html("td", { class: "lt-ch-right" }, [row.wait.toFixed(0)]),
        html("td", {}, [html("code", {}, [row.text])]),
        html("td", { class: "lt-ch-cause" }, [swatch(row.colour), row.cause]),
        html("td", { class: "lt-ch-right" }, [name]),
        html("td", {}, [row.line]),
      ]);
      line.addEventListener("click", () => select(i, { focus: true, scroll: false }));
      line.addEventListener("focus", () => { if (selected !== i) select(i, { scroll: false }); });
      list.append(line);
    });
    list.addEventListener("keydown", (event) => {
      const steps_ = { ArrowDown: selected + 1, ArrowUp: selected - 1, PageDown: selected + 10,
        PageUp: selected - 10, Home: 0, End: rows.length - 1 };
      if (!(event.key in steps_)) return;
      event.preventDefault();
      select(steps_[event.key], { focus: true });
    });
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const place = Math.floor(((event.clientY - box.top) / box.height) * rows.length);
      if (place !== selected) select(place);
    });

    const toProducer = button("What it waited for", () => {
      const producer = rows[selected]?.producer;
      if (producer !== null && producer !== undefined) select(producer);
    });
    const buttons = html("div", { class: "lt-ch-tools" }, [
      button("Longest wait", () => select(state.longest)), toProducer,
      button("Before", () => select(selected - 1)), button("After", () => select(selected + 1)),
    ]);
    const frame = html("div", { class: "lt-ch-list", role: "region",
      "aria-label": "Instructions in order; arrow keys move" }, [
      html("table", {}, [html("thead", {}, [html("tr", {},
        ["", "waits", "instruction", "for", "from", "line"].map((text) =>
          html("th", { scope: "col" }, [text])))]), list])]);
    const used = [...new Map(rows.map((row) => [row.cause, row.colour]))];
    const keys = html("p", { class: "lt-ch-keys", "aria-hidden": "true" }, used.map(
      ([cause, colour]) => html("span", {}, [swatch(colour), cause])));
    const shownParts = [picture, scaleText, keys, buttons, detail, frame];
    if (state.longest !== null) requestAnimationFrame(() => select(state.longest));
    return shownParts;
  }

  function draw() {
    const content = at();
    const shown = content.states[content.shown];
    const pinned = content.states[content.pinned];
    drawTools(content);
    sayBusy();
    if (shown.message) {
      body.replaceChildren(html("p", { class: "lt-ch-message", role: "alert" }, [shown.message]));
    } else {
      const change = content.changes[`${content.pinned},${content.shown}`] ?? { text: "", rows: [] };
      const compared = change.rows.length ? pinned : shown;
      body.replaceChildren(
        html("p", { class: "lt-ch-headline" }, [
          html("span", { class: "lt-ch-value" }, [shown.time_text]), " ", badge("forecast", "lt-ch-badge"),
          ` ${shown.band_text}`]),
        ...(change.text ? [html("p", { class: "lt-ch-change" }, [change.text])] : []),
        ...(shown.note ? [html("p", { class: "lt-ch-note" }, [shown.note])] : []),
        html("h4", {}, ["What one warp waits for, from its start to its end ", badge("forecast", "lt-ch-badge")]),
        drawStack(compared, shown),
        drawStackTable(content, shown, change),
        html("h4", {}, [`In time: ${shown.where}, ${shown.cycles_text} `, badge("forecast", "lt-ch-badge")]),
        ...drawChain(shown),
        html("h4", {}, ["In numbers"]),
        drawFacts(shown),
        html("p", { class: "lt-ch-note" }, [shown.answer_text]),
      );
    }
    requestAnimationFrame(() => nameControls(el));
  }

  const events = { "change:content": draw, "change:busy": sayBusy };
  for (const [event, action] of Object.entries(events)) model.on(event, action);
  draw();
  return () => {
    clearTimeout(timer);
    for (const [event, action] of Object.entries(events)) model.off(event, action);
  };
}

export default { render };

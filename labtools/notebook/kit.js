// What every view is built of. Python puts it in front of each view's own script.
const SVG = "http://www.w3.org/2000/svg";
const INK = { stroke: "currentColor" };
const MIDDLE = { "text-anchor": "middle" };

// A counter would not do: every view may get a copy of this file of its own.
function freshId(prefix) {
  return `${prefix}-${Math.random().toString(36).slice(2)}`;
}

// Lists within lists are laid flat, and what is nothing (null, false, "") is left out.
const present = (parts) => parts.flat(Infinity).filter((part) => part || part === 0);

// An attribute that is true stands without a value; one that is false or undefined is left out.
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

const svg = (tag, attributes, children = []) =>
  filled(document.createElementNS(SVG, tag), attributes, children);
const html = (tag, attributes = {}, children = []) =>
  filled(document.createElement(tag), attributes, children);

// ---------------------------------------------------------------- words

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;

// ---------------------------------------------------------------- parts of a view

// The word that says where a number comes from.
function mark(word) {
  const border = { computed: "1px dotted", recorded: "1px solid", live: "2px solid",
    claimed: "3px double", forecast: "1px dashed" }[word];
  return html("span", { class: `prov prov-${word} lt-badge`,
    style: `border:${border} currentColor` }, [word]);
}

const paragraph = (children, name = "") => html("p", { class: name || undefined }, children);
const code = (text) => html("code", {}, [text]);
const strong = (text) => html("strong", {}, [text]);
const tools = (parts, attributes = {}) => html("div", { class: "lt-tools", ...attributes }, parts);
const bullets = (items, name = "", tag = "ul") =>
  html(tag, { class: name }, items.map((item) => html("li", {}, [item])));
const fold = (summary, parts, name = "", open = false) =>
  html("details", { class: name, open }, [html("summary", {}, [summary]), parts]);
// What a view says first, told again to those who do not see it.
const now = (parts, name = "", attributes = {}) =>
  html("div", { class: `lt-now ${name}`, "aria-live": "polite", ...attributes }, parts);

function headline(number, what, word) {
  return paragraph([html("span", { class: "lt-value" }, [number]), ` ${what} `, mark(word)]);
}

// The focus comes back to a button of the same `focus` when the view is drawn again.
function button(text, act, { name = "lt-button", focus = text, off = false } = {}) {
  const node = html("button", { type: "button", class: name, "data-focus": focus }, [text]);
  node.disabled = off;
  node.addEventListener("click", act);
  return node;
}

// A list of texts; `change` gets the place of the chosen one.
function dropdown(label, texts, chosen, change) {
  const options = texts.map((text, place) => html("option", { value: place }, [`${text}`]));
  const select = html("select", { "aria-label": label, "data-focus": label }, options);
  select.selectedIndex = chosen;
  select.addEventListener("change", () => change(select.selectedIndex));
  return html("label", { class: "lt-control" }, [html("span", {}, [label]), select]);
}

// A radio button or a checkbox, with its words behind.
function tick(type, attributes, change, words, name) {
  const box = html("input", { type, ...attributes });
  box.addEventListener("change", () => change(box));
  return html("label", { class: name }, [box, ...words]);
}

const swatch = (name, style = "") =>
  html("span", { class: `lt-swatch ${name}`, style, "aria-hidden": "true" });

// What the looks of a picture mean: pairs of a swatch and its words.
function keys(pairs) {
  return paragraph(pairs.map(([look, ...words]) => html("span", {}, [look, " ", ...words])),
    "lt-keys");
}

// A table that scrolls within itself. A cell is a text, a node or a list of them; a class may be
// given for a row. With `name` "lt-stacks" a narrow one is a list of its cells.
function table(heads, rows, { label = heads.join(", "), name = "", rowClass = () => "" } = {}) {
  const cell = (tag, child, attributes) => html(tag, attributes, [child]);
  const row = (cells, number) => html("tr", { class: rowClass(number) }, cells.map((child, n) =>
    cell(n ? "td" : "th", child, { "data-column": heads[n] ?? "", scope: n ? undefined : "row" })));
  const head = heads.map((text) => cell("th", text, { scope: "col" }));
  return html("div", { class: `lt-table ${name}`, tabindex: "0", role: "region",
    "aria-label": label }, [html("table", { "aria-label": label }, [
    heads.length > 0 && html("thead", {}, [html("tr", {}, head)]),
    html("tbody", {}, rows.map(row))])]);
}

// ---------------------------------------------------------------- pictures

function picture(width, height, label, name, children = []) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
    class: `lt-picture ${name}` }, children);
}

const line = (x1, y1, x2, y2, attributes = {}) =>
  svg("line", { x1, y1, x2, y2, ...INK, ...attributes });
const rect = (x, y, width, height, attributes = {}) =>
  svg("rect", { x, y, width, height, ...INK, ...attributes });
const words = (x, y, text, attributes = {}) => svg("text", { x, y, ...attributes }, [`${text}`]);

// A logarithmic axis: from the ends of its values to their places.
const logScale = ([low, high], from, to) => (value) =>
  from + (Math.log(value / low) / Math.log(high / low)) * (to - from);

// Fillings that differ in grey too; `url(#id-NAME)` fills with one.
function patterns(id) {
  const make = (name, size, children, turn) => svg("pattern", { id: `${id}-${name}`, width: size,
    height: size, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${turn})` }, children);
  const bar = { "stroke-width": 1.5 };
  return svg("defs", {}, [
    make("hatch", 6, [line(0, 0, 0, 6, bar)], 45),
    make("dots", 6, [svg("circle", { cx: 3, cy: 3, r: 1.2, fill: "currentColor" })], 0),
    make("cross", 7, [line(0, 0, 0, 7), line(0, 0, 7, 0)], 45),
  ]);
}

// ---------------------------------------------------------------- a view and its model

// The tables that `pack_tables` packed: a reference stands for a part that is written once.
function unpackTables({ parts, whole }) {
  const made = [];
  const unpack = (value) => {
    if (Array.isArray(value)) return value.map(unpack);
    if (value === null || typeof value !== "object") return value;
    const names = Object.keys(value);
    if (names.length === 1 && names[0] === "$") return made[value.$];
    return Object.fromEntries(names.map((name) => [name, unpack(value[name])]));
  };
  for (const part of parts) made.push(unpack(part));
  return unpack(whole);
}

// Jupyter would take letters and arrows for shortcuts, so no key leaves the view.
function startView(el, name, label) {
  const root = html("section", { class: `lt-view ${name}`, "aria-label": label,
    "data-lm-suppress-shortcuts": "true" });
  root.addEventListener("keydown", (event) => event.stopPropagation());
  el.append(root);
  return root;
}

function setAll(model, values) {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
}

// ipywidgets draws a bench's controls in its own time, each with a label beside it that it does not
// tie to a slider's handle or a list. So they are named when they appear; what it returns ends that.
function nameControls(el) {
  const name = () => {
    const bench = el.closest(".lt-bench");
    for (const control of bench?.querySelectorAll(".widget-hslider, .widget-dropdown") ?? []) {
      const label = control.querySelector(".widget-label")?.textContent ?? "";
      control.querySelector(".noUi-handle, select")?.setAttribute("aria-label", label);
    }
  };
  const watch = new MutationObserver(name);
  let frame = 0;
  const begin = () => {
    const bench = el.closest(".lt-bench");
    if (bench) watch.observe(bench, { childList: true, subtree: true });
    else if (!el.isConnected) frame = requestAnimationFrame(begin);
    name();
  };
  begin();
  return () => {
    cancelAnimationFrame(frame);
    watch.disconnect();
  };
}

// Draws now and whenever one of the model's values changes; what it returns ends that.
function drawAndRedraw(model, el, names, draw) {
  const events = names.map((name) => `change:${name}`);
  for (const event of events) model.on(event, draw);
  draw();
  const forget = nameControls(el);
  return () => {
    forget();
    for (const event of events) model.off(event, draw);
  };
}

// The view of a bench: `draw` makes its parts of the tables and of where the controls stand.
function viewOf(name, label, controls, draw) {
  return { render({ model, el }) {
    const root = startView(el, name, label);
    const indexes = controls.map((control) => `${control}_index`);
    return drawAndRedraw(model, el, [...indexes, "tables"], () =>
      root.replaceChildren(...present(draw(model.get("tables"),
        ...indexes.map((index) => model.get(index))))));
  } };
}

// Puts other parts in a view. The focus stays where it was, or goes to what `otherwise` selects.
function replaceKeepingFocus(root, parts, otherwise = "") {
  const focus = root.contains(document.activeElement) ? document.activeElement.dataset.focus : "";
  root.replaceChildren(...present(parts));
  if (!focus) return;
  const again = [...root.querySelectorAll("[data-focus]")].find((one) =>
    one.dataset.focus === focus && !one.disabled);
  const next = again ?? (otherwise && root.querySelector(otherwise));
  if (next && !again) next.tabIndex = -1;
  next?.focus?.({ preventScroll: true });
}

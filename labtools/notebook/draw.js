// What every view draws with. Python puts it in front of each view's own script.
const SVG = "http://www.w3.org/2000/svg";

// A counter would not do: every view may get a copy of this file of its own.
function freshId(prefix) {
  return `${prefix}-${Math.random().toString(36).slice(2)}`;
}

function svg(tag, attributes, children = []) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function html(tag, attributes = {}, children = []) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// The word that says where a number comes from.
function badge(word, name) {
  const border = { computed: "1px dotted", recorded: "1px solid", live: "2px solid",
    claimed: "3px double", forecast: "1px dashed" }[word];
  return html("span", { class: `prov prov-${word} ${name}`,
    style: `border:${border} currentColor` }, [word]);
}

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

// ipywidgets draws a label beside a control but does not tie it to a slider's handle or a list.
function nameControls(el) {
  const controls = el.closest(".lt-bench")?.querySelectorAll(".widget-hslider, .widget-dropdown");
  for (const control of controls ?? []) {
    const label = control.querySelector(".widget-label")?.textContent ?? "";
    control.querySelector(".noUi-handle, select")?.setAttribute("aria-label", label);
  }
}

// Draws now and whenever one of the model's values changes; what it returns ends that.
function drawAndRedraw(model, el, names, draw) {
  const events = names.map((name) => `change:${name}`);
  for (const event of events) model.on(event, draw);
  draw();
  requestAnimationFrame(() => nameControls(el));
  return () => {
    for (const event of events) model.off(event, draw);
  };
}

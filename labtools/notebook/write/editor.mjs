// The editor of a kernel to write on the site: it runs the kernel in the tab and marks its lines.
// Jupyter draws the stages by writing.py; here worker.mjs plays them. MEGABYTES, which the compiler
// has, and KERNELS, the names and titles of all, come from the build (tools/write_in_page.py).
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { cpp } from '@codemirror/lang-cpp';
import { HighlightStyle, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { StateEffect, StateField } from '@codemirror/state';
import { tags } from '@lezer/highlight';
import { Decoration, EditorView, drawSelection, keymap, lineNumbers } from '@codemirror/view';
import { PASSED, TEXT, progressPage, read, keep } from './progress.mjs';

const here = document.currentScript.src;
const LIMIT_S = 180; // of one run; a block that does not end is told long before

const UNABLE = location.protocol === 'file:'
  ? 'A page that was opened from disk cannot compile. Serve the folder (python3 -m http.server), or write the kernel in JupyterLab.'
  : !window.DecompressionStream || !window.WebAssembly ? 'This browser is too old to compile here. Write the kernel in JupyterLab.' : '';

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.typeName, tags.modifier, tags.standard(tags.typeName)], class: 'lt-c-word' },
  { tag: [tags.string, tags.number, tags.bool], class: 'lt-c-value' },
  { tag: tags.comment, class: 'lt-c-comment' },
  { tag: [tags.meta, tags.processingInstruction], class: 'lt-c-meta' },
]);

const setMarks = StateEffect.define();
const marks = StateField.define({
  create: () => Decoration.none,
  update(value, change) {
    for (const one of change.effects) if (one.is(setMarks)) return one.value;
    return change.docChanged ? Decoration.none : value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

// A second visit needs no network: service.mjs keeps what this page asked for, and then what others ask for. Plain http has none but
// at localhost; there the browser's own cache holds the compiler.
async function keepPage() {
  const { active } = await navigator.serviceWorker.register(new URL('../../service.js', here)).then(() => navigator.serviceWorker.ready);
  active.postMessage([location.href.split('#')[0], ...performance.getEntriesByType('resource').map((one) => one.name)]);
}

function download(text, name, type) {
  const link = element('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const element = (tag, more = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), more);
  made.append(...children);
  return made;
};

function mount(box) {
  const name = box.dataset.write, start = box.dataset.start, key = TEXT + name;
  const cell = [...document.querySelectorAll('div.cell')].find((one) => one.querySelector('.cell_input pre')?.textContent.startsWith(`%%cuda ${name}\n`));
  const text = () => view.state.doc.toString(), write = (insert) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert } });
  // Kernels that were checked when the site was made: what a tab that cannot compile has to offer.
  let prepared = [];
  const preparedOf = () => prepared.find((one) => one.text === text());
  const view = new EditorView({
    doc: read(key) ?? start,
    extensions: [
      lineNumbers(), EditorView.lineWrapping, history(), drawSelection(), cpp(), indentUnit.of('  '), syntaxHighlighting(colours), marks,
      keymap.of([{ key: 'Mod-Enter', run: () => (play(), true) }, ...defaultKeymap, ...historyKeymap]),
      EditorView.contentAttributes.of({ 'aria-label': `The kernel ${name}`, tabindex: '0', spellcheck: 'false', autocapitalize: 'off' }),
      EditorView.updateListener.of((change) => { if (change.docChanged && !preparedOf()) keep(key, text()); }),
    ],
  });
  const status = element('p', { className: 'lt-write-status' }), stages = element('div', { className: 'lt-stages' });
  status.setAttribute('role', 'status');
  const button = (text, act, more = {}) => element('button', { type: 'button', textContent: text, onclick: act, ...more });
  const run = button('Run', () => play(), { className: 'lt-primary' }), stop = button('Stop', () => end('Stopped.'), { hidden: true });
  const reset = button('Start over', () => {
    if (window.confirm('Take away what you wrote here?')) write(start);
  });
  const save = button('Download', () => download(text(), `${name}.cu`, 'text/plain'));
  const all = button('All my kernels', () => download(progressPage(KERNELS), 'my_kernels.html', 'text/html'));
  // Sphinx's search takes the slash from all that is no form.
  view.dom.addEventListener('keydown', (event) => { if (event.key === '/') event.stopPropagation(); });
  box.append(view.dom, element('div', { className: 'lt-write-row' }, run, stop, reset, save, all), status, stages);
  cell?.classList.add('lt-replaced');
  for (const one of box.closest('.cell')?.querySelectorAll('.output') ?? []) if (one.textContent.trim() === 'Nothing is written yet.') one.classList.add('lt-replaced');
  if (UNABLE) {
    run.disabled = true;
    document.head.append(element('script', { src: new URL('prepared.js', here).href, onload() {
      prepared = window.fieldguidePrepared[name] ?? [];
      if (!prepared.length) return;
      const row = element('div', { className: 'lt-write-row' }, 'Or look at one of these, of which one is right:');
      row.append(...prepared.map((one, i) => button(`kernel ${i + 1}`, () => {
        write(one.text);
        stages.replaceChildren();
        view.dispatch({ effects: setMarks.of(Decoration.none) });
        run.disabled = false;
      })));
      status.after(row);
    } }));
  }
  status.textContent = UNABLE || `Run compiles and checks the kernel in this tab. The first run fetches a compiler, ${MEGABYTES.toFixed(0)} MB.`;

  let worker = null, timer = 0, passed = [];
  function end(said) {
    clearTimeout(timer);
    worker?.terminate();
    worker = null;
    idle(said);
  }
  // A browser may keep a page that was left, with its worker: some 350 MB.
  window.addEventListener('pagehide', () => { if (worker) end(stop.hidden ? '' : 'Stopped.'); });
  function idle(said) {
    const focused = stop === document.activeElement; // Chromium forgets it with what is hidden
    clearTimeout(timer);
    run.hidden = false;
    stop.hidden = true;
    status.textContent = said;
    if (focused) run.focus();
  }
  function play() {
    if (stop.hidden === false) return;
    stages.replaceChildren();
    if (UNABLE) {
      const known = preparedOf()?.stages ?? [{ name: 'it compiles', ok: null, said: 'JupyterLab tells of what you wrote', lines: [] }];
      return known.forEach(show);
    }
    passed = [];
    view.dispatch({ effects: setMarks.of(Decoration.none) });
    run.hidden = true;
    stop.hidden = false;
    stop.focus();
    status.textContent = worker ? 'Compiling ...' : 'Fetching the compiler ...';
    timer = setTimeout(() => end(`Stopped after ${LIMIT_S} s.`), LIMIT_S * 1000);
    if (!worker) {
      worker = new Worker(new URL('worker.js', here), { type: 'module' });
      worker.onmessage = ({ data }) => hear(data);
      worker.onerror = (event) => end(`It could not be run in this tab: ${event.message || 'the compiler did not start'}. JupyterLab can.`);
    }
    worker.postMessage({ name, source: text() });
  }
  function hear({ fetched, stage, done, of, failed, ended }) {
    if (fetched !== undefined) status.textContent = fetched < MEGABYTES ? `Fetching the compiler: ${fetched.toFixed(1)} of ${MEGABYTES.toFixed(1)} MB` : 'Compiling ...';
    if (stage) tell(stage);
    if (done !== undefined) status.textContent = `Right so far, in ${done} of ${of} cases that this tab runs ...`;
    if (ended) idle(failed ? `It could not be run in this tab: ${failed}. JupyterLab can.` : '');
  }
  function tell(stage) {
    const { ok, said } = stage;
    if (ok && passed.push(said) >= (read(PASSED + name)?.stages ?? 0)) keep(PASSED + name, { stages: passed.length, said, at: new Date().toISOString() });
    show(stage);
  }
  function show({ name: title, ok, said, lines }) {
    const mark = ok === null ? '' : ok ? '\u2713 ' : '\u2717 ';
    stages.append(element('div', { className: ok === false ? 'lt-wrong' : 'lt-right' }, element('b', { textContent: `${mark}${title}` }), `: ${said}`));
    const inside = lines.filter((line) => line >= 1 && line <= view.state.doc.lines);
    if (!inside.length) return;
    const places = [...new Set(inside)].sort((a, b) => a - b).map((line) => Decoration.line({ class: 'lt-fault' }).range(view.state.doc.line(line).from));
    view.dispatch({ effects: [setMarks.of(Decoration.set(places)), EditorView.scrollIntoView(places[0].from, { y: 'nearest' })] });
  }
}

for (const box of document.querySelectorAll('.lt-write')) mount(box);
if (!UNABLE && document.querySelector('.lt-write') && navigator.serviceWorker && !navigator.serviceWorker.controller) keepPage().catch(() => {}); // a browser may refuse it

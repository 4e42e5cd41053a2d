// Compiles a kernel in the tab, runs it on its cases and tells what is found, in the words of
// writing.py and of the checker. Everything comes from the folder that this script lies in; COMPILER,
// the name of a file there, comes from the build (tools/write_in_page.py).
import { compileKernel } from '../../measure/cpu/browser/compile.mjs';
import { runModule } from '../../measure/cpu/browser/run.mjs';
import { Refused } from '../../measure/cpu/browser/adapt.mjs';
import { compareOutput } from './compare.mjs';
import { explainFaults } from './explain.mjs';

// As runner.py's, and as check.py takes them in turn behind the cases of a quick check.
const ordersOf = (index, task) => (index <= task.quick ? [0, 1, 2, 3] : [0, 1 + (index % 3)]);
const ORDER_FAULTS = ['race', 'barrier', 'collective', 'async_copy', 'order_dependent', 'hang']; // as writing.py's
const NEEDS_FINE = 6;
const here = new URL('.', self.location.href);

const inflate = (response) => new Response(response.body.pipeThrough(new DecompressionStream('gzip')));
async function fetched(name, told = () => {}) {
  const response = await fetch(new URL(name, here));
  if (!response.ok) throw new Error(`${name} could not be fetched (${response.status})`);
  const counted = new TransformStream({ transform(part, to) { told(part.length); to.enqueue(part); } });
  return new Response(response.body.pipeThrough(counted));
}

let toolchain = null;
// The compiler, fetched at the first run: `llvm.core.wasm` packed, and none of the library's headers.
function load() {
  return (toolchain ??= (async () => {
    let bytes = 0;
    const told = (n) => { bytes += n; postMessage({ fetched: bytes / 1e6 }); };
    const plain = self.fetch;
    self.fetch = async (what, ...more) => {
      const name = String(what).split('/').pop();
      if (name === 'llvm-resources.tar') return new Response(new Uint8Array(1024));
      if (name !== 'llvm.core.wasm') return plain(what, ...more);
      return new Response(inflate(await fetched(COMPILER, told)).body, { headers: { 'content-type': 'application/wasm' } });
    };
    const [{ runLLVM }, runtime, headers] = await Promise.all([
      import(new URL('clang/bundle.js', here).href),
      fetched('runtime.o.gz', told).then((found) => inflate(found).arrayBuffer()),
      fetched('headers.json.gz', told).then((found) => inflate(found).json()),
    ]);
    return { run: runLLVM, parts: { runtime: new Uint8Array(runtime), headers } };
  })());
}

// The source compiled for a case, kept by what differs: its definitions, and what it launches.
async function compiled(task, source, { defines, below }, known) {
  const key = JSON.stringify([defines, below]);
  if (!known.has(key)) {
    const { run, parts } = await load();
    const unit = task.above + source.replace(/\bextern(\s+)__shared__/g, 'extern$1').trimEnd() + '\n' + task.below[below];
    const made = await compileKernel(run, { unit, headers: task.headers, defines, parts });
    if (made.error === undefined) made.module = await WebAssembly.compile(made.wasm);
    known.set(key, made);
  }
  return known.get(key);
}

function tellError(said, task) {
  for (const line of said.split('\n')) {
    const found = line.match(/^(.+?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$/);
    if (!found) continue;
    const [, file, number, text] = found, own = file === task.shown;
    const asm = /asm/.test(file + text) ? ' Inline assembly (PTX) is for GPUs only: a kernel with it can be checked in JupyterLab, on a GPU.' : '';
    return { text: `${own ? task.name : file} does not compile: line ${number}: ${text}.${asm}`, lines: own ? [Number(number)] : [] };
  }
  return { text: `${task.name} does not compile: ${said.trim().slice(0, 400)}`, lines: [] };
}

// One case under some orders: {faults, ended} or {problem} of what is wrong first, or neither; `ended`
// where there are no numbers.
async function runCase(made, one, data, task, orders) {
  const filled = (file) => {
    if (file.at !== undefined) return data.slice(file.at, file.at + file.bytes);
    const bytes = new Uint8Array(Math.max(1, file.bytes));
    for (let i = 0; i < bytes.length; ++i) bytes[i] = file.poison[i % file.poison.length];
    return bytes;
  };
  const start = one.files.map(filled);
  let first = null;
  for (const order of orders) {
    let run, fine = 0;
    do {
      const files = one.files.map((file, i) => (file.writable ? start[i].slice() : start[i]));
      const job = one.job.replace(' order 0 ', ` order ${order} `).replace('fine 0 ', `fine ${fine} `);
      run = await runModule(made.module, job, [new Uint8Array(task.reportBytes), ...files]);
      run.files = files;
      if (run.status === NEEDS_FINE && fine) break;
      fine = 1;
    } while (run.status === NEEDS_FINE);
    const faults = explainFaults(run, made.places.places, one.blocks, task);
    // Blocks that wait for one that began earlier: GPUs begin them in ascending order.
    if (order > 1 && faults.some((fault) => fault.kind === 'hang')) continue;
    if (run.status !== 0 && !faults.length) return { ended: true, faults: [{ kind: 'crash', text: `crash: ${run.said || 'the run ended without a word'}`, lines: [] }] };
    if (run.status !== 0 || faults.some((fault) => !ORDER_FAULTS.includes(fault.kind))) return { faults, ended: run.status !== 0 };
    const outputs = one.outputs.map((output) => run.files[output.file]);
    if (first && !faults.length && outputs.every((bytes, i) => bytes.every((byte, k) => byte === first[i][k]))) continue;
    for (const [i, output] of one.outputs.entries()) {
      const problem = compareOutput(outputs[i], data, output);
      if (!problem) continue;
      // Wrong numbers come before a race that goes with them, as writing.py has it.
      if (!first) return { problem: `wrong: ${one.outputs.length > 1 ? `${output.name}: ` : ''}${problem}` };
      return faults.length ? { faults } : { faults: [{ kind: 'order_dependent', text: `order dependent: right under order 0 of the warps, wrong under order ${order}: the result depends on which warp or block runs first`, lines: [] }] };
    }
    if (faults.length) return { faults };
    first = outputs;
  }
  return {};
}

async function play(task, data, source) {
  const known = new Map(), stage = (name, ok, said, lines = []) => postMessage({ stage: { name, ok, said, lines } });
  const names = ['it compiles', 'one row is right', 'any length is right', 'no race'];
  let done = 0, race = null;
  for (const [index, one] of task.cases.entries()) {
    if (race && index > task.quick) break;
    const made = await compiled(task, source, one, known);
    if (made.error !== undefined) {
      const { text, lines } = tellError(made.error, task);
      return stage(names[0], false, text, lines);
    }
    if (!done) stage(names[0], true, 'for this tab');
    const { faults = [], ended, problem } = await runCase(made, one, data, task, ordersOf(index, task));
    const fault = (ended ? undefined : faults.find(({ kind }) => !ORDER_FAULTS.includes(kind))) ?? faults[0];
    if (fault || problem) {
      const text = `${one.shown}: ${fault ? fault.text : problem}`;
      if (!fault || ended || !ORDER_FAULTS.includes(fault.kind)) return stage(names[done ? 2 : 1], false, text, fault?.lines);
      race ??= [text, fault.lines];
    }
    if (++done === 1) stage(names[1], true, 'compared with float64');
    postMessage({ done, of: task.cases.length });
  }
  stage(names[2], true, `right so far, in ${done - 1} small cases; a check in JupyterLab has large ones too`);
  if (race) return stage(names[3], false, ...race);
  stage(names[3], true, `in each of the ${done - 1}, under several orders of the warps`);
  stage('how fast', null, 'JupyterLab has a forecast, which needs the compiler for GPUs');
}

const tasks = new Map();
async function taskOf(name) {
  if (!tasks.has(name)) {
    const task = await inflate(await fetched(`${name}.json.gz`)).json();
    tasks.set(name, { task, data: new Uint8Array(await inflate(await fetched(`${task.data}.bin.gz`)).arrayBuffer()) });
  }
  return tasks.get(name);
}

self.onmessage = async ({ data: { name, source } }) => {
  try {
    const { task, data } = await taskOf(name);
    await play(task, data, source);
    postMessage({ ended: true });
  } catch (error) {
    if (error instanceof Refused) postMessage({ stage: { name: 'it compiles', ok: false, said: error.message, lines: [] }, ended: true });
    else postMessage({ failed: String(error.message ?? error), ended: true });
  }
};

// Runs a module that compile.mjs made: it is the parent of the "process", keeps its files and answers
// its few system calls. `files` are Uint8Arrays by number; those that are written are changed in place.
const TRAPS = ['RuntimeError', 'RangeError', 'InternalError']; // the last: a full stack, in Firefox
class Exit { constructor(status) { this.status = status; } }
const CRASH = 11, FAULT_ENDED_IT = 3; // as report.h and main.cpp say
// Where what report.h lays out begins, in bytes: in the report, in a fault, in a place.
export const AT = { numFaults: 16, faults: 24, kind: 4, block: 8, thread: 20, numPlaces: 24, onlyIfDiffer: 28, launch: 32, copies: 36, places: 56, text: 680, count: 96 };
export const SIZE = { fault: 1192, place: 104, text: 512, mostFaults: 24 };

export async function runModule(module, job, files) {
  const mapped = new Map(), report = Number(job.match(/^report (\d+)/)[1]);
  let memory, input = new TextEncoder().encode(job), at = 0, said = '', printed = '';
  const view = () => new DataView(memory.buffer);
  const vectors = function* (start, count) {
    for (let i = 0; i < count; ++i) yield new Uint8Array(memory.buffer, view().getUint32(start + 8 * i, true), view().getUint32(start + 8 * i + 4, true));
  };
  const wasi = {
    fd_read(fd, start, count, result) {
      let n = 0;
      for (const to of vectors(start, count)) { const part = input.subarray(at, at + to.length); to.set(part); at += part.length; n += part.length; }
      view().setUint32(result, n, true);
      return 0;
    },
    fd_write(fd, start, count, result) {
      let n = 0;
      for (const from of vectors(start, count)) {
        n += from.length;
        const text = new TextDecoder().decode(from.slice());
        if (fd === 2) said += text; else if (printed.length < 65536) printed += text;
      }
      view().setUint32(result, n, true);
      return 0;
    },
    proc_exit(status) { throw new Exit(status); },
    random_get(to, n) { new Uint8Array(memory.buffer, to, n).fill(7); return 0; },
    clock_time_get(id, precision, to) { view().setBigUint64(to, BigInt(Math.round(performance.now() * 1e6)), true); return 0; },
    fd_fdstat_get(fd, to) { new Uint8Array(memory.buffer, to, 24).fill(0); view().setUint8(to, 2); return 0; },
  };
  const system = new Proxy(wasi, { get: (known, name) => known[name] ?? (() => 52) });
  const imports = { wasi_snapshot_preview1: system, lab: { map(file, to, bytes) { new Uint8Array(memory.buffer, to, bytes).set(files[file].subarray(0, bytes)); mapped.set(file, [to, bytes]); } } };
  imports.wasi_snapshot_preview1 = named(module, system);
  const instance = await WebAssembly.instantiate(module, imports);
  memory = instance.exports.memory;
  let status;
  try {
    instance.exports._initialize?.();
    status = instance.exports.lab_run();
  } catch (error) {
    if (!(error instanceof Exit || TRAPS.includes(error.name))) throw error;
    status = error.status ?? FAULT_ENDED_IT;
    if (!(error instanceof Exit)) tellTrap(view(), mapped.get(report)[0], trapped(error.message), view().getUint32(instance.exports.lab_site.value, true));
  }
  for (const [file, [from, bytes]] of mapped) files[file].set(new Uint8Array(memory.buffer, from, bytes));
  return { written: [...mapped.keys()], report: files[report], status, said, printed };
}

// As process.h tells of a signal.
function trapped(text) {
  if (/divide by zero|remainder by zero|division/.test(text)) return 'integer division by zero (a GPU gives no error here, and no meaning either)';
  if (/call stack|recursion/.test(text)) return "the thread's stack overflowed: local arrays too large, or endless recursion";
  if (/unreachable/.test(text)) return 'the compiler saw that this has no meaning (such as a division by zero, a null pointer or a missing return) and made a trap of it';
  return `the module stopped: ${text}`;
}

// A fault of kind CRASH behind those in the report, as report.h lays them out.
function tellTrap(memory, report, text, site) {
  const number = memory.getUint32(report + AT.numFaults, true), at = report + AT.faults + SIZE.fault * number;
  if (number >= SIZE.mostFaults) return;
  memory.setUint32(report + AT.numFaults, number + 1, true);
  const words = [[0, 1], [AT.kind, CRASH], [AT.thread, -1], [AT.numPlaces, 1], [AT.places, site], [AT.places + AT.count, site ? 1 : 0]];
  for (const [offset, value] of words) memory.setInt32(at + offset, value, true);
  new Uint8Array(memory.buffer, at + AT.text, SIZE.text).set(new TextEncoder().encode(text).slice(0, SIZE.text - 1));
}

function named(module, system) {
  const found = {};
  for (const one of WebAssembly.Module.imports(module)) if (one.module === 'wasi_snapshot_preview1') found[one.name] = system[one.name];
  return found;
}

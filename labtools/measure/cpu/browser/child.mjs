// node child.mjs kernel.wasm: a module in place of the native program, with the same job on
// standard input and the same files by their numbers.
import fs from 'node:fs';
import { runModule } from './run.mjs';
const job = fs.readFileSync(0, 'utf8');
const files = new Proxy({}, { get: (known, fd) => (known[fd] ??= read(Number(fd))), set: (known, fd, value) => ((known[fd] = value), true) });
function read(fd) {
  const bytes = new Uint8Array(Math.max(1, fs.fstatSync(fd).size));
  for (let at = 0, n; at < bytes.length && (n = fs.readSync(fd, bytes, at, bytes.length - at, at)) > 0; at += n);
  return bytes;
}
const module = new WebAssembly.Module(fs.readFileSync(process.argv[2]));
const done = await runModule(module, job, files);
for (const fd of done.written) { const bytes = files[fd]; for (let at = 0; at < bytes.length;) at += fs.writeSync(fd, bytes, at, bytes.length - at, at); }
if (done.printed) fs.writeSync(1, done.printed);
if (done.said) fs.writeSync(2, done.said);
process.exitCode = done.status;

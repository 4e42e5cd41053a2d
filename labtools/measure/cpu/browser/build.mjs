// node build.mjs NATIVE OUT: what a page needs to compile kernels, made with the page's own compiler:
// OUT/runtime.o, the runner with what it takes of the C++ library, and OUT/headers.json.
// With a third argument it then compiles kernels, a request and an answer a line.
import fs from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import v8 from 'node:v8';
import { runLLVM } from '@yowasp/clang';
import { OPTIONS, compileKernel, tool } from './compile.mjs';

const [, , native, out, serve] = process.argv;
if (!serve) v8.setFlagsFromString('--liftoff-only'); // each tool runs once: making it fast takes longer
const LIBRARY = ['-isystem', '/usr/include/c++/v1', '-isystem', '/usr/include', '-isystem', '/usr/include/wasm32-wasip1'];
const LIBS = ['-L', '/usr/lib/wasm32-wasip1', '-lc++', '-lc++abi', '-lc', '-L', '/usr/lib/wasm32-unknown-wasip1', '--whole-archive', '-lclang_rt.builtins'];

const read = (folder) => Object.fromEntries(fs.readdirSync(folder, { withFileTypes: true }).map((one) => {
  const file = path.join(folder, one.name);
  return [one.name, one.isDirectory() ? read(file) : fs.readFileSync(file, 'utf8')];
}));
async function must(args, files) {
  const done = await tool(runLLVM, args, files);
  if (done.failed) throw new Error(`${args.slice(0, 2).join(' ')}: ${done.said}`);
  return done;
}

async function makeRuntime(sources) {
  const objects = {};
  for (const [compiler, file, object] of [['clang++', 'main.cpp', 'main.o'], ['clang', 'library.c', 'library.o']]) {
    const more = compiler === 'clang++' ? ['-std=c++17', '-fno-exceptions', '-fvisibility=hidden'] : [];
    objects[object] = (await must([compiler, '--target=wasm32-wasip1', '-O1', ...more, '-c', file, '-o', '-'], sources)).output;
  }
  return (await must(['wasm-ld', '-r', 'main.o', 'library.o', ...LIBS, '-o', 'runtime.o'], objects)).files['runtime.o'];
}

// cuda_on_cpu.h with all that it includes as one text, its macros too, and of the headers that are in
// it names without a text, so that a kernel may include them.
async function makeHeaders(sources) {
  const { include, wasm_include: ours, ...native } = sources;
  const files = { ...native, ...ours, 'prelude.cpp': '#include "cuda_on_cpu.h"\n' };
  const made = await must(['clang', ...OPTIONS, '-I', '.', ...LIBRARY, '-E', '-dD', '-o', '-', '-x', 'c++', 'prelude.cpp'], files);
  const text = new TextDecoder().decode(made.output);
  const kept = ['#pragma once'], names = new Set();
  let own = false;
  for (const line of text.split('\n')) {
    const mark = line.match(/^# \d+ "([^"]*)"/);
    // Kernels are told of their cache's pages by a name that the C library has for its own.
    if (!mark) { if (own && !/^#define PAGE_SIZE\b/.test(line)) kept.push(line); continue; }
    own = !mark[1].startsWith('<');
    const name = mark[1].match(/^(?:\.\/|\/usr\/include\/(?:c\+\+\/v1\/|wasm32-wasip1\/)?)([\w./]+)$/)?.[1];
    if (name && !name.startsWith('_')) names.add(name);
  }
  const headers = { ...include, 'prelude.h': kept.join('\n').replace(/\n{2,}/g, '\n') };
  for (const name of names) {
    const steps = name.split('/'), last = steps.pop();
    let at = headers;
    for (const step of steps) at = at[step] ??= {};
    at[last] ??= '';
  }
  for (const name of ['cuda_runtime.h', 'cuda_pipeline.h', 'cuda_pipeline_primitives.h', 'device_launch_parameters.h', 'cuda.h']) headers[name] ??= '';
  return headers;
}

if (!fs.existsSync(path.join(out, 'headers.json'))) {
  const sources = read(native);
  fs.mkdirSync(out, { recursive: true });
  fs.writeFileSync(path.join(out, 'runtime.o'), await makeRuntime(sources));
  fs.writeFileSync(path.join(out, 'headers.json'), JSON.stringify(await makeHeaders(sources)));
}
if (serve) {
  const parts = { runtime: fs.readFileSync(path.join(out, 'runtime.o')), headers: JSON.parse(fs.readFileSync(path.join(out, 'headers.json'), 'utf8')) };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { folder, ...request } = JSON.parse(line);
    let answer = {};
    try {
      const made = await compileKernel(runLLVM, { ...request, parts });
      if (made.error !== undefined) answer = { error: made.error };
      else {
        fs.writeFileSync(path.join(folder, 'places.json'), JSON.stringify(made.places));
        fs.writeFileSync(path.join(folder, 'kernel.wasm'), made.wasm);
      }
    } catch (error) {
      answer = { error: String(error.message ?? error) };
    }
    process.stdout.write(`@${JSON.stringify(answer)}\n`);
  }
}

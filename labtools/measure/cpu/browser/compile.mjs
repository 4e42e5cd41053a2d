// The text of a kernel -> a WebAssembly module that runs and watches it. `run` is runLLVM of
// @yowasp/clang; `parts` is what build.mjs made: the runner, and CUDA's words as one header.
import { adapt } from './adapt.mjs';

const TARGET = ['-triple', 'wasm32-unknown-wasip1', '-target-cpu', 'generic', '-target-feature', '+bulk-memory',
  '-mrelocation-model', 'static', '-mthread-model', 'single', '-fvisibility=hidden'];
// cc1 itself, since the driver refuses the sanitizer's pass for this target. As build.py's options for
// a native compiler: two equal calls at two lines stay two. That everything is inlined makes a function
// that waits a part of its kernel.
export const OPTIONS = ['-cc1', ...TARGET, '-O1', '-std=c++17', '-w', '-fwrapv', '-fno-unroll-loops', '-fno-caret-diagnostics', '-ferror-limit', '20',
  '-debug-info-kind=line-tables-only', '-dwarf-version=4', '-fno-finite-loops', '-ftrivial-auto-var-init=pattern',
  '-mllvm', '-inline-threshold=100000', '-mllvm', '-sink-common-insts=false', '-mllvm', '-hoist-common-insts=false',
  '-fsanitize=thread,alignment,array-bounds', '-fsanitize-recover=alignment,array-bounds',
  '-mllvm', '-tsan-instrument-func-entry-exit=0', '-mllvm', '-tsan-distinguish-volatile',
  '-fsanitize-coverage-type=3', '-fsanitize-coverage-trace-pc', '-fsanitize-coverage-no-prune'];
const STACK_BYTES = 1048576; // as wasm.h

// Runs one tool: its files, what it wrote to standard output, and what it said; `failed` where it ends
// with a status. Its file system copies a whole file at each write, so that output is the faster way.
export async function tool(run, args, files) {
  let said = '';
  const parts = [];
  const stdout = (bytes) => { if (bytes) parts.push(bytes.slice()); };
  const stderr = (bytes) => { if (bytes) said += new TextDecoder().decode(bytes); };
  try {
    files = await run(args, files, { stdout, stderr, fetchProgress() {} });
    return { files, said, output: new Uint8Array(await new Blob(parts).arrayBuffer()) };
  } catch (error) {
    if (error.code === undefined) throw error;
    return { failed: true, said };
  }
}

// A loop laid out many times takes long to compile, and g++ does not know these lines either.
const rolled = (text) => text.replace(/^[ \t]*#[ \t]*pragma[ \t]+unroll.*$/gm, '');

// Answers {wasm, places}, or {error}: what the compiler said.
export async function compileKernel(run, { unit, headers, defines, parts }) {
  const defined = Object.entries(defines).flatMap(([name, value]) => ['-D', `${name}=${value}`]);
  const own = Object.fromEntries(Object.entries(headers).map(([name, text]) => [name, rolled(text)]));
  const files = { ...parts.headers, ...own, 'unit.cpp': rolled(unit) };
  const first = await tool(run, ['clang', ...OPTIONS, ...defined, '-I', '.', '-x', 'c++', '-emit-llvm', '-o', '-', 'unit.cpp'], files);
  if (first.failed) return { error: first.said };
  const adapted = adapt(new TextDecoder().decode(first.output));
  const second = await tool(run, ['clang', '-cc1', ...TARGET, '-O1', '-x', 'ir', '-w', '-emit-obj', '-o', '-', 'adapted.ll'], { 'adapted.ll': adapted.ir });
  if (second.failed) return { error: second.said };
  const linked = await tool(run, ['wasm-ld', '--no-entry', '--gc-sections', '--stack-first', '-z', `stack-size=${STACK_BYTES}`, '--export=lab_run', '--export=lab_site', '-o', 'kernel.wasm', 'kernel.o', 'runtime.o'],
    { 'kernel.o': second.output, 'runtime.o': parts.runtime });
  if (linked.failed) return { error: linked.said };
  return { wasm: linked.files['kernel.wasm'], places: adapted.places };
}

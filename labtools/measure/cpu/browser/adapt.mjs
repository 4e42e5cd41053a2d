// A kernel as text of LLVM's intermediate language, as the compiler's thread-sanitizer pass leaves it
// -> the same kernel as coroutines that a browser's runner can leave and resume.
//  1. before each call of the runtime the number of its place is stored; the places come from debug lines
//  2. behind each function that waits comes a loop that leaves the coroutine while it must
//  3. shared and device variables lie one behind the other with a gap behind each, and a table names them
const GAP = 4096; // as GAP_BYTES in build.py
const DYNAMIC_BYTES = 227 * 1024; // as DYNAMIC_SHARED_BYTES there
// What waits: the function that has its answer afterwards, where it has one.
const WAITS = {
  lab_barrier: 'lab_barrier_result', lab_collective: 'lab_collective_result', lab_active_mask: 'lab_active_mask_result',
  lab_multiply: 'lab_multiply_result', lab_phase_wait: null, lab_named_barrier: null, lab_give_way: null,
};
const TAKES_TURN = /^(__tsan_(unaligned_)?volatile_(read|write)\d+|lab_atomic)$/;
const TOLD = /^(__tsan_|lab_|__ubsan_handle_)/; // gets its place

export class Refused extends Error {}

// Answers {ir, places: {places, device}}: of each place its lines, innermost first, and the names of the
// device variables. Throws Refused.
export function adapt(ir) {
  const places = new Places(ir);
  const lines = ir.split('\n');
  const variables = new Variables();
  const out = [], apart = []; // functions that wait, of which no kernel may be left to call one
  for (let i = 0; i < lines.length; ++i) {
    const line = lines[i];
    if (line.startsWith('define ')) {
      const end = lines.indexOf('}', i), body = lines.slice(i + 1, end), symbol = line.match(/@("[^"]+"|[\w.$-]+)\(/)[1];
      i = end;
      if (/^_ZT[WH]|^tsan\.module_ctor/.test(symbol)) continue;
      if (/^lab_call_\d+$/.test(symbol)) out.push(...coroutine(line, body, places));
      else if (body.some((l) => Object.keys(WAITS).some((w) => l.includes(`@${w}(`)))) apart.push(symbol);
      else out.push(line, ...body.flatMap((l) => told(l, places)), '}');
      continue;
    }
    if (/^@llvm\.(global_ctors|used|compiler\.used)/.test(line)) continue;
    if (/^declare .*@llvm\.threadlocal/.test(line)) continue;
    if (line.startsWith('@') && variables.take(line)) continue;
    out.push(line);
  }
  const called = new RegExp(`@(${apart.map((symbol) => symbol.replace(/[.$]/g, '\\$&')).join('|')})\\b`);
  for (const line of apart.length ? out : []) {
    const found = line.match(called);
    if (found) throw new Refused(`${plain(found[1])}() waits for other threads and could not become a part of its kernel (recursion, or a pointer to a function)`);
  }
  const text = variables.place(out.join('\n'));
  const isMissing = (one) => !new RegExp(`^(declare|define).*${one.match(/@[\w.]+/)[0].replace(/\./g, '\\.')}\\(`, 'm').test(text);
  return { ir: `${text}\n${DECLARATIONS.filter(isMissing).join('\n')}\n`, places: { places: places.list, device: variables.device.map((one) => plain(one.symbol)) } };
}

const DECLARATIONS = [
  'declare i32 @lab_must_leave()', 'declare void @lab_begin_turn()', 'declare i32 @lab_barrier_result()', 'declare i64 @lab_collective_result()',
  'declare i32 @lab_active_mask_result()', 'declare void @lab_multiply_result(ptr)', 'declare void @lab_step()', 'declare ptr @lab_frame(i32)',
  'declare token @llvm.coro.id(i32, ptr readnone, ptr readonly, ptr)', 'declare i32 @llvm.coro.size.i32()', 'declare ptr @llvm.coro.begin(token, ptr writeonly)',
  'declare i8 @llvm.coro.suspend(token, i1)', 'declare void @llvm.coro.end(ptr, i1, token)',
];
const CALL = /^(\s+(?:(%\S+) = )?)(?:tail |musttail |notail )?call (.*?)@([\w.]+)\((.*)\)(.*)$/;

// A line of a function that does not wait, with the number of its place before it.
function told(line, places) {
  const call = line.match(CALL);
  if (!call) return [line];
  const [, lead, , , name, args, rest] = call;
  if (name.startsWith('llvm.threadlocal.address')) return [`${lead}getelementptr i8, ${args.replace(/ align \d+/, '')}, i32 0`];
  if (name === '__sanitizer_cov_trace_pc') return [site(places, rest), `  call void @lab_step()`];
  if (/^__tsan_(func_entry|func_exit|init)$/.test(name)) return [];
  const plainLine = line.replace(/\b(tail|musttail|notail) call/, 'call');
  return TOLD.test(name) && !CONSTANT.has(name) ? [site(places, rest), plainLine] : [plainLine];
}
const CONSTANT = new Set(['lab_coordinate', 'lab_argument', 'lab_is_shared']);
const site = (places, rest) => `  store i32 ${places.number(rest.match(/!dbg !(\d+)/)?.[1])}, ptr @lab_site`;

const LABEL = /^([\w.$-]+|"[^"]+"):/;

function coroutine(head, body, places) {
  const allocas = [], result = [], ends = new Map(); // of a block that was cut: its last part
  let count = 0, label = null;
  const first = body[0].match(LABEL)?.[1] ?? 'lab.start';
  const leave = () => {
    const n = count++;
    result.push(`  br label %lab.again${n}`, `lab.again${n}:`, `  %lab.must${n} = call i32 @lab_must_leave()`,
      `  %lab.leaves${n} = icmp ne i32 %lab.must${n}, 0`, `  br i1 %lab.leaves${n}, label %lab.leave${n}, label %lab.on${n}`,
      `lab.leave${n}:`, `  %lab.s${n} = call i8 @llvm.coro.suspend(token none, i1 false)`,
      `  switch i8 %lab.s${n}, label %lab.suspend [i8 0, label %lab.again${n} i8 1, label %lab.suspend]`, `lab.on${n}:`);
    ends.set(label, `lab.on${n}`);
  };
  for (const line of body) {
    const block = line.match(LABEL);
    if (block) { label = block[1]; result.push(line); continue; }
    if (/^\s+%\S+ = alloca /.test(line)) { allocas.push(line); continue; }
    const call = line.match(CALL);
    const name = call?.[4];
    if (name in WAITS) {
      const [, , to, type, , args, rest] = call;
      result.push(site(places, rest), `  ${type.startsWith('void') ? '' : `%lab.x${count} = `}call ${type}@${name}(${args})${rest}`);
      leave();
      const answer = WAITS[name];
      if (answer && (to || name === 'lab_multiply')) result.push(`  ${to ? `${to} = ` : ''}call ${type.replace(/^(noundef |range\([^)]*\) |signext |zeroext )+/, '')}@${answer}(${name === 'lab_multiply' ? args : ''})${(rest.match(/, !dbg !\d+/) ?? [''])[0]}`);
      continue;
    }
    if (name && TAKES_TURN.test(name)) { result.push(site(places, call[6]), '  call void @lab_begin_turn()'); leave(); }
    if (/^\s+ret void/.test(line)) { result.push('  br label %lab.final'); continue; }
    result.push(...told(line, places));
  }
  const fixed = result.map((l) => (/^\s+%\S+ = phi /.test(l) ? l.replace(/, %([\w.$-]+|"[^"]+") \]/g, (m, b) => `, %${lastPart(ends, b)} ]`) : l));
  const symbol = head.match(/@([\w.$-]+)\(/)[1], dbg = head.match(/ !dbg !\d+/)?.[0] ?? '';
  return [`define hidden ptr @${symbol}() presplitcoroutine${dbg} {`, 'lab.entry:', ...allocas,
    '  %lab.id = call token @llvm.coro.id(i32 16, ptr null, ptr null, ptr null)', '  %lab.size = call i32 @llvm.coro.size.i32()',
    '  %lab.memory = call ptr @lab_frame(i32 %lab.size)', '  %lab.handle = call ptr @llvm.coro.begin(token %lab.id, ptr %lab.memory)',
    `  br label %${first}`, ...(LABEL.test(body[0]) ? [] : ['lab.start:']), ...fixed,
    'lab.final:', '  %lab.sf = call i8 @llvm.coro.suspend(token none, i1 true)',
    '  switch i8 %lab.sf, label %lab.suspend [i8 0, label %lab.trap i8 1, label %lab.suspend]', 'lab.trap:', '  unreachable',
    'lab.suspend:', '  call void @llvm.coro.end(ptr %lab.handle, i1 false, token none)', '  ret ptr %lab.handle', '}'];
}
function lastPart(ends, block) { while (ends.has(block)) block = ends.get(block); return block; }

class Variables {
  constructor() { this.shared = []; this.device = []; this.dynamic = []; this.null = []; }
  // Whether a line that begins with @ declares one, which is then kept for `place`.
  take(line) {
    const found = line.match(/^@("[^"]+"|[\w.$-]+) = (.*)$/);
    if (!found) return false;
    const [, symbol, rest] = found;
    if (/^_ZT[HW]/.test(symbol)) { this.null.push(symbol); return true; }
    if (symbol.startsWith('lab_') || /\b(private|constant|alias|ifunc)\b/.test(rest.split('"')[0])) return false;
    const kind = rest.match(/^(.*?)\bglobal (.*)$/);
    if (!kind) return false;
    const type = typeOf(kind[2]), after = kind[2].slice(type.length);
    const align = Number(after.match(/, align (\d+)/)?.[1] ?? 16);
    if (/\bexternal\b/.test(kind[1])) { this.dynamic.push({ symbol, type }); return true; }
    const initial = after.slice(1).replace(/, (align \d+|section "[^"]*"|comdat.*|!dbg !\d+).*$/, '');
    (/\bthread_local\b/.test(kind[1]) ? this.shared : this.device).push({ symbol, type, align, initial });
    return true;
  }
  place(text) {
    const rows = [], added = [], where = new Map();
    // Behind each variable a gap; those of one section lie one behind the other, as they are written.
    const put = (symbol, type, initial, align, section, kind) => {
      const whole = `<{ ${type}, [${GAP} x i8] }>`;
      added.push(`@${symbol} = hidden global ${whole} <{ ${type} ${initial}, [${GAP} x i8] zeroinitializer }>, section "${section}", align ${Math.max(align, 16)}`);
      if (kind !== undefined) rows.push({ name: plain(symbol), base: `@${symbol}`, bytes: sizeOf(type), kind });
    };
    put('lab_shared_first', '[16 x i8]', 'zeroinitializer', 16, '.bss.lab_shared');
    for (const one of this.shared) put(one.symbol, one.type, 'zeroinitializer', one.align, '.bss.lab_shared', 0);
    put('lab_dynamic', `[${DYNAMIC_BYTES} x i8]`, 'zeroinitializer', 1024, '.bss.lab_shared', 1);
    if (this.dynamic.length) rows.at(-1).name = plain(this.dynamic[0].symbol);
    for (const one of this.dynamic) where.set(one.symbol, '@lab_dynamic');
    if (this.device.length) put('lab_device_first', '[16 x i8]', 'zeroinitializer', 16, '.data.lab_device');
    for (const one of this.device) put(one.symbol, one.type, one.initial, one.align, '.data.lab_device', 2);
    if (this.device.length) put('lab_device_last', '[16 x i8]', 'zeroinitializer', 16, '.data.lab_device');
    text = text.replace(/@("[^"]+"|[\w.$-]+)/g, (all, symbol) => where.get(symbol) ?? (this.null.includes(symbol) ? 'null' : all));
    rows.forEach((row, i) => added.push(`@lab_name_${i} = private constant [${row.name.length + 1} x i8] c"${row.name}\\00"`));
    const table = rows.map((row, i) => `{ ptr, ptr, i32, i32 } { ptr @lab_name_${i}, ptr ${row.base}, i32 ${row.bytes}, i32 ${row.kind} }`);
    const pointer = (name, to) => `@${name} = hidden constant ptr ${to}`;
    added.push(`@lab_num_variables = hidden constant i32 ${rows.length}`,
      `@lab_variables = hidden constant [${rows.length} x { ptr, ptr, i32, i32 }] [${table.join(', ')}]`,
      pointer('lab_shared_start', '@lab_shared_first'), pointer('lab_dynamic_shared', '@lab_dynamic'),
      pointer('lab_device_set', this.device.length ? '@lab_device_first' : 'null'), pointer('lab_device_set_end', this.device.length ? '@lab_device_last' : 'null'),
      '@lab_site = external hidden global i32');
    const at = text.search(/^(attributes #|!)/m);
    return `${text.slice(0, at)}${added.join('\n')}\n\n${text.slice(at)}`;
  }
}
const sizeOf = (type) => `ptrtoint (ptr getelementptr (${type}, ptr null, i32 1) to i32)`;

function typeOf(text) {
  let depth = 0, i = 0;
  for (; i < text.length; ++i) {
    if ('[{<('.includes(text[i])) ++depth;
    if (']}>)'.includes(text[i])) --depth;
    if (depth === 0 && (text[i] === ' ' || text[i] === ',')) break;
  }
  return text.slice(0, i);
}

// The variable's own name in a mangled one, as build.py's _plain_name.
export function plain(symbol) {
  symbol = symbol.replace(/"/g, '');
  if (symbol.startsWith('_ZGV')) return '(guard)';
  const digits = [...symbol.matchAll(/\d+/g)].reverse();
  for (const found of digits)
    for (let start = found.index; start < found.index + found[0].length; ++start) {
      const end = found.index + found[0].length, length = Number(symbol.slice(start, end)), name = symbol.slice(end, end + length);
      if (name.length === length && /^(_?\d*_?)$/.test(symbol.slice(end + length)) && /^[A-Za-z_]\w*$/.test(name)) return name;
    }
  return symbol.replace(/\.\d+$/, '').replace(/^_ZL\d+/, '');
}

// Places by number, from 1: lists of [file, line], innermost first.
class Places {
  constructor(ir) {
    this.list = [[]];
    this.known = new Map();
    this.nodes = new Map();
    for (const m of ir.matchAll(/^!(\d+) = (?:distinct )?!(DILocation|DISubprogram|DILexicalBlock|DILexicalBlockFile|DIFile)\((.*)\)$/gm)) {
      const field = (name) => m[3].match(new RegExp(`\\b${name}: !?("[^"]*"|\\d+)`))?.[1].replace(/"/g, '');
      this.nodes.set(m[1], { line: Number(field('line') ?? 0), scope: field('scope'), file: field('file'), at: field('inlinedAt'), name: field('filename') });
    }
  }
  fileOf(node) {
    for (let scope = this.nodes.get(node.scope); scope; scope = this.nodes.get(scope.scope)) if (scope.file) return this.nodes.get(scope.file)?.name ?? '?';
    return '?';
  }
  number(id) {
    const chain = [];
    for (let n = this.nodes.get(id); n; n = this.nodes.get(n.at)) chain.push([this.fileOf(n), n.line]);
    const key = chain.join('|');
    if (!this.known.has(key)) { this.known.set(key, this.list.length); this.list.push(chain); }
    return this.known.get(key);
  }
}

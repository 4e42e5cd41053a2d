// The faults in a run's report, with lines for the numbers of places: as cpu/report.py reads it and
// cpu/faults.py words it.
import { AT, SIZE } from '../../measure/cpu/browser/run.mjs';

export function explainFaults(run, places, blocks, task) {
  const report = run.report, view = new DataView(report.buffer, report.byteOffset);
  const raw = [];
  for (let i = 0; i < Math.min(view.getUint32(AT.numFaults, true), SIZE.mostFaults); ++i) {
    const at = AT.faults + i * SIZE.fault, word = (offset) => view.getUint32(at + offset, true);
    if (!word(0)) continue;
    const lines = [];
    for (let p = 0; p < word(AT.numPlaces); ++p) {
      const start = at + AT.places + p * SIZE.place, chain = [];
      for (let a = 0; a < view.getUint32(start + AT.count, true); ++a) chain.push(...(places[Number(view.getBigUint64(start + 8 * a, true))] ?? []));
      lines.push(lineOf(chain, task));
    }
    const text = new TextDecoder().decode(report.slice(at + AT.text, at + AT.text + SIZE.text)).split('\0')[0];
    const block = [0, 4, 8].map((offset) => word(AT.block + offset));
    raw.push({ kind: task.kinds[word(AT.kind) - 1], text, lines, block, thread: view.getInt32(at + AT.thread, true), launch: word(AT.launch), copies: word(AT.copies), onlyIfDiffer: word(AT.onlyIfDiffer) });
  }
  const told = [], seen = new Set();
  for (const fault of raw) {
    if (fault.onlyIfDiffer && new Set(fault.lines.map(String)).size < 2) continue;
    const copies = raw.filter((one) => String(one.lines[0]) === String(fault.lines[0])).reduce((sum, one) => sum + one.copies, 0);
    const one = word(fault, copies, blocks, task), key = `${one.kind} ${one.lines}`;
    if (!seen.has(key)) told.push(one);
    seen.add(key);
  }
  return told;
}

// The reader's own source comes before a header that it calls into.
function lineOf(chain, task) {
  const own = (file) => file === task.shown || file.endsWith(`/${task.shown}`);
  const known = chain.filter(([file, line]) => line && (own(file) || file.split('/').pop() in task.headers));
  if (!known.length) return null;
  const inner = known[0], mine = known.find(([file]) => own(file));
  if (!mine || mine === inner) return { file: inner[0].split('/').pop(), line: inner[1], own: own(inner[0]), within: '', toString() { return `${inner}`; } };
  return { file: task.shown, line: mine[1], own: true, within: `${inner[0].split('/').pop()} line ${inner[1]}`, toString() { return `${mine} ${inner}`; } };
}

function word(fault, copies, blocks, task) {
  const first = fault.lines[0];
  let message = fault.text.replace(/\{(\d)\}/g, (_, i) => {
    const place = fault.lines[i];
    if (!place) return 'an unknown line';
    const text = `${first && place.file !== first.file ? `${place.file} ` : ''}line ${place.line}`;
    return place.within ? `${text} (in ${place.within})` : text;
  }).replace('{copies}', copies);
  if (first?.within && !message.includes(first.within)) message += ` (in ${first.within})`;
  const where = [];
  if (first) where.push(`${first.own ? task.name : first.file}:${first.line}`);
  if (fault.thread >= 0) {
    const [x, y] = blocks[Math.min(fault.launch, blocks.length - 1)], t = fault.thread;
    where.push(`block (${fault.block.join(', ')})`, `thread (${t % x}, ${Math.floor(t / x) % y}, ${Math.floor(t / (x * y))})`);
  }
  const text = `${fault.kind.replaceAll('_', ' ')}: ${message}${where.length ? `\n  at ${where.join(', ')}` : ''}`;
  return { kind: fault.kind, text, lines: [...new Set(fault.lines.filter((one) => one?.own).map((one) => one.line))] };
}

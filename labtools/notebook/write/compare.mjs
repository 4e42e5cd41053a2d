// An output against the oracle, part by part, as problem/compare.py does it and in its words.
const half = (bits) => {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
};
const float = new Float32Array(1), word = new Uint32Array(float.buffer);
const bfloat = (bits) => { word[0] = bits << 16; return float[0]; };
const READ = {
  float16: (view, i) => half(view.getUint16(2 * i, true)), bfloat16: (view, i) => bfloat(view.getUint16(2 * i, true)),
  float32: (view, i) => view.getFloat32(4 * i, true), float64: (view, i) => view.getFloat64(8 * i, true),
  int32: (view, i) => view.getInt32(4 * i, true), uint32: (view, i) => view.getUint32(4 * i, true),
  int16: (view, i) => view.getInt16(2 * i, true), uint16: (view, i) => view.getUint16(2 * i, true),
  int8: (view, i) => view.getInt8(i), uint8: (view, i) => view.getUint8(i),
  int64: (view, i) => Number(view.getBigInt64(8 * i, true)),
};

// What is wrong, or nothing.
export function compareOutput(bytes, data, { dtype, shape, axes, limit, expected, poison }) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), size = poison.length;
  const wanted = new DataView(data.buffer, data.byteOffset + expected);
  const columns = shape[shape.length - 1], parts = shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const unwritten = { count: 0 }, odd = { count: 0 };
  let compared = 0, wrong = 0, worst = -1, worstAt = 0;
  for (let part = 0; part < parts; ++part) {
    let difference = 0, norm = 0, any = false;
    for (let c = 0; c < columns; ++c) if (!Number.isNaN(wanted.getFloat32(4 * (part * columns + c), true))) any = true;
    if (!any) continue;
    ++compared;
    for (let c = 0; c < columns; ++c) {
      const i = part * columns + c, found = READ[dtype](view, i), want = wanted.getFloat32(4 * i, true);
      const blank = found !== want && poison.every((byte, k) => bytes[i * size + k] === byte);
      const count = blank ? unwritten : Number.isFinite(found) ? null : odd;
      if (count && ++count.count === 1) count.at = [part, c];
      difference += (found - want) ** 2;
      norm += want ** 2;
    }
    let error = Math.sqrt(difference) / Math.max(Math.sqrt(norm), 1e-30);
    if (!Number.isFinite(error)) error = Infinity;
    if (error > limit) ++wrong;
    if (error > worst) [worst, worstAt] = [error, part];
  }
  const where = (part, c) => {
    const index = [];
    for (let axis = shape.length - 2, rest = part; axis >= 0; --axis) { index.unshift(rest % shape[axis]); rest = Math.floor(rest / shape[axis]); }
    if (c !== undefined) index.push(c);
    return index.map((at, i) => `${axes[i]} ${at}`).join(', ');
  };
  const problems = [];
  for (const [found, text] of [[unwritten, 'never written'], [odd, 'NaN or infinite']])
    if (found.count) problems.push(`${found.count} elements ${text}, the first at ${where(...found.at)}`);
  if (wrong && !problems.length) {
    const named = axes.slice(0, -1), called = named.length === 1 ? `${named[0]}s` : `(${named.join(', ')}) pairs`;
    problems.push(`${wrong} of ${compared} ${called} are off, the worst by ${exponent(worst)} relative at ${where(worstAt)} (limit ${general(limit)})`);
  }
  return problems.join('; ');
}
// As Python's format `g` writes a limit.
const general = (x) => (x !== 0 && x < 1e-4 ? x.toExponential().replace(/e([+-])(\d)$/, 'e$10$2') : String(x));
const exponent = (x) => (x === Infinity ? 'inf' : x.toExponential(1).replace(/e([+-])(\d)$/, 'e$10$2'));

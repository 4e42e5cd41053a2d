// What a reader wrote and guessed on this site, as scores.py has it of a journal: kept in the browser, and
// told on one page that needs nothing else.
export const TEXT = 'fieldguide:kernel:', PASSED = 'fieldguide:passed:';
const GUESS = 'fieldguide:guess:'; // as static_page.js
const STAGES = 4; // of the check in a tab
const LEAST = 4; // as scores.py

// A browser may keep nothing.
const kept = (act) => { try { return act(window.localStorage); } catch { return null; } };
export const read = (key) => kept((storage) => JSON.parse(storage.getItem(key)));
export const keep = (key, value) => kept((storage) => storage.setItem(key, JSON.stringify(value)));

const escape = (text) => String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
const table = (caption, columns, rows) => `<h2>${escape(caption)}</h2>\n<table>\n<tr>${columns.map((one) => `<th>${escape(one)}</th>`).join('')}</tr>\n${
  rows.map((row) => `<tr>${row.map((one) => `<td>${escape(one)}</td>`).join('')}</tr>`).join('\n')}\n</table>`;

// `kernels`: pairs of a name and a title.
export function progressPage(kernels) {
  const written = kernels.map(([name, title]) => ({ name, title, text: read(TEXT + name), ...(read(PASSED + name) ?? { stages: 0, said: '', at: '-' }) }));
  const done = written.filter((one) => one.stages === STAGES).length;
  const rows = written.map((one) => [one.name, one.title, `${one.stages} of ${STAGES}`, one.said, one.at.slice(0, 10)]);
  const texts = written.filter((one) => one.text).map((one) => `<h2>${escape(one.name)}</h2>\n<pre>${escape(one.text)}</pre>`);
  const guesses = table('Guesses of a ratio, in the order they were made', ['part', 'number', 'right direction', 'off by a factor of'], calibration());
  return `<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">
<title>My kernels and guesses</title>\n<style>body{font:1rem/1.5 sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}td,th{text-align:left;padding:0.1rem 0.5rem;vertical-align:top}pre{overflow:auto}</style>
</head>\n<body>\n<h1>My kernels and guesses</h1>\n${table(`${done} of ${kernels.length} kernels written`, ['kernel', 'what it does', 'stages passed', 'the last one', 'when'], rows)}
${guesses}\n${texts.join('\n')}\n</body>\n</html>\n`;
}

// Of the first half of the guesses and of the second, as scores.py counts them.
function calibration() {
  const keys = kept((storage) => Object.keys(storage)) ?? [];
  const scored = keys.filter((key) => key.startsWith(GUESS)).map(read).filter((one) => one?.off !== undefined);
  scored.sort((one, other) => (one.at < other.at ? -1 : 1));
  const middle = Math.ceil(scored.length / 2);
  const parts = scored.length >= LEAST ? [['first half', scored.slice(0, middle)], ['second half', scored.slice(middle)]] : [['all of them', scored]];
  return parts.map(([part, ones]) => {
    const off = Math.exp(ones.reduce((sum, one) => sum + Math.log(one.off), 0) / ones.length);
    return [part, ones.length, `${ones.filter((one) => one.right).length} of ${ones.length}`, ones.length ? off.toPrecision(3) : '-'];
  });
}

// node firefox.mjs: writes and runs kernels on a page of the site in Firefox. {firefox, page, name,
// texts} comes on standard input; {told, left, asked} goes to standard output: what each text is told
// and the lines marked, the status of a run whose page was left, and what was requested.
import fs from 'node:fs';
import puppeteer from 'puppeteer-core';

const { firefox, page: address, name, texts } = JSON.parse(fs.readFileSync(0, 'utf8'));
const browser = await puppeteer.launch({ browser: 'firefox', executablePath: firefox, headless: true });
try {
  const page = await browser.newPage(), asked = [], told = [];
  page.on('request', (request) => asked.push(request.url()));
  await page.goto(address);
  await page.waitForSelector('.lt-write .cm-editor');
  const act = (what, text) => page.evaluate((name, what, text) => {
    const box = document.querySelector(`.lt-write[data-write="${name}"]`), [run] = box.querySelectorAll('button');
    const content = box.querySelector('.cm-content'), { view } = content.cmTile ?? content.cmView;
    if (what === 'write') view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    if (what === 'run') run.click();
    const [status, said] = ['.lt-write-status', '.lt-stages'].map((part) => box.querySelector(part).textContent);
    return { runs: run.hidden, status, said, lines: [...box.querySelectorAll('.lt-fault')].map((line) => line.textContent) };
  }, name, what, text);
  const until = async (is) => { for (;;) { const seen = await act(); if (is(seen)) return seen; await new Promise((done) => setTimeout(done, 100)); } };
  for (const text of texts) {
    await act('write', text);
    await act('run');
    told.push(await until((seen) => !seen.runs));
  }
  await act('run');
  await page.goto(address.replace(/[^/]*$/, 'glossary.html'));
  await page.evaluate(() => { setTimeout(() => history.back()); });
  await page.waitForSelector(`.lt-write[data-write="${name}"]`);
  process.stdout.write(JSON.stringify({ told, left: (await act()).status, asked }));
} finally {
  await browser.close();
}

// The site's side of a question: nobody's Python answers, so the guess stays in this browser.
// In front of this stand kit.js and what `guess_script` gives; see static_page.py.
// From here on the page waits where a question holds it: this runs before there is a page. A browser
// too old for the rule in static_page.css shows everything.
if (window.CSS?.supports?.("selector(:has(a))")) document.documentElement.classList.add("lt-asks");

const KEY = "fieldguide:guess:";
const ASK_NOTHING = "fieldguide:ask-nothing";
const AT_ONCE = "fieldguide-at-once"; // fired when one gate changes what others show

// ------------------------------------------------------------------------------- what is kept

// A browser may refuse to keep anything; then a guess holds until the page is left.
const passing = new Map();
let keepsNothing = false;

function inBrowser(act) {
  try {
    return act(window.localStorage);
  } catch {
    keepsNothing = true;
    return null;
  }
}

function read(key) {
  return inBrowser((kept) => JSON.parse(kept.getItem(key))) ?? passing.get(key) ?? null;
}

function keep(key, value) {
  passing.set(key, value);
  inBrowser((kept) => kept.setItem(key, JSON.stringify(value)));
}

function forget(key) {
  passing.delete(key);
  inBrowser((kept) => kept.removeItem(key));
}

function whereKept() {
  return keepsNothing
    ? "This browser keeps nothing for this site, so it is gone when you leave the page."
    : "It is kept in this browser and nowhere else.";
}

// ------------------------------------------------------------------------------- in words

function sayGuess(guess) {
  if (guess.skipped) return "shown without a guess";
  if (guess.choice !== undefined) return guess.choice;
  if (guess.numbers !== undefined) return guess.numbers.join(", ");
  if (guess.direction === "same") return "the same";
  return `${Math.max(guess.ratio, 1 / guess.ratio).toFixed(2)}x ${guess.direction}`;
}

function sayScore(guess, scored) {
  if (guess.skipped) return "";
  const said = `You said: ${sayGuess(guess)}.`;
  if (!scored) return said;
  if (guess.direction !== undefined) return `${said} ${verdict(guess, scored)}`;
  const [given, right] = [guess.choice ?? guess.numbers, scored.right].map((one) => `${one}`);
  return given === right ? `${said} You were right.` : said;
}

// Chromium does not look again at every section that waits behind a section of a section.
function waitAgain() {
  const { classList } = document.documentElement;
  if (!classList.contains("lt-asks")) return;
  classList.remove("lt-asks");
  getComputedStyle(document.body).display;
  classList.add("lt-asks");
}

// ------------------------------------------------------------------------------- one question

const press = (text, act) => button(text, act, { name: "lt-gate-button" });
const link = (text, act) => button(text, act, { name: "lt-gate-link" });

// Puts a form in a question's place. `tell` is called with the guess when there is one.
function makeGate(place, tell) {
  const question = JSON.parse(place.dataset.question);
  const key = KEY + question.id;
  const holds = place.hasAttribute("data-holds");
  const model = new Asked(
    { text: question.text, form: question, state: {}, again_message: "" },
    ({ kind: _, ...guess }) => commit({ ...guess, at: new Date().toISOString() }),
  );
  const rest = html("div", { class: "lt-gate-rest" });

  function commit(guess) {
    keep(key, guess);
    show();
    // What had the focus is gone; reading goes on from here.
    const status = form.querySelector(".lt-gate-status");
    status.tabIndex = -1;
    status.focus({ preventScroll: true });
  }

  function show() {
    const skips = holds && read(ASK_NOTHING) === true;
    const guess = read(key) ?? (skips ? { skipped: true } : null);
    const when = guess?.at?.slice(0, 16).replace("T", " ");
    let message = "";
    if (guess?.skipped) message = "The result is shown without a guess.";
    else if (guess) message = `Committed ${when} UTC: ${sayGuess(guess)}. ${whereKept()}`;
    model.set("state", { message, committed: guess !== null, final: true });
    place.dataset.open = guess === null ? "no" : "yes";
    waitAgain();
    rest.replaceChildren(...offers(guess, skips));
    tell(guess, question);
  }

  function offers(guess, skips) {
    if (guess === null) {
      const without = holds ? "Show it without a guess" : "Show this one without a guess";
      const made = [link(without, () => commit({ skipped: true, at: new Date().toISOString() }))];
      if (holds) {
        made.unshift(html("span", {}, ["The rest of this page waits for your answer. "]));
        made.push(" ", link("Ask me nothing on any page", () => askNothing(true)));
      }
      return made;
    }
    const every = "Ask me again on every page";
    if (skips && read(key) === null) return [link(every, () => askNothing(false))];
    const name = guess.skipped ? "Ask me again" : "Forget this guess";
    return [link(name, () => { forget(key); show(); })];
  }

  const form = html("div");
  render({ model, el: form });
  form.firstElementChild.append(rest);
  place.replaceChildren(form);
  place.removeAttribute("style");
  document.addEventListener(AT_ONCE, show);
  show();
}

function askNothing(yes) {
  if (yes) keep(ASK_NOTHING, true);
  else forget(ASK_NOTHING);
  document.dispatchEvent(new Event(AT_ONCE));
}

// The folded results of a question, opened or closed, with the score of the guess above them.
function tellResults(guess, question) {
  for (const result of document.querySelectorAll("details.lt-result[data-of]")) {
    if (result.dataset.of !== question.id) continue;
    result.open = guess !== null;
    result.querySelector(".lt-score-static")?.remove();
    const scored = result.dataset.scored ? JSON.parse(result.dataset.scored) : null;
    const said = guess === null ? "" : sayScore(guess, scored);
    // Kept for the page of all guesses (write/progress.mjs).
    if (guess?.ratio !== undefined && scored?.ratio !== undefined && guess.off === undefined) {
      keep(KEY + question.id, { ...guess, ...scoreOf(guess, scored) });
    }
    if (said) {
      result.querySelector("summary").after(
        html("p", { class: "lt-score lt-score-static" }, [said]));
    }
  }
  // What was drawn while it was hidden had no width.
  if (guess !== null) window.dispatchEvent(new Event("resize"));
}

// ------------------------------------------------------------------------------- rounds

function unpack(sealed) {
  const bytes = Uint8Array.from(atob(sealed), (letter) => letter.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(bytes));
}

function makeRounds(place) {
  const rounds = [...place.querySelectorAll(".lt-round")];
  const board = html("div", { class: "lt-board", role: "status" });
  const guesses = new Map();
  let at = 0;

  function go(to) {
    at = Math.max(0, Math.min(rounds.length - 1, to));
    rounds.forEach((round, number) => { round.hidden = number !== at; });
    back.disabled = at === 0;
    next.disabled = at === rounds.length - 1;
  }
  const back = press("Previous round", () => go(at - 1));
  const next = press("Next round", () => go(at + 1));

  for (const [number, round] of rounds.entries()) {
    const sealed = unpack(round.dataset.sealed);
    const answer = html("div", { class: "lt-round-answer", role: "status" });
    round.append(answer);
    makeGate(round.querySelector(".lt-gate-static"), (guess) => {
      guesses.set(number, guess);
      answer.replaceChildren(...(guess === null ? [] : tellRound(guess, sealed)));
      tellBoard();
    });
  }

  function tellRound(guess, sealed) {
    const lines = [];
    if (!guess.skipped && sealed.scored) lines.push(`You: ${verdict(guess, sealed.scored)}`);
    if (sealed.model && sealed.scored) {
      lines.push(`The model: ${verdict(sealed.model, sealed.scored)}`);
      lines.push(`Its prediction was sealed when this page was made, as ${sealed.seal}.`);
    }
    if (sealed.refusal) lines.push(sealed.refusal);
    const told = html("div", {});
    told.innerHTML = sealed.html; // our own, from this page
    return [...lines.map((line) => html("p", { class: "lt-score-static" }, [line])), told];
  }

  function tellBoard() {
    const rows = [];
    const offs = { you: [], model: [] };
    for (const [number, round] of rounds.entries()) {
      const guess = guesses.get(number);
      if (!guess || guess.skipped) continue;
      const sealed = unpack(round.dataset.sealed);
      if (!sealed.scored || !sealed.model) continue;
      const off = (ratio) => Math.max(ratio / sealed.scored.ratio, sealed.scored.ratio / ratio);
      offs.you.push(off(guess.ratio));
      offs.model.push(off(sealed.model.ratio));
      rows.push([`${number + 1}: ${sealed.what}`, sayGuess(guess), `${off(guess.ratio).toFixed(2)}x`,
        sealed.said, `${off(sealed.model.ratio).toFixed(2)}x`, sealed.measured]);
    }
    if (!rows.length) {
      board.replaceChildren(html("p", {}, ["The scoreboard fills as you play."]));
      return;
    }
    const heads = ["round", "you said", "off by", "the model said", "off by", "recorded"];
    const mean = (list) =>
      Math.exp(list.reduce((sum, one) => sum + Math.log(one), 0) / list.length).toFixed(2);
    board.replaceChildren(
      table(heads, rows, { label: "Scoreboard", name: "lt-board-table" }),
      html("p", {}, [`Geometric mean of the factors: you ${mean(offs.you)}x off, `
        + `the model ${mean(offs.model)}x off.`]));
  }

  place.append(html("div", { class: "lt-round-buttons" }, [back, next]), board,
    html("p", { class: "lt-round-note" }, [place.dataset.note]));
  const first = rounds.findIndex((_, number) => !guesses.get(number));
  go(first < 0 ? rounds.length - 1 : first);
}

// ------------------------------------------------------------------------------- the page

// A link may lead to a part of the page that still waits.
function followLink() {
  let name = location.hash.slice(1);
  try { name = decodeURIComponent(name); } catch { /* it is taken as it stands */ }
  const target = document.getElementById(name);
  if (!target) return;
  if (target.getClientRects().length) {
    target.scrollIntoView();
    return;
  }
  const first = document.querySelector('.lt-gate-static[data-holds][data-open="no"]');
  if (!first) return;
  first.querySelector(".lt-gate-status").textContent =
    "What the link leads to stands below this question.";
  first.scrollIntoView({ block: "center" });
  new MutationObserver((_, watcher) => {
    if (!target.getClientRects().length) return;
    watcher.disconnect();
    target.scrollIntoView();
  }).observe(document.body, { attributes: true, subtree: true, attributeFilter: ["data-open"] });
}

document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".lt-rounds-static")) makeRounds(place);
  for (const place of document.querySelectorAll(".lt-gate-static:not(.lt-rounds-static *)")) {
    makeGate(place, tellResults);
  }
  if (location.hash) followLink();
});
window.addEventListener("hashchange", followLink);
window.fieldguide = { verdict };

// A guess without a kernel: its form's model, and its score. In front of this stand gate.js and RULES.

// What a form needs of a widget's model; what it sends comes to `receive`.
class Asked {
  constructor(values, receive) {
    this.values = values;
    this.receive = receive;
    this.listeners = {};
  }
  get(name) {
    return this.values[name];
  }
  set(name, value) {
    this.values[name] = value;
    for (const listener of this.listeners[`change:${name}`] ?? []) listener();
  }
  on(event, listener) {
    (this.listeners[event] ??= []).push(listener);
  }
  off() {}
  send(message) {
    this.receive(message);
  }
}

function directionOf(ratio, interval) {
  const same = interval
    ? interval[0] <= 1 && 1 <= interval[1]
    : 1 / RULES.sameWithin <= ratio && ratio <= RULES.sameWithin;
  if (same) return "same";
  return ratio > 1 ? "faster" : "slower";
}

// As labtools.record.prediction.score has it, by the same rules.
function scoreOf(guess, scored) {
  const guessed = guess.direction ?? directionOf(guess.ratio, null);
  const right = guessed === directionOf(scored.ratio, scored.interval);
  return { right, off: Math.max(guess.ratio / scored.ratio, scored.ratio / guess.ratio) };
}

function verdict(guess, scored) {
  const { right, off } = scoreOf(guess, scored);
  let [digits, words] = [1, RULES.misunderstood];
  if (off < RULES.misunderstoodFrom) {
    [, digits, words] = RULES.sizes.find(([most]) => off <= most);
  }
  return `Direction ${right ? "right" : "wrong"}, ${off.toFixed(digits)}x off${words}.`;
}

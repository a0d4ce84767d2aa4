'use strict';
// Waiting that ends with a signal.

// sleep waits for some milliseconds, or until the signal is aborted: whoever waits looks at it afterwards.
function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener('abort', done);
  });
}

// Backoff grows from one wait to the next, with some chance in it, so that the instances of a cluster do not come back in step.
class Backoff {
  #next;

  constructor(first, most) {
    this.first = first;
    this.most = most;
    this.#next = first;
  }

  reset() { this.#next = this.first; }

  wait(signal) {
    const now = this.#next;
    this.#next = Math.min(2 * now, this.most);
    return sleep(now * (0.75 + Math.random() / 2), signal);
  }
}

// within returns an AbortController that is aborted with another signal too. release lets go of that one.
function within(signal) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  if (signal.aborted) {
    abort();
  } else {
    signal.addEventListener('abort', abort);
  }
  return { controller, release: () => signal.removeEventListener('abort', abort) };
}

module.exports = { sleep, within, Backoff };

'use strict';
const assert = require('node:assert');
const test = require('node:test');
const { Log, cut } = require('../src/log');

function logged(run) {
  const lines = [];
  let now = 0;
  run(new Log((line) => lines.push(line), () => now), (milliseconds) => {
    now += milliseconds;
  });
  return lines;
}

test('a line is one JSON object, as hclog writes it', () => {
  const [line] = logged((log) => log.warn('two\nlines', { error: new Error('why'), count: 3, '@level': 'error' }));
  const object = JSON.parse(line);
  assert.strictEqual(line.indexOf('\n'), line.length - 1);
  assert.strictEqual(object['@message'], 'two\nlines');
  assert.strictEqual(object['@timestamp'], '1970-01-01T00:00:00.000Z');
  assert.strictEqual(object.error, 'why');
  assert.strictEqual(object.count, 3);
});

test('no line is longer than the core takes', () => {
  const fields = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`field${n}`, '\u0001'.repeat(5000)]));
  const lines = logged((log) => {
    log.info('x'.repeat(100_000), fields);
    log.info('\u0001'.repeat(100_000), fields);
  });
  for (const line of lines) {
    assert.ok(Buffer.byteLength(line) <= 8 << 10, `${line.length}`);
    JSON.parse(line);
  }
});

test('a flood is dropped, and told of', () => {
  const lines = logged((log, pass) => {
    for (let n = 0; n < 10_000; n++) {
      log.info('again');
    }
    pass(1000);
    log.info('at last');
  });
  assert.strictEqual(lines.length, 201);
  assert.strictEqual(JSON.parse(lines[200]).dropped_lines, 9800);
});

test('a text is cut between two characters', () => {
  assert.strictEqual(cut('aäöü', 4), 'aä');
  assert.strictEqual(cut('aäöü', 5), 'aäö');
  assert.strictEqual(cut('abc', 3), 'abc');
});

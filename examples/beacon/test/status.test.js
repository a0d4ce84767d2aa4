'use strict';
const assert = require('node:assert');
const { EventEmitter } = require('node:events');
const test = require('node:test');
const { Status } = require('../src/status');

// Call is a stream whose reader is slow: it takes one message, and the next when it is told to.
class Call extends EventEmitter {
  sent = [];
  over = false;
  write(message) {
    this.sent.push(message);
    return false;
  }

  end() { this.over = true; }
}

const request = { instanceId: 'node/beacon/1', role: 'beacon', configurationGeneration: '7' };

test('who watches is given the present status, and then the newest', () => {
  const status = new Status(request);
  const call = new Call();
  status.stream(call, () => {});
  status.value('lit', '1');
  status.value('lit', '2');
  status.ready();
  assert.strictEqual(call.sent.length, 1);
  call.emit('drain');
  assert.strictEqual(call.sent.length, 2);
  assert.deepStrictEqual(call.sent[1], {
    instanceId: 'node/beacon/1', role: 'beacon', configurationGeneration: '7', state: 'ROLE_STATE_READY', reason: '', endpoints: [], values: { lit: '2' },
  });
  call.emit('drain');
  status.ready();
  assert.strictEqual(call.sent.length, 2, 'what does not change is not sent');
});

test('a stream ends after a final status, and not before', () => {
  const status = new Status(request);
  const call = new Call();
  let delivered = 0;
  status.stream(call, () => delivered++);
  call.emit('drain');
  status.enter('ROLE_STATE_STOPPING');
  status.ready();
  assert.strictEqual(status.now.state, 'ROLE_STATE_STOPPING');
  status.enter('ROLE_STATE_STOPPED');
  call.emit('drain');
  assert.strictEqual(call.sent.at(-1).state, 'ROLE_STATE_STOPPED');
  assert.ok(call.over);
  assert.strictEqual(delivered, 1);
  status.enter('ROLE_STATE_FAILED', 'too late');
  assert.strictEqual(status.now.state, 'ROLE_STATE_STOPPED');
});

test('who has gone is not written to', () => {
  const status = new Status(request);
  const call = new Call();
  status.stream(call, () => {});
  call.emit('cancelled');
  call.emit('drain');
  status.ready();
  assert.strictEqual(call.sent.length, 1);
});

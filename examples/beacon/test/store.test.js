'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');
const { Server, ServerCredentials, status } = require('@grpc/grpc-js');
const { KV, Watch, Lease } = require('../src/protocols');
const { Store, LeaseLost, rangeEnd } = require('../src/store');

// etcd stands in for a store: it answers as it is told, and keeps what it was asked. The suite has a real one.
async function etcd(t, answers) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'beacon'));
  const socket = path.join(directory, 'etcd.sock');
  const server = new Server();
  const asked = [];
  const unary = (name) => (call, answer) => {
    asked.push([name, call.request]);
    answers[name](call.request, answer);
  };
  server.addService(KV.service, { range: unary('range'), txn: unary('txn') });
  server.addService(Watch.service, { watch: (call) => call.on('data', (request) => answers.watch(request, call)).on('end', () => call.end()) });
  server.addService(Lease.service, {
    leaseGrant: unary('leaseGrant'), leaseRevoke: unary('leaseRevoke'),
    leaseKeepAlive: (call) => call.on('data', (request) => answers.leaseKeepAlive(request, call)).on('end', () => call.end()),
  });
  await new Promise((resolve, reject) => {
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
  });
  const store = new Store(socket, '/reeve/users/beacon/');
  t.after(() => {
    store.close();
    server.forceShutdown();
    fs.rmSync(directory, { recursive: true });
  });
  return { store, asked };
}

const full = (key) => Buffer.from(`/reeve/users/beacon/${key}`);

test('the prefix is put before every key, and taken from every key that comes back', async (t) => {
  const { store, asked } = await etcd(t, {
    range: (_, answer) => answer(null, { header: { revision: 9 }, kvs: [{ key: full('beacons/a'), value: Buffer.from('lit'), modRevision: 8 }] }),
    txn: (_, answer) => answer(null, { header: { revision: 10 }, succeeded: true }),
  });
  assert.deepStrictEqual(await store.list('beacons/'), { revision: '9', pairs: [{ key: 'beacons/a', value: 'lit', modRevision: '8' }] });
  assert.deepStrictEqual(await store.write([{ key: 'a', value: '1', lease: '4' }], [{ key: 'b', modRevision: '8' }]), { succeeded: true, revision: '10' });
  assert.deepStrictEqual([asked[0][1].key, asked[0][1].rangeEnd], [full('beacons/'), full('beacons0')]);
  assert.deepStrictEqual([asked[1][1].compare[0].key, asked[1][1].compare[0].modRevision], [full('b'), '8']);
  const put = asked[1][1].success[0].requestPut;
  assert.deepStrictEqual([put.key, put.value, put.lease], [full('a'), Buffer.from('1'), '4']);
});

test('a key outside of the prefix is not taken for one of its own', async (t) => {
  const { store } = await etcd(t, { range: (_, answer) => answer(null, { header: {}, kvs: [{ key: Buffer.from('/reeve/users/other/a') }] }) });
  await assert.rejects(store.get('a'), /outside of the prefix/);
});

test('a watch ends with an error when the store ends it', async (t) => {
  const seen = [];
  const { store } = await etcd(t, {
    watch: ({ createRequest }, call) => {
      assert.strictEqual(createRequest.startRevision, '10');
      call.write({ created: true });
      call.write({ events: [{ type: 'PUT', kv: { key: full('beacons/a'), value: Buffer.from('lit') } }, { type: 'DELETE', kv: { key: full('beacons/a') } }] });
      call.write({ canceled: true, compactRevision: 20 });
    },
  });
  await assert.rejects(store.watch('beacons/', '10', new AbortController().signal, (pair) => seen.push(pair)), /fallen behind/);
  assert.deepStrictEqual(seen, [{ key: 'beacons/a', value: 'lit' }, { key: 'beacons/a', value: undefined }]);
});

test('a lease that the store has no more is told from a store that is away', async (t) => {
  const answers = { leaseKeepAlive: ({ ID }, call) => call.write({ ID, TTL: 0 }) };
  const { store } = await etcd(t, answers);
  await assert.rejects(store.keepAlive('5', 15, new AbortController().signal), LeaseLost);
  answers.leaseKeepAlive = (_, call) => call.emit('error', { code: status.UNAVAILABLE, details: 'no leader' });
  await assert.rejects(store.keepAlive('5', 15, new AbortController().signal), /no leader/);
  answers.leaseKeepAlive = () => {};
  await assert.rejects(store.keepAlive('5', 0.3, new AbortController().signal), /does not answer/);
});

test('who stops does not wait, and nothing has failed', async (t) => {
  const { store } = await etcd(t, { leaseKeepAlive: ({ ID }, call) => call.write({ ID, TTL: 15 }), watch: (_, call) => call.write({ created: true }) });
  const stop = new AbortController();
  const both = Promise.all([store.keepAlive('5', 15, stop.signal), store.watch('a', '1', stop.signal, () => {})]);
  setImmediate(() => stop.abort());
  await both;
});

test('the end of a range', () => {
  assert.deepStrictEqual(rangeEnd(Buffer.from('a/')), Buffer.from('a0'));
  assert.deepStrictEqual(rangeEnd(Buffer.from([1, 0xff])), Buffer.from([2]));
  assert.deepStrictEqual(rangeEnd(Buffer.from([0xff])), Buffer.from([0]));
});

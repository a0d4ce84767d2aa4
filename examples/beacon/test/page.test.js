'use strict';
const assert = require('node:assert');
const test = require('node:test');
const page = require('../src/page');

const state = () => ({ nodeID: 'n', membership: 'home', store: 'open', beacons: [{ node: 'n', message: '<script>', flashes: 3 }] });

async function served(t, token) {
  const { server, port } = await page.serve({ address: { host: '127.0.0.1', port: 0 }, token }, state);
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (path, options) => fetch(`http://127.0.0.1:${port}${path}`, options);
}

test('what others wrote is shown as text', async (t) => {
  const get = await served(t);
  const text = await (await get('/')).text();
  assert.ok(text.includes('&#60;script&#62;') && !text.includes('<script>'));
  assert.deepStrictEqual(await (await get('/beacons')).json(), state());
  assert.strictEqual((await get('/other')).status, 404);
  assert.strictEqual((await get('/', { method: 'POST' })).status, 405);
});

test('with a token, who has it', async (t) => {
  const get = await served(t, 'correct horse');
  assert.strictEqual((await get('/')).status, 401);
  assert.strictEqual((await get('/', { headers: { Authorization: 'Bearer wrong horse' } })).status, 401);
  assert.strictEqual((await get('/', { headers: { Authorization: 'Bearer correct horse' } })).status, 200);
  assert.strictEqual((await get('/healthz')).status, 200);
});

test('an address in use is an error', async (t) => {
  const { server, port } = await page.serve({ address: { host: '127.0.0.1', port: 0 } }, state);
  t.after(() => server.close());
  await assert.rejects(page.serve({ address: { host: '127.0.0.1', port } }, state), /EADDRINUSE/);
});

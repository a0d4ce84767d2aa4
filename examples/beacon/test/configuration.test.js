'use strict';
const assert = require('node:assert');
const test = require('node:test');
const { read } = require('../src/configuration');

test('nothing set is the defaults', () => {
  for (const document of ['', '{}']) {
    const { configuration } = read(document);
    assert.deepStrictEqual(configuration, {
      listen: '127.0.0.1:0', message: 'All is well.', interval: 5, token: undefined, address: { host: '127.0.0.1', port: 0 },
    });
  }
});

test('addresses', () => {
  for (const [listen, address] of [
    ['0.0.0.0:80', { host: '0.0.0.0', port: 80 }], ['[::1]:8080', { host: '::1', port: 8080 }],
    ['localhost:1', undefined], ['127.0.0.1', undefined], ['127.0.0.1:65536', undefined], ['1.2.3:4', undefined], ['[127.0.0.1]:1', undefined],
  ]) {
    const { configuration, problems } = read(JSON.stringify({ listen }));
    assert.deepStrictEqual(configuration?.address, address, listen);
    assert.strictEqual(problems?.[0].path, address ? undefined : '/listen', listen);
  }
});

test('all problems are told at once, each with its path', () => {
  const { problems } = read('{"listen": 1, "message": "", "interval": 61, "token": [], "a/b~c": 0}');
  assert.deepStrictEqual(problems.map((problem) => problem.path).sort(), ['/a~1b~0c', '/interval', '/listen', '/message', '/token']);
});

test('no problem repeats a value', () => {
  for (const document of ['{"token": "hunter2" oops', '{"token": ["hunter2"]}', '{"token": "hunter2"}', 'hunter2', '{"token": "hunter2'] ) {
    const { problems } = read(document);
    assert.ok(problems.length > 0, document);
    assert.ok(!JSON.stringify(problems).includes('hunter2'), JSON.stringify(problems));
  }
});

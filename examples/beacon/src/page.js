'use strict';
// The page: GET / for people, GET /beacons for programs, GET /healthz for whoever wants to know whether it answers.

const crypto = require('node:crypto');
const http = require('node:http');

// serve listens, and returns the server and its port. state returns {nodeID, membership, store, beacons}.
async function serve({ address, token }, state) {
  const server = http.createServer({ requestTimeout: 10_000, headersTimeout: 5_000, keepAliveTimeout: 5_000, maxHeaderSize: 8 << 10 }, (request, response) => {
    const reply = (status, type, body) => {
      const content = Buffer.from(body);
      response.writeHead(status, {
        'Content-Type': type, 'Content-Length': content.length, 'Cache-Control': 'no-store', 'Content-Security-Policy': "default-src 'none'",
        'X-Content-Type-Options': 'nosniff', ...(status === 401 ? { 'WWW-Authenticate': 'Bearer' } : {}),
      });
      response.end(request.method === 'HEAD' ? undefined : content);
    };
    const path = request.url.split('?')[0];
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      reply(405, 'text/plain', 'Method Not Allowed\n');
    } else if (path === '/healthz') {
      reply(200, 'text/plain', 'ok\n');
    } else if (token !== undefined && !same(request.headers.authorization ?? '', `Bearer ${token}`)) {
      reply(401, 'text/plain', 'Unauthorized\n');
    } else if (path === '/beacons') {
      reply(200, 'application/json', JSON.stringify(state()) + '\n');
    } else if (path === '/') {
      reply(200, 'text/html; charset=utf-8', html(state()));
    } else {
      reply(404, 'text/plain', 'Not Found\n');
    }
  });
  server.maxConnections = 64;
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host: address.host, port: address.port }, resolve);
  });
  server.on('error', () => {}); // of accept; the next one may go well
  return { server, port: server.address().port };
}

// same compares in a time that says nothing of where the texts differ.
function same(given, wanted) {
  const digest = (text) => crypto.createHash('sha256').update(text).digest();
  return crypto.timingSafeEqual(digest(given), digest(wanted));
}

function html({ nodeID, membership, store, beacons }) {
  const rows = beacons.map((beacon) => `<tr><td>${escape(beacon.node)}<td>${escape(beacon.message)}<td>${escape(beacon.flashes)}`).join('\n');
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Beacons</title>
<h1>Beacons that are lit</h1>
<p>Seen from ${escape(nodeID)}. Membership: ${escape(membership)}. Store: ${escape(store)}.
<table><tr><th>node<th>says<th>flashes
${rows}
</table>
</html>
`;
}

function escape(text) { return String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`); }

module.exports = { serve, html };

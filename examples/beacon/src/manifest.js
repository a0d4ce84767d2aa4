'use strict';
// The manifest: what the plugin says of itself, and all that its role wants. It is the same in every process of the same executable.

const { schema } = require('./configuration');

const manifest = {
  name: 'beacon',
  version: require('../package.json').version,
  protocols: ['reeve.role.v1', 'reeve.host.v1'],
  roles: [{
    name: 'beacon',
    summary: 'flashes in the consensus store, and shows on a page which beacons of the cluster are lit',
    consensusUser: 'beacon',
    requires: ['reeve.consensus.v1'],
    grants: [
      // The port is configured, so it may be any.
      { name: 'listen', parameters: { port: 'any' } },
      // Node.js is linked to libraries, and a role sees no file of the machine that it was not granted.
      ...require('../build/libraries.json').map((path) => ({ name: 'execute-path', parameters: { path } })),
    ],
    configurationSchema: JSON.stringify(schema),
    inSplit: 'SPLIT_BEHAVIOUR_TOLD',
    // It starts no other program. Threads are no processes: Node.js has some.
    givesUp: ['processes'],
  }],
};

module.exports = { manifest };

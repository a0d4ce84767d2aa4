'use strict';
// The protocols: services and messages by their names, from what scripts/protocols.mjs has made of the .proto files.

const { fromJSON } = require('@grpc/proto-loader');
const { loadPackageDefinition } = require('@grpc/grpc-js');

// 64-bit numbers are texts, and enumerations their names; what is not set has its default.
const packages = loadPackageDefinition(fromJSON(require('../build/protocols.json'), { longs: String, enums: String, defaults: true, oneofs: true }));

module.exports = {
  RoleService: packages.reeve.role.v1.RoleService.service,
  HostService: packages.reeve.host.v1.HostService,
  KV: packages.etcdserverpb.KV,
  Watch: packages.etcdserverpb.Watch,
  Lease: packages.etcdserverpb.Lease,
};

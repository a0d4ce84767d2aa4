'use strict';
// The refusal of a configuration: InvalidArgument, with a ConfigurationProblem for each problem, as gRPC carries the details of an error.

const { Metadata, status } = require('@grpc/grpc-js');
const { Root } = require('protobufjs');

const root = Root.fromJSON(require('../build/protocols.json'));
const Status = root.lookupType('google.rpc.Status');
const ConfigurationProblem = root.lookupType('reeve.role.v1.ConfigurationProblem');

// The core takes a hundred problems of 1 KiB each at most, and the answer is in a header, which is bounded too.
const maxProblems = 32;

// refusal is what a handler answers with. Problems are {path, message}: where as a JSON Pointer, and what would be right. A message must not repeat a value, which may
// be secret.
function refusal(problems) {
  const shown = problems.slice(0, maxProblems);
  const message = 'the configuration is refused: ' + shown.map((problem) => `${problem.path || 'the document'} ${problem.message}`).join('; ').slice(0, 1024);
  const encoded = Status.encode({
    code: status.INVALID_ARGUMENT,
    message,
    details: shown.map((problem) => ({
      type_url: 'type.googleapis.com/reeve.role.v1.ConfigurationProblem', value: ConfigurationProblem.encode(problem).finish(),
    })),
  }).finish();
  const metadata = new Metadata();
  metadata.set('grpc-status-details-bin', Buffer.from(encoded));
  return { code: status.INVALID_ARGUMENT, details: message, metadata };
}

module.exports = { refusal };

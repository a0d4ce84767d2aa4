'use strict';
// The configuration: its JSON Schema, which the cluster checks too, and what the role itself says of one that is wrong.

const net = require('node:net');
const Ajv = require('ajv/dist/2020').default;

const schema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  additionalProperties: false,
  properties: {
    listen: {
      type: 'string', minLength: 1, maxLength: 64, default: '127.0.0.1:0',
      description: 'IP address and port of the page, such as 127.0.0.1:8080 or [::]:8080. Port 0 is a free one.',
    },
    message: {
      type: 'string', minLength: 1, maxLength: 80, default: 'All is well.', description: 'What the beacon of this node says.',
    },
    interval: {
      type: 'integer', minimum: 1, maximum: 60, default: 5, description: 'Seconds from one flash to the next.',
    },
    token: {
      type: 'string', minLength: 8, maxLength: 128, writeOnly: true, description: 'Who has it may see the page (Authorization: Bearer TOKEN). Without one everybody may.',
    },
  },
};

const ajv = new Ajv({ allErrors: true, strict: true });
const fits = ajv.compile(schema);

// read returns {configuration} or {problems}: all of them, each with its path. No problem repeats a value: it may be secret.
function read(document) {
  let given = {};
  if (document !== '') {
    try {
      given = JSON.parse(document);
    } catch (error) {
      // The parser's own message quotes the text.
      const at = /position (\d+)/.exec(error.message);
      return { problems: [{ path: '', message: `is not JSON${at ? `: see its character ${at[1]}` : ''}` }] };
    }
  }
  if (!fits(given)) {
    return { problems: fits.errors.map(problem) };
  }
  const configuration = {};
  for (const [name, member] of Object.entries(schema.properties)) {
    configuration[name] = Object.hasOwn(given, name) ? given[name] : member.default;
  }
  const address = addressOf(configuration.listen);
  if (!address) {
    return { problems: [{ path: '/listen', message: 'must be an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080' }] };
  }
  return { configuration: { ...configuration, address } };
}

function problem(error) {
  switch (error.keyword) {
    case 'additionalProperties':
      return { path: `${error.instancePath}/${pointer(error.params.additionalProperty)}`, message: 'is not a member of the configuration' };
    default:
      return { path: error.instancePath, message: error.message };
  }
}

// pointer is a name in a JSON Pointer (RFC 6901). A name that is long is as much a mistake when it is cut.
function pointer(name) { return name.slice(0, 200).replaceAll('~', '~0').replaceAll('/', '~1'); }

function addressOf(listen) {
  const found = /^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):(\d{1,5})$/.exec(listen);
  if (!found || Number(found[3]) > 65535 || (found[1] ? !net.isIPv6(found[1]) : !net.isIPv4(found[2]))) {
    return undefined;
  }
  return { host: found[1] ?? found[2], port: Number(found[3]) };
}

module.exports = { schema, read };

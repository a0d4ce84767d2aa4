'use strict';
// The plugin: the handshake with the core that launched the process, the role protocol that it serves, and the end of the process. Nothing here knows what the role does.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { Server, ServerCredentials, status: codes } = require('@grpc/grpc-js');
const { RoleService } = require('./protocols');
const { refusal } = require('./details');
const { Log } = require('./log');
const { Status } = require('./status');

const cookie = ['REEVE_PLUGIN', 'reeve.role.v1'];
// The version of the handshake that is spoken here.
const version = '1';
// How long the process waits to be started: a core that died in between must not leave it behind.
const startTime = 120_000;
// How long a role may take to stop if nobody says.
const defaultGrace = 10_000;
// How long the end of the process waits for calls that are being answered, and for somebody to hear that the role has failed.
const flushTime = 2_000;
// What sockaddr_un takes.
const maxSocketPath = 107;

// serve offers the role of a manifest to the core, and ends the process. Role is a class: see Beacon.
function serve(manifest, Role, log = new Log()) {
  const debug = process.argv.at(-1) === '-debug' && process.env[cookie[0]] === undefined;
  if (debug) {
    // A node of this machine is told by hand where the process serves, and has it take the place of its own instance.
    process.env.PLUGIN_UNIX_SOCKET_DIR = fs.mkdtempSync(path.join(os.tmpdir(), 'reeve-debug-'));
  } else if (process.env[cookie[0]] !== cookie[1]) {
    fs.writeSync(2, `This is the plugin ${manifest.name} ${manifest.version} of a Reeve cluster. It is run by the nodes of a cluster and does nothing when it is started by hand.\n` +
      `To add it to a cluster:\n\n\treeve plugin add ${process.execPath}\n\treeve node role add NODE ${manifest.roles[0].name}\n`);
    process.exit(1);
  }
  const plugin = new Plugin(manifest, Role, log, debug);
  // SIGINT reaches a role when somebody ends the core with Ctrl-C: to stop roles is then the core's part. SIGUSR1 would open Node.js' debugger on a port.
  if (debug) {
    process.on('SIGINT', () => plugin.stop(defaultGrace));
  } else {
    process.on('SIGINT', () => {});
    process.on('SIGHUP', () => {});
    process.on('SIGUSR1', () => {});
  }
  process.on('SIGTERM', () => plugin.stop(defaultGrace));
  // What nobody has thought of ends the process, with a line that can be read; the core starts it again.
  process.on('uncaughtException', (error) => {
    log.error('the process ends: nobody caught an error', { error, stack: error?.stack });
    process.exit(1);
  });
  // Node.js writes warnings as plain text otherwise.
  process.removeAllListeners('warning');
  process.on('warning', (warning) => log.warn('a warning of Node.js', { error: warning }));
  plugin.listen().catch((error) => {
    log.error('the plugin cannot serve', { error });
    process.exit(1);
  });
}

class Plugin {
  #manifest;
  #Role;
  #log;
  #server;
  #socket;
  #instance; // {request, status, role, controller, ended}
  #stopping = false;
  #finishing = false;
  #notStarted;
  #debug;

  constructor(manifest, Role, log, debug) {
    this.#debug = debug;
    this.#manifest = manifest;
    this.#Role = Role;
    this.#log = log;
    this.#server = new Server({ 'grpc.max_receive_message_length': 16 << 20, 'grpc.max_send_message_length': 16 << 20 });
    this.#server.addService(RoleService, {
      describe: (_, answer) => answer(null, { manifest: this.#manifest }),
      start: (call, answer) => this.#start(call.request, answer),
      watch: (call) => this.#watch(call),
      stop: (call, answer) => this.#stopped(call.request, answer),
      checkHealth: (_, answer) => this.#ofInstance(answer, ({ role }) => {
        const reason = role.health();
        answer(reason ? { code: codes.UNAVAILABLE, details: reason } : null, {});
      }),
      getMetrics: (_, answer) => this.#ofInstance(answer, ({ role }) => answer(null, { text: Buffer.from(role.metrics()) })),
    });
  }

  // listen listens on a socket in the directory that the core names, and says so in the handshake line: the only thing that is ever written to standard output.
  async listen() {
    const directory = process.env.PLUGIN_UNIX_SOCKET_DIR;
    if (!directory) {
      throw new Error('PLUGIN_UNIX_SOCKET_DIR is not set: it names the directory of the socket');
    }
    this.#socket = path.join(directory, `plugin-${process.pid}.sock`);
    if (Buffer.byteLength(this.#socket) > maxSocketPath) {
      throw new Error(`the path of the socket is longer than ${maxSocketPath} bytes: ${this.#socket}`);
    }
    const offered = (process.env.PLUGIN_PROTOCOL_VERSIONS ?? version).split(',');
    if (!offered.includes(version)) {
      // The core reads in the line which side is the older one, and says so.
      this.#log.error('the core offers none of the versions that the plugin speaks', { offered: offered.join(','), speaks: version });
    }
    await new Promise((resolve, reject) => {
      this.#server.bindAsync(`unix:${this.#socket}`, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
    });
    if (this.#debug) {
      fs.writeSync(1, `Waiting to be debugged: reeve node role debug self ${this.#manifest.roles[0].name} ${this.#socket}\n`);
      return;
    }
    this.#notStarted = setTimeout(() => {
      this.#log.error('no role was started; the core that launched the process has gone', { seconds: startTime / 1000 });
      this.#finish(1);
    }, startTime);
    fs.writeSync(1, `1|${version}|unix|${this.#socket}|grpc\n`);
  }

  #start(request, answer) {
    const refuse = (code, details) => answer({ code, details });
    if (request.instanceId === '') {
      return refuse(codes.INVALID_ARGUMENT, 'the instance ID is empty');
    }
    if (this.#instance) {
      if (this.#instance.request.instanceId === request.instanceId) {
        return answer(null, {});
      }
      return refuse(codes.FAILED_PRECONDITION, `this process is the instance ${this.#instance.request.instanceId} already`);
    }
    if (this.#stopping) {
      return refuse(codes.FAILED_PRECONDITION, 'the process is stopping');
    }
    if (!this.#manifest.roles.some((role) => role.name === request.role)) {
      return refuse(codes.NOT_FOUND, `plugin ${this.#manifest.name} has no role ${JSON.stringify(request.role.slice(0, 64))}`);
    }
    const problems = this.#Role.problems(request);
    if (problems.length > 0) {
      return answer(refusal(problems));
    }
    clearTimeout(this.#notStarted);
    const controller = new AbortController();
    const status = new Status(request);
    const role = new this.#Role({ request, status, log: this.#log, signal: controller.signal });
    const instance = this.#instance = { request, status, role, controller };
    answer(null, {});
    // Its work begins after the answer.
    instance.ended = new Promise((resolve) => setImmediate(resolve)).then(() => role.run()).then(
      () => this.#ended(instance, 'the role has ended by itself'),
      (error) => {
        this.#log.error('the role has failed', { error, stack: error?.stack });
        this.#ended(instance, String(error?.message ?? error));
      });
    return undefined;
  }

  // ended is called when the role's run has: because it was stopped, or else it has failed.
  #ended(instance, reason) {
    if (this.#stopping) {
      instance.status.enter('ROLE_STATE_STOPPED');
      return; // who stopped it ends the process
    }
    instance.status.enter('ROLE_STATE_FAILED', reason);
    setTimeout(() => this.#finish(1), flushTime);
  }

  #watch(call) {
    if (!this.#instance) {
      call.emit('error', { code: codes.FAILED_PRECONDITION, details: notStarted });
      return;
    }
    const { status } = this.#instance;
    status.stream(call, () => {
      if (status.now.state === 'ROLE_STATE_FAILED') {
        this.#finish(1); // the core has heard of it
      }
    });
  }

  async #stopped(request, answer) {
    if (this.#instance && this.#instance.request.instanceId !== request.instanceId) {
      answer({ code: codes.FAILED_PRECONDITION, details: `this process is the instance ${this.#instance.request.instanceId}` });
      return;
    }
    const grace = request.grace ? Number(request.grace.seconds) * 1000 + request.grace.nanos / 1e6 : defaultGrace;
    const inTime = await this.stop(grace, () => answer(null, {}));
    if (!inTime) {
      answer({ code: codes.DEADLINE_EXCEEDED, details: 'the role did not stop within its grace period' });
    }
  }

  // stop stops the role and then the process, and reports whether the role stopped within the grace period. answered is called before the process ends.
  async stop(grace, answered = () => {}) {
    this.#stopping = true;
    const instance = this.#instance;
    if (!instance) {
      answered();
      this.#finish(0);
      return true;
    }
    instance.status.enter('ROLE_STATE_STOPPING');
    instance.controller.abort();
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(() => resolve(false), grace);
    });
    const inTime = await Promise.race([instance.ended.then(() => true), late]);
    clearTimeout(timer);
    if (inTime) {
      answered();
    } else {
      this.#log.error('the role did not stop in time', { milliseconds: grace });
      instance.status.enter('ROLE_STATE_FAILED', 'the role did not stop within its grace period');
    }
    setImmediate(() => this.#finish(inTime ? 0 : 1));
    return inTime;
  }

  // finish ends the process when the calls that are being answered have been. The first reason counts.
  #finish(code) {
    if (this.#finishing) {
      return;
    }
    this.#finishing = true;
    clearTimeout(this.#notStarted);
    const end = () => {
      fs.rmSync(this.#debug ? path.dirname(this.#socket) : this.#socket, { force: true, recursive: true });
      process.exit(code);
    };
    this.#server.tryShutdown(end);
    setTimeout(end, flushTime);
  }

  #ofInstance(answer, then) {
    if (this.#instance) {
      then(this.#instance);
    } else {
      answer({ code: codes.FAILED_PRECONDITION, details: notStarted });
    }
  }
}

const notStarted = 'no role was started yet: call RoleService.Start first';

module.exports = { serve };

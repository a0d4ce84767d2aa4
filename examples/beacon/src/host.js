'use strict';
// The host: what the core serves to this instance on its host socket. What arrives there is this instance, so that no call carries a credential.

const { credentials } = require('@grpc/grpc-js');
const { HostService } = require('./protocols');
const { Backoff } = require('./wait');

class Host {
  #client;
  #log;

  constructor(socket, log) {
    this.#log = log;
    this.#client = new HostService(`unix:${socket}`, credentials.createInsecure(), {
      'grpc.max_receive_message_length': 16 << 20,
      // A core that is restarted listens at the same path within a second or so.
      'grpc.initial_reconnect_backoff_ms': 100, 'grpc.max_reconnect_backoff_ms': 1000,
    });
  }

  // follow gives each message of a stream of the host to on, and opens the stream again when it ends, until the signal is aborted: a core may be restarted at any
  // time, and what it said last holds until it says something else. A message like the one before it, as the first of a restarted core often is, is not given again.
  async follow(method, signal, on) {
    const backoff = new Backoff(50, 1000);
    let last;
    while (!signal.aborted) {
      const ended = await read(this.#client[method]({}), signal, (message) => {
        backoff.reset();
        const now = JSON.stringify(message);
        if (now !== last) {
          last = now;
          on(message);
        }
      });
      if (!signal.aborted) {
        this.#log.debug('a stream from the core has ended and is opened again', { stream: method, error: ended });
        await backoff.wait(signal);
      }
    }
  }

  close() { this.#client.close(); }
}

// read gives each message of a stream to on, and returns why the stream ended. It is cancelled with the signal.
function read(call, signal, on) {
  return new Promise((resolve) => {
    const cancel = () => call.cancel();
    const done = (why) => {
      signal.removeEventListener('abort', cancel);
      resolve(why);
    };
    call.on('data', on);
    call.on('error', done);
    call.on('end', () => done(new Error('the stream has ended')));
    signal.addEventListener('abort', cancel);
    if (signal.aborted) {
      cancel();
    }
  });
}

module.exports = { Host, read };

'use strict';
// The consensus store: etcd's API on a Unix socket that serves this instance alone. The kernel says who is at the other end, so there is no user and no password to give.
//
// etcd knows the keys under their full names, below the prefix of the role's ConsensusUser, and refuses everything else. Here, and only here, the prefix is put before every
// key that is sent (in compares and operations of a transaction too) and taken from every key that comes back; whoever uses a Store sees its keys from the root.

const { credentials, Metadata } = require('@grpc/grpc-js');
const { KV, Watch, Lease } = require('./protocols');
const { read } = require('./host');
const { sleep, within } = require('./wait');

// How long a call may take. It takes milliseconds; an election about a second.
const callTime = 5000;

class Store {
  #prefix;
  #kv;
  #watch;
  #lease;

  constructor(socket, prefix) {
    this.#prefix = Buffer.from(prefix);
    const options = {
      'grpc.max_receive_message_length': 16 << 20,
      'grpc.initial_reconnect_backoff_ms': 100, 'grpc.max_reconnect_backoff_ms': 1000,
      // A connection of its own, so that the next Store begins anew.
      'grpc.use_local_subchannel_pool': 1,
    };
    this.#kv = new KV(`unix:${socket}`, credentials.createInsecure(), options);
    // All three services on one connection.
    const shared = { channelOverride: this.#kv.getChannel() };
    this.#watch = new Watch(`unix:${socket}`, credentials.createInsecure(), shared);
    this.#lease = new Lease(`unix:${socket}`, credentials.createInsecure(), shared);
  }

  close() { this.#kv.close(); }

  // list returns the pairs below a directory such as "beacons/", and the revision of the store that they are of.
  async list(directory) {
    const answer = await call(this.#kv, 'range', { key: this.#full(directory), rangeEnd: rangeEnd(this.#full(directory)) });
    return { revision: answer.header.revision, pairs: answer.kvs.map((kv) => this.#pair(kv)) };
  }

  // get returns a pair, or undefined.
  async get(key) {
    const answer = await call(this.#kv, 'range', { key: this.#full(key) });
    return answer.kvs.map((kv) => this.#pair(kv))[0];
  }

  // write puts pairs {key, value, lease} in one transaction, if each of the others {key, modRevision} was last changed in that revision ("0": is not there). It reports
  // whether that was so, and the revision of the write.
  async write(puts, unchanged = []) {
    const answer = await call(this.#kv, 'txn', {
      compare: unchanged.map(({ key, modRevision }) => ({ result: 'EQUAL', target: 'MOD', key: this.#full(key), modRevision })),
      success: puts.map(({ key, value, lease }) => ({ requestPut: { key: this.#full(key), value: Buffer.from(value), lease: lease ?? '0' } })),
    });
    return { succeeded: answer.succeeded, revision: answer.header.revision };
  }

  // watch gives every change below a directory from a revision on to on, as {key, value}; value is undefined if the pair is gone. It ends with an error, or with the signal.
  async watch(directory, revision, signal, on) {
    const stream = this.#watch.watch();
    let refused;
    const ended = read(stream, signal, (answer) => {
      if (answer.canceled) {
        refused = new Error(answer.compactRevision !== '0' ? 'the watch has fallen behind what the store still has' : `the store ended the watch: ${answer.cancelReason}`);
        stream.cancel();
        return;
      }
      for (const event of answer.events) {
        const { key, value } = this.#pair(event.kv);
        on({ key, value: event.type === 'DELETE' ? undefined : value });
      }
    });
    stream.write({ createRequest: { key: this.#full(directory), rangeEnd: rangeEnd(this.#full(directory)), startRevision: revision } });
    const why = await ended;
    if (!signal.aborted) {
      throw refused ?? why;
    }
  }

  // grant makes a lease that lives for some seconds unless it is kept alive, and returns its ID. Attach a key to it at once.
  async grant(seconds) {
    const answer = await call(this.#lease, 'leaseGrant', { TTL: String(seconds), ID: '0' });
    return answer.ID;
  }

  // revoke ends a lease, and the keys that are attached to it.
  async revoke(lease, milliseconds) {
    await call(this.#lease, 'leaseRevoke', { ID: lease }, milliseconds);
  }

  // keepAlive keeps a lease alive until the signal is aborted, and ends with an error if the store does not answer for as long as the lease lives, or has it no more.
  async keepAlive(lease, seconds, signal) {
    const { controller, release } = within(signal);
    const stream = this.#lease.leaseKeepAlive();
    let answered = Date.now();
    let lost;
    const ended = read(stream, controller.signal, (answer) => {
      answered = Date.now();
      if (Number(answer.TTL) <= 0) {
        lost = new LeaseLost();
        controller.abort();
      }
    });
    ended.then((why) => {
      lost ??= why;
      controller.abort();
    });
    while (!controller.signal.aborted) {
      if (Date.now() - answered > seconds * 1000) {
        lost = new Error('the store does not answer for the lease');
        break;
      }
      stream.write({ ID: lease });
      await sleep(seconds * 1000 / 3, controller.signal);
    }
    controller.abort();
    await ended;
    release();
    if (!signal.aborted) {
      throw lost;
    }
  }

  #full(key) { return Buffer.concat([this.#prefix, Buffer.from(key)]); }

  #pair(kv) {
    if (!kv.key.subarray(0, this.#prefix.length).equals(this.#prefix)) {
      throw new Error('the store answers with a key outside of the prefix');
    }
    return { key: kv.key.subarray(this.#prefix.length).toString(), value: kv.value.toString(), modRevision: kv.modRevision };
  }
}

// LeaseLost says that the store has the lease no more: its time was over while the store was away.
class LeaseLost extends Error {
  constructor() { super('the lease has ended'); }
}

// rangeEnd is the key behind all that begin with a prefix: the prefix with its last byte that can grow grown by one.
function rangeEnd(prefix) {
  const end = Buffer.from(prefix);
  for (let at = end.length - 1; at >= 0; at--) {
    if (end[at] < 0xff) {
      end[at]++;
      return end.subarray(0, at + 1);
    }
  }
  return Buffer.from([0]); // everything from the prefix on
}

// call makes one call, with a deadline: a store that has lost its quorum does not answer.
function call(client, method, request, milliseconds = callTime) {
  return new Promise((resolve, reject) => {
    client[method](request, new Metadata(), { deadline: Date.now() + milliseconds }, (error, answer) => {
      if (error) {
        reject(error);
      } else {
        resolve(answer);
      }
    });
  });
}

module.exports = { Store, LeaseLost, rangeEnd };

'use strict';
// The status that Watch streams: one value, which changes; whoever watches is given the present one and then the newest.

const { cut } = require('./log');

const final = new Set(['ROLE_STATE_STOPPED', 'ROLE_STATE_FAILED']);

class Status {
  #now;
  #watchers = new Set();

  constructor(request) {
    this.#now = {
      instanceId: request.instanceId, role: request.role, configurationGeneration: request.configurationGeneration,
      state: 'ROLE_STATE_STARTING', reason: '', endpoints: [], values: {},
    };
  }

  get now() { return this.#now; }
  get final() { return final.has(this.#now.state); }

  ready() { this.enter('ROLE_STATE_READY'); }
  degraded(reason) { this.enter('ROLE_STATE_DEGRADED', reason); }

  // enter changes the state. A final one is never left, and Stopping only for a final one. The core keeps 512 bytes of a reason.
  enter(state, reason = '') {
    if (this.final || this.#now.state === 'ROLE_STATE_STOPPING' && !final.has(state)) {
      return;
    }
    this.#set({ state, reason: cut(reason, 512) });
  }

  endpoint(name, address) {
    this.#set({ endpoints: [...this.#now.endpoints.filter((endpoint) => endpoint.name !== name), { name, address }] });
  }

  value(name, value) { this.#set({ values: { ...this.#now.values, [name]: value } }); }

  #set(change) {
    const next = { ...this.#now, ...change };
    if (JSON.stringify(next) === JSON.stringify(this.#now)) {
      return;
    }
    this.#now = next;
    for (const watcher of [...this.#watchers]) {
      watcher();
    }
  }

  // stream writes the status to a call, now and whenever it changes, as fast as the caller takes it: of several changes it is given the newest. It ends after a final one, which
  // it says by delivered.
  stream(call, delivered) {
    let busy = false;
    let sent;
    const send = () => {
      if (busy || sent === this.#now) {
        return;
      }
      sent = this.#now;
      busy = !call.write(sent);
      if (this.final) {
        stop();
        call.end();
        delivered();
      }
    };
    const stop = () => this.#watchers.delete(send);
    call.on('drain', () => {
      busy = false;
      if (this.#watchers.has(send)) {
        send();
      }
    });
    call.on('cancelled', stop);
    call.on('error', stop);
    call.on('close', stop);
    this.#watchers.add(send);
    send();
  }
}

module.exports = { Status };

'use strict';
// The role. Each node's beacon flashes: it counts in the store, under "flashes/NODE", and shows itself under "beacons/NODE", which hangs on a lease: when the node or the role
// is gone, so is the beacon. It watches the beacons of all nodes, and shows them on a page. Without the store it goes on with what it last knew, and says so.

const { Store, LeaseLost } = require('./store');
const { Host } = require('./host');
const page = require('./page');
const { read } = require('./configuration');
const { sleep, within, Backoff } = require('./wait');

// How long a beacon stays lit of which nothing is heard, in seconds.
const leaseSeconds = 15;
// How long the role waits for the store after its start before it says that it lacks it.
const firstTime = 5000;
// How long the end of the lease may take at a stop. It ends by itself otherwise.
const revokeTime = 1000;

class Beacon {
  #context;
  #configuration;
  #nodeID;
  #beacons = new Map();
  #membership = 'not known yet';
  #store = 'not open yet';
  #access; // {open: {socket, prefix}} or {unavailable: {reason, message}}; undefined: the host has not said
  #changed = new AbortController(); // aborted, and made anew, when access changes
  #worked = false; // the store, at some time
  #lease;
  #flashes = 0;
  #lost = 0;
  #server;

  // problems are those of a configuration; none: it can be started with it.
  static problems(request) { return read(request.configuration).problems ?? []; }

  constructor(context) {
    this.#context = context;
    this.#configuration = read(context.request.configuration).configuration;
    this.#nodeID = context.request.nodeId;
  }

  // run returns when the signal of the context is aborted. If it ends before, the role has failed.
  async run() {
    const { signal, request, log, status } = this.#context;
    const served = await page.serve(this.#configuration, () => this.state());
    this.#server = served.server;
    const host = new Host(request.hostSocket, log);
    const late = setTimeout(() => this.#lacks('the consensus store has not opened yet'), firstTime);
    try {
      await Promise.all([
        host.follow('watchMembership', signal, ({ membership }) => {
          // A value that this program's protocols do not have is a number: a later core knows more of them.
          this.#membership = String(membership.state).replace('MEMBERSHIP_STATE_', '').toLowerCase();
          log.info('the membership of the node', { state: this.#membership, reason: membership.reason });
        }),
        host.follow('watchNetwork', signal, ({ addresses }) => {
          status.endpoint('http', `http://${this.#reachable(addresses)}:${served.port}/`);
        }),
        host.follow('openConsensus', signal, (answer) => {
          this.#access = answer;
          this.#changed.abort();
          this.#changed = new AbortController();
        }),
        this.#work(late),
      ]);
    } finally {
      clearTimeout(late);
      host.close();
      served.server.closeAllConnections();
      await new Promise((resolve) => served.server.close(resolve));
    }
  }

  // health returns why the role cannot work, or undefined. That it answers at all says that the process is not stuck.
  health() {
    return this.#server && !this.#server.listening ? 'the page is not served' : undefined;
  }

  // metrics are in Prometheus' text format. The core adds whose they are.
  metrics() {
    return '# HELP beacon_flashes_total Flashes of this node\'s beacon, of earlier runs too.\n# TYPE beacon_flashes_total counter\n' +
      `beacon_flashes_total ${this.#flashes}\n` +
      '# HELP beacon_lit Beacons of the cluster that are lit, as far as this instance knows.\n# TYPE beacon_lit gauge\n' +
      `beacon_lit ${this.#beacons.size}\n` +
      '# HELP beacon_store_losses_total How often the store was lost.\n# TYPE beacon_store_losses_total counter\n' +
      `beacon_store_losses_total ${this.#lost}\n`;
  }

  // state is what the page shows.
  state() {
    const beacons = [...this.#beacons.values()].sort((a, b) => (a.node < b.node ? -1 : 1));
    return { nodeID: this.#nodeID, membership: this.#membership, store: this.#store, beacons };
  }

  // reachable is the host of the page's URL: that of a page that listens everywhere is the node's.
  #reachable(addresses) {
    const { host } = this.#configuration.address;
    const shown = host === '0.0.0.0' || host === '::' ? addresses[0] ?? host : host;
    return shown.includes(':') ? `[${shown}]` : shown;
  }

  // work uses the store whenever it is open, until the signal of the context is aborted.
  async #work(late) {
    const { signal, log } = this.#context;
    const backoff = new Backoff(200, 5000);
    while (!signal.aborted) {
      // Either ends a wait and a session: the role is stopped, or the access has changed.
      const { controller: either, release } = within(signal);
      const changed = this.#changed;
      const end = () => either.abort();
      changed.signal.addEventListener('abort', end);
      try {
        if (!this.#access?.open) {
          // After a start the store takes its time.
          if (this.#access && (this.#worked || this.#access.unavailable.reason !== 'CONSENSUS_UNAVAILABLE_REASON_WAITING')) {
            clearTimeout(late);
            this.#lacks(`the consensus store is not open: ${this.#access.unavailable.message || this.#access.unavailable.reason}`);
          }
          // The host says when that changes. Nothing is asked for again and again.
          await until(either.signal);
          continue;
        }
        await this.#session(this.#access.open, either, () => {
          this.#worked = true;
          clearTimeout(late);
          backoff.reset();
        });
      } catch (error) {
        if (!signal.aborted && !changed.signal.aborted) {
          clearTimeout(late);
          this.#lacks(`the consensus store does not answer: ${error.message}`);
          await backoff.wait(either.signal);
        }
      } finally {
        either.abort();
        changed.signal.removeEventListener('abort', end);
        release();
      }
    }
    await this.#goOut(log);
  }

  // session works with the store until something goes wrong, which it throws, or the controller is aborted.
  async #session({ socket, prefix }, controller, works) {
    const { log, status } = this.#context;
    const store = new Store(socket, prefix);
    const { signal } = controller;
    try {
      const counted = await store.get(this.#key('flashes'));
      this.#flashes = counted ? Number(counted.value) : 0;
      let revision = counted?.modRevision ?? '0';
      this.#lease ??= await store.grant(leaseSeconds);
      const flash = async () => {
        const count = this.#flashes + 1;
        const said = JSON.stringify({ node: this.#nodeID, message: this.#configuration.message, flashes: count });
        const written = await store.write(
          [{ key: this.#key('flashes'), value: String(count) }, { key: this.#key('beacons'), value: said, lease: this.#lease }],
          [{ key: this.#key('flashes'), modRevision: revision }]);
        if (!written.succeeded) {
          throw new Error('somebody else has counted the flashes of this node'); // and the next session reads what there is
        }
        this.#flashes = count;
        revision = written.revision;
      };
      await flash();
      const found = await store.list('beacons/');
      this.#beacons.clear();
      found.pairs.forEach((pair) => this.#seen(pair));
      status.value('lit', String(this.#beacons.size));
      this.#store = 'open';
      log.info('the beacon is lit', { flashes: this.#flashes, lit: this.#beacons.size });
      status.ready();
      works();
      await allOrNone(controller, [
        store.keepAlive(this.#lease, leaseSeconds, signal),
        store.watch('beacons/', String(BigInt(found.revision) + 1n), signal, (pair) => {
          this.#seen(pair);
          status.value('lit', String(this.#beacons.size));
        }),
        (async () => {
          for (;;) {
            await sleep(this.#configuration.interval * 1000, signal);
            if (signal.aborted) {
              return;
            }
            await flash();
          }
        })(),
      ]);
    } catch (error) {
      if (error instanceof LeaseLost || /lease not found/.test(error.message)) {
        this.#lease = undefined;
      }
      throw error;
    } finally {
      store.close();
    }
  }

  // goOut ends the lease, and the beacon with it, if the store is there.
  async #goOut(log) {
    if (!this.#lease || !this.#access?.open) {
      return;
    }
    const store = new Store(this.#access.open.socket, this.#access.open.prefix);
    try {
      await store.revoke(this.#lease, revokeTime);
    } catch (error) {
      log.warn('the beacon is left to go out by itself', { error });
    } finally {
      store.close();
    }
  }

  #lacks(reason) {
    if (this.#store !== reason) {
      this.#context.log.warn('the role works without the store', { reason });
      this.#lost++;
      this.#store = reason;
    }
    this.#context.status.degraded(reason);
  }

  #key(directory) { return `${directory}/${this.#nodeID}`; }

  // seen takes note of a beacon, or that it is gone. What cannot be read is not shown: another version may have written it.
  #seen({ key, value }) {
    this.#beacons.delete(key);
    try {
      const { node, message, flashes } = JSON.parse(value);
      this.#beacons.set(key, { node: String(node), message: String(message), flashes: Number(flashes) });
    } catch {
      // It has gone out, or is not one.
    }
  }
}

// until waits for a signal.
function until(signal) {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
    } else {
      signal.addEventListener('abort', () => resolve(), { once: true });
    }
  });
}

// allOrNone waits for all of some tasks, ends the others when one fails, and throws why that failed.
async function allOrNone(controller, tasks) {
  let failed;
  await Promise.all(tasks.map((task) => task.catch((error) => {
    failed ??= error;
    controller.abort();
  })));
  if (failed) {
    throw failed;
  }
}

module.exports = { Beacon };

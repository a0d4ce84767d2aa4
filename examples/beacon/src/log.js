'use strict';
// The log of a role: one JSON object a line on standard error, as hclog writes it. The core takes each line apart, and shows what it cannot take apart as plain text.

const fs = require('node:fs');

// What the core keeps of a line: 8 KiB, 32 fields, 1 KiB of each.
const maxLine = 8 << 10;
const maxText = 1 << 10;
const maxFields = 32;
// What a fault could repeat without end is bounded here: so many lines at once, and so many a second from then on.
const burst = 200;
const perSecond = 20;

class Log {
  #write;
  #now;
  #tokens = burst;
  #filled;
  #dropped = 0;

  constructor(write = writeStderr, now = Date.now) {
    this.#write = write;
    this.#now = now;
    this.#filled = now();
  }

  debug(message, fields) { this.#line('debug', message, fields); }
  info(message, fields) { this.#line('info', message, fields); }
  warn(message, fields) { this.#line('warn', message, fields); }
  error(message, fields) { this.#line('error', message, fields); }

  #line(level, message, fields = {}) {
    const now = this.#now();
    this.#tokens = Math.min(burst, this.#tokens + Math.max(0, now - this.#filled) / 1000 * perSecond);
    this.#filled = now;
    if (this.#tokens < 1) {
      this.#dropped++;
      return;
    }
    this.#tokens--;
    const head = { '@level': level, '@message': cut(String(message) || '-', maxText), '@timestamp': new Date(now).toISOString() };
    const line = { ...head };
    for (const [key, value] of Object.entries(fields).slice(0, maxFields - 1)) {
      line[key] = typeof value === 'number' || typeof value === 'boolean' ? value : cut(text(value), maxText);
    }
    if (this.#dropped > 0) {
      line.dropped_lines = this.#dropped;
      this.#dropped = 0;
    }
    let encoded = JSON.stringify(line);
    if (Buffer.byteLength(encoded) >= maxLine) {
      encoded = JSON.stringify({ ...head, fields: 'left out: the line would be too long' });
    }
    this.#write(encoded + '\n');
  }
}

// text is a value as people read it; of an error, what it says.
function text(value) {
  return value instanceof Error ? value.message : String(value);
}

// cut shortens a text to a number of bytes, between two characters.
function cut(value, bytes) {
  const encoded = Buffer.from(value);
  if (encoded.length <= bytes) {
    return encoded.toString(); // what is half a character has become a character
  }
  let end = bytes;
  while (end > 0 && (encoded[end] & 0xc0) === 0x80) {
    end--;
  }
  return encoded.subarray(0, end).toString();
}

// writeStderr writes at once, so that nothing is lost when the process ends. Who cannot be told is not told: the disk of the log is full, or nobody reads.
function writeStderr(line) {
  let rest = Buffer.from(line);
  try {
    while (rest.length > 0) {
      rest = rest.subarray(fs.writeSync(2, rest));
    }
  } catch {
    // There is nobody to tell.
  }
}

module.exports = { Log, cut };

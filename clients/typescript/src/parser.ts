/**
 * Replies out of bytes, which may arrive in any pieces.
 *
 * Idea: a stack of aggregates that are not complete; each value that ends is put into the one on top. What was read is
 * never read again, so the work is linear in the bytes, however they are cut.
 *
 * Contract: RESP 2 and 3, without streamed values. Memory is bounded by `maxReplyBytes` for one reply: a length that
 * cannot fit into the rest of it is refused when it is announced, and nothing is allocated ahead of its bytes. After a
 * ProtocolError the parser is of no more use. Bulk strings are copied, so that a small one does not keep the chunk of
 * the socket alive. Pure.
 */
import { ProtocolError, replyError } from "./errors.js";
import { Push, type Reply, ReplyMap } from "./replies.js";

const CR = 13;
const LF = 10;

/** A line holds a length, a number, a simple string or an error. */
const MAX_LINE_BYTES = 64 << 10;
const MAX_DEPTH = 32;

/** The shortest value is `_\r\n`. */
const LEAST_VALUE_BYTES = 3;

/** Bounds of what a server may send. */
export interface ParserLimits {
  /** Of one reply with everything in it. */
  readonly maxReplyBytes: number;
}

/** An aggregate of which `left` parts are to come. */
interface Open {
  readonly kind: string;
  readonly parts: Reply[];
  left: number;
}

/** The beginning of a value that is not complete, in a buffer that grows by doubling. */
class Held {
  #buffer = Buffer.alloc(0);
  bytes = 0;

  add(piece: Buffer): void {
    const needed = this.bytes + piece.length;
    if (needed > this.#buffer.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.#buffer.length));
      this.#buffer.copy(larger, 0, 0, this.bytes);
      this.#buffer = larger;
    }
    piece.copy(this.#buffer, this.bytes);
    this.bytes = needed;
  }

  /** Everything up to the end of `last`; nothing is held then. */
  with(last: Buffer): Buffer {
    if (this.bytes === 0) {
      return last;
    }
    this.add(last);
    const whole = this.#buffer.subarray(0, this.bytes);
    this.#buffer = Buffer.alloc(0);
    this.bytes = 0;
    return whole;
  }
}

/** Invariant: `#wanted` is the length of the bulk string that is being read, -1 between values. */
export class ReplyParser {
  readonly #limits: ParserLimits;
  readonly #open: Open[] = [];
  readonly #held = new Held();
  #wanted = -1;
  #bulkKind = "";
  #replyBytes = 0;

  constructor(limits: ParserLimits) {
    this.#limits = limits;
  }

  /** The replies that `chunk` completes. Throws `ProtocolError`. */
  feed(chunk: Buffer): Reply[] {
    const replies: Reply[] = [];
    let at = 0;
    while (at < chunk.length) {
      const end = this.#wanted < 0 ? this.#lineEnd(chunk, at) : this.#bulkEnd(chunk, at);
      const piece = chunk.subarray(at, end);
      at = end;
      if (!this.#complete(piece)) {
        this.#held.add(piece);
        break;
      }
      const whole = this.#take(piece);
      this.#value(this.#wanted < 0 ? this.#line(whole) : this.#bulk(whole), replies);
    }
    return replies;
  }

  #lineEnd(chunk: Buffer, at: number): number {
    const found = chunk.indexOf(LF, at);
    const end = found < 0 ? chunk.length : found + 1;
    if (this.#held.bytes + end - at > MAX_LINE_BYTES) {
      throw new ProtocolError(`a line of the reply is over ${MAX_LINE_BYTES} bytes`);
    }
    return end;
  }

  #bulkEnd(chunk: Buffer, at: number): number {
    return Math.min(chunk.length, at + this.#wanted + 2 - this.#held.bytes);
  }

  /** Whether `piece` ends the line or bulk string that is being read. */
  #complete(piece: Buffer): boolean {
    return this.#wanted < 0 ? piece[piece.length - 1] === LF : this.#held.bytes + piece.length === this.#wanted + 2;
  }

  /** The line or bulk string that `piece` ends, without its line end. */
  #take(piece: Buffer): Buffer {
    const whole = this.#held.with(piece);
    this.#replyBytes += whole.length;
    if (whole[whole.length - 2] !== CR || whole[whole.length - 1] !== LF) {
      throw new ProtocolError("a value of the reply does not end with CR LF");
    }
    if (this.#replyBytes > this.#limits.maxReplyBytes) {
      throw new ProtocolError(`a reply is over ${this.#limits.maxReplyBytes} bytes (maxReplyBytes)`);
    }
    return whole.subarray(0, -2);
  }

  #bulk(bytes: Buffer): Reply {
    this.#wanted = -1;
    switch (this.#bulkKind) {
      case "!":
        return replyError(bytes.toString());
      case "=":
        return Buffer.from(bytes.subarray(4)); // behind `txt:`
      default:
        return Buffer.from(bytes);
    }
  }

  /** What a line says: a value, or undefined when more belongs to it. */
  #line(line: Buffer): Reply | undefined {
    const kind = String.fromCharCode(line[0] ?? 0);
    const text = line.toString("utf8", 1);
    switch (kind) {
      case "+":
        return text;
      case "-":
        return replyError(text);
      case ":":
        return whole(text, 20);
      case "(":
        return whole(text, 4096);
      case "_":
        return null;
      case ",":
        return double(text);
      case "#":
        return boolean(text);
      case "$":
      case "!":
      case "=":
        return this.#beginBulk(kind, text);
      case "*":
      case "~":
      case ">":
      case "%":
      case "|":
        return this.#beginAggregate(kind, text);
      default:
        throw new ProtocolError(`a reply begins with ${JSON.stringify(kind)}, which is no type of RESP`);
    }
  }

  #beginBulk(kind: string, text: string): null | undefined {
    const length = this.#length(text, 1);
    if (length < 0) {
      return null;
    }
    if (kind === "=" && length < 4) {
      throw new ProtocolError("a verbatim string has no format");
    }
    this.#wanted = length;
    this.#bulkKind = kind;
    return undefined;
  }

  #beginAggregate(kind: string, text: string): Reply | undefined {
    const pairs = kind === "%" || kind === "|";
    const length = this.#length(text, LEAST_VALUE_BYTES * (pairs ? 2 : 1));
    if (length < 0) {
      return null;
    }
    const open: Open = { kind, parts: [], left: pairs ? 2 * length : length };
    if (open.left === 0) {
      return closed(open);
    }
    if (this.#open.length === MAX_DEPTH) {
      throw new ProtocolError(`a reply is nested over ${MAX_DEPTH} deep`);
    }
    this.#open.push(open);
    return undefined;
  }

  /** A length; -1 for null. Each of what it counts has at least `size` bytes. */
  #length(text: string, size: number): number {
    const length = /^(?:[0-9]{1,15}|-1)$/.test(text) ? Number(text) : NaN;
    if (!(length * size <= this.#limits.maxReplyBytes - this.#replyBytes)) {
      throw new ProtocolError(`a reply announces the length ${JSON.stringify(text.slice(0, 32))}, which is refused`);
    }
    return length;
  }

  /** Put a value where it belongs, and close what is complete by it. */
  #value(value: Reply | undefined, replies: Reply[]): void {
    while (value !== undefined) {
      const top = this.#open[this.#open.length - 1];
      if (top === undefined) {
        replies.push(value);
        this.#replyBytes = 0;
        return;
      }
      top.parts.push(value);
      top.left -= 1;
      if (top.left > 0) {
        return;
      }
      this.#open.pop();
      value = closed(top);
    }
  }
}

/** The value of an aggregate; undefined for attributes, which are about the value that follows and are dropped. */
function closed(open: Open): Reply | undefined {
  switch (open.kind) {
    case "%":
      return new ReplyMap(pairs(open.parts));
    case "|":
      return undefined;
    case ">":
      return new Push(open.parts);
    default:
      return open.parts;
  }
}

function pairs(parts: readonly Reply[]): [Reply, Reply][] {
  const found: [Reply, Reply][] = [];
  for (let at = 0; at < parts.length; at += 2) {
    found.push([parts[at] as Reply, parts[at + 1] as Reply]);
  }
  return found;
}

function whole(text: string, digits: number): bigint {
  if (text.length > digits || !/^[+-]?[0-9]+$/.test(text)) {
    throw new ProtocolError(`${JSON.stringify(text.slice(0, 32))} is not an integer`);
  }
  return BigInt(text.replace("+", ""));
}

function double(text: string): number {
  const special = { inf: Infinity, "-inf": -Infinity, nan: NaN }[text.toLowerCase()];
  const value = special ?? Number(text);
  if (special === undefined && (text === "" || Number.isNaN(value))) {
    throw new ProtocolError(`${JSON.stringify(text.slice(0, 32))} is not a number`);
  }
  return value;
}

function boolean(text: string): boolean {
  if (text !== "t" && text !== "f") {
    throw new ProtocolError(`${JSON.stringify(text.slice(0, 32))} is not a boolean`);
  }
  return text === "t";
}

/**
 * Replies of RESP as values, and the questions that callers ask of them.
 *
 * Idea: a bulk string is a `Buffer`, so that payloads stay bytes; a simple string is a `string`; integers are `bigint`,
 * so that offsets are exact. Each `as...` returns the value of one kind, or throws `ProtocolError`.
 */
import { ProtocolError, type ReplyError } from "./errors.js";

/** Keys and values of a map, in the order they came in. Of RESP2, an array is read as one by `asMap`. */
export class ReplyMap {
  constructor(readonly pairs: readonly (readonly [Reply, Reply])[]) {}
}

/** What a server says without being asked. */
export class Push {
  constructor(readonly parts: readonly Reply[]) {}
}

/** What a command may answer. An error is thrown, except for one inside of an array. */
export type Reply =
  string | bigint | number | boolean | null | Buffer | ReplyError | ReplyMap | Push | readonly Reply[];

/** What stands in a command. Text is sent as UTF-8, numbers as decimal digits. */
export type Argument = string | number | bigint | Uint8Array;

function unexpected(wanted: string, reply: Reply): ProtocolError {
  const found = Array.isArray(reply) ? "an array" : reply instanceof Buffer ? "a bulk string" : typeof reply;
  return new ProtocolError(`the server answered ${found} where ${wanted} was expected`);
}

/** Text, of a simple or a bulk string. */
export function asText(reply: Reply | undefined): string {
  if (typeof reply === "string") {
    return reply;
  }
  return asBuffer(reply).toString();
}

/** A bulk string. */
export function asBuffer(reply: Reply | undefined): Buffer {
  if (reply instanceof Buffer) {
    return reply;
  }
  throw unexpected("a bulk string", reply ?? null);
}

/** An integer, also one that is written as text. */
export function asInteger(reply: Reply | undefined): bigint {
  if (typeof reply === "bigint") {
    return reply;
  }
  const text = reply instanceof Buffer ? reply.toString("latin1") : "";
  if (/^-?[0-9]{1,20}$/.test(text)) {
    return BigInt(text);
  }
  throw unexpected("an integer", reply ?? null);
}

/** An integer that counts or measures something, as a number. */
export function asCount(reply: Reply | undefined): number {
  return Number(asInteger(reply));
}

/** An array. Null is an empty one: that is how servers say that nothing came. */
export function asArray(reply: Reply | undefined): readonly Reply[] {
  if (reply === null) {
    return [];
  }
  if (Array.isArray(reply)) {
    return reply as readonly Reply[];
  }
  throw unexpected("an array", reply ?? null);
}

/** Pairs, of a map, of an array of pairs, or of keys and values in turn. */
export function asPairs(reply: Reply | undefined): readonly (readonly [Reply, Reply])[] {
  if (reply instanceof ReplyMap) {
    return reply.pairs;
  }
  const parts = asArray(reply);
  const found: [Reply, Reply][] = [];
  if (parts.length > 0 && parts.every((part) => Array.isArray(part) && part.length === 2)) {
    return parts as readonly (readonly [Reply, Reply])[];
  }
  if (parts.length % 2) {
    throw unexpected("pairs", parts);
  }
  for (let at = 0; at < parts.length; at += 2) {
    found.push([parts[at] ?? null, parts[at + 1] ?? null]);
  }
  return found;
}

/** The values of a map by their names. */
export function asMap(reply: Reply | undefined): ReadonlyMap<string, Reply> {
  return new Map(asPairs(reply).map(([name, value]) => [asText(name), value]));
}

/** The value of what may be null or left out. */
export function maybe<T>(reply: Reply | undefined, read: (reply: Reply) => T): T | null {
  return reply === null || reply === undefined ? null : read(reply);
}

/**
 * Entries of streams, and fields to send.
 *
 * Idea: an entry's id is `milliseconds-offset`. In penstock the offset is that of the record in its partition, and of
 * the fields `value` is the record's value, `key` its key, and others are its headers.
 */
import { ProtocolError } from "./errors.js";
import { type Argument, asArray, asBuffer, asPairs, asText, type Reply } from "./replies.js";

/** What a field may hold. Text is sent as UTF-8. */
export type FieldValue = string | Uint8Array;

/** Fields to send: an object, or pairs in an order, in which a name may be there twice (Redis alone takes that). */
export type Fields = Readonly<Record<string, FieldValue>> | Iterable<readonly [string | Uint8Array, FieldValue]>;

/** One entry of a stream. */
export class Entry {
  /** Names and values in their order. */
  readonly pairs: readonly (readonly [Buffer, Buffer])[];
  #fields: ReadonlyMap<string, Buffer> | undefined;

  constructor(
    readonly id: string,
    pairs: readonly (readonly [Buffer, Buffer])[] | undefined,
  ) {
    this.pairs = pairs ?? [];
    this.deleted = pairs === undefined;
  }

  /** Whether a consumer has it although the stream has not any more; it has no fields then. */
  readonly deleted: boolean;

  /** Values by name. Of a name that is there twice, the last one. */
  get fields(): ReadonlyMap<string, Buffer> {
    this.#fields ??= new Map(this.pairs.map(([name, value]) => [name.toString(), value]));
    return this.#fields;
  }

  /** The field `value`, which is the value of a record; empty where there is none. */
  get value(): Buffer {
    return this.fields.get("value") ?? Buffer.alloc(0);
  }

  /** The part of the id behind the `-`: in penstock, the record's offset. */
  get offset(): bigint {
    return offsetOf(this.id);
  }
}

const ID = /^([0-9]{1,20})-([0-9]{1,20})$/;

/** The offset in an id. Throws `TypeError` for what is no id. */
export function offsetOf(id: string): bigint {
  return BigInt(parts(id)[1]);
}

/** The milliseconds in an id: when the entry was appended. Throws `TypeError` for what is no id. */
export function millisecondsOf(id: string): number {
  return Number(parts(id)[0]);
}

function parts(id: string): readonly [string, string] {
  const found = ID.exec(id);
  if (found?.[1] === undefined || found[2] === undefined) {
    throw new TypeError(`${JSON.stringify(id)} is no id of an entry: it looks like 1795000000000-0`);
  }
  return [found[1], found[2]];
}

/** Fields as words of a command. Throws `TypeError` where there are none. */
export function fieldWords(fields: Fields): Argument[] {
  const listed = Symbol.iterator in fields;
  const pairs = listed ? (fields as Iterable<readonly [Argument, Argument]>) : Object.entries(fields);
  const words: Argument[] = [];
  for (const [name, value] of pairs) {
    words.push(name, value);
  }
  if (words.length === 0) {
    throw new TypeError("an entry has at least one field");
  }
  return words;
}

/** One entry as a server writes it: its id, and names and values in turn. */
export function entryOf(reply: Reply): Entry {
  const [id, fields] = asArray(reply);
  if (fields === null) {
    return new Entry(asText(id), undefined);
  }
  const words = asArray(fields);
  if (words.length % 2) {
    throw new ProtocolError("an entry has a field without a value");
  }
  const pairs: [Buffer, Buffer][] = [];
  for (let at = 0; at < words.length; at += 2) {
    pairs.push([asBuffer(words[at]), asBuffer(words[at + 1])]);
  }
  return new Entry(asText(id), pairs);
}

/** Entries, without those that are gone. */
export function entriesOf(reply: Reply | undefined): Entry[] {
  return asArray(reply)
    .filter((each) => each !== null)
    .map(entryOf);
}

/** Entries of several streams, by key. Null says that nothing came. */
export function streamsOf(reply: Reply): ReadonlyMap<string, Entry[]> {
  return new Map(asPairs(reply).map(([key, entries]) => [asText(key), entriesOf(entries)]));
}

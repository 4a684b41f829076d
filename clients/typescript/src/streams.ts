/**
 * Streams: appending and reading, without groups.
 *
 * Contract: one method for one command, with the answers as values. Ids are strings, counts are numbers, and the
 * values of fields are Buffers. What only reads is sent again when a connection is lost; `add` is not, as it would
 * append twice.
 */
import { type Entry, entriesOf, entryOf, type Fields, fieldWords, streamsOf } from "./entries.js";
import { Group } from "./groups.js";
import type { Pool } from "./pool.js";
import { type Argument, asArray, asCount, asMap, asText, maybe, type Reply } from "./replies.js";
import { countWords, FOLLOW_MS, unlessAborted, type WaitOptions, waiting, waitWords } from "./waiting.js";

/** How much of a stream stays. */
export interface Trim {
  /** So many entries; or, with `minId`, those from this id on. */
  readonly maxLen?: number | bigint;
  readonly minId?: string;
  /** Let the server keep some more where that is cheaper. */
  readonly approximate?: boolean;
  /** With `approximate`: entries to remove at most. */
  readonly limit?: number;
}

/** How an entry is added. */
export interface AddOptions {
  /** Default: `*`, the server's choice. A penstock gateway takes no other. */
  readonly id?: string;
  /** Whether a stream that is not there is made. Default: true. */
  readonly create?: boolean;
  readonly trim?: Trim;
}

/** Which entries of a stream. */
export interface RangeOptions {
  /** The first id, or `(` and an id for what is behind it. Default: `-`, the lowest. */
  readonly start?: string;
  /** The last id, or `(` and an id for what is before it. Default: `+`, the highest. */
  readonly end?: string;
  readonly count?: number;
}

/** How entries are followed. */
export interface FollowOptions {
  /** Entries behind this id: `0` is all of them, `$` those that are added from now on. Default: `$`. */
  readonly after?: string;
  /** Entries of one reply, at most. Default: 100. */
  readonly count?: number;
  /** Ends the iteration. */
  readonly signal?: AbortSignal;
}

/** A stream as XINFO STREAM describes it. */
export interface StreamInfo {
  readonly length: number;
  readonly lastId: string;
  readonly groups: number;
  readonly entriesAdded: number;
  readonly firstEntry: Entry | null;
  readonly lastEntry: Entry | null;
}

/** A group as XINFO GROUPS describes it. */
export interface GroupInfo {
  readonly name: string;
  readonly consumers: number;
  readonly pending: number;
  readonly lastDeliveredId: string;
  /** Entries that its consumers have had, null if the server does not know. */
  readonly entriesRead: number | null;
  /** Entries that they have not had, null if the server does not know. */
  readonly lag: number | null;
}

/** Streams of one server. */
export class Streams {
  readonly #pool: () => Pool;

  constructor(pool: () => Pool) {
    this.#pool = pool;
  }

  /** Add an entry, and return its id; null where the stream is not there and `create` is false (XADD). */
  async add(key: string, fields: Fields, options: AddOptions = {}): Promise<string | null> {
    const create = options.create === false ? ["NOMKSTREAM"] : [];
    const trim = options.trim === undefined ? [] : trimWords(options.trim);
    const reply = await this.#send(["XADD", key, ...create, ...trim, options.id ?? "*", ...fieldWords(fields)]);
    return reply === null ? null : asText(reply);
  }

  /** How many entries there are (XLEN). */
  async length(key: string): Promise<number> {
    return asCount(await this.#ask(["XLEN", key]));
  }

  /** Entries from the lowest id on (XRANGE). */
  async range(key: string, options: RangeOptions = {}): Promise<Entry[]> {
    const { start = "-", end = "+" } = options;
    return entriesOf(await this.#ask(["XRANGE", key, start, end, ...countWords(options.count)]));
  }

  /** Entries from the highest id on (XREVRANGE). */
  async reverseRange(key: string, options: RangeOptions = {}): Promise<Entry[]> {
    const { start = "-", end = "+" } = options;
    return entriesOf(await this.#ask(["XREVRANGE", key, end, start, ...countWords(options.count)]));
  }

  /** All entries of a range, in pages of `count` (default 1,000), as they are when their page is read. */
  async *scan(key: string, options: RangeOptions = {}): AsyncGenerator<Entry, void, void> {
    const { count = 1_000, end = "+" } = options;
    let start = options.start ?? "-";
    for (;;) {
      const page = await this.range(key, { start, end, count });
      yield* page;
      const last = page[page.length - 1];
      if (last === undefined || page.length < count) {
        return;
      }
      start = `(${last.id}`;
    }
  }

  /** Entries behind an id of each stream, by key; streams without any are left out (XREAD). */
  async read(
    after: Readonly<Record<string, string>>,
    options: WaitOptions = {},
  ): Promise<ReadonlyMap<string, Entry[]>> {
    const ids = Object.values(after);
    const words = ["XREAD", ...waitWords(options), "STREAMS", ...Object.keys(after), ...ids];
    return streamsOf(await waiting(this.#pool(), words, { ...options, repeat: !ids.includes("$") }));
  }

  /** Entries as they are added, without an end. A connection that is lost is opened again, and no entry is left out. */
  async *follow(key: string, options: FollowOptions = {}): AsyncGenerator<Entry, void, void> {
    const { count = 100, signal } = options;
    let after = options.after ?? "$";
    if (after === "$") {
      const [last] = await this.reverseRange(key, { count: 1 });
      after = last?.id ?? "0-0";
    }
    const terms = { count, blockMs: FOLLOW_MS, ...(signal && { signal }) };
    while (!signal?.aborted) {
      const found = await unlessAborted(this.read({ [key]: after }, terms), signal);
      for (const entry of found?.get(key) ?? []) {
        yield entry;
        after = entry.id;
      }
    }
  }

  /** Remove old entries, and return how many (XTRIM). */
  async trim(key: string, trim: Trim): Promise<number> {
    return asCount(await this.#ask(["XTRIM", key, ...trimWords(trim)]));
  }

  /** Remove entries, and return how many were there (XDEL). */
  async remove(key: string, ids: readonly string[]): Promise<number> {
    return asCount(await this.#ask(["XDEL", key, ...ids]));
  }

  /** What there is to say about a stream (XINFO STREAM). */
  async info(key: string): Promise<StreamInfo> {
    const found = asMap(await this.#ask(["XINFO", "STREAM", key], key));
    return {
      length: asCount(found.get("length")),
      lastId: asText(found.get("last-generated-id")),
      groups: asCount(found.get("groups")),
      entriesAdded: asCount(found.get("entries-added")),
      firstEntry: maybe(found.get("first-entry"), entryOf),
      lastEntry: maybe(found.get("last-entry"), entryOf),
    };
  }

  /** The groups of a stream (XINFO GROUPS). */
  async groups(key: string): Promise<GroupInfo[]> {
    return asArray(await this.#ask(["XINFO", "GROUPS", key], key)).map((each) => {
      const found = asMap(each);
      return {
        name: asText(found.get("name")),
        consumers: asCount(found.get("consumers")),
        pending: asCount(found.get("pending")),
        lastDeliveredId: asText(found.get("last-delivered-id")),
        entriesRead: maybe(found.get("entries-read"), asCount),
        lag: maybe(found.get("lag"), asCount),
      };
    });
  }

  /** A group of consumers. Nothing is asked yet; `create` makes it. */
  group(key: string, name: string): Group {
    return new Group(this.#pool, key, name);
  }

  #send(words: readonly Argument[]): Promise<Reply> {
    return this.#pool().send(words);
  }

  #ask(words: readonly Argument[], key?: string): Promise<Reply> {
    return this.#pool().send(words, { repeat: true, ...(key !== undefined && { key }) });
  }
}

function trimWords(trim: Trim): Argument[] {
  const { maxLen, minId, approximate, limit } = trim;
  if ((maxLen === undefined) === (minId === undefined)) {
    throw new TypeError("a stream is trimmed by maxLen or by minId");
  }
  const what = maxLen !== undefined ? "MAXLEN" : "MINID";
  const most = limit === undefined ? [] : ["LIMIT", limit];
  return [what, ...(approximate ? ["~"] : []), maxLen ?? minId ?? "", ...most];
}

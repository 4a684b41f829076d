/**
 * Groups of consumers: each entry goes to one consumer, which has it until it acknowledges it.
 *
 * Contract: as in streams.ts. Acknowledging is repeated when a connection is lost; what hands out entries is not: they
 * may be with the consumer then, where `pending` and `claim` find them.
 */
import { type Entry, entriesOf, streamsOf } from "./entries.js";
import { GroupExists } from "./errors.js";
import type { Pool } from "./pool.js";
import { type Argument, asArray, asCount, asMap, asText, maybe, type Reply } from "./replies.js";
import { countWords, FOLLOW_MS, unlessAborted, type WaitOptions, waiting, waitWords } from "./waiting.js";

/** How a group is made. */
export interface CreateGroupOptions {
  /** It begins behind this id: `0` for all entries, `$` for those to come. Default: `0`. */
  readonly start?: string;
  /** Whether a stream that is not there is made. Default: true. */
  readonly makeStream?: boolean;
}

/** How a consumer reads. */
export interface GroupReadOptions extends WaitOptions {
  /** Entries are acknowledged as they are delivered. */
  readonly noAck?: boolean;
  /** The consumer's own entries behind this id, instead of new ones. */
  readonly after?: string;
}

/** How many entries consumers have not acknowledged. */
export interface PendingSummary {
  readonly count: number;
  readonly firstId: string | null;
  readonly lastId: string | null;
  readonly consumers: ReadonlyMap<string, number>;
}

/** Which of the entries that are not acknowledged. */
export interface PendingOptions {
  readonly start?: string;
  readonly end?: string;
  /** Default: 100. */
  readonly count?: number;
  readonly consumer?: string;
  /** Not touched for at least so long. */
  readonly minIdleMs?: number;
}

/** An entry that a consumer has not acknowledged. */
export interface PendingEntry {
  readonly id: string;
  readonly consumer: string;
  /** Since it was delivered or claimed. */
  readonly idleMs: number;
  /** How often it was delivered. */
  readonly deliveries: number;
}

/** What XCLAIM may change beside the consumer. */
export interface ClaimOptions {
  readonly idleMs?: number;
  readonly timeMs?: number;
  readonly retryCount?: number;
  readonly force?: boolean;
}

/** What XAUTOCLAIM found. */
export interface AutoClaimed {
  /** Where to go on; `0-0` at the end. */
  readonly next: string;
  readonly entries: Entry[];
  /** Entries that the stream has not any more; no consumer has them now. */
  readonly deleted: readonly string[];
}

/** A consumer as XINFO CONSUMERS describes it. */
export interface ConsumerInfo {
  readonly name: string;
  readonly pending: number;
  /** Since it last asked for entries. */
  readonly idleMs: number;
  /** Since it last got any, null if the server does not say. */
  readonly inactiveMs: number | null;
}

/** One group of one stream. */
export class Group {
  readonly #pool: () => Pool;

  constructor(
    pool: () => Pool,
    readonly key: string,
    readonly name: string,
  ) {
    this.#pool = pool;
  }

  /** Make the group, and return whether it was not there before (XGROUP CREATE). */
  async create(options: CreateGroupOptions = {}): Promise<boolean> {
    const makes = options.makeStream === false ? [] : ["MKSTREAM"];
    try {
      await this.#ask(["XGROUP", "CREATE", this.key, this.name, options.start ?? "0", ...makes]);
      return true;
    } catch (error) {
      if (error instanceof GroupExists) {
        return false;
      }
      throw error;
    }
  }

  /** Delete the group, and return whether it was there (XGROUP DESTROY). */
  async destroy(): Promise<boolean> {
    return asCount(await this.#send(["XGROUP", "DESTROY", this.key, this.name])) > 0;
  }

  /** Go on behind this id (XGROUP SETID). */
  async setId(id: string): Promise<void> {
    await this.#ask(["XGROUP", "SETID", this.key, this.name, id]);
  }

  /** Make a consumer, and return whether it was not there before (XGROUP CREATECONSUMER). */
  async createConsumer(consumer: string): Promise<boolean> {
    return asCount(await this.#ask(["XGROUP", "CREATECONSUMER", this.key, this.name, consumer])) > 0;
  }

  /** Delete a consumer, and return how many entries it had, which are delivered to no other (XGROUP DELCONSUMER). */
  async deleteConsumer(consumer: string): Promise<number> {
    return asCount(await this.#send(["XGROUP", "DELCONSUMER", this.key, this.name, consumer]));
  }

  /** Entries for a consumer: new ones, or with `after` those that it has (XREADGROUP). */
  async read(consumer: string, options: GroupReadOptions = {}): Promise<Entry[]> {
    const { after = ">", noAck } = options;
    const flags = [...waitWords(options), ...(noAck ? ["NOACK"] : [])];
    const words = ["XREADGROUP", "GROUP", this.name, consumer, ...flags, "STREAMS", this.key, after];
    const terms = { ...options, repeat: after !== ">", key: this.key };
    return streamsOf(await waiting(this.#pool(), words, terms)).get(this.key) ?? [];
  }

  /** New entries as they come, without an end. The caller acknowledges them. `signal` ends it. */
  async *entries(consumer: string, options: { count?: number; signal?: AbortSignal } = {}): AsyncGenerator<Entry> {
    const { count = 100, signal } = options;
    const terms = { count, blockMs: FOLLOW_MS, ...(signal && { signal }) };
    while (!signal?.aborted) {
      yield* (await unlessAborted(this.read(consumer, terms), signal)) ?? [];
    }
  }

  /** Entries are done: returns how many consumers had (XACK). */
  async ack(ids: readonly string[]): Promise<number> {
    return asCount(await this.#ask(["XACK", this.key, this.name, ...ids]));
  }

  /** How many entries are not acknowledged, and with which consumers they are (XPENDING). */
  async pendingSummary(): Promise<PendingSummary> {
    const [count, first, last, consumers] = asArray(await this.#ask(["XPENDING", this.key, this.name]));
    const each = asArray(consumers).map((pair) => asArray(pair));
    return {
      count: asCount(count),
      firstId: maybe(first, asText),
      lastId: maybe(last, asText),
      consumers: new Map(each.map(([name, held]) => [asText(name), asCount(held)])),
    };
  }

  /** The entries that are not acknowledged, from the lowest id on (XPENDING). */
  async pending(options: PendingOptions = {}): Promise<PendingEntry[]> {
    const { start = "-", end = "+", count = 100, consumer, minIdleMs } = options;
    const idle = minIdleMs === undefined ? [] : ["IDLE", minIdleMs];
    const whose = consumer === undefined ? [] : [consumer];
    const reply = await this.#ask(["XPENDING", this.key, this.name, ...idle, start, end, count, ...whose]);
    return asArray(reply).map((each) => {
      const [id, owner, idleMs, deliveries] = asArray(each);
      return { id: asText(id), consumer: asText(owner), idleMs: asCount(idleMs), deliveries: asCount(deliveries) };
    });
  }

  /** Give entries to a consumer that were not touched for `minIdleMs`; returns those that it has now (XCLAIM). */
  async claim(
    consumer: string,
    minIdleMs: number,
    ids: readonly string[],
    options: ClaimOptions = {},
  ): Promise<Entry[]> {
    return entriesOf(await this.#send([...this.#claims(consumer, minIdleMs, ids), ...claimWords(options)]));
  }

  /** As `claim`, for ids alone: it does not count as a delivery (XCLAIM JUSTID). */
  async claimIds(
    consumer: string,
    minIdleMs: number,
    ids: readonly string[],
    options: ClaimOptions = {},
  ): Promise<string[]> {
    const words = [...this.#claims(consumer, minIdleMs, ids), ...claimWords(options), "JUSTID"];
    return asArray(await this.#send(words)).map(asText);
  }

  /** Give a consumer what was not touched for `minIdleMs`, from an id on (XAUTOCLAIM). */
  async autoClaim(consumer: string, minIdleMs: number, start = "0-0", count?: number): Promise<AutoClaimed> {
    const words = ["XAUTOCLAIM", this.key, this.name, consumer, minIdleMs, start, ...countWords(count)];
    const [next, entries, deleted] = asArray(await this.#send(words));
    return { next: asText(next), entries: entriesOf(entries), deleted: asArray(deleted ?? null).map(asText) };
  }

  /** The consumers of the group (XINFO CONSUMERS). */
  async consumers(): Promise<ConsumerInfo[]> {
    return asArray(await this.#ask(["XINFO", "CONSUMERS", this.key, this.name])).map((each) => {
      const found = asMap(each);
      return {
        name: asText(found.get("name")),
        pending: asCount(found.get("pending")),
        idleMs: asCount(found.get("idle")),
        inactiveMs: maybe(found.get("inactive"), asCount),
      };
    });
  }

  #claims(consumer: string, minIdleMs: number, ids: readonly string[]): Argument[] {
    return ["XCLAIM", this.key, this.name, consumer, minIdleMs, ...ids];
  }

  #send(words: readonly Argument[]): Promise<Reply> {
    return this.#pool().send(words, { key: this.key });
  }

  #ask(words: readonly Argument[]): Promise<Reply> {
    return this.#pool().send(words, { key: this.key, repeat: true });
  }
}

function claimWords(options: ClaimOptions): Argument[] {
  const { idleMs, timeMs, retryCount, force } = options;
  return [
    ...(idleMs === undefined ? [] : ["IDLE", idleMs]),
    ...(timeMs === undefined ? [] : ["TIME", timeMs]),
    ...(retryCount === undefined ? [] : ["RETRYCOUNT", retryCount]),
    ...(force ? ["FORCE"] : []),
  ];
}

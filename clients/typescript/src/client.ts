/**
 * A client: topics with named consumers, and the way to streams, groups and workers.
 *
 * Contract: a client has to be connected before it is used, and may be disconnected and connected again. Lost
 * connections are opened when there is something to send. What only reads, and what has the same effect twice, is then
 * sent again; any other request that was on its way is rejected with `ConnectionLost`, as the server may have done it.
 */
import { EventEmitter } from "node:events";

import { ClientClosed, type PenstockError } from "./errors.js";
import { atLeast, type ClientOptions, settled, type Settings } from "./options.js";
import { Pool, type SendOptions } from "./pool.js";
import { type Argument, asArray, asBuffer, asCount, asInteger, asMap, asText, type Reply } from "./replies.js";
import { Streams } from "./streams.js";
import { guarded, type OnError, teller } from "./telling.js";
import { paused } from "./waiting.js";
import { type TaskHandler, Worker, type WorkerOptions } from "./worker.js";

/** What a client tells: a connection that requests share was opened, or was lost and why. */
export interface ClientEvents {
  connect: [];
  disconnect: [reason: PenstockError];
}

/** How a topic is made. */
export interface TopicOptions {
  /** Default: 1. The commands of this package take a partition of several as `topic:number`. */
  readonly partitions?: number;
  /** Settings as of `penstock topic create`, such as `{ retention_s: "7d" }`. */
  readonly settings?: Readonly<Record<string, string | number>>;
}

/** How messages are listened to. */
export interface ListenOptions {
  /** Messages at most. Default: 10. */
  readonly count?: number;
  /** Moves the offset before the answer: messages are lost if the answer is. Default: false. */
  readonly auto?: boolean;
}

/** How messages are iterated over. */
export interface MessagesOptions {
  /** Messages of one reply, at most. Default: 100. */
  readonly count?: number;
  /** Between two looks where there is nothing new. Default: 100. */
  readonly pollMs?: number;
  /** Ends the iteration. */
  readonly signal?: AbortSignal;
}

/** What there is in all topics. */
export interface ServerStats {
  readonly topics: number;
  readonly records: bigint;
  readonly bytes: bigint;
}

/** What there is in one topic. */
export interface TopicStats {
  readonly partitions: number;
  readonly records: bigint;
  readonly bytes: bigint;
  /** Of each partition: the lowest offset that there is. */
  readonly first: readonly bigint[];
  /** Of each partition: the offset of the next record. */
  readonly end: readonly bigint[];
}

/** A client that is connected. Throws `CannotConnect`, or what the server answered. */
export async function connect(options: ClientOptions | string = {}): Promise<Client> {
  const client = new Client(options);
  await client.connect();
  return client;
}

/** See the module. */
export class Client extends EventEmitter<ClientEvents> {
  /** Streams and their groups. */
  readonly streams = new Streams(() => this.#open());
  readonly #settings: Settings;
  readonly #tell: OnError;
  #pool: Pool | undefined;

  /** Options, or an address alone. Throws `InvalidUrl`, or `RangeError` for a number that cannot be. */
  constructor(options: ClientOptions | string = {}) {
    super({ captureRejections: true });
    this.#settings = settled(typeof options === "string" ? { url: options } : options);
    this.#tell = teller(this.#settings.onError);
  }

  /** Take what an async listener rejected with. */
  override [EventEmitter.captureRejectionSymbol](error: Error, ..._event: readonly unknown[]): void {
    this.#tell(error);
  }

  /** Open the first connection, in one attempt. Throws `CannotConnect`, or what the server answered. */
  async connect(): Promise<void> {
    const pool = (this.#pool ??= new Pool(this.#settings, {
      opened: () => queueMicrotask(guarded(() => this.emit("connect"), this.#tell)),
      lost: (reason) => {
        queueMicrotask(guarded(() => this.emit("disconnect", reason), this.#tell));
        this.#failed(reason);
      },
      failed: (reason) => this.#failed(reason),
    }));
    try {
      await pool.connect();
    } catch (error) {
      if (this.#pool === pool && !pool.connected) {
        await this.disconnect();
      }
      throw error;
    }
  }

  /** Close all connections. What waits for an answer is rejected with `ClientClosed`. */
  async disconnect(): Promise<void> {
    this.#pool?.close();
    this.#pool = undefined;
  }

  /** As `disconnect`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.disconnect();
  }

  /** Whether there is a connection now. One that was lost is opened by the next request. */
  isConnected(): boolean {
    return this.#pool?.connected ?? false;
  }

  /** Ask for a sign of life: `PONG`, or the message. */
  async ping(message?: string): Promise<string> {
    return asText(await this.#ask(message === undefined ? ["PING"] : ["PING", message]));
  }

  /** Any command, answered as it comes. Commands that wait, or change the connection, do not belong here. */
  async send(words: readonly Argument[], options: SendOptions = {}): Promise<Reply> {
    return this.#open().send(words, options);
  }

  /** Make a topic. Throws `TopicExists` if it is there. */
  async createTopic(topic: string, options: TopicOptions = {}): Promise<void> {
    const partitions = options.partitions === undefined ? [] : ["PARTITIONS", options.partitions];
    const settings = Object.entries(options.settings ?? {}).flatMap(([name, value]) => [name, String(value)]);
    await this.send(["CREATE", topic, ...partitions, ...settings]);
  }

  /** Delete a topic with its records and groups. Throws `UnknownTopic` if it is not there. */
  async deleteTopic(topic: string): Promise<void> {
    await this.send(["DELETE", topic]);
  }

  /** The names of all topics. */
  async listTopics(): Promise<string[]> {
    return asArray(await this.#ask(["TOPICS"])).map(asText);
  }

  /** Append a message, and return its offset. The topic is made if it is not there. */
  async enqueue(topic: string, message: string | Uint8Array): Promise<bigint> {
    return asInteger(await this.send(["ENQUEUE", topic, message]));
  }

  /** The messages from a consumer's offset on. It stays there without `auto`: `setOffset` moves it. */
  async listen(topic: string, consumer: string, options: ListenOptions = {}): Promise<Buffer[]> {
    const count = options.count === undefined ? [] : [atLeast("count", options.count, 1)];
    const auto = options.auto ?? false;
    const words = ["LISTEN", topic, consumer, ...count, ...(auto ? ["AUTO"] : [])];
    return asArray(await this.send(words, { repeat: !auto })).map(asBuffer);
  }

  /**
   * The messages from a consumer's offset on, without an end. The offset moves behind messages when the loop asks for
   * more than the reply they came in, and when it is left; the message it is left at counts as not done.
   */
  async *messages(topic: string, consumer: string, options: MessagesOptions = {}): AsyncGenerator<Buffer, void, void> {
    const { count = 100, pollMs = 100, signal } = options;
    while (!signal?.aborted) {
      const start = await this.getOffset(topic, consumer);
      const found = await this.listen(topic, consumer, { count });
      let done = 0;
      try {
        for (const message of found) {
          yield message;
          done += 1;
          if (signal?.aborted) {
            return;
          }
        }
      } finally {
        if (done > 0) {
          await this.setOffset(topic, consumer, start + BigInt(done));
        }
      }
      if (found.length === 0) {
        await paused(pollMs, signal);
      }
    }
  }

  /** Where a consumer reads next. */
  async getOffset(topic: string, consumer: string): Promise<bigint> {
    return asInteger(await this.#ask(["OFFSET", topic, consumer]));
  }

  /** Let a consumer read from this offset on. This makes the consumer. */
  async setOffset(topic: string, consumer: string, offset: bigint | number): Promise<void> {
    await this.#ask(["OFFSET", topic, consumer, offset]);
  }

  /** The names of a topic's consumers. */
  async listConsumers(topic: string): Promise<string[]> {
    return asArray(await this.#ask(["CONSUMERS", topic])).map(asText);
  }

  /** What there is in all topics. */
  async getStats(): Promise<ServerStats>;
  /** What there is in one topic. */
  async getStats(topic: string): Promise<TopicStats>;
  async getStats(topic?: string): Promise<ServerStats | TopicStats> {
    const found = asMap(await this.#ask(topic === undefined ? ["STATS"] : ["STATS", topic]));
    const both = { records: asInteger(found.get("records")), bytes: asInteger(found.get("bytes")) };
    if (topic === undefined) {
      return { topics: asCount(found.get("topics")), ...both };
    }
    const offsets = (name: string): bigint[] => asArray(found.get(name)).map(asInteger);
    return { partitions: asCount(found.get("partitions")), ...both, first: offsets("first"), end: offsets("end") };
  }

  /** A worker of a group: `run` hands its entries to `handler`. */
  worker(key: string, group: string, handler: TaskHandler, options: WorkerOptions = {}): Worker {
    return new Worker(this.streams.group(key, group), handler, options, this.#tell);
  }

  /** Tell of a connection, where the program wants to know and did not end it. */
  #failed(reason: PenstockError): void {
    if (this.#settings.onError !== undefined && !(reason instanceof ClientClosed)) {
      queueMicrotask(() => this.#tell(reason));
    }
  }

  #open(): Pool {
    if (this.#pool === undefined) {
      throw new ClientClosed();
    }
    return this.#pool;
  }

  #ask(words: readonly Argument[]): Promise<Reply> {
    return this.send(words, { repeat: true });
  }
}

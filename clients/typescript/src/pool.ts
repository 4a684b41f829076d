/**
 * The connections of a client.
 *
 * Idea: requests share a few lanes, chosen by the topic they are about, so that requests about one topic stay in order.
 * What waits for entries has a lane to itself meanwhile, since replies behind it would wait, too.
 *
 * Contract: a lane that is borrowed is used by one caller at a time. There are at most `blockingConnections` of them; a
 * further caller waits, within `timeoutMs`.
 */
import { ClientClosed, ReplyError, RequestTimeout } from "./errors.js";
import { Lane, type LaneEvents } from "./lane.js";
import type { Settings } from "./options.js";
import type { Argument, Reply } from "./replies.js";
import { Request } from "./request.js";

/** How a command is sent. */
export interface SendOptions {
  /** Whether the server may be asked twice, where the first answer was lost with its connection. Default: false. */
  readonly repeat?: boolean;
  /** Commands with the same key stay in order. Default: the second word. */
  readonly key?: string;
}

/** How a command that waits is sent. */
export interface BlockingOptions {
  readonly repeat?: boolean;
  /** How long the server may wait before it answers, 0 for any time. */
  readonly blockMs: number;
  /** Gives up: the connection is closed, and the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

type Waiter = (found: Lane | Error) => void;

/** Invariant: a lane is in `#idle`, or used by a caller; `#own` has both. */
export class Pool {
  readonly #settings: Settings;
  readonly #ownEvents: LaneEvents;
  readonly #shared: readonly Lane[];
  readonly #idle: Lane[] = [];
  readonly #own = new Set<Lane>();
  readonly #waiters = new Set<Waiter>();
  #closed = false;

  constructor(settings: Settings, events: LaneEvents) {
    this.#settings = settings;
    this.#ownEvents = { opened: () => undefined, lost: events.failed, failed: events.failed };
    this.#shared = Array.from({ length: settings.connections }, () => new Lane(settings, events));
  }

  /** Open the first connection, in one attempt. Throws what prevents it. */
  async connect(): Promise<void> {
    await this.#lane("").connect();
  }

  get connected(): boolean {
    return this.#shared.some((lane) => lane.connected);
  }

  /** Send a command that is answered at once. */
  send(words: readonly Argument[], options: SendOptions = {}): Promise<Reply> {
    const terms = { repeat: options.repeat ?? false, timeoutMs: this.#settings.timeoutMs };
    return this.#lane(options.key ?? String(words[1] ?? "")).send(new Request(words, terms));
  }

  /** Send a command that may wait, on a connection of its own. */
  async sendBlocking(words: readonly Argument[], options: BlockingOptions): Promise<Reply> {
    const { signal, blockMs } = options;
    signal?.throwIfAborted();
    const lane = await this.#borrow(signal);
    const timeoutMs = blockMs > 0 ? Math.min(this.#settings.timeoutMs + blockMs, 2 ** 31 - 1) : 0;
    const request = new Request(words, { repeat: options.repeat ?? false, timeoutMs });
    const abort = (): void => request.reject(reasonOf(signal));
    signal?.addEventListener("abort", abort, { once: true });
    try {
      const reply = await lane.send(request);
      this.#giveBack(lane);
      return reply;
    } catch (error) {
      if (error instanceof ReplyError) {
        this.#giveBack(lane);
      } else {
        this.#drop(lane); // a reply may be under way that is not for the next borrower
      }
      throw error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** End every connection: whatever waits fails. */
  close(): void {
    const reason = new ClientClosed("the client was disconnected");
    this.#closed = true;
    this.#waiters.forEach((waiter) => waiter(reason));
    [...this.#shared, ...this.#own].forEach((lane) => lane.close(reason));
  }

  #lane(key: string): Lane {
    let hash = 0;
    for (let at = 0; at < key.length; at += 1) {
      hash = (Math.imul(hash, 31) + key.charCodeAt(at)) >>> 0;
    }
    return this.#shared[hash % this.#shared.length] as Lane;
  }

  /** A lane that no other caller uses. */
  #borrow(signal: AbortSignal | undefined): Promise<Lane> {
    if (this.#closed) {
      return Promise.reject(new ClientClosed());
    }
    const idle = this.#idle.pop();
    if (idle !== undefined) {
      return Promise.resolve(idle);
    }
    if (this.#own.size < this.#settings.blockingConnections) {
      return Promise.resolve(this.#further());
    }
    return this.#waitForLane(signal);
  }

  #further(): Lane {
    const lane = new Lane(this.#settings, this.#ownEvents);
    this.#own.add(lane);
    return lane;
  }

  #waitForLane(signal: AbortSignal | undefined): Promise<Lane> {
    const { timeoutMs, blockingConnections } = this.#settings;
    return new Promise((resolve, reject) => {
      const waiter = (found: Lane | Error): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
        this.#waiters.delete(waiter);
        if (found instanceof Lane) {
          resolve(found);
        } else {
          reject(found);
        }
      };
      const all = `all ${blockingConnections} connections that wait for entries are in use (blockingConnections)`;
      const timer = setTimeout(() => waiter(new RequestTimeout(all, false)), timeoutMs);
      const abort = (): void => waiter(reasonOf(signal));
      signal?.addEventListener("abort", abort, { once: true });
      this.#waiters.add(waiter);
    });
  }

  #giveBack(lane: Lane): void {
    const [waiter] = this.#waiters;
    if (this.#closed) {
      return;
    }
    if (waiter !== undefined) {
      waiter(lane);
    } else {
      this.#idle.push(lane);
    }
  }

  /** End a lane. A caller that waits for one gets a new one. */
  #drop(lane: Lane): void {
    lane.close();
    this.#own.delete(lane);
    const [waiter] = this.#waiters;
    if (waiter !== undefined && !this.#closed) {
      waiter(this.#further());
    }
  }
}

/** Why a signal was aborted, as an error. */
export function reasonOf(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new DOMException(String(reason), "AbortError");
}

/**
 * Requests in order over one connection at a time, which is opened when there is something to send, and again when it
 * was lost.
 *
 * Contract: requests are written in the order of `send`. When a connection ends, those that were written and are safe
 * to repeat go first on the next one, in their order; others fail with `ConnectionLost`, and those that were never
 * written stay in the queue. Attempts to connect have pauses that double, with jitter; what the server refuses for good
 * (a wrong password) fails everything that waits. A lane without requests does nothing.
 */
import { Connection } from "./connection.js";
import { CannotConnect, ClientClosed, ConnectionLost, PenstockError, TooManyPending } from "./errors.js";
import { Fifo } from "./fifo.js";
import type { ReconnectOptions, Settings } from "./options.js";
import type { Reply } from "./replies.js";
import type { Request } from "./request.js";

/** What a request takes beside its bytes. */
const BOOKKEEPING_BYTES = 256;

/** What a lane tells of its connections. */
export interface LaneEvents {
  opened(): void;
  lost(reason: PenstockError): void;
  /** An attempt to connect failed that no call waits for. */
  failed(reason: PenstockError): void;
}

/** Invariant: while `#connection` is there, `#queue` is empty. `#pendingBytes`: of requests without an answer. */
export class Lane {
  readonly #settings: Settings;
  readonly #events: LaneEvents;
  readonly #queue = new Fifo<Request>();
  #connection: Connection | undefined;
  #opening: Promise<void> | undefined;
  readonly #dialled = new Set<Connection>(); // not open yet
  #pause: (() => void) | undefined; // ends the pause before the next attempt
  #failures = 0;
  #pendingBytes = 0;
  #closed = false;

  constructor(settings: Settings, events: LaneEvents) {
    this.#settings = settings;
    this.#events = events;
  }

  get connected(): boolean {
    return this.#connection !== undefined;
  }

  /** Open the connection, in one attempt. Throws what prevents it. */
  async connect(): Promise<void> {
    if (this.#closed) {
      throw new ClientClosed();
    }
    if (this.#connection === undefined) {
      await this.#open();
    }
  }

  /** Take a request, and return its answer. */
  send(request: Request): Promise<Reply> {
    const size = request.bytes.length + BOOKKEEPING_BYTES;
    if (this.#closed) {
      request.reject(new ClientClosed());
    } else if (this.#pendingBytes > 0 && this.#pendingBytes + size > this.#settings.maxPendingBytes) {
      request.reject(new TooManyPending(`${this.#pendingBytes} bytes of requests wait for answers (maxPendingBytes)`));
    } else {
      this.#pendingBytes += size;
      const left = (): void => void (this.#pendingBytes -= size);
      request.answer.then(left, left);
      request.expired = () => this.#expired(request);
      this.#take(request);
    }
    return request.answer;
  }

  /** End it: whatever waits fails with `reason`. */
  close(reason: PenstockError = new ClientClosed()): void {
    this.#closed = true;
    this.#pause?.();
    this.#connection?.close(reason);
    this.#dialled.forEach((connection) => connection.close(reason));
    this.#fail(reason);
  }

  #take(request: Request): void {
    if (this.#connection !== undefined) {
      this.#connection.send(request);
    } else {
      this.#queue.push(request);
      this.#opening ??= this.#reopen().finally(() => (this.#opening = undefined));
    }
  }

  /** Connect until it succeeds, or until no request waits for it. */
  async #reopen(): Promise<void> {
    while (!this.#closed && this.#wanted()) {
      try {
        await this.#open();
        return;
      } catch (error) {
        const reason = error instanceof PenstockError ? error : new CannotConnect(String(error));
        this.#events.failed(reason);
        if (!reason.retry || this.#settings.reconnect === undefined) {
          this.#fail(reason);
          return;
        }
        if (!this.#closed) {
          await this.#rest(this.#settings.reconnect);
        }
      }
    }
  }

  async #open(): Promise<void> {
    const connection = new Connection(this.#settings);
    this.#dialled.add(connection);
    try {
      await connection.greet();
      if (!connection.alive) {
        throw new CannotConnect(`the connection to ${this.#settings.shown} was lost as soon as it was there`);
      }
    } catch (error) {
      this.#failures += 1;
      throw error;
    } finally {
      this.#dialled.delete(connection);
    }
    if (this.#connection !== undefined) {
      connection.close(); // another attempt was faster
      return;
    }
    this.#failures = 0;
    this.#connection = connection;
    connection.onEnd((reason, unanswered) => this.#lost(reason, unanswered));
    this.#events.opened();
    for (const request of this.#queue.drain().filter((each) => !each.ended)) {
      connection.send(request);
    }
  }

  /** Drop requests that have ended, and tell whether others wait. */
  #wanted(): boolean {
    const rest = this.#queue.drain().filter((request) => !request.ended);
    rest.forEach((request) => this.#queue.push(request));
    return rest.length > 0;
  }

  #rest(reconnect: Required<ReconnectOptions>): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, pauseMs(this.#failures, reconnect, Math.random()));
      this.#pause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #lost(reason: PenstockError, unanswered: readonly Request[]): void {
    this.#connection = undefined;
    const repeats = !this.#closed && this.#settings.reconnect !== undefined && reason instanceof ConnectionLost;
    const again: Request[] = [];
    for (const request of unanswered) {
      if (request.ended) {
        continue;
      }
      if (request.repeat && repeats) {
        again.push(request);
      } else {
        request.reject(reason);
      }
    }
    this.#events.lost(reason);
    again.forEach((request) => this.#take(request));
  }

  /** A request that was not answered in time: where nothing else came either, the peer may be gone. */
  #expired(request: Request): void {
    if (this.#connection?.silentSince(request)) {
      this.#connection.close();
    }
  }

  #fail(reason: PenstockError): void {
    this.#queue.drain().forEach((request) => request.reject(reason));
  }
}

/** The pause after so many failures in a row; `random`, from 0 to 1, makes it up to half shorter. */
export function pauseMs(failures: number, reconnect: Required<ReconnectOptions>, random: number): number {
  const most = reconnect.firstMs * 2 ** Math.min(failures - 1, 30);
  return Math.min(reconnect.lastMs, most) * (1 - random / 2);
}

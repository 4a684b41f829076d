/**
 * A worker: hands the entries of a group to a function, several at a time, and acknowledges those that succeed.
 *
 * Idea: an entry that fails stays with the group. So does one whose worker died. Any worker claims entries that were
 * not touched for `retryAfterMs`, and tries them again; meanwhile workers touch what they have.
 *
 * Contract: at least once. An entry is acknowledged when its function has succeeded, or `onDead` has. At most
 * `concurrency` entries are with a worker. Errors of the connection are told to `onError`, and the worker goes on;
 * what the server refuses for good ends `run` with that error, once the functions that run have ended.
 */
import { hostname } from "node:os";
import { randomBytes } from "node:crypto";

import { Acks } from "./acks.js";
import type { Entry } from "./entries.js";
import { AttemptsExceeded, PenstockError } from "./errors.js";
import type { Group } from "./groups.js";
import { atLeast } from "./options.js";
import { guarded, type OnError, teller } from "./telling.js";
import { paused } from "./waiting.js";

/** One delivery of an entry. */
export interface Task {
  readonly entry: Entry;
  readonly id: string;
  /** The fields of the entry. */
  readonly fields: ReadonlyMap<string, Buffer>;
  /** The field `value`. */
  readonly value: Buffer;
  /** 1 for the first delivery. */
  readonly attempt: number;
  /** Aborted when a stopping worker waits no longer, or when no consumer has the entry any more. */
  readonly signal: AbortSignal;
}

/** What a worker does with a task, perhaps twice for one entry. When it throws or rejects, the entry is tried again. */
export type TaskHandler = (task: Task) => unknown;

/** How a worker works. */
export interface WorkerOptions {
  /** Its name in the group. Default: the host, the process and a random number. */
  readonly consumer?: string;
  /** Tasks at a time. Default: 1. */
  readonly concurrency?: number;
  /** Tries entries again that were not touched for so long (XPENDING, XCLAIM); null leaves them. Default: 60,000. */
  readonly retryAfterMs?: number | null;
  /** Deliveries of one entry before it is given to `onDead`. Default: no limit. */
  readonly maxAttempts?: number;
  /** Takes what failed `maxAttempts` times. The entry is acknowledged once it succeeds. */
  readonly onDead?: (task: Task, error: unknown) => unknown;
  /** Is told of what a task threw, and, without a task, of errors of the connection. Default: that of the client. */
  readonly onError?: (error: unknown, task?: Task) => void;
  /** Where a group that is not there yet begins. Default: `earliest`. */
  readonly start?: "earliest" | "latest";
  /** One wait for entries: so long, at most, `stop` waits for the server. Default: 1,000. */
  readonly blockMs?: number;
}

const PAUSE_MS = 500;

/** Invariant: `#running` has the tasks that are neither acknowledged nor left for a retry, by their ids. */
export class Worker {
  /** Its name in the group. */
  readonly consumer: string;
  readonly #group: Group;
  readonly #handler: TaskHandler;
  readonly #acks: Acks;
  readonly #concurrency: number;
  readonly #retryAfterMs: number | null;
  readonly #maxAttempts: number;
  readonly #blockMs: number;
  readonly #start: string;
  readonly #onDead: (task: Task, error: unknown) => unknown;
  readonly #onError: (error: unknown, task?: Task) => void;
  readonly #running = new Map<string, AbortController>();
  readonly #stopping = new AbortController();
  readonly #given = new AbortController(); // gave up waiting for tasks
  #freed: () => void = () => undefined;
  #claimAt = 0;
  #run: Promise<void> | undefined;

  /** What `onError` throws is told to `failed`. */
  constructor(group: Group, handler: TaskHandler, options: WorkerOptions = {}, failed: OnError = teller()) {
    this.#group = group;
    this.#handler = handler;
    this.#acks = new Acks(group);
    this.consumer = options.consumer ?? `${hostname()}-${process.pid}-${randomBytes(3).toString("hex")}`;
    this.#concurrency = atLeast("concurrency", options.concurrency ?? 1, 1);
    const { retryAfterMs = 60_000 } = options;
    this.#retryAfterMs = retryAfterMs === null ? null : atLeast("retryAfterMs", retryAfterMs, 1);
    this.#maxAttempts =
      options.maxAttempts === undefined ? Infinity : atLeast("maxAttempts", options.maxAttempts, 1);
    if ((options.maxAttempts === undefined) !== (options.onDead === undefined)) {
      throw new TypeError("maxAttempts and onDead belong together: what has had its attempts is given to onDead");
    }
    this.#onDead = options.onDead ?? (() => undefined);
    this.#onError = guarded(options.onError ?? failed, failed);
    this.#start = options.start === "latest" ? "$" : "0";
    this.#blockMs = atLeast("blockMs", options.blockMs ?? 1_000, 1);
  }

  /** Work until `stop`. Makes the group if it is not there. Throws what the server refuses for good. */
  run(): Promise<void> {
    this.#run ??= this.#work();
    return this.#run;
  }

  /**
   * Take no further tasks, and wait for those that run. After `graceMs` (default: any time) their signals are aborted,
   * and they are waited for no longer: other workers try their entries again.
   */
  async stop(graceMs?: number): Promise<void> {
    this.#stopping.abort();
    const timer = graceMs === undefined ? undefined : setTimeout(() => this.#giveUp(), graceMs);
    try {
      await this.#run;
    } catch {
      // run() rejects with it
    } finally {
      clearTimeout(timer);
    }
  }

  /** As `stop`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #work(): Promise<void> {
    const retryAfterMs = this.#retryAfterMs;
    const touching = retryAfterMs === null ? undefined : setInterval(() => void this.#touch(), retryAfterMs / 3);
    try {
      let made = false;
      while (!this.#stopping.signal.aborted) {
        if (made) {
          await this.#persist(() => this.#takeSome());
        } else {
          made = await this.#persist(() => this.#prepare());
        }
      }
    } finally {
      while (this.#running.size > 0 && !this.#given.signal.aborted) {
        await this.#slot();
      }
      clearInterval(touching);
    }
  }

  /** Make the group, and ask for what retries need while nothing depends on it. */
  async #prepare(): Promise<void> {
    await this.#group.create({ start: this.#start });
    if (this.#retryAfterMs !== null) {
      await this.#group.claimIds(this.consumer, 0, ["0-0"]); // claims nothing
    }
  }

  /** Do one step, and return whether it was done: errors that pass are told, and followed by a pause. */
  async #persist(step: () => Promise<unknown>): Promise<boolean> {
    try {
      await step();
      return true;
    } catch (error) {
      if (!(error instanceof PenstockError && error.retry)) {
        throw error;
      }
      this.#onError(error);
      await paused(PAUSE_MS, this.#stopping.signal);
      return false;
    }
  }

  async #takeSome(): Promise<void> {
    const room = this.#concurrency - this.#running.size;
    if (room === 0) {
      await this.#slot();
      return;
    }
    const waitMs = this.#retryAfterMs === null ? Infinity : this.#claimAt - performance.now();
    if (waitMs <= 0 && this.#retryAfterMs !== null) {
      await this.#claim(room, this.#retryAfterMs);
      return;
    }
    const blockMs = Math.max(1, Math.min(this.#blockMs, Math.ceil(waitMs)));
    for (const entry of await this.#group.read(this.consumer, { count: room, blockMs })) {
      this.#begin(entry, 1);
    }
  }

  /** Take entries that were not touched for long; look again soon if there may be more. */
  async #claim(room: number, retryAfterMs: number): Promise<void> {
    const idle = await this.#group.pending({ minIdleMs: retryAfterMs, count: room + this.#running.size });
    const wanted = idle.filter((each) => !this.#running.has(each.id)).slice(0, room);
    if (wanted.length > 0) {
      const deliveries = new Map(wanted.map((each) => [each.id, each.deliveries]));
      for (const entry of await this.#group.claim(this.consumer, retryAfterMs, [...deliveries.keys()])) {
        this.#begin(entry, (deliveries.get(entry.id) ?? 0) + 1);
      }
    }
    this.#claimAt = performance.now() + (wanted.length < room ? retryAfterMs / 4 : 0);
  }

  /** Tell the server that this worker has its tasks still. */
  async #touch(): Promise<void> {
    const ids = [...this.#running.keys()];
    if (ids.length === 0) {
      return;
    }
    try {
      const held = new Set(await this.#group.claimIds(this.consumer, 0, ids));
      ids.filter((id) => !held.has(id)).forEach((id) => this.#running.get(id)?.abort());
    } catch (error) {
      this.#onError(error);
    }
  }

  #begin(entry: Entry, attempt: number): void {
    const aborts = new AbortController();
    this.#running.set(entry.id, aborts);
    const { id, fields, value } = entry;
    void this.#settle({ entry, id, fields, value, attempt, signal: aborts.signal }).finally(() => {
      this.#running.delete(entry.id);
      this.#freed();
    });
  }

  /** Run one task, and acknowledge it unless it is to be tried again. Never rejects. */
  async #settle(task: Task): Promise<void> {
    try {
      if (await this.#succeeds(task)) {
        await this.#acks.add(task.id);
      }
    } catch (error) {
      this.#onError(error, task);
    }
  }

  /** Whether a task is done: it succeeded, or was given to `onDead`. */
  async #succeeds(task: Task): Promise<boolean> {
    let failure: unknown = new AttemptsExceeded(`${task.id} was delivered ${task.attempt} times`);
    if (task.attempt <= this.#maxAttempts) {
      try {
        await this.#handler(task);
        return true;
      } catch (error) {
        this.#onError(error, task);
        failure = error;
      }
    }
    if (task.attempt < this.#maxAttempts) {
      return false;
    }
    await this.#onDead(task, failure);
    return true;
  }

  /** Wait until a task ends, or until they are given up. */
  #slot(): Promise<void> {
    return new Promise((resolve) => (this.#freed = resolve));
  }

  #giveUp(): void {
    this.#given.abort();
    this.#running.forEach((task) => task.abort());
    this.#freed();
  }
}

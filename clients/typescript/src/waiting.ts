/** What reading streams and reading as a group have in common: waiting for entries, and giving up. */
import { type Pool, reasonOf } from "./pool.js";
import type { Argument, Reply } from "./replies.js";

/** One wait of an iteration that has no end. */
export const FOLLOW_MS = 5_000;

/** How entries are waited for. */
export interface WaitOptions {
  /** Entries of each stream, at most. */
  readonly count?: number;
  /** How long to wait where there are none, 0 for any time. Default: not at all. */
  readonly blockMs?: number;
  /** Gives up waiting, by closing the connection that waits: the promise rejects with the reason. */
  readonly signal?: AbortSignal;
}

/** Send what may wait. Without `blockMs` the server answers at once. */
export function waiting(
  pool: Pool,
  words: readonly Argument[],
  options: WaitOptions & { readonly repeat: boolean; readonly key?: string },
): Promise<Reply> {
  const { blockMs, signal, repeat, key } = options;
  if (blockMs !== undefined) {
    return pool.sendBlocking(words, { blockMs, signal, repeat });
  }
  return signal?.aborted ? Promise.reject(reasonOf(signal)) : pool.send(words, { repeat, key: key ?? "" });
}

/** A promise's value, or undefined when it was rejected because the signal was aborted. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T | undefined> {
  try {
    return await promise;
  } catch (error) {
    if (signal?.aborted) {
      return undefined;
    }
    throw error;
  }
}

/** COUNT, as words of a command. */
export function countWords(count: number | undefined): Argument[] {
  return count === undefined ? [] : ["COUNT", count];
}

/** COUNT and BLOCK, as words of a command. */
export function waitWords(options: WaitOptions): Argument[] {
  return [...countWords(options.count), ...(options.blockMs === undefined ? [] : ["BLOCK", options.blockMs])];
}

/** Wait so long, or until the signal is aborted. */
export function paused(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end, { once: true });
  });
}

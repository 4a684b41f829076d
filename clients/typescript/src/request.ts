/**
 * One command on its way to an answer.
 *
 * Idea: a request is a promise with the bytes to send. It may end before its answer comes (time is up, the caller gave
 * up); whatever comes for it afterwards is dropped, so replies stay in step with requests.
 */
import { RequestTimeout } from "./errors.js";
import { encode } from "./encoding.js";
import type { Argument, Reply } from "./replies.js";

/** How a request is treated. */
export interface RequestTerms {
  /** Whether the server may be asked twice: it is sent again when the connection is lost. */
  readonly repeat: boolean;
  /** Until an answer has to be there, 0 for any time. */
  readonly timeoutMs: number;
}

/** Invariant: once `ended`, nothing changes any more. */
export class Request {
  readonly answer: Promise<Reply>;
  readonly bytes: Buffer;
  readonly repeat: boolean;
  /** What is asked, for messages. */
  readonly what: string;
  /** When it was written to a socket, on the clock of `performance.now()`; negative before. */
  sentAt = -1;
  ended = false;
  /** Called when its time is up. */
  expired: (request: Request) => void = () => undefined;
  readonly #resolve: (reply: Reply) => void;
  readonly #reject: (error: Error) => void;
  readonly #timer: NodeJS.Timeout | undefined;

  constructor(words: readonly Argument[], terms: RequestTerms) {
    this.bytes = encode(words);
    this.what = String(words[0]).slice(0, 32).toUpperCase();
    this.repeat = terms.repeat;
    let resolve: (reply: Reply) => void = () => undefined;
    let reject: (error: Error) => void = () => undefined;
    this.answer = new Promise((...both) => ([resolve, reject] = both));
    [this.#resolve, this.#reject] = [resolve, reject];
    this.#timer = terms.timeoutMs > 0 ? setTimeout(() => this.#expire(terms.timeoutMs), terms.timeoutMs) : undefined;
  }

  /** Whether the server may have got it. */
  get sent(): boolean {
    return this.sentAt >= 0;
  }

  resolve(reply: Reply): void {
    if (this.#end()) {
      this.#resolve(reply);
    }
  }

  reject(error: Error): void {
    if (this.#end()) {
      this.#reject(error);
    }
  }

  #end(): boolean {
    const first = !this.ended;
    this.ended = true;
    clearTimeout(this.#timer);
    return first;
  }

  #expire(timeoutMs: number): void {
    this.reject(new RequestTimeout(`${this.what} was not answered within ${timeoutMs} ms`, this.sent));
    this.expired(this);
  }
}

/**
 * One connection: requests out, replies in, in the same order.
 *
 * Contract: `greet` says HELLO and authenticates; requests come behind it. `send` takes any number of them without
 * waiting; those of one turn of the event loop leave in one piece. A connection ends once, by `close`, by its peer, or
 * by bytes that are no reply: the requests that were not answered are handed over then. It does not connect again, and
 * does not repeat anything: lane.ts does.
 */
import { connect as connectPlain, type Socket } from "node:net";
import { connect as connectSecure } from "node:tls";

import { CannotConnect, ConnectionLost, PenstockError, ProtocolError, ReplyError } from "./errors.js";
import { Fifo } from "./fifo.js";
import type { Settings } from "./options.js";
import { ReplyParser } from "./parser.js";
import { Push, type Reply } from "./replies.js";
import { Request } from "./request.js";

const KEEPALIVE_MS = 30_000;

/** Called when a connection ends: why, and the requests without an answer, in order. */
export type Ended = (reason: PenstockError, unanswered: readonly Request[]) => void;

/** Invariant: `#waiting` has the requests that were written and not answered, in the order of writing. */
export class Connection {
  readonly #socket: Socket;
  readonly #parser: ReplyParser;
  readonly #settings: Settings;
  readonly #waiting = new Fifo<Request>();
  #heardAt = 0;
  #over = false;
  #ended: Ended = (reason, unanswered) => unanswered.forEach((request) => request.reject(reason));

  /** Begin to connect. */
  constructor(settings: Settings) {
    const socket = dial(settings);
    this.#settings = settings;
    this.#socket = socket;
    this.#parser = new ReplyParser(settings);
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEPALIVE_MS);
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    socket.on("error", (error) => this.#end(this.#lost(messageOf(error), error)));
    socket.on("close", () => this.#end(this.#lost("the server closed it")));
  }

  /** Connect, authenticate and choose RESP 3. Throws `CannotConnect`, or the `ReplyError` of the server. */
  async greet(): Promise<void> {
    const { username, password, name, connectTimeoutMs, shown } = this.#settings;
    const auth = password === undefined ? [] : ["AUTH", username, password];
    const words = ["HELLO", 3, ...auth, ...(name === "" ? [] : ["SETNAME", name])];
    const hello = new Request(words, { repeat: false, timeoutMs: connectTimeoutMs });
    try {
      this.send(hello);
      await hello.answer;
    } catch (error) {
      this.close();
      if (error instanceof ReplyError) {
        throw error;
      }
      throw new CannotConnect(`cannot connect to ${shown}: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Whether requests can be sent. */
  get alive(): boolean {
    return !this.#over;
  }

  /** Be told of the end. */
  onEnd(ended: Ended): void {
    this.#ended = ended;
  }

  /** Write a request. The connection has to be alive. */
  send(request: Request): void {
    if (!this.#socket.writableCorked) {
      this.#socket.cork();
      process.nextTick(() => this.#socket.uncork());
    }
    request.sentAt = performance.now();
    this.#waiting.push(request);
    this.#socket.write(request.bytes);
  }

  /** Whether nothing was heard since this request was sent: then the peer may be gone. */
  silentSince(request: Request): boolean {
    return request.sent && this.#heardAt < request.sentAt;
  }

  /** End it now. What was not answered is lost. */
  close(reason: PenstockError = this.#lost("it was closed here")): void {
    this.#end(reason);
  }

  #lost(why: string, cause?: Error): ConnectionLost {
    return new ConnectionLost(`the connection to ${this.#settings.shown} was lost: ${why}`, true, { cause });
  }

  #take(chunk: Buffer): void {
    this.#heardAt = performance.now();
    if (this.#over) {
      return;
    }
    try {
      for (const reply of this.#parser.feed(chunk)) {
        if (!(reply instanceof Push)) {
          this.#answer(reply);
        }
      }
    } catch (error) {
      this.#end(error instanceof PenstockError ? error : new ProtocolError(String(error)));
    }
  }

  #answer(reply: Reply): void {
    const request = this.#waiting.shift();
    if (request === undefined) {
      throw reply instanceof ReplyError ? reply : new ProtocolError("the server sent a reply that was not asked for");
    }
    if (reply instanceof ReplyError) {
      request.reject(reply);
    } else {
      request.resolve(reply);
    }
  }

  #end(reason: PenstockError): void {
    if (this.#over) {
      return;
    }
    this.#over = true;
    this.#socket.destroy();
    this.#ended(reason, this.#waiting.drain());
  }
}

function dial(settings: Settings): Socket {
  const { place } = settings;
  if (place.kind === "unix") {
    return connectPlain({ path: place.path });
  }
  const { host, port } = place;
  return place.secure
    ? connectSecure({ ...(isName(host) ? { servername: host } : {}), ...settings.tls, host, port })
    : connectPlain({ host, port });
}

/** Whether a host is a name, which TLS can ask for, rather than a number. */
function isName(host: string): boolean {
  return !/^[0-9.]+$|:/.test(host);
}

/** What an error says; one of several addresses that failed has no message of its own. */
function messageOf(error: unknown): string {
  const first: unknown = error instanceof AggregateError ? error.errors[0] : error;
  return first instanceof Error ? first.message : String(first);
}

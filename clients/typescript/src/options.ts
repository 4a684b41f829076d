/**
 * Where a server is and how it is spoken to.
 *
 * Contract: `settled` checks everything that a program gives, and fills in the rest. Lengths of time are milliseconds.
 */
import type { ConnectionOptions as TlsOptions } from "node:tls";

import { InvalidUrl } from "./errors.js";
import type { OnError } from "./telling.js";

/** What a client may be told. */
export interface ClientOptions {
  /**
   * `tcp://host:port`, `tls://host:port` or `unix:///path`, with `user:password@` before the host if needed. The forms
   * `redis://` and `rediss://` mean the same as `tcp://` and `tls://`. Default: `tcp://127.0.0.1:6380`.
   */
  readonly url?: string;
  /** Default: that of the URL, or `default` where there is a password. */
  readonly username?: string;
  readonly password?: string;
  /** How others see the connections (CLIENT LIST). No spaces. */
  readonly name?: string;
  /** For `tls://`: certificates and whatever else `tls.connect` takes. */
  readonly tls?: TlsOptions;
  /** For one request, with waiting for a connection; waiting for entries comes on top. Default: 30,000. */
  readonly timeoutMs?: number;
  /** For opening one connection. Default: 5,000. */
  readonly connectTimeoutMs?: number;
  /** Pauses between attempts to connect, which double. With false there is one attempt, and nothing is repeated. */
  readonly reconnect?: false | ReconnectOptions;
  /** Connections that requests share. Those about one topic take the same one, and so stay in order. Default: 2. */
  readonly connections?: number;
  /** Connections that wait for entries, at most; a further one waits until one is free. Default: 64. */
  readonly blockingConnections?: number;
  /** Bytes of requests without an answer, on one connection, before a further one is refused. Default: 64 MiB. */
  readonly maxPendingBytes?: number;
  /** Bytes of one reply, at most. Default: 512 MiB. */
  readonly maxReplyBytes?: number;
  /**
   * Is told of errors that no call reports: a connection that was lost, an attempt to open one again that failed, and
   * what a listener or a callback threw. Default: what was thrown is printed with `console.error`, and connections are
   * not told of.
   */
  readonly onError?: OnError;
}

/** The pauses between attempts to connect. */
export interface ReconnectOptions {
  /** Default: 100. */
  readonly firstMs?: number;
  /** Default: 5,000. */
  readonly lastMs?: number;
}

/** A place to connect to. */
export type Place =
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "tcp"; readonly host: string; readonly port: number; readonly secure: boolean };

/** Options with everything filled in. */
export interface Settings {
  readonly place: Place;
  /** As people write it, without the password. */
  readonly shown: string;
  readonly username: string;
  readonly password: string | undefined;
  readonly name: string;
  readonly tls: TlsOptions;
  readonly timeoutMs: number;
  readonly connectTimeoutMs: number;
  readonly reconnect: Required<ReconnectOptions> | undefined;
  readonly connections: number;
  readonly blockingConnections: number;
  readonly maxPendingBytes: number;
  readonly maxReplyBytes: number;
  readonly onError: OnError | undefined;
}

export const DEFAULT_URL = "tcp://127.0.0.1:6380";
const DEFAULT_PORTS = { "tcp:": 6380, "tls:": 6380, "redis:": 6379, "rediss:": 6379 };
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Options as settings. Throws `InvalidUrl`, or `RangeError` for a number that cannot be. */
export function settled(options: ClientOptions): Settings {
  const { url, place, user, secret } = parsed(options.url ?? DEFAULT_URL);
  const password = options.password ?? (secret || undefined);
  const reconnect = options.reconnect ?? {};
  return {
    place,
    shown: place.kind === "unix" ? `unix://${place.path}` : `${url.protocol}//${place.host}:${place.port}`,
    username: options.username ?? (user || "default"),
    password,
    name: options.name ?? "",
    tls: options.tls ?? {},
    timeoutMs: atLeast("timeoutMs", options.timeoutMs ?? 30_000, 1, MAX_TIMER_MS),
    connectTimeoutMs: atLeast("connectTimeoutMs", options.connectTimeoutMs ?? 5_000, 1, MAX_TIMER_MS),
    reconnect:
      reconnect === false
        ? undefined
        : {
            firstMs: atLeast("reconnect.firstMs", reconnect.firstMs ?? 100, 0, MAX_TIMER_MS),
            lastMs: atLeast("reconnect.lastMs", reconnect.lastMs ?? 5_000, 0, MAX_TIMER_MS),
          },
    connections: atLeast("connections", options.connections ?? 2, 1),
    blockingConnections: atLeast("blockingConnections", options.blockingConnections ?? 64, 1),
    maxPendingBytes: atLeast("maxPendingBytes", options.maxPendingBytes ?? 64 << 20, 1),
    maxReplyBytes: atLeast("maxReplyBytes", options.maxReplyBytes ?? 512 << 20, 1),
    onError: options.onError,
  };
}

const ACCEPTED = "tcp://HOST:PORT, tls://HOST:PORT (or redis://, rediss://) and unix:///PATH are accepted";

interface Address {
  readonly url: URL;
  readonly place: Place;
  readonly user: string;
  readonly secret: string;
}

/** What an address says. Throws `InvalidUrl`, with the address. */
function parsed(text: string): Address {
  try {
    const url = new URL(text);
    const [user, secret] = [decodeURIComponent(url.username), decodeURIComponent(url.password)];
    return { url, place: placeOf(url), user, secret };
  } catch (cause) {
    const why = cause instanceof Refusal ? cause.message : "is no address";
    throw new InvalidUrl(`${JSON.stringify(hidden(text))} ${why}: ${ACCEPTED}`, { cause });
  }
}

/** What an address has that it should not have. */
class Refusal extends Error {}

/** An address without its password. */
function hidden(text: string): string {
  return String(text).replace(/\/\/.*@/, "//***@");
}

function placeOf(url: URL): Place {
  switch (url.protocol) {
    case "unix:":
      if (url.host || url.pathname.length < 2) {
        throw new Refusal("has no path behind three slashes");
      }
      return { kind: "unix", path: decodeURIComponent(url.pathname) };
    case "tcp:":
    case "redis:":
    case "tls:":
    case "rediss:":
      return tcpPlace(url, DEFAULT_PORTS[url.protocol]);
    default:
      throw new Refusal(`begins with ${url.protocol}//`);
  }
}

function tcpPlace(url: URL, port: number): Place {
  if (!url.hostname) {
    throw new Refusal("has no host");
  }
  if (!/^\/?$/.test(url.pathname) || url.search || url.hash) {
    throw new Refusal("has something behind the port");
  }
  return {
    kind: "tcp",
    host: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: url.port === "" ? port : Number(url.port),
    secure: url.protocol === "tls:" || url.protocol === "rediss:",
  };
}

/** A whole number within its bounds. */
export function atLeast(name: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): number {
  if (!Number.isSafeInteger(value) || value < least || value > most) {
    throw new RangeError(`${name} is ${value}, and has to be a whole number from ${least} to ${most}`);
  }
  return value;
}

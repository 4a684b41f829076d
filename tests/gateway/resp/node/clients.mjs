/**
 * The libraries, as one: `open` connects with any of them, `client.send` takes the words of a command and answers with
 * Buffers in place of text. `client.own` is the library's client, for what only its methods can show.
 */
import Ioredis5 from "ioredis5";
import { Redis as Ioredis6 } from "ioredis6";
import * as redis5 from "redis5";
import * as redis6 from "redis6";

/** Places of the gateway: `tcp`, `unix`, `tls` (with `ca`) and one with users, `guarded`. */
export const PLACES = JSON.parse(process.env["PENSTOCK_TEST_PLACES"] ?? "{}");

/** Each library with each version of RESP. */
export const IOREDIS = [
  [5, Ioredis5],
  [6, Ioredis6],
].flatMap(([version, Redis]) =>
  [2, 3].map((resp) => ({
    name: `ioredis ${version}, RESP${resp}`,
    open: (place, more) => ioredis(Redis, resp, place, more),
  })),
);
export const NODE_REDIS = [
  [5, redis5],
  [6, redis6],
].flatMap(([version, library]) =>
  [2, 3].map((resp) => ({
    name: `node-redis ${version}, RESP${resp}`,
    library,
    open: (place, more) => nodeRedis(library, resp, place, more),
  })),
);
export const ALL = [...IOREDIS, ...NODE_REDIS];

/** Names that no other test uses. */
export function fresh() {
  made += 1;
  return `n${process.pid}-${made}`;
}
let made = 0;

async function ioredis(Redis, protocol, place, more = {}) {
  const { path, port, ca, username, password } = place;
  const where = path ? { path } : { host: ca ? "localhost" : "127.0.0.1", port };
  const own = new Redis({
    ...where,
    ...(ca && { tls: { ca } }),
    username,
    password,
    protocol,
    lazyConnect: true,
    ...more,
  });
  const errors = [];
  own.on("error", (error) => errors.push(error));
  const send = ([name, ...words]) => own.callBuffer(name, ...words);
  return { own, errors, send, connect: () => own.connect(), end: () => own.disconnect() };
}

async function nodeRedis(library, RESP, place, more = {}) {
  const { path, port, ca, username, password } = place;
  const where = path ? { path } : { host: ca ? "localhost" : "127.0.0.1", port };
  const socket = { ...where, ...(ca && { tls: true, ca }), ...more.socket };
  const own = library.createClient({ RESP, username, password, unstableResp3: true, ...more, socket });
  const errors = [];
  own.on("error", (error) => errors.push(error));
  const { BLOB_STRING, VERBATIM_STRING } = library.RESP_TYPES;
  const typeMapping = { [BLOB_STRING]: Buffer, [VERBATIM_STRING]: Buffer };
  const send = (words) =>
    own.sendCommand(
      words.map((word) => (Buffer.isBuffer(word) ? word : String(word))),
      { typeMapping },
    );
  return { own, errors, send, connect: () => own.connect(), end: () => own.isOpen && own.destroy() };
}

import assert from "node:assert/strict";
import { test } from "node:test";

import { ProtocolError, ReplyError, UnknownTopic } from "../src/errors.js";
import { ReplyParser } from "../src/parser.js";
import { Push, type Reply, ReplyMap } from "../src/replies.js";
import { numbers, type Random } from "./random.js";

const LIMITS = { maxReplyBytes: 1 << 20 };

function parse(...chunks: Buffer[]): Reply[] {
  const parser = new ReplyParser(LIMITS);
  return chunks.flatMap((chunk) => parser.feed(chunk));
}

function bytes(text: string): Buffer {
  return Buffer.from(text, "latin1");
}

/** All values of one of each type, nested, in RESP 2 and 3. */
const EVERYTHING = bytes(
  "+OK\r\n-ERR no\r\n:-12\r\n$5\r\na\r\n\xffb\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n" +
    "_\r\n,1.5\r\n,inf\r\n" +
    "#t\r\n#f\r\n(-123456789012345678901234567890\r\n!5\r\nERR x\r\n=7\r\ntxt:abc\r\n%1\r\n+k\r\n~1\r\n:1\r\n%0\r\n" +
    "|1\r\n+ttl\r\n:1\r\n:7\r\n*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n>2\r\n+message\r\n:1\r\n:18446744073709551615\r\n",
);

const VALUES: Reply[] = [
  "OK",
  new ReplyError("no", "ERR", "error"),
  -12n,
  bytes("a\r\n\xffb"),
  bytes(""),
  null,
  null,
  [],
  [1n, [bytes("x")]],
  null,
  1.5,
  Infinity,
  true,
  false,
  -123456789012345678901234567890n,
  new ReplyError("x", "ERR", "error"),
  bytes("abc"),
  new ReplyMap([["k", [1n]]]),
  new ReplyMap([]),
  7n,
  [1n, 2n],
  new Push(["message", 1n]),
  18446744073709551615n,
];

test("every type of RESP 2 and 3 is a value", () => {
  assert.deepEqual(parse(EVERYTHING), VALUES);
});

test("replies are the same however their bytes are cut", () => {
  const single = [...EVERYTHING].map((_, at) => EVERYTHING.subarray(at, at + 1));
  assert.deepEqual(parse(...single), VALUES);
  for (let cut = 0; cut <= EVERYTHING.length; cut += 1) {
    assert.deepEqual(parse(EVERYTHING.subarray(0, cut), EVERYTHING.subarray(cut)), VALUES);
  }
});

test("random replies are read as they were written, in random pieces", () => {
  const random = numbers(7);
  for (let round = 0; round < 300; round += 1) {
    const values = Array.from({ length: 1 + random(4) }, () => made(random, 4));
    const wire = Buffer.concat(values.map(written));
    assert.deepEqual(parse(...pieces(random, wire)), values);
  }
});

test("bytes that were changed give values or a ProtocolError, and never more than was sent", () => {
  const random = numbers(11);
  let refused = 0;
  for (let round = 0; round < 3_000; round += 1) {
    const wire = Buffer.from(EVERYTHING);
    for (let change = 0; change <= random(3); change += 1) {
      wire[random(wire.length)] = random(3) ? (bytes("*$:%>|~-0123456789\r\n")[random(20)] ?? 0) : random(256);
    }
    try {
      assert.ok(parse(...pieces(random, wire)).length <= wire.length);
    } catch (error) {
      assert.ok(error instanceof ProtocolError, String(error));
      refused += 1;
    }
  }
  assert.ok(refused > 300);
});

test("what is no RESP is refused as soon as it can be seen", () => {
  for (const text of [
    "HTTP/1.1 400\r\n", "\r\n", "+OK\n", ":\r\n", ":1a\r\n", ":123456789012345678901\r\n", "$x\r\n", "$-2\r\n",
    "$1\r\nabc", "*1.5\r\n", "*-3\r\n", "#x\r\n", ",\r\n", ",one\r\n", "=2\r\nab\r\n", "$?\r\n", "(x\r\n", "%-2\r\n",
  ]) {
    assert.throws(() => parse(bytes(text)), ProtocolError, JSON.stringify(text));
  }
});

test("a length that cannot fit is refused before its bytes come", () => {
  assert.throws(() => parse(bytes("$1048577\r\n")), ProtocolError);
  assert.throws(() => parse(bytes("*349526\r\n")), ProtocolError);
  assert.throws(() => parse(bytes("%174763\r\n")), ProtocolError);
  const half = Buffer.alloc(600_000, "x");
  assert.throws(() => parse(bytes("*2\r\n$600000\r\n"), half, bytes("\r\n$600000\r\n")), ProtocolError);
  assert.throws(() => parse(bytes("*1\r\n".repeat(33))), ProtocolError);
  assert.throws(() => parse(bytes("+" + "x".repeat(65_536))), ProtocolError);
  assert.deepEqual(parse(bytes("+" + "x".repeat(65_533) + "\r\n"))[0], "x".repeat(65_533));
  assert.deepEqual(new ReplyParser({ maxReplyBytes: 7 }).feed(bytes("*1\r\n_\r\n")), [[null]]);
  assert.throws(() => new ReplyParser({ maxReplyBytes: 6 }).feed(bytes("*1\r\n_\r\n")), ProtocolError);
  assert.deepEqual(parse(bytes("=4\r\ntxt:\r\n")), [bytes("")]);
  assert.deepEqual(parse(bytes("*1\r\n".repeat(31) + "*0\r\n")).length, 1);
});

test("the limit is one of each reply, not of all", () => {
  const parser = new ReplyParser({ maxReplyBytes: 11 });
  for (let round = 0; round < 5; round += 1) {
    assert.deepEqual(parser.feed(bytes("$5\r\nabcde\r\n")), [bytes("abcde")]);
  }
  assert.throws(() => parser.feed(bytes("$6\r\nabcdef\r\n")), ProtocolError);
});

test("a payload does not keep the chunk that it came in", () => {
  const [payload] = parse(bytes("$3\r\nabc\r\n"));
  const chunk = bytes("$3\r\nabc\r\n");
  const [other] = parse(chunk);
  chunk.fill(0);
  assert.deepEqual(other, payload);
});

test("errors keep their codes", () => {
  const [error] = parse(bytes("-ERR there is no topic t [unknown_topic]\r\n"));
  assert.ok(error instanceof UnknownTopic);
});

function made(random: Random, depth: number): Reply {
  switch (random(depth > 0 ? 9 : 6)) {
    case 0:
      return BigInt(random(1 << 30)) - (1n << 29n);
    case 1:
      return null;
    case 2:
      return random(2) === 1;
    case 3:
      return "s".repeat(random(9));
    case 4:
    case 5:
      return Buffer.from(Array.from({ length: random(40) }, () => random(256)));
    case 6:
      return new ReplyMap(Array.from({ length: random(4) }, () => [made(random, depth - 1), made(random, depth - 1)]));
    default:
      return Array.from({ length: random(5) }, () => made(random, depth - 1));
  }
}

function written(value: Reply): Buffer {
  if (value instanceof Buffer) {
    return Buffer.concat([bytes(`$${value.length}\r\n`), value, bytes("\r\n")]);
  }
  if (value instanceof ReplyMap) {
    return Buffer.concat([bytes(`%${value.pairs.length}\r\n`), ...value.pairs.flat().map(written)]);
  }
  if (Array.isArray(value)) {
    return Buffer.concat([bytes(`*${value.length}\r\n`), ...(value as Reply[]).map(written)]);
  }
  if (typeof value === "boolean") {
    return bytes(value ? "#t\r\n" : "#f\r\n");
  }
  return bytes(value === null ? "_\r\n" : typeof value === "bigint" ? `:${value}\r\n` : `+${String(value)}\r\n`);
}

function pieces(random: Random, wire: Buffer): Buffer[] {
  const found: Buffer[] = [];
  for (let at = 0; at < wire.length; ) {
    const end = at + 1 + random(30);
    found.push(wire.subarray(at, end));
    at = end;
  }
  return found;
}

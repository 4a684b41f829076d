import assert from "node:assert/strict";
import { test } from "node:test";

import { Entry, fieldWords, millisecondsOf, offsetOf } from "../src/entries.js";
import { encode } from "../src/encoding.js";
import * as errors from "../src/errors.js";
import { Fifo } from "../src/fifo.js";
import { Lane, pauseMs } from "../src/lane.js";
import { DEFAULT_URL, settled } from "../src/options.js";
import { Request } from "../src/request.js";
import { numbers } from "./random.js";

test("commands are arrays of bulk strings", () => {
  assert.equal(encode(["PING"]).toString(), "*1\r\n$4\r\nPING\r\n");
  const words = ["X", "né", Buffer.from([0, 255, 13, 10]), 12, -3n, new Uint8Array([65])];
  const wire = "*6\r\n$1\r\nX\r\n$3\r\nnÃ©\r\n$4\r\n\x00\xff\r\n\r\n$2\r\n12\r\n$2\r\n-3\r\n$1\r\nA\r\n";
  assert.deepEqual(encode(words), Buffer.from(wire, "latin1"));
  assert.equal(encode([new Uint8Array([65, 66, 67]).subarray(1, 2)]).toString(), "*1\r\n$1\r\nB\r\n");
  for (const number of [1.5, NaN, 2 ** 53]) {
    assert.throws(() => encode([number]), RangeError);
  }
});

test("errors of the server have classes, codes and kinds", () => {
  const reached = "max number of clients reached";
  const cases: [string, unknown, string, string, boolean][] = [
    ["ERR there is no topic t [unknown_topic]", errors.UnknownTopic, "unknown_topic", "there is no topic t", false],
    ["ERR topic t is there [topic_exists]", errors.TopicExists, "topic_exists", "topic t is there", false],
    ["ERR no group g [unknown_group]", errors.UnknownGroup, "unknown_group", "no group g", false],
    ["NOGROUP No such key 'k'", errors.UnknownGroup, "unknown_group", "No such key 'k'", false],
    ["BUSYGROUP it exists", errors.GroupExists, "group_exists", "it exists", false],
    ["OOM disk is full [storage_full]", errors.OutOfSpace, "storage_full", "disk is full", false],
    ["OOM command not allowed", errors.OutOfSpace, "out_of_space", "command not allowed", false],
    ["TRYAGAIN no broker [no_leader]", errors.Unavailable, "no_leader", "no broker", true],
    ["LOADING Redis is loading", errors.Unavailable, "loading", "Redis is loading", true],
    ["ERR max number of clients reached", errors.Unavailable, "too_many_clients", reached, true],
    ["NOAUTH wanted", errors.AuthenticationFailed, "authentication", "wanted", false],
    ["WRONGPASS invalid", errors.AuthenticationFailed, "authentication", "invalid", false],
    ["NOPERM no", errors.PermissionDenied, "permission", "no", false],
    ["WRONGTYPE not a stream", errors.WrongType, "wrong_type", "not a stream", false],
    ["ERR unknown command 'X': HELP", errors.UnknownCommand, "unknown_command", "unknown command 'X': HELP", false],
    ["ERR unknown subcommand 'X'", errors.UnknownCommand, "unknown_command", "unknown subcommand 'X'", false],
    ["ERR syntax error", errors.ReplyError, "error", "syntax error", false],
    ["ERR", errors.ReplyError, "error", "ERR", false],
  ];
  for (const [text, kind, code, message, retry] of cases) {
    const error = errors.replyError(text);
    assert.equal(error.constructor, kind, text);
    assert.deepEqual([error.code, error.message, error.retry], [code, message, retry]);
    assert.equal(error.kind, text.split(" ")[0]);
    assert.equal(error.name, error.constructor.name);
    assert.ok(error instanceof errors.PenstockError && error instanceof Error);
  }
});

test("addresses and credentials are read from the URL", () => {
  const place = (url: string): unknown => settled({ url }).place;
  const tcp = (host: string, port: number, secure = false): unknown => ({ kind: "tcp", host, port, secure });
  assert.deepEqual(settled({}).place, place(DEFAULT_URL));
  assert.deepEqual(place("tcp://127.0.0.1:7"), tcp("127.0.0.1", 7));
  assert.deepEqual(place("tcp://broker"), tcp("broker", 6380));
  assert.deepEqual(place("redis://broker"), tcp("broker", 6379));
  assert.deepEqual(place("tls://[::1]:7/"), tcp("::1", 7, true));
  assert.deepEqual(place("rediss://broker:7"), tcp("broker", 7, true));
  assert.deepEqual(place("unix:///run/a%20b"), { kind: "unix", path: "/run/a b" });
  const given = settled({ url: "tcp://ann:p%40ss@broker:7" });
  assert.deepEqual([given.username, given.password, given.shown], ["ann", "p@ss", "tcp://broker:7"]);
  const told = settled({ url: "tcp://ann:x@broker:7", username: "bob", password: "y" });
  assert.deepEqual([told.username, told.password], ["bob", "y"]);
  assert.equal(settled({ password: "x" }).username, "default");
});

test("options that cannot be are refused, without showing a password", () => {
  const wrong = ["broker:6380", "http://broker", "tcp://broker:7/0", "tcp://broker?db=1", "tcp://broker:99999"];
  for (const url of [...wrong, "tcp://%zz@b", "unix://run/x", "unix:///", "tcp://", "", 7 as unknown as string]) {
    assert.throws(() => settled({ url }), (error) => {
      assert.ok(error instanceof errors.InvalidUrl && error instanceof errors.PenstockError);
      assert.deepEqual([error.code, error.retry], ["invalid_url", false]);
      assert.ok(error.message.startsWith(JSON.stringify(String(url).replace("%zz@", "***@"))), error.message);
      assert.match(error.message, /tcp:\/\/HOST:PORT.*unix:\/\/\/PATH/);
      return true;
    });
  }
  for (const url of ["tcp://a:secret@:::", "tcp://a:se/secret@broker", "http://a:secret@broker"]) {
    assert.throws(() => settled({ url }), (error) => !String(error).includes("secret"));
  }
  const tooLong = { timeoutMs: 2 ** 31 };
  for (const each of [{ timeoutMs: 0 }, tooLong, { connections: 0 }, { connections: 1.5 }, { maxReplyBytes: NaN }]) {
    assert.throws(() => settled(each), RangeError);
  }
  assert.throws(() => settled({ reconnect: { firstMs: -1 } }), RangeError);
  assert.equal(settled({ reconnect: false }).reconnect, undefined);
});

test("pauses double up to the last one, and are up to half shorter", () => {
  const pauses = (random: number): number[] =>
    [1, 2, 3, 4, 5, 2_000].map((failures) => pauseMs(failures, { firstMs: 100, lastMs: 1_000 }, random));
  assert.deepEqual(pauses(0), [100, 200, 400, 800, 1_000, 1_000]);
  assert.deepEqual(pauses(1), [50, 100, 200, 400, 500, 500]);
});

const quiet = (): void => undefined;

test("a closed lane takes no requests", async () => {
  const lane = new Lane(settled({}), { opened: quiet, lost: quiet, failed: quiet });
  lane.close();
  await assert.rejects(lane.send(new Request(["PING"], { repeat: true, timeoutMs: 0 })), errors.ClientClosed);
  await assert.rejects(lane.connect(), errors.ClientClosed);
});

test("ids have milliseconds and an offset, exactly", () => {
  assert.equal(offsetOf("1795000000000-18446744073709551615"), 18446744073709551615n);
  assert.equal(millisecondsOf("1795000000000-7"), 1795000000000);
  for (const wrong of ["", "1", "1-", "-1", "a-1", "1-2-3", "1-2 "]) {
    assert.throws(() => offsetOf(wrong), TypeError, wrong);
  }
});

test("entries give fields by name, in order, and the last of a name", () => {
  const pair = (name: string, value: string): [Buffer, Buffer] => [Buffer.from(name), Buffer.from(value)];
  const entry = new Entry("5-9", [pair("a", "1"), pair("value", "v"), pair("a", "2")]);
  assert.deepEqual([entry.offset, entry.value.toString(), entry.fields.get("a")?.toString()], [9n, "v", "2"]);
  assert.deepEqual([...entry.fields.keys()], ["a", "value"]);
  assert.equal(entry.pairs.length, 3);
  const gone = new Entry("5-9", undefined);
  assert.deepEqual([gone.deleted, entry.deleted, gone.value.length, gone.fields.size], [true, false, 0, 0]);
});

test("fields are an object or pairs, and never none", () => {
  assert.deepEqual(fieldWords({ a: "1", b: "2" }), ["a", "1", "b", "2"]);
  assert.deepEqual(fieldWords([["a", "1"], ["a", "2"]]), ["a", "1", "a", "2"]);
  assert.deepEqual(fieldWords(new Map([["a", "1"]])), ["a", "1"]);
  assert.throws(() => fieldWords({}), TypeError);
});

test("a queue gives what it got, in order, whatever comes between", () => {
  const random = numbers(3);
  const queue = new Fifo<number>();
  const model: number[] = [];
  for (let step = 0; step < 5_000; step += 1) {
    if (random(100) === 0) {
      assert.deepEqual(queue.drain(), model.splice(0));
    } else if (random(2) === 0) {
      queue.push(step);
      model.push(step);
    } else {
      assert.equal(queue.shift(), model.shift());
    }
    assert.equal(queue.size, model.length);
  }
});

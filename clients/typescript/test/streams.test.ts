import assert from "node:assert/strict";
import { test } from "node:test";

import { type Client, connect } from "../src/client.js";
import type { Entry } from "../src/entries.js";
import * as errors from "../src/errors.js";
import { Fake } from "./fake.js";
import { fresh, overBoth } from "./servers.js";

const values = (entries: readonly Entry[]): string[] => entries.map((entry) => entry.value.toString());

async function added(client: Client, key: string, ...payloads: string[]): Promise<string[]> {
  const ids = await Promise.all(payloads.map((value) => client.streams.add(key, { value })));
  return ids.map(String);
}

overBoth((over) => {
  over("entries come back as they were added, byte for byte", [], async (_, { streams }) => {
    const key = fresh();
    const value = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    const id = await streams.add(key, { value, key: "k", née: "ü", empty: "" });
    const [entry] = await streams.range(key);
    assert.ok(entry && id);
    assert.equal(entry.id, id);
    assert.deepEqual(entry.value, value);
    assert.deepEqual([...entry.fields.keys()].sort(), ["empty", "key", "née", "value"]);
    assert.equal(entry.fields.get("née")?.toString(), "ü");
    assert.equal(await streams.length(key), 1);
  });

  over("a large payload comes back whole", [], async (_, { streams }) => {
    const key = fresh();
    const value = Buffer.alloc(700_000, "0123456789abcdef");
    await streams.add(key, { value });
    assert.ok((await streams.range(key))[0]?.value.equals(value));
  });

  over("entries that are added without waiting stay in order", [], async (_, client) => {
    const key = fresh();
    const payloads = Array.from({ length: 300 }, String);
    const ids = await added(client, key, ...payloads);
    assert.deepEqual(values(await client.streams.range(key)), payloads);
    assert.deepEqual((await client.streams.range(key)).map((entry) => entry.id), ids);
  });

  over("ranges have bounds, a count and two directions", [], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const [, second = "", third = ""] = await added(client, key, "a", "b", "c", "d");
    assert.deepEqual(values(await streams.range(key, { start: second, end: third })), ["b", "c"]);
    assert.deepEqual(values(await streams.range(key, { start: `(${second}`, count: 1 })), ["c"]);
    assert.deepEqual(values(await streams.reverseRange(key, { end: `(${third}` })), ["b", "a"]);
    assert.deepEqual(values(await streams.reverseRange(key, { count: 2 })), ["d", "c"]);
    assert.deepEqual(await streams.range(fresh()), []);
  });

  over("a scan reads all pages", [], async (_, client) => {
    const key = fresh();
    const ids = await added(client, key, "a", "b", "c", "d", "e");
    for (const count of [1, 2, 5, 6]) {
      const found: string[] = [];
      for await (const entry of client.streams.scan(key, { count, start: String(ids[1]) })) {
        found.push(entry.value.toString());
      }
      assert.deepEqual(found, ["b", "c", "d", "e"]);
    }
  });

  over("a read takes several streams, and waits if it is told to", [], async (_, client) => {
    const [one, other, { streams }] = [fresh(), fresh(), client];
    const [id = ""] = await added(client, one, "a", "b");
    await added(client, other, "c");
    const found = await streams.read({ [one]: id, [other]: "0" });
    assert.deepEqual([...found].map(([key, entries]) => [key, values(entries)]), [[one, ["b"]], [other, ["c"]]]);
    assert.deepEqual(await streams.read({ [one]: "$" }), new Map());
    assert.deepEqual(await streams.read({ [one]: "$" }, { blockMs: 1 }), new Map());
    const waits = streams.read({ [other]: found.get(other)?.[0]?.id ?? "" }, { blockMs: 0 });
    await added(client, other, "d");
    assert.deepEqual(values((await waits).get(other) ?? []), ["d"]);
  });

  over("a stream is followed from its end or from an id, until the signal", [], async (_, client) => {
    const key = fresh();
    await added(client, key, "a");
    for (const [after, expected] of [["$", ["b", "c"]], ["0", ["a", "b", "c"]]] as const) {
      const aborts = new AbortController();
      const found: string[] = [];
      const follows = client.streams.follow(key, { after, signal: aborts.signal });
      const first = follows.next(); // looks where the end is
      if (after === "$") {
        await client.streams.length(key); // behind that on the same connection
        await added(client, key, "b", "c");
      }
      for (let next = await first; next.value; next = await follows.next()) {
        found.push(next.value.value.toString());
        if (found.length === expected.length) {
          setImmediate(() => aborts.abort());
        }
      }
      assert.deepEqual(found, expected);
    }
  });

  over("a stream that is not there is not made where that is not wanted", [], async (_, { streams }) => {
    const key = fresh();
    assert.equal(await streams.add(key, { value: "a" }, { create: false }), null);
    assert.equal(await streams.length(key), 0);
    await assert.rejects(streams.info(key), errors.ReplyError);
  });

  over("a stream is described with its groups", [], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const ids = await added(client, key, "a", "b", "c");
    const group = streams.group(key, "g");
    assert.equal(await group.create(), true);
    await group.read("ann", { count: 2 });
    const info = await streams.info(key);
    assert.deepEqual([info.length, info.groups, info.entriesAdded, info.lastId], [3, 1, 3, ids[2]]);
    assert.deepEqual([info.firstEntry?.value.toString(), info.lastEntry?.id], ["a", ids[2]]);
    assert.deepEqual(await streams.groups(key), [
      { name: "g", consumers: 1, pending: 2, lastDeliveredId: ids[1], entriesRead: 2, lag: 1 },
    ]);
  });

  over("a stream is trimmed to a length, or from an id on", ["XTRIM"], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const ids = await added(client, key, "a", "b", "c", "d");
    assert.equal(await streams.trim(key, { maxLen: 3 }), 1);
    assert.equal(await streams.trim(key, { minId: String(ids[2]) }), 1);
    assert.deepEqual(values(await streams.range(key)), ["c", "d"]);
    await assert.rejects(streams.trim(key, {}), TypeError);
    await assert.rejects(streams.trim(key, { maxLen: 1, minId: "0" }), TypeError);
  });

  over("a group gives each entry to one consumer, which has it until it acknowledges it", [], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const ids = await added(client, key, "a", "b", "c");
    const group = streams.group(key, "g");
    assert.equal(await group.create(), true);
    assert.equal(await group.create(), false);
    assert.deepEqual(values(await group.read("ann", { count: 1 })), ["a"]);
    assert.deepEqual(values(await group.read("bob")), ["b", "c"]);
    assert.deepEqual(await group.read("ann"), []);
    assert.deepEqual(await group.read("ann", { blockMs: 1 }), []);
    assert.equal(await group.ack(ids), 3);
    assert.equal(await group.ack(ids), 0);
    assert.equal(await group.destroy(), true);
    assert.equal(await group.destroy(), false);
    await assert.rejects(group.read("ann"), errors.UnknownGroup);
  });

  over("a group may begin at the end, and its entries are iterated over as they come", [], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    await added(client, key, "a");
    const group = streams.group(key, "g");
    await group.create({ start: "$" });
    await assert.rejects(streams.group(fresh(), "g").create({ makeStream: false }), errors.ReplyError);
    const aborts = new AbortController();
    const found: string[] = [];
    const iterating = (async () => {
      for await (const entry of group.entries("ann", { signal: aborts.signal })) {
        found.push(entry.value.toString());
        assert.equal(await group.ack([entry.id]), 1);
        if (found.length === 2) {
          aborts.abort();
        }
      }
    })();
    await added(client, key, "b", "c");
    await iterating;
    assert.deepEqual(found, ["b", "c"]);
  });

  over("what is not acknowledged is listed, by consumer and by age", ["XPENDING"], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const ids = await added(client, key, "a", "b", "c");
    const group = streams.group(key, "g");
    await group.create();
    assert.deepEqual(await group.pendingSummary(), { count: 0, firstId: null, lastId: null, consumers: new Map() });
    await group.read("ann", { count: 2 });
    await group.read("bob");
    assert.deepEqual(await group.pendingSummary(), {
      count: 3,
      firstId: ids[0],
      lastId: ids[2],
      consumers: new Map([["ann", 2], ["bob", 1]]),
    });
    const listed = await group.pending();
    assert.deepEqual(
      listed.map(({ id, consumer, deliveries }) => [id, consumer, deliveries]),
      [[ids[0], "ann", 1], [ids[1], "ann", 1], [ids[2], "bob", 1]],
    );
    assert.ok(listed.every(({ idleMs }) => idleMs >= 0 && idleMs < 60_000));
    assert.deepEqual((await group.pending({ consumer: "bob" })).map(({ id }) => id), [ids[2]]);
    assert.deepEqual((await group.pending({ count: 1, start: `(${ids[0]}` })).map(({ id }) => id), [ids[1]]);
    assert.deepEqual(await group.pending({ minIdleMs: 3_600_000 }), []);
  });

  over("entries are claimed from other consumers", ["XCLAIM"], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const ids = await added(client, key, "a", "b");
    const group = streams.group(key, "g");
    await group.create();
    await group.read("ann");
    assert.deepEqual(await group.claim("bob", 3_600_000, ids), []);
    assert.deepEqual(values(await group.claim("bob", 0, ids.slice(0, 1))), ["a"]);
    assert.deepEqual(await group.claimIds("bob", 0, ids), ids);
    const listed = await group.pending();
    assert.deepEqual(listed.map(({ consumer, deliveries }) => [consumer, deliveries]), [["bob", 2], ["bob", 1]]);
  });

  over("old entries are claimed without their ids", ["XAUTOCLAIM"], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const ids = await added(client, key, "a", "b", "c");
    const group = streams.group(key, "g");
    await group.create();
    await group.read("ann");
    const first = await group.autoClaim("bob", 0, "0-0", 2);
    assert.deepEqual([first.next, values(first.entries), first.deleted], [ids[2], ["a", "b"], []]);
    const rest = await group.autoClaim("bob", 0, first.next);
    assert.deepEqual([rest.next, values(rest.entries)], ["0-0", ["c"]]);
  });

  over("a key and a group of any characters", [], async (_, client) => {
    const key = `${fresh()} ü:\n"1"`;
    const [id = ""] = await added(client, key, "a");
    const group = client.streams.group(key, "g ü");
    await group.create();
    assert.equal(await group.createConsumer("c ü"), true);
    assert.equal(await group.createConsumer("c ü"), false);
    assert.deepEqual(values(await group.read("c ü")), ["a"]);
    assert.equal(await group.ack([id]), 1);
    assert.deepEqual((await group.consumers()).map(({ name, pending }) => [name, pending]), [["c ü", 0]]);
    assert.equal(await group.deleteConsumer("c ü"), 0);
    assert.deepEqual(await group.consumers(), []);
    assert.deepEqual((await client.streams.groups(key)).map(({ name }) => name), ["g ü"]);
  });

  over("a stream is trimmed while it is added to", [], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    await added(client, key, "a", "b");
    const trim = { maxLen: 10, approximate: true, limit: 5 };
    assert.match(String(await streams.add(key, { value: "c" }, { trim })), /^\d+-\d+$/);
    assert.deepEqual(values(await streams.range(key)), ["a", "b", "c"]);
    const id = await streams.add(key, { value: "d" }, { trim: { maxLen: 2 } });
    assert.deepEqual(values(await streams.range(key)), ["c", "d"]);
    assert.equal((await streams.range(key)).at(-1)?.id, id);
  });

  over("a consumer reads again what it has, unless it does not acknowledge", [], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const ids = await added(client, key, "a", "b", "c");
    const group = streams.group(key, "g");
    await group.create();
    await group.read("ann", { count: 2 });
    assert.deepEqual((await group.read("ann", { after: "0" })).map((entry) => entry.id), ids.slice(0, 2));
    assert.deepEqual(values(await group.read("ann", { after: String(ids[0]) })), ["b"]);
    assert.deepEqual(values(await group.read("bob", { noAck: true })), ["c"]);
    assert.deepEqual(await group.read("bob", { after: "0" }), []);
    assert.deepEqual((await group.consumers()).map(({ name, pending }) => [name, pending]), [["ann", 2], ["bob", 0]]);
  });

  over("entries are claimed as they are to look", ["XCLAIM"], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const [first = "", second = ""] = await added(client, key, "a", "b");
    const group = streams.group(key, "g");
    await group.create();
    await group.read("ann", { count: 1 });
    const forced = { idleMs: 3_600_000, retryCount: 7, force: true };
    assert.deepEqual(values(await group.claim("bob", 0, [first], forced)), ["a"]);
    const [claimed] = await group.pending({ start: first });
    assert.deepEqual([claimed?.consumer, claimed?.deliveries], ["bob", 7]);
    assert.ok((claimed?.idleMs ?? 0) >= 3_600_000);
    assert.deepEqual(await group.claim("bob", 0, [second]), []);
    assert.deepEqual(values(await group.claim("bob", 0, [second], { force: true })), ["b"]);
  });

  over("a group is set back, and a consumer is deleted with what it has", [], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    await added(client, key, "a", "b");
    const group = streams.group(key, "g");
    await group.create();
    await group.ack((await group.read("ann")).map((entry) => entry.id));
    await group.setId("0");
    assert.deepEqual(values(await group.read("bob")), ["a", "b"]);
    assert.equal(await group.deleteConsumer("bob"), 2);
    assert.deepEqual((await group.pendingSummary()).count, 0);
  });

  over("an entry is removed, for groups that have not had it too", ["XDEL"], async (_, client) => {
    const [key, { streams }] = [fresh(), client];
    const ids = await added(client, key, "a", "b", "c");
    const group = streams.group(key, "g");
    await group.create();
    assert.equal(await streams.remove(key, [String(ids[1]), "9-9"]), 1);
    assert.equal(await streams.remove(key, [String(ids[1])]), 0);
    assert.deepEqual(values(await streams.range(key)), ["a", "c"]);
    assert.deepEqual(values(await group.read("ann")), ["a", "c"]);
  });

  over("what Redis alone has", [], async (t, client, server) => {
    if (server.name !== "redis") {
      t.skip("a gateway chooses ids, has each name once, ends what is removed, and has no keys but streams");
      return;
    }
    const [key, { streams }] = [fresh(), client];
    assert.equal(await streams.add(key, [["a", "1"], ["a", "2"]], { id: "5-1" }), "5-1");
    assert.equal(await streams.add(key, { a: "3" }, { id: "6-0" }), "6-0");
    const group = streams.group(key, "g");
    await group.create();
    await group.read("ann");
    assert.equal(await streams.remove(key, ["5-1"]), 1);
    const again = await group.read("ann", { after: "0" });
    assert.deepEqual(again.map(({ id, deleted }) => [id, deleted]), [["5-1", true], ["6-0", false]]);
    assert.deepEqual((await group.autoClaim("bob", 0)).deleted, ["5-1"]);
    await client.send(["SET", `${key}s`, "x"]);
    await assert.rejects(streams.range(`${key}s`), errors.WrongType);
  });
});

test("a reply that is not what the command answers is a ProtocolError", async (t) => {
  const fake = await Fake.start((command) => command.answer("+OK\r\n"));
  t.after(() => fake.stop());
  const client = await connect(fake.url);
  t.after(() => client.disconnect());
  await assert.rejects(client.streams.length("k"), errors.ProtocolError);
  await assert.rejects(client.streams.range("k"), errors.ProtocolError);
  await assert.rejects(client.streams.info("k"), errors.ProtocolError);
  await assert.rejects(client.streams.group("k", "g").ack(["1-1"]), errors.ProtocolError);
});

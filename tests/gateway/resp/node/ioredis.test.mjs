/** ioredis by its own methods: pipelines, transactions, groups, scans, what is sent before it is connected. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { fresh, IOREDIS, PLACES } from "./clients.mjs";

function over(title, body, more = {}) {
  for (const { name, open } of IOREDIS) {
    test(`${name}: ${title}`, async (t) => {
      const { own, end } = await open(PLACES.tcp, more);
      t.after(end);
      await body(own, fresh(), t);
    });
  }
}

const flat = (fields) => Object.entries(fields).flat();

over("what is sent before there is a connection waits for it, and the ready check passes", async (client, key) => {
  const asked = [client.xadd(key, "*", "n", "1"), client.xlen(key)]; // opens the connection
  await once(client, "ready");
  assert.equal((await Promise.all(asked))[1], 1);
  assert.match(await client.info("server"), /redis_version:7/);
  assert.match(await client.client("INFO"), /lib-name=ioredis lib-ver=\d/);
  assert.equal(await client.quit(), "OK");
  await assert.rejects(client.ping(), /closed/);
});

over(
  "commands of one turn leave as one pipeline",
  async (client, key) => {
    const ids = await Promise.all(Array.from({ length: 500 }, (_, n) => client.xadd(key, "*", "n", n)));
    assert.deepEqual(
      (await client.xrange(key, "-", "+")).map(([id, fields]) => [id, ...fields]),
      ids.map((id, n) => [id, "n", `${n}`]),
    );
    const lengths = await Promise.all([
      client.xlen(key),
      client.exists(key),
      client.type(key),
      client.xlen(`${key}-not`),
    ]);
    assert.deepEqual(lengths, [500, 1, "stream", 0]);
  },
  { enableAutoPipelining: true },
);

over("pipelines and transactions", async (client, key) => {
  const pipeline = client.pipeline();
  for (let n = 0; n < 1_000; n += 1) {
    pipeline.xadd(key, "*", "n", n);
  }
  const added = await pipeline.call("NOPE").xlen(key).exec();
  assert.equal(added.length, 1_002);
  assert.match(added[1_000][0].message, /unknown command/);
  assert.deepEqual(added[1_001], [null, 1_000]);
  const [first, last] = await client.multi().xlen(key).xrevrange(key, "+", "-", "COUNT", 1).exec();
  assert.deepEqual(first, [null, 1_000]);
  assert.equal(last[1][0][0], added[999][1]);
  await assert.rejects(client.multi().xlen(key).call("NOPE").exec(), /EXECABORT/);
  await client.multi({ pipeline: false });
  assert.equal(await client.xlen(key), "QUEUED");
  assert.equal(await client.discard(), "OK");
  assert.equal(await client.xlen(key), 1_000);
});

over("a group from its making to its end", async (client, key) => {
  assert.equal(await client.xgroup("CREATE", key, "g", "0", "MKSTREAM"), "OK");
  await assert.rejects(client.xgroup("CREATE", key, "g", "0"), /BUSYGROUP/);
  const ids = [];
  for (const value of ["a", "b", "c"]) {
    ids.push(await client.xadd(key, "MAXLEN", "~", "1000", "*", ...flat({ value, key: "k" })));
  }
  const read = (...words) => client.xreadgroup("GROUP", "g", "ann", ...words);
  assert.deepEqual(
    entries(await read("COUNT", 2, "STREAMS", key, ">"), key).map(([id]) => id),
    ids.slice(0, 2),
  );
  assert.deepEqual(await client.xpending(key, "g"), [2, ids[0], ids[1], [["ann", "2"]]]);
  const [[id, consumer, , deliveries]] = await client.xpending(key, "g", "-", "+", 10);
  assert.deepEqual([id, consumer, deliveries], [ids[0], "ann", 1]);
  const [next, claimed, deleted] = await client.xautoclaim(key, "g", "bob", 0, "0", "COUNT", 1);
  assert.deepEqual([next, claimed, deleted], [ids[1], [[ids[0], flat({ value: "a", key: "k" })]], []]);
  assert.deepEqual(await client.xclaim(key, "g", "bob", 0, ids[1], "JUSTID"), [ids[1]]);
  assert.equal(await client.xack(key, "g", ids[0], ids[1], "1-1"), 2);
  const facts = ([words]) => (Array.isArray(words) ? Object.fromEntries(pairs(words)) : words);
  assert.equal(facts(await client.xinfo("GROUPS", key))["last-delivered-id"], ids[1]);
  assert.equal((await client.xinfo("CONSUMERS", key, "g")).length, 2);
  assert.equal(facts([await client.xinfo("STREAM", key)]).length, 3);
  assert.equal(await client.xdel(key, ids[2]), 1);
  assert.equal(await read("COUNT", 5, "STREAMS", key, ">"), null);
  assert.equal(await client.xgroup("DESTROY", key, "g"), 1);
  assert.equal((await client.xtrim(key, "MAXLEN", 0)) >= 1, true);
});

over("bytes and text, as it is asked", async (client, key) => {
  const value = Buffer.from([0, 255, 13, 10]);
  await client.xadd(key, "*", "value", value);
  const found = entries(await client.xreadBuffer("COUNT", 1, "STREAMS", key, "0"), key);
  assert.deepEqual(found[0][1], [Buffer.from("value"), value]);
});

over("keys are scanned", async (client, key) => {
  const keys = Array.from({ length: 5 }, (_, n) => `${key}:${n}`);
  await Promise.all(keys.map((each) => client.xadd(each, "*", "a", "1")));
  const found = [];
  for await (const page of client.scanStream({ match: `${key}:*`, count: 2, type: "stream" })) {
    found.push(...page);
  }
  assert.deepEqual(found.sort(), keys);
  assert.equal(await client.del(...keys), 5);
});

over("a connection that breaks is made again, and what waits is sent then", async (client, key) => {
  await client.xadd(key, "*", "n", "1");
  const ready = once(client, "ready");
  client.stream.destroy();
  const [length] = await Promise.all([client.xlen(key), ready]);
  assert.equal(length, 1);
});

/** The entries of one stream of a reply: pairs in RESP2, a map in RESP3. */
function entries(reply, key) {
  const found = Array.isArray(reply[0]) ? reply : pairs(reply);
  const [name, list] = found[0];
  assert.equal(String(name), key);
  return list;
}

function pairs(words) {
  return Array.from({ length: words.length / 2 }, (_, at) => words.slice(2 * at, 2 * at + 2));
}

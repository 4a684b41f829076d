/** node-redis by its own methods: what it makes of replies, transactions, scans, pools, what is sent early. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { fresh, NODE_REDIS, PLACES } from "./clients.mjs";

function over(title, body, more = {}) {
  for (const { name, open, library } of NODE_REDIS) {
    test(`${name}: ${title}`, async (t) => {
      const { own, end, connect } = await open(PLACES.tcp, more);
      t.after(end);
      await body(own, fresh(), { connect, library });
    });
  }
}

/** The ids of one stream of a reply, which version 5 leaves as it came in RESP3. */
function idsOf(reply, key) {
  if (!Array.isArray(reply)) {
    return reply[key].map(([id]) => id);
  }
  assert.deepEqual(
    reply.map(({ name }) => name),
    [key],
  );
  return reply[0].messages.map(({ id }) => id);
}

const plain = (value) => JSON.parse(JSON.stringify(value));

over("what is sent while it connects waits for it", async (client, key, { connect }) => {
  const connecting = connect();
  const asked = [client.xAdd(key, "*", { n: "1" }), client.xLen(key)];
  await connecting;
  assert.equal((await Promise.all(asked))[1], 1);
  const { libName, db, user } = await client.clientInfo();
  assert.deepEqual([libName, db, user], ["node-redis", 0, "default"]);
  await client.clientSetName("me");
  assert.deepEqual(
    (await client.clientList()).map(({ name }) => name).filter((name) => name === "me"),
    ["me"],
  );
  await client.close();
  await assert.rejects(client.ping(), /closed/);
});

over("streams are read and described", async (client, key, { connect }) => {
  await connect();
  assert.equal(await client.xRead([{ key, id: "0" }]), null);
  const ids = await Promise.all(["a", "b", "c"].map((value) => client.xAdd(key, "*", { value, key: "k" })));
  const messages = ["a", "b", "c"].map((value, at) => ({ id: ids[at], message: { value, key: "k" } }));
  const found = await client.xRead([{ key, id: "0" }], { COUNT: 2 });
  assert.deepEqual(idsOf(found, key), ids.slice(0, 2));
  const bare = (list) => plain(list).map(({ id, message }) => ({ id, message }));
  assert.deepEqual(bare(await client.xRange(key, "-", "+")), messages);
  assert.deepEqual(bare(await client.xRevRange(key, "+", "-", { COUNT: 1 })), messages.slice(2));
  const info = await client.xInfoStream(key);
  assert.deepEqual([info.length, info["last-generated-id"], info["entries-added"]], [3, ids[2], 3]);
  assert.equal(await client.xTrim(key, "MAXLEN", 2), 1);
  assert.equal(await client.xDel(key, ids[1]), 1);
  assert.equal(await client.xAddNoMkStream(`${key}-not`, "*", { a: "1" }), null);
});

over("a group from its making to its end", async (client, key, { connect }) => {
  await connect();
  assert.equal(await client.xGroupCreate(key, "g", "0", { MKSTREAM: true }), "OK");
  await assert.rejects(client.xGroupCreate(key, "g", "0"), /BUSYGROUP/);
  const ids = await Promise.all(["a", "b", "c"].map((value) => client.xAdd(key, "*", { value })));
  const read = await client.xReadGroup("g", "ann", { key, id: ">" }, { COUNT: 2, BLOCK: 1 });
  assert.deepEqual(idsOf(read, key), ids.slice(0, 2));
  const pending = await client.xPending(key, "g");
  assert.deepEqual(plain(pending), {
    pending: 2,
    firstId: ids[0],
    lastId: ids[1],
    consumers: [{ name: "ann", deliveriesCounter: 2 }],
  });
  const [row] = await client.xPendingRange(key, "g", "-", "+", 10);
  assert.deepEqual([row.id, row.consumer, row.deliveriesCounter], [ids[0], "ann", 1]);
  const claimed = await client.xAutoClaim(key, "g", "bob", 0, "0", { COUNT: 1 });
  assert.deepEqual(
    [claimed.nextId, claimed.messages.map(({ id }) => id), claimed.deletedMessages],
    [ids[1], [ids[0]], []],
  );
  assert.deepEqual(await client.xClaimJustId(key, "g", "bob", 0, ids[1]), [ids[1]]);
  assert.deepEqual(
    (await client.xInfoConsumers(key, "g")).map((each) => [each.name, each.pending]),
    [
      ["ann", 0],
      ["bob", 2],
    ],
  );
  assert.equal(await client.xAck(key, "g", ids.slice(0, 2)), 2);
  const [group] = await client.xInfoGroups(key);
  assert.deepEqual([group.name, group.pending, group["last-delivered-id"], group.lag], ["g", 0, ids[1], 1]);
  assert.equal(await client.xGroupDelConsumer(key, "g", "ann"), 0);
  assert.equal(await client.xGroupDestroy(key, "g"), 1);
});

over("transactions, and pipelines of a turn", async (client, key, { connect }) => {
  await connect();
  const [id, length, entries] = await client
    .multi()
    .xAdd(key, "*", { n: "0" })
    .xLen(key)
    .xRange(key, "-", "+")
    .exec();
  assert.deepEqual([length, entries[0].id], [1, id]);
  const many = client.multi();
  for (let n = 1; n < 500; n += 1) {
    many.xAdd(key, "*", { n: String(n) });
  }
  const ids = [id, ...(await many.execAsPipeline())];
  assert.deepEqual(
    (await client.xRange(key, "-", "+")).map((each) => [each.id, each.message.n]),
    ids.map((each, n) => [each, `${n}`]),
  );
  await assert.rejects(client.multi().xLen(key).addCommand(["NOPE"]).exec(), /EXECABORT|unknown command/);
  assert.equal(await client.xLen(key), 500);
});

over("keys are scanned", async (client, key, { connect }) => {
  await connect();
  const keys = Array.from({ length: 5 }, (_, n) => `${key}:${n}`);
  await Promise.all(keys.map((each) => client.xAdd(each, "*", { a: "1" })));
  const found = [];
  for await (const page of client.scanIterator({ MATCH: `${key}:*`, COUNT: 2, TYPE: "stream" })) {
    found.push(...page);
  }
  assert.deepEqual(found.sort(), keys);
  assert.equal(await client.del(keys), 5);
});

over("a pool of clients", async (client, key, { library }) => {
  const pool = library.createClientPool({ socket: { port: PLACES.tcp.port }, RESP: client.options.RESP });
  await pool.connect();
  await Promise.all(Array.from({ length: 50 }, (_, n) => pool.xAdd(key, "*", { n: String(n) })));
  assert.equal(await pool.xLen(key), 50);
  await pool.close();
});

over("a connection that breaks is made again, and what waits is sent then", async (client, key, { connect }) => {
  await connect();
  const before = await client.clientId();
  const ready = new Promise((resolve) => client.once("ready", resolve));
  assert.equal(await client.sendCommand(["QUIT"]), "OK"); // the gateway closes it, and the library did not ask for that
  const asked = client.xLen(key).catch((error) => error);
  await ready;
  await asked;
  assert.equal(await client.xLen(key), 0);
  assert.notEqual(await client.clientId(), before);
});

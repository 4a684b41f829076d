/** What every library and both versions of RESP have to do: connect everywhere, and stay in step. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { ALL, fresh, PLACES } from "./clients.mjs";

const BINARY = Buffer.concat([
  Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)),
  Buffer.from("\r\n*1\r\n$4\r\nPING\r\n"),
]);

/** A test over all libraries. */
function over(title, body) {
  for (const { name, open } of ALL) {
    test(`${name}: ${title}`, async (t) => {
      const connected = async (place = PLACES.tcp, more = {}) => {
        const client = await open(place, more);
        t.after(() => client.end());
        await client.connect();
        return client;
      };
      await body({ t, connected, open: (place, more) => open(place, more) });
    });
  }
}

over("every address takes commands", async ({ connected }) => {
  for (const name of ["tcp", "unix", "tls", "guarded"]) {
    const client = await connected(PLACES[name]);
    assert.equal(String(await client.send(["PING"])), "PONG", name);
    assert.ok(Number(await client.send(["CLIENT", "ID"])) > 0, name);
  }
});

over("a wrong password is refused, and a missing one", async ({ t, open }) => {
  for (const [password, says] of [
    ["wrong", /WRONGPASS/],
    [undefined, /NOAUTH/],
  ]) {
    const place = { ...PLACES.guarded, password, ...(password === undefined && { username: undefined }) };
    const client = await open(place, { retryStrategy: null, socket: { reconnectStrategy: false } });
    t.after(() => client.end());
    const asked = client.connect().then(() => client.send(["XLEN", "k"]));
    await assert.rejects(asked, (error) => says.test([error, ...client.errors].join()));
  }
});

over("bytes of any kind come back as they were added", async ({ connected }) => {
  const [client, key] = [await connected(), fresh()];
  const fields = [
    "value",
    BINARY,
    "key",
    Buffer.from([0xff, 0]),
    "née",
    Buffer.alloc(0),
    "h",
    Buffer.alloc(300_000, 7),
  ];
  const id = await client.send(["XADD", key, "*", ...fields]);
  const [[found, words]] = await client.send(["XRANGE", key, "-", "+"]);
  assert.deepEqual(found, id);
  assert.deepEqual(
    words,
    fields.map((each) => Buffer.from(each)),
  );
  assert.deepEqual(await client.send(["ECHO", BINARY]), BINARY);
});

over("thousands of commands at once are answered in step, refused ones among them", async ({ connected }) => {
  const [client, key] = [await connected(), fresh()];
  const asked = [];
  for (let number = 0; number < 3_000; number += 1) {
    asked.push(client.send(["XADD", key, "*", "n", number]));
    asked.push(number % 7 ? client.send(["ECHO", number]) : client.send(["NOPE", number]).catch((error) => error));
    if (number % 500 === 0) {
      asked.push(client.send(["XLEN", key]));
    }
  }
  const replies = await Promise.all(asked);
  const entries = await client.send(["XRANGE", key, "-", "+"]);
  assert.deepEqual(
    entries.map(([, [, value]]) => Number(value)),
    entries.map((_, number) => number),
  );
  let at = 0;
  for (const [number, [id]] of entries.entries()) {
    assert.deepEqual(replies[at++], id);
    const echoed = replies[at++];
    if (number % 7) {
      assert.equal(Number(echoed), number);
    } else {
      assert.match(echoed.message, new RegExp("unknown command 'NOPE'"));
    }
    if (number % 500 === 0) {
      assert.equal(replies[at++], number + 1);
    }
  }
});

over("commands that there are not are refused, and the next ones are answered", async ({ connected }) => {
  const [client, key] = [await connected(), fresh()];
  for (const words of [
    ["GET", key],
    ["SUBSCRIBE", "c"],
    ["CLIENT", "TRACKING", "ON"],
    ["EVAL", "return 1", "0"],
    ["WATCH", key],
  ]) {
    await assert.rejects(client.send(words), /unknown (sub)?command/, words[0]);
    assert.equal(await client.send(["XLEN", key]), 0);
  }
});

over("what waits for entries gets them, and holds up no other client", async ({ connected }) => {
  const [reader, writer, key] = [await connected(), await connected(), fresh()];
  await writer.send(["XGROUP", "CREATE", key, "g", "$", "MKSTREAM"]);
  const reads = reader.send(["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", key, ">"]);
  await writer.send(["XADD", key, "*", "value", BINARY]);
  const found = await reads;
  const [[name, [[id, words]]]] =
    found instanceof Map || !Array.isArray(found) ? Object.entries(found) : pairs(found);
  assert.equal(String(name), key);
  assert.deepEqual(words[1], BINARY);
  assert.equal(await reader.send(["XACK", key, "g", id]), 1);
  assert.equal(await reader.send(["XREAD", "BLOCK", "1", "STREAMS", key, "$"]), null);
});

/** An array of pairs as it is in RESP2, whatever a library makes of a map. */
function pairs(found) {
  return Array.isArray(found[0]) ? found : [found];
}

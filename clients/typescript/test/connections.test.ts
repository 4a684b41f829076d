import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test, type TestContext } from "node:test";

import { Client, connect } from "../src/client.js";
import * as errors from "../src/errors.js";
import type { ClientOptions } from "../src/options.js";
import { Fake, type Received } from "./fake.js";

const FAST = { reconnect: { firstMs: 1, lastMs: 4 }, connections: 1 };

async function served(t: TestContext, respond?: (command: Received) => void): Promise<Fake> {
  const fake = await Fake.start(respond);
  t.after(() => fake.stop());
  return fake;
}

async function connected(t: TestContext, fake: Fake, options: ClientOptions = {}): Promise<Client> {
  const client = await connect({ url: fake.url, ...FAST, ...options });
  t.after(() => client.disconnect());
  return client;
}

const ok = (command: Received): void => command.answer("+OK\r\n");

function told(results: readonly PromiseSettledResult<unknown>[]): string[] {
  return results.map((each) => (each.status === "fulfilled" ? String(each.value) : (each.reason as Error).name));
}

test("requests without awaiting arrive in order, and each gets its reply", async (t) => {
  const fake = await served(t, (command) => command.answer(`:${command.words[1]}\r\n`));
  const client = await connected(t, fake);
  const replies = await Promise.all(Array.from({ length: 500 }, (_, number) => client.send(["GET", number])));
  assert.deepEqual(replies, Array.from({ length: 500 }, (_, number) => BigInt(number)));
  assert.equal(fake.connections, 1);
});

test("when a connection is lost, what is safe to repeat is sent again, in order, and the rest fails", async (t) => {
  const fake = await served(t, (command) => (command.connection === 1 ? undefined : ok(command)));
  const client = await connected(t, fake);
  const asked = [
    client.send(["A"], { repeat: true }),
    client.send(["B"]),
    client.send(["C"], { repeat: true }),
  ];
  await fake.until(3);
  fake.cut();
  assert.deepEqual(told(await Promise.allSettled(asked)), ["OK", "ConnectionLost", "OK"]);
  assert.deepEqual(await fake.until(5), ["A", "B", "C", "A", "C"]);
  const [lost] = await Promise.allSettled([asked[1]]);
  assert.ok(lost?.status === "rejected" && lost.reason instanceof errors.ConnectionLost && lost.reason.sent);
});

test("what was never written waits for the next connection, whether or not it is safe to repeat", async (t) => {
  const fake = await served(t, ok);
  const client = await connected(t, fake);
  let greetings = 0;
  fake.greeting = (hello) => (++greetings < 4 ? hello.cut() : hello.answer("%0\r\n"));
  const lost = once(client, "disconnect");
  fake.cut();
  await lost;
  const asked = [client.send(["A"]), client.send(["B"]), client.send(["C"])];
  assert.deepEqual(told(await Promise.allSettled(asked)), ["OK", "OK", "OK"]);
  assert.deepEqual(await fake.until(3), ["A", "B", "C"]);
  assert.equal(greetings, 4);
});

test("without reconnect nothing is repeated, and a connection that is gone stays gone", async (t) => {
  const fake = await served(t);
  const client = await connected(t, fake, { reconnect: false });
  const asked = client.send(["A"], { repeat: true });
  await fake.until(1);
  fake.cut();
  await assert.rejects(asked, errors.ConnectionLost);
  fake.greeting = (hello) => hello.cut();
  await assert.rejects(client.send(["B"]), errors.CannotConnect);
});

test("a client tells of connections, and knows whether there is one", async (t) => {
  const fake = await served(t, ok);
  const client = new Client({ url: fake.url, ...FAST });
  t.after(() => client.disconnect());
  assert.equal(client.isConnected(), false);
  await assert.rejects(client.ping(), errors.ClientClosed);
  const opened = once(client, "connect");
  await client.connect();
  await opened;
  assert.equal(client.isConnected(), true);
  const lost = once(client, "disconnect");
  fake.cut();
  assert.ok((await lost)[0] instanceof errors.ConnectionLost);
  assert.equal(client.isConnected(), false);
  const again = once(client, "connect");
  assert.equal(await client.ping(), "OK");
  await again;
  await client.disconnect();
  await assert.rejects(client.send(["A"]), errors.ClientClosed);
  await client.connect();
  assert.equal(await client.ping(), "OK");
});

test("disconnecting rejects what waits", async (t) => {
  const fake = await served(t);
  const client = await connected(t, fake);
  const asked = [client.send(["A"], { repeat: true }), client.streams.read({ k: "0" }, { blockMs: 0 })];
  await fake.until(2);
  await client.disconnect();
  assert.deepEqual(told(await Promise.allSettled(asked)), ["ClientClosed", "ClientClosed"]);
});

test("disconnecting ends a connection that is being opened", async (t) => {
  const fake = await served(t);
  const client = await connected(t, fake, { connectTimeoutMs: 600_000 });
  fake.greeting = () => undefined;
  const lost = once(client, "disconnect");
  fake.cut();
  await lost;
  const asked = client.send(["A"]);
  await fake.untilOpen(1);
  await client.disconnect();
  await assert.rejects(asked, errors.ClientClosed);
  await fake.untilOpen(0);
});

test("a server that is not there is CannotConnect", async (t) => {
  const fake = await served(t);
  const { url } = fake;
  await fake.stop();
  const client = new Client({ url });
  await assert.rejects(client.connect(), errors.CannotConnect);
  await assert.rejects(client.ping(), errors.ClientClosed);
});

test("a server that does not answer is CannotConnect", async (t) => {
  const fake = await served(t);
  fake.greeting = () => undefined;
  await assert.rejects(connect({ url: fake.url, connectTimeoutMs: 20 }), errors.CannotConnect);
  await fake.untilOpen(0);
});

test("a refused password fails at once, also what waits, and is not tried again", async (t) => {
  const fake = await served(t, ok);
  const client = await connected(t, fake, { url: fake.url.replace("//", "//ann:secret@") });
  let greetings = 0;
  fake.greeting = (hello) => {
    greetings += 1;
    assert.deepEqual(hello.words, ["HELLO", "3", "AUTH", "ann", "secret"]);
    hello.answer("-WRONGPASS invalid username-password pair\r\n");
  };
  const lost = once(client, "disconnect");
  fake.cut();
  await lost;
  const asked = [client.send(["A"]), client.send(["B"], { repeat: true })];
  assert.deepEqual(told(await Promise.allSettled(asked)), ["AuthenticationFailed", "AuthenticationFailed"]);
  assert.equal(greetings, 1);
  await assert.rejects(connect({ url: fake.url, username: "ann", password: "secret" }), errors.AuthenticationFailed);
});

test("a server that is busy is asked again", async (t) => {
  const fake = await served(t, ok);
  const client = await connected(t, fake);
  let greetings = 0;
  fake.greeting = (hello) => {
    hello.answer(++greetings < 3 ? "-ERR max number of clients reached\r\n" : "%0\r\n");
  };
  const lost = once(client, "disconnect");
  fake.cut();
  await lost;
  assert.equal(await client.ping(), "OK");
  assert.equal(greetings, 3);
});

test("an answer that comes too late is dropped, and later ones are in step", async (t) => {
  const fake = await served(t);
  const client = await connected(t, fake, { timeoutMs: 500 });
  const late = client.send(["A"]);
  const [first] = (await fake.until(1), fake.received);
  await new Promise<void>((resolve) => {
    const talk = setInterval(() => first?.answer(">1\r\n+alive\r\n"), 10); // something is heard meanwhile
    late.catch(() => {
      clearInterval(talk);
      resolve();
    });
  });
  await assert.rejects(late, (error) => error instanceof errors.RequestTimeout && error.sent);
  const next = client.send(["B"]);
  await fake.until(2);
  first?.answer("+late\r\n");
  fake.received[1]?.answer("+B\r\n");
  assert.equal(await next, "B");
  assert.equal(fake.connections, 1);
});

test("a request that has ended is not repeated", async (t) => {
  const fake = await served(t, (command) => (command.words[0] === "A" ? undefined : ok(command)));
  const client = await connected(t, fake, { timeoutMs: 300 });
  const late = client.send(["A"], { repeat: true });
  const talk = setInterval(() => fake.received[0]?.answer(">1\r\n+alive\r\n"), 10);
  await assert.rejects(late, errors.RequestTimeout);
  clearInterval(talk);
  fake.cut();
  await client.ping();
  assert.deepEqual(await fake.until(2), ["A", "PING"]);
});

test("a peer that says nothing until a request's time is up is given up", async (t) => {
  const fake = await served(t, (command) => (command.connection === 1 ? undefined : ok(command)));
  const client = await connected(t, fake, { timeoutMs: 400 });
  const lost = once(client, "disconnect");
  await assert.rejects(client.send(["A"], { repeat: true }), errors.RequestTimeout);
  await lost;
  assert.equal(await client.ping(), "OK");
  assert.equal(fake.connections, 2);
});

test("a request that waits for a connection ends in time, and says that it was not sent", async (t) => {
  const fake = await served(t, ok);
  const client = await connected(t, fake, { timeoutMs: 50, reconnect: { firstMs: 5, lastMs: 5 } });
  fake.greeting = (hello) => hello.cut();
  const lost = once(client, "disconnect");
  fake.cut();
  await lost;
  await assert.rejects(client.send(["A"]), (error) => error instanceof errors.RequestTimeout && !error.sent);
});

test("requests beyond the bytes that may wait are refused", async (t) => {
  const fake = await served(t);
  const client = await connected(t, fake, { maxPendingBytes: 10_000 });
  const first = client.send(["A", Buffer.alloc(20_000)]); // one is always taken
  await assert.rejects(client.send(["B"]), errors.TooManyPending);
  await fake.until(1);
  fake.received[0]?.answer("+OK\r\n");
  await first;
  const next = client.send(["C"]);
  assert.deepEqual(await fake.until(2).then((all) => all[1]), "C");
  fake.received[1]?.answer("+OK\r\n");
  await next;
});

test("bytes that are no reply end the connection, and nothing is repeated behind them", async (t) => {
  const fake = await served(t, (command) => command.answer(command.connection === 1 ? "HTTP/1.1 400\r\n" : "+OK\r\n"));
  const client = await connected(t, fake);
  let losses = 0;
  client.on("disconnect", () => (losses += 1));
  const asked = [client.send(["A"], { repeat: true }), client.send(["B"])];
  assert.deepEqual(told(await Promise.allSettled(asked)), ["ProtocolError", "ProtocolError"]);
  await fake.untilOpen(0);
  assert.equal(await client.ping(), "OK");
  assert.equal(losses, 1);
});

test("a reply that was not asked for ends the connection", async (t) => {
  const fake = await served(t, (command) => command.answer("+OK\r\n+OK\r\n"));
  const client = await connected(t, fake);
  const lost = once(client, "disconnect");
  assert.equal(await client.ping(), "OK");
  assert.ok((await lost)[0] instanceof errors.ProtocolError);
});

test("what waits for entries has a connection of its own, which is used again", async (t) => {
  const fake = await served(t, (command) => (command.words[0] === "XREAD" ? undefined : ok(command)));
  const client = await connected(t, fake);
  for (let round = 1; round <= 2; round += 1) {
    const read = client.streams.read({ k: "0" }, { blockMs: 0 });
    await fake.until(2 * round - 1);
    assert.equal(await client.ping(), "OK");
    fake.received[2 * round - 2]?.answer("_\r\n");
    assert.deepEqual(await read, new Map());
  }
  assert.deepEqual(fake.received.map((each) => each.connection), [2, 1, 2, 1]);
});

test("waiting is given up by a signal, with its reason, and the connection is not used again", async (t) => {
  const fake = await served(t);
  const client = await connected(t, fake);
  const aborts = new AbortController();
  const read = client.streams.read({ k: "0" }, { blockMs: 0, signal: aborts.signal });
  await fake.until(1);
  aborts.abort();
  await assert.rejects(read, { name: "AbortError" });
  await assert.rejects(client.streams.read({ k: "0" }, { blockMs: 0, signal: aborts.signal }), { name: "AbortError" });
  await assert.rejects(client.streams.read({ k: "0" }, { signal: aborts.signal }), { name: "AbortError" });
  const next = client.streams.read({ k: "0" }, { blockMs: 5 });
  await fake.until(2);
  fake.received[1]?.answer("_\r\n");
  await next;
  assert.deepEqual(fake.received.map((each) => each.connection), [2, 3]);
});

test("callers beyond the connections that may wait get one when it is free, in order, or not in time", async (t) => {
  const fake = await served(t);
  const client = await connected(t, fake, { blockingConnections: 1, timeoutMs: 600 });
  const read = (key: string, signal?: AbortSignal): Promise<unknown> =>
    client.streams.read({ [key]: "0" }, { blockMs: 0, ...(signal && { signal }) });
  const aborts = new AbortController();
  const asked = Promise.allSettled([read("a"), read("b", aborts.signal), read("c")]);
  aborts.abort();
  await fake.until(1);
  fake.received[0]?.answer("_\r\n");
  assert.deepEqual((await fake.until(2)).map((all) => all.split(" ")[4]), ["a", "c"]);
  await assert.rejects(read("d"), (error) => error instanceof errors.RequestTimeout && !error.sent);
  const last = read("e");
  fake.received[1]?.cut();
  fake.greeting = (hello) => hello.answer("%0\r\n");
  await fake.until(3); // c again: it only reads
  fake.received[2]?.answer("-ERR no\r\n");
  await fake.until(4);
  fake.received[3]?.answer("_\r\n");
  await last;
  assert.deepEqual(told(await asked), ["[object Map]", "AbortError", "ReplyError"]);
});

test("a caller that waits for a connection gets a new one when another is dropped", async (t) => {
  const fake = await served(t, (command) => (command.connection === 2 ? undefined : command.answer("_\r\n")));
  const client = await connected(t, fake, { blockingConnections: 1 });
  const aborts = new AbortController();
  const first = client.streams.read({ a: "0" }, { blockMs: 0, signal: aborts.signal });
  await fake.until(1);
  const second = client.streams.read({ b: "0" }, { blockMs: 0 });
  aborts.abort();
  await assert.rejects(first, { name: "AbortError" });
  assert.deepEqual(await second, new Map());
});

test("requests about one topic take one connection, those about others may take another", async (t) => {
  const fake = await served(t, ok);
  const client = await connected(t, fake, { connections: 2 });
  const topics = ["a", "b", "c", "d", "a", "b", "c", "d"];
  await Promise.all(topics.map((topic) => client.send(["ENQUEUE", topic, "x"])));
  const taken = new Map<string, Set<number>>();
  for (const { words, connection } of fake.received) {
    const topic = words[1] ?? "";
    taken.set(topic, (taken.get(topic) ?? new Set()).add(connection));
  }
  assert.deepEqual([...taken.values()].map((each) => each.size), [1, 1, 1, 1]);
  assert.equal(fake.connections, 2);
});

const PROGRAM = `
  import { once } from "node:events";
  const { connect } = await import(process.env["PACKAGE"]);
  const never = 600_000;
  const reconnect = { firstMs: never, lastMs: never };
  const client = await connect({ url: process.env["URL"], timeoutMs: never, reconnect });
  const worker = client.worker("k", "g", () => undefined, { retryAfterMs: null, blockMs: 1 });
  const works = worker.run();
  await worker.stop(never);
  await works;
  const lost = once(client, "disconnect");
  client.send(["CUT"]).catch(() => undefined);
  await lost;
  client.send(["A"], { repeat: true }).catch((error) => console.log(error.code));
  await once(process.stdin, "data");
  process.stdin.destroy();
  for (let turn = 0; turn < 20; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve)); // the connection that was cut is noticed
  }
  await client.disconnect();
`;

test("a program that has disconnected ends by itself, whatever it waited for", { timeout: 60_000 }, async (t) => {
  const fake = await served(t, (command) => (command.words[0] === "CUT" ? fake.cut() : ok(command)));
  const program = spawn(process.execPath, ["--input-type=module", "--eval", PROGRAM], {
    env: { ...process.env, URL: fake.url, PACKAGE: new URL("../src/index.js", import.meta.url).href },
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.after(() => program.kill());
  const printed = program.stdout.setEncoding("utf8").toArray();
  fake.greeting = (hello) => {
    if (fake.received.some((each) => each.words[0] === "CUT")) {
      hello.cut();
      setImmediate(() => program.stdin.write("go\n")); // it pauses now, for ten minutes
    } else {
      hello.answer("%0\r\n");
    }
  };
  assert.deepEqual([...(await once(program, "exit"))], [0, null]);
  assert.equal((await printed).join(""), "closed\n");
});

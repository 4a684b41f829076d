import assert from "node:assert/strict";
import { once } from "node:events";
import { test, type TestContext } from "node:test";

import { Client } from "../src/client.js";
import type { ClientOptions } from "../src/options.js";
import { Fake, type Received } from "./fake.js";

const ok = (command: Received): void => command.answer("+OK\r\n");

/** A client that notes what it tells, and the server that it is connected to. */
async function told(t: TestContext, options: ClientOptions = {}) {
  const fake = await Fake.start(ok);
  t.after(() => fake.stop());
  const errors: unknown[] = [];
  const waits: (() => void)[] = [];
  const onError = (error: unknown): void => {
    errors.push(error);
    waits.splice(0).forEach((wake) => wake());
  };
  const client = new Client({ url: fake.url, reconnect: { firstMs: 1, lastMs: 1 }, onError, ...options });
  t.after(() => client.disconnect());
  const until = async (count: number): Promise<unknown[]> => {
    while (errors.length < count) {
      await new Promise<void>((wake) => waits.push(wake));
    }
    return errors;
  };
  return { fake, client, errors, until };
}

/** The answer to XREADGROUP with one entry. */
function entry(id: number): string {
  return `%1\r\n$1\r\nk\r\n*1\r\n*2\r\n$3\r\n${id}-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n`;
}

const kinds = (told: readonly unknown[]): string[] => told.map((error) => (error as Error).name);

test("a connection that is lost and attempts that fail are told, an end that the program wants is not", async (t) => {
  const { fake, client, errors, until } = await told(t);
  await client.connect();
  let greetings = 0;
  fake.greeting = (hello) => (++greetings < 3 ? hello.cut() : hello.answer("%0\r\n"));
  fake.cut();
  await until(1);
  assert.equal(await client.ping(), "OK");
  assert.deepEqual(kinds(errors), ["ConnectionLost", "CannotConnect", "CannotConnect"]);
  await client.disconnect();
  await client.connect();
  assert.equal(errors.length, 3);
});

test("connections that wait for entries are told of, too", async (t) => {
  const { fake, client, errors, until } = await told(t);
  await client.connect();
  fake.respond = (command) => (command.words[0] === "XREAD" ? command.cut() : ok(command));
  const read = client.streams.read({ k: "0" }, { blockMs: 0 }).catch(() => undefined);
  await until(1);
  assert.equal(kinds(errors)[0], "ConnectionLost");
  await client.disconnect();
  await read;
});

test("a first connection that fails is for its caller alone", async (t) => {
  const { fake, client, errors } = await told(t);
  fake.greeting = (hello) => hello.cut();
  await assert.rejects(client.connect(), { code: "cannot_connect" });
  assert.deepEqual(errors, []);
});

test("what listeners and a worker's callbacks throw is told, and ends nothing", async (t) => {
  const { client, errors, until } = await told(t);
  client.on("connect", () => {
    throw new Error("at once");
  });
  client.on("connect", async () => {
    await Promise.resolve();
    throw new Error("never reached: the one before it threw");
  });
  const lost = once(client, "disconnect");
  client.on("disconnect", async () => {
    await Promise.resolve();
    throw new Error("later");
  });
  await client.connect();
  await until(1);
  await client.disconnect();
  await lost;
  assert.deepEqual((await until(2)).map(String), ["Error: at once", "Error: later"]);
  assert.equal(errors.length, 2);
});

test("what a worker's onError throws is told, and the worker goes on", async (t) => {
  const { fake, client, until } = await told(t);
  let given = 0;
  fake.respond = (command) => {
    const reads = command.words[0] === "XREADGROUP";
    command.answer(!reads ? ":1\r\n" : ++given > 2 ? "_\r\n" : entry(given));
  };
  await client.connect();
  const fails = (): never => {
    throw new Error("task");
  };
  const worker = client.worker("k", "g", fails, {
    retryAfterMs: null,
    blockMs: 1,
    onError: (error) => {
      throw new Error(`told ${String(error)}`);
    },
  });
  const runs = worker.run();
  assert.deepEqual((await until(2)).map(String), ["Error: told Error: task", "Error: told Error: task"]);
  await worker.stop();
  await runs;
});

test("a worker without onError tells the client's, and one that throws is printed", async (t) => {
  const { fake, client } = await told(t, { onError: (error) => Promise.reject(error) });
  fake.respond = (command) => command.answer(command.words[0] === "XREADGROUP" ? entry(1) : ":1\r\n");
  await client.connect();
  const printed = new Promise((resolve) => t.mock.method(console, "error", resolve));
  const fails = (): Promise<never> => Promise.reject(new Error("no"));
  const worker = client.worker("k", "g", fails, { retryAfterMs: null });
  const runs = worker.run();
  assert.equal(String(await printed), "Error: no");
  await worker.stop();
  await runs;
});

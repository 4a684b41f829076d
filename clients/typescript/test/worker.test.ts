import assert from "node:assert/strict";
import { once } from "node:events";
import { test, type TestContext } from "node:test";

import { type Client, connect } from "../src/client.js";
import * as errors from "../src/errors.js";
import { type Task, Worker, type WorkerOptions } from "../src/worker.js";
import { Fake } from "./fake.js";
import { Proxy } from "./proxy.js";
import { fresh, overBoth } from "./servers.js";

const quiet = (): void => undefined;
const SHORT = { blockMs: 20, onError: quiet };

/** A promise that a test fulfils. */
class Signalled<T = void> {
  fulfil: (value: T) => void = () => undefined;
  readonly promise = new Promise<T>((resolve) => (this.fulfil = resolve));
}

async function filled(client: Client, key: string, count: number): Promise<string[]> {
  const adding = Array.from({ length: count }, (_, number) => client.streams.add(key, { value: String(number) }));
  return (await Promise.all(adding)).map(String);
}

function started(
  t: TestContext,
  client: Client,
  key: string,
  handler: (task: Task) => unknown,
  options: WorkerOptions = {},
): Worker {
  const worker = client.worker(key, "g", handler, { ...SHORT, ...options });
  void worker.run();
  t.after(() => worker.stop(0));
  return worker;
}

overBoth((over) => {
  over("a worker does each task once, so many at a time, and acknowledges it", [], async (t, client) => {
    const key = fresh();
    await filled(client, key, 50);
    const seen = new Map<string, number>();
    const all = new Signalled();
    let [running, most] = [0, 0];
    const handler = async (task: Task): Promise<void> => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setImmediate(resolve));
      seen.set(task.value.toString(), task.attempt);
      running -= 1;
      if (seen.size === 50) {
        all.fulfil();
      }
    };
    const worker = started(t, client, key, handler, { concurrency: 7, retryAfterMs: null });
    await all.promise;
    await worker.stop();
    assert.ok(most > 1 && most <= 7, String(most));
    assert.deepEqual([...seen.values()], Array.from({ length: 50 }, () => 1));
    const [group] = await client.streams.groups(key);
    assert.deepEqual([group?.name, group?.pending, group?.lag], ["g", 0, 0]);
  });

  over("stopping waits for tasks that run, and takes no others", [], async (t, client) => {
    const key = fresh();
    await filled(client, key, 3);
    const [began, goOn] = [new Signalled(), new Signalled()];
    const seen: string[] = [];
    const handler = async (task: Task): Promise<void> => {
      seen.push(task.value.toString());
      began.fulfil();
      await goOn.promise;
    };
    const worker = started(t, client, key, handler, { retryAfterMs: null });
    await began.promise;
    const stopped = worker.stop();
    goOn.fulfil();
    await stopped;
    await worker.run();
    assert.deepEqual(seen, ["0"]);
    const [group] = await client.streams.groups(key);
    assert.deepEqual([group?.pending, group?.lag], [0, 2]);
  });

  over("what does not end in time is told, and stays with the group", [], async (t, client) => {
    const key = fresh();
    await filled(client, key, 1);
    const task = new Signalled<Task>();
    const worker = started(t, client, key, (each) => (task.fulfil(each), new Promise(() => undefined)), {
      retryAfterMs: null,
    });
    const { signal } = await task.promise;
    await worker.stop(0);
    assert.equal(signal.aborted, true);
    assert.equal((await client.streams.groups(key))[0]?.pending, 1);
  });

  over("what fails is tried again after a while, and counted", ["XCLAIM", "XPENDING"], async (t, client) => {
    const key = fresh();
    await filled(client, key, 2);
    const attempts: string[] = [];
    const told: unknown[] = [];
    const done = new Signalled();
    const handler = (task: Task): void => {
      attempts.push(`${task.value} ${task.attempt}`);
      if (task.value.toString() === "0" && task.attempt < 3) {
        throw new Error("not yet");
      }
      if (task.attempt === 3) {
        done.fulfil();
      }
    };
    const onError = (error: unknown, task?: Task): void => void told.push(`${error} ${task?.value}`);
    const worker = started(t, client, key, handler, { retryAfterMs: 30, concurrency: 2, onError });
    await done.promise;
    await worker.stop();
    assert.deepEqual(attempts.sort(), ["0 1", "0 2", "0 3", "1 1"]);
    assert.deepEqual(told, ["Error: not yet 0", "Error: not yet 0"]);
    assert.equal((await client.streams.groups(key))[0]?.pending, 0);
  });

  over("what had its attempts is given to onDead, and is done then", ["XCLAIM", "XPENDING"], async (t, client) => {
    const key = fresh();
    await filled(client, key, 1);
    const dead = new Signalled<[Task, unknown]>();
    let [refusals, runs] = [0, 0];
    const given: unknown[] = [];
    const onDead = (task: Task, error: unknown): void => {
      given.push(`${task.attempt} ${(error as Error).message}`);
      if (++refusals === 1) {
        throw new Error("no room for the dead");
      }
      dead.fulfil([task, error]);
    };
    const handler = (): never => {
      runs += 1;
      throw new Error("never");
    };
    const worker = started(t, client, key, handler, { retryAfterMs: 20, maxAttempts: 2, onDead });
    const [task, error] = await dead.promise;
    await worker.stop();
    assert.deepEqual(given, ["2 never", `3 ${task.id} was delivered 3 times`]);
    assert.equal(runs, 2);
    assert.ok(error instanceof errors.AttemptsExceeded);
    assert.equal((await client.streams.groups(key))[0]?.pending, 0);
  });

  over("what a worker had that died is done by another", ["XCLAIM", "XPENDING"], async (t, client) => {
    const key = fresh();
    const ids = await filled(client, key, 5);
    const group = client.streams.group(key, "g");
    await group.create();
    await group.read("dead", { count: 3 });
    const seen = new Map<string, number>();
    const all = new Signalled();
    const handler = (task: Task): void => {
      seen.set(task.id, task.attempt);
      if (seen.size === 5) {
        all.fulfil();
      }
    };
    const worker = started(t, client, key, handler, { retryAfterMs: 20 });
    await all.promise;
    await worker.stop();
    assert.deepEqual(ids.map((id) => seen.get(id)), [2, 2, 2, 1, 1]);
    assert.equal((await group.pendingSummary()).count, 0);
  });

  over("a task that takes long stays with its worker", ["XCLAIM", "XPENDING"], async (t, client) => {
    const key = fresh();
    await filled(client, key, 1);
    const group = client.streams.group(key, "g");
    const [began, goOn, touched] = [new Signalled(), new Signalled(), new Signalled()];
    let [attempts, touches] = [0, 0];
    const handler = async (): Promise<void> => {
      attempts += 1;
      began.fulfil();
      await goOn.promise;
    };
    const claimIds = group.claimIds.bind(group);
    group.claimIds = async (...given) => {
      if (++touches === 4) {
        touched.fulfil(); // more than the time after which it would be claimed
      }
      return claimIds(...given);
    };
    const worker = new Worker(group, handler, { ...SHORT, retryAfterMs: 900 });
    void worker.run();
    t.after(() => worker.stop(0));
    await began.promise;
    const other = started(t, client, key, handler, { retryAfterMs: 900 });
    await touched.promise;
    goOn.fulfil();
    await Promise.all([worker.stop(), other.stop()]);
    assert.equal(attempts, 1);
    assert.equal((await group.pendingSummary()).count, 0);
  });

  over("a task that is no longer pending is told so", ["XCLAIM", "XPENDING"], async (t, client) => {
    const key = fresh();
    const [id = ""] = await filled(client, key, 1);
    const aborted = new Signalled();
    const handler = async (task: Task): Promise<void> => {
      await client.streams.group(key, "g").ack([id]);
      if (!task.signal.aborted) {
        await once(task.signal, "abort");
      }
      aborted.fulfil();
    };
    const worker = started(t, client, key, handler, { retryAfterMs: 60 });
    await aborted.promise;
    await worker.stop();
  });

  over("a worker goes on when its connections are lost", ["XCLAIM", "XPENDING"], async (t, client, server) => {
    const key = fresh();
    const proxy = await Proxy.start(server.url);
    t.after(() => proxy.stop());
    const url = `tcp://127.0.0.1:${proxy.port}`;
    const shaken = await connect({ url, reconnect: { firstMs: 1, lastMs: 10 } });
    t.after(() => shaken.disconnect());
    const ids = await filled(client, key, 30);
    const done = new Set<string>();
    const all = new Signalled();
    const handler = (task: Task): void => {
      done.add(task.id);
      if (done.size % 10 === 5) {
        proxy.cut();
      }
      if (done.size === ids.length) {
        all.fulfil();
      }
    };
    const worker = started(t, shaken, key, handler, { retryAfterMs: 100, concurrency: 3 });
    await all.promise;
    await worker.stop();
    assert.deepEqual([...done].sort(), [...ids].sort());
  });

  over("a worker begins a new group where it is told to", [], async (t, client) => {
    const key = fresh();
    await filled(client, key, 2);
    await client.streams.group(key, "g").create({ start: "$" });
    await client.streams.group(key, "g").destroy();
    const seen = new Signalled<string>();
    const worker = started(t, client, key, (task) => seen.fulfil(task.value.toString()), {
      retryAfterMs: null,
      start: "latest",
    });
    while ((await client.streams.groups(key)).length === 0) {
      await client.ping();
    }
    await client.streams.add(key, { value: "new" });
    assert.equal(await seen.promise, "new");
    await worker.stop();
  });
});

test("what the server refuses for good ends a worker, once its tasks have ended", async (t) => {
  const fake = await Fake.start((command) => {
    const reads = fake.received.filter((each) => each.words[0] === "XREADGROUP").length;
    if (command.words[0] !== "XREADGROUP") {
      command.answer(command.words[0] === "XACK" ? ":1\r\n" : "+OK\r\n");
    } else {
      command.answer(reads === 1 ? "%1\r\n$1\r\nk\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*0\r\n" : "-NOGROUP gone\r\n");
    }
  });
  t.after(() => fake.stop());
  const client = await connect(fake.url);
  t.after(() => client.disconnect());
  const goOn = new Signalled();
  const worker = client.worker("k", "g", () => goOn.promise, { concurrency: 2, retryAfterMs: null });
  const running = assert.rejects(worker.run(), errors.UnknownGroup);
  await fake.until(3);
  goOn.fulfil();
  await running;
  assert.equal(fake.received.at(-1)?.words[0], "XACK");
  await worker.stop();
});

test("a server that has no claims ends a worker that wants them, and says so", async (t) => {
  const fake = await Fake.start((command) => {
    command.answer(command.words[0] === "XCLAIM" ? "-ERR unknown command 'XCLAIM'\r\n" : "+OK\r\n");
  });
  t.after(() => fake.stop());
  const client = await connect(fake.url);
  t.after(() => client.disconnect());
  await assert.rejects(client.worker("k", "g", quiet).run(), errors.UnknownCommand);
});

test("a group that cannot be made now is made later", async (t) => {
  let creations = 0;
  const fake = await Fake.start((command) => {
    if (command.words[0] === "XGROUP") {
      command.answer(++creations === 1 ? "-TRYAGAIN no leader [no_leader]\r\n" : "+OK\r\n");
    } else {
      command.answer("_\r\n");
    }
  });
  t.after(() => fake.stop());
  const client = await connect(fake.url);
  t.after(() => client.disconnect());
  const told: unknown[] = [];
  const worker = client.worker("k", "g", quiet, { retryAfterMs: null, onError: (error) => told.push(error) });
  void worker.run();
  const commands = await fake.until(3);
  await worker.stop();
  assert.deepEqual(commands.slice(0, 3).map((each) => each.split(" ")[0]), ["XGROUP", "XGROUP", "XREADGROUP"]);
  assert.ok(told.length === 1 && told[0] instanceof errors.Unavailable);
});

test("acknowledgements that come together leave together", async (t) => {
  let reads = 0;
  const fake = await Fake.start((command) => {
    const entries = Array.from({ length: 9 }, (_, number) => `*2\r\n$3\r\n1-${number}\r\n*0\r\n`).join("");
    if (command.words[0] === "XREADGROUP") {
      command.answer(++reads === 1 ? `%1\r\n$1\r\nk\r\n*9\r\n${entries}` : "_\r\n");
    } else if (command.words[0] === "XACK") {
      setImmediate(() => command.answer(`:${command.words.length - 3}\r\n`));
    } else {
      command.answer("+OK\r\n");
    }
  });
  t.after(() => fake.stop());
  const client = await connect(fake.url);
  t.after(() => client.disconnect());
  const worker = client.worker("k", "g", quiet, { concurrency: 9, retryAfterMs: null });
  void worker.run();
  await fake.until(3);
  await worker.stop();
  const acks = fake.received.filter((each) => each.words[0] === "XACK").map((each) => each.words.length - 3);
  assert.deepEqual(acks, [1, 8]);
});

test("options of a worker that cannot be are refused", () => {
  const client = { streams: {} } as unknown as Client;
  const worker = (options: WorkerOptions): Worker => new Worker(client.streams.group as never, quiet, options);
  for (const wrong of [{ concurrency: 0 }, { retryAfterMs: 0 }, { blockMs: 0 }, { maxAttempts: 0, onDead: quiet }]) {
    assert.throws(() => worker(wrong), RangeError);
  }
  assert.throws(() => worker({ maxAttempts: 3 }), TypeError);
  assert.throws(() => worker({ onDead: quiet }), TypeError);
  assert.notEqual(worker({}).consumer, worker({}).consumer);
  assert.equal(worker({ consumer: "ann" }).consumer, "ann");
});

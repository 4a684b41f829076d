import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { connect } from "../src/client.js";
import * as errors from "../src/errors.js";
import { Proxy } from "./proxy.js";
import { fresh, overGateway } from "./servers.js";

overGateway((over) => {
  over("a ping is answered", [], async (_, client) => {
    assert.equal(await client.ping(), "PONG");
    assert.equal(await client.ping("ü\r\n"), "ü\r\n");
  });

  over("topics are made, listed, described and deleted", [], async (_, client) => {
    const [topic, several] = [fresh(), fresh()];
    await client.createTopic(topic, { settings: { commit: "written", retention_s: "7d" } });
    await client.createTopic(several, { partitions: 2 });
    await assert.rejects(client.createTopic(topic), errors.TopicExists);
    await assert.rejects(client.createTopic(fresh(), { settings: { retention_s: "ever" } }), errors.ReplyError);
    assert.deepEqual((await client.listTopics()).filter((each) => [topic, several].includes(each)), [topic, several]);
    await client.enqueue(topic, "a");
    await client.enqueue(`${several}:1`, "b");
    const stats = await client.getStats(several);
    assert.deepEqual([stats.partitions, stats.records, stats.first, stats.end], [2, 1n, [0n, 0n], [0n, 1n]]);
    assert.ok(stats.bytes > 0n);
    const all = await client.getStats();
    assert.ok(all.topics >= 2 && all.records >= 2n && all.bytes >= stats.bytes);
    await client.deleteTopic(topic);
    await assert.rejects(client.deleteTopic(topic), errors.UnknownTopic);
    await assert.rejects(client.getStats(topic), errors.UnknownTopic);
  });

  over("messages are bytes with offsets, and a consumer reads from its own", [], async (_, client) => {
    const topic = fresh();
    const payloads = [Buffer.from([0, 13, 10, 255]), Buffer.from("ü"), Buffer.from("")];
    for (const [number, payload] of payloads.entries()) {
      assert.equal(await client.enqueue(topic, payload), BigInt(number));
    }
    assert.equal(await client.getOffset(topic, "ann"), 0n);
    assert.deepEqual(await client.listen(topic, "ann"), payloads);
    assert.deepEqual(await client.listen(topic, "ann", { count: 1 }), payloads.slice(0, 1));
    assert.deepEqual(await client.listen(topic, "ann", { count: 2, auto: true }), payloads.slice(0, 2));
    assert.equal(await client.getOffset(topic, "ann"), 2n);
    await client.setOffset(topic, "bob", 1n);
    assert.deepEqual(await client.listen(topic, "bob"), payloads.slice(1));
    assert.deepEqual(await client.listConsumers(topic), ["ann", "bob"]);
    await assert.rejects(client.setOffset(topic, "bob", 9), errors.ReplyError);
    await assert.rejects(client.listen(topic, "ann", { count: 0 }), RangeError);
  });

  over("the loop over messages moves the offset behind those that are done", [], async (_, client) => {
    const topic = fresh();
    for (const payload of ["a", "b", "c", "d", "e"]) {
      await client.enqueue(topic, payload);
    }
    const found: string[] = [];
    for await (const message of client.messages(topic, "ann", { count: 2 })) {
      found.push(message.toString());
      if (found.length === 4) {
        break; // in the middle of d
      }
    }
    assert.equal(await client.getOffset(topic, "ann"), 3n);
    const aborts = new AbortController();
    for await (const message of client.messages(topic, "ann", { pollMs: 1, signal: aborts.signal })) {
      found.push(message.toString());
      if (message.toString() === "e") {
        setImmediate(() => void client.enqueue(topic, "f"));
      } else if (message.toString() === "f") {
        aborts.abort();
      }
    }
    assert.equal(found.join(""), "abcddef");
    assert.equal(await client.getOffset(topic, "ann"), 6n);
  });

  over("what one consumer reads as messages, others read as entries", [], async (_, client) => {
    const topic = fresh();
    const offset = await client.enqueue(topic, "a");
    const [entry] = await client.streams.range(topic);
    assert.deepEqual([entry?.offset, entry?.value.toString()], [offset, "a"]);
  });

  over("lost connections are opened again, and reading goes on", [], async (t, _, server) => {
    const proxy = await Proxy.start(server.url);
    t.after(() => proxy.stop());
    const url = `tcp://127.0.0.1:${proxy.port}`;
    const client = await connect({ url, reconnect: { firstMs: 1, lastMs: 20 } });
    t.after(() => client.disconnect());
    const topic = fresh();
    const aborts = new AbortController();
    const sent: string[] = [];
    const follows = client.streams.follow(topic, { after: "0", signal: aborts.signal });
    for (let round = 0; round < 10; round += 1) {
      sent.push(await client.streams.add(topic, { value: String(round) }).then(String));
      const { value: entry } = await follows.next();
      assert.equal(entry?.id, sent[round]);
      proxy.cut();
      await client.ping(); // repeated until there is a connection
    }
    aborts.abort();
  });

  over("a server behind TLS is reached", [], async (t, _, server) => {
    if (spawnSync("openssl", ["version"]).status !== 0) {
      t.skip("openssl is not installed: it makes the certificate");
      return;
    }
    const secrets = certificate();
    const proxy = await Proxy.start(server.url, secrets);
    t.after(() => proxy.stop());
    for (const host of ["localhost", "127.0.0.1"]) {
      const client = await connect({ url: `tls://${host}:${proxy.port}`, tls: { ca: secrets.cert } });
      assert.equal(await client.ping("x"), "x");
      await client.disconnect();
    }
    await assert.rejects(connect(`tls://localhost:${proxy.port}`), errors.CannotConnect);
  });
});

function certificate(): { readonly cert: string; readonly key: string } {
  const directory = mkdtempSync(join(tmpdir(), "penstock-tls-"));
  const [cert, key] = [join(directory, "cert"), join(directory, "key")];
  const names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost"];
  const files = ["-keyout", key, "-out", cert];
  execFileSync("openssl", ["req", "-x509", ...kind, "-addext", names, ...files], { stdio: "ignore" });
  try {
    return { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test("users authenticate by the URL or by options", async (t) => {
  const given = process.env["PENSTOCK_TEST_USERS"];
  if (given === undefined) {
    t.skip("PENSTOCK_TEST_USERS is not set: it has the address, with a user, of `penstock serve --resp --users`");
    return;
  }
  const { username, password: encoded, protocol, host } = new URL(given);
  const password = decodeURIComponent(encoded);
  const url = `${protocol}//${host}`;
  for (const options of [{ url: given }, { url, username, password }]) {
    const client = await connect({ ...options, name: "from-node" });
    assert.equal(await client.ping(), "PONG");
    assert.equal(String(await client.send(["CLIENT", "GETNAME"])), "from-node");
    await client.disconnect();
  }
  await assert.rejects(connect({ url, username, password: "wrong" }), errors.AuthenticationFailed);
  await assert.rejects(connect(url), errors.AuthenticationFailed);
});

test("a gateway that speaks TLS itself is reached", async (t) => {
  const [url, ca] = [process.env["PENSTOCK_TEST_TLS"], process.env["PENSTOCK_TEST_CA"]];
  if (url === undefined || ca === undefined) {
    t.skip("PENSTOCK_TEST_TLS and PENSTOCK_TEST_CA are not set: an address and a certificate");
    return;
  }
  const client = await connect({ url, tls: { ca: readFileSync(ca, "utf8") } });
  const topic = fresh();
  await client.streams.add(topic, { value: "x".repeat(100_000) });
  assert.equal((await client.streams.range(topic)).length, 1);
  await client.disconnect();
  await assert.rejects(connect(url), errors.CannotConnect);
});

/**
 * The servers that tests run against: a penstock gateway that is there already (PENSTOCK_TEST_RESP has its address),
 * and a Redis of this process's own. A server that is not there, or lacks a command, skips tests with a reason.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, describe, test, type TestContext } from "node:test";

import { type Client, connect } from "../src/client.js";
import type { ClientOptions } from "../src/options.js";

/** One server, while tests run against it. */
export interface Server {
  readonly name: "penstock" | "redis";
  readonly url: string;
  client(t: TestContext, options?: ClientOptions): Promise<Client>;
}

/** A name that no other test uses. */
export function fresh(): string {
  return `t${process.pid}-${++made}`;
}
let made = 0;

/** A test over both servers; `needs` are commands that one of them may not have. */
export type OverBoth = (name: string, needs: readonly string[], body: Body) => void;
type Body = (t: TestContext, client: Client, server: Server) => Promise<void>;

/** Tests, once for each server. */
export function overBoth(define: (over: OverBoth) => void): void {
  for (const [name, start] of [["penstock", gateway], ["redis", redis]] as const) {
    describe(`on ${name}`, () => {
      const place = start();
      define((title, needs, body) => test(title, (t) => run(t, name, place, needs, body)));
    });
  }
}

type Place = Promise<string> | { readonly missing: string };

/** Where the gateway is. */
function gateway(): Place {
  const url = process.env["PENSTOCK_TEST_RESP"];
  return url === undefined
    ? { missing: "PENSTOCK_TEST_RESP is not set: it has the address of `penstock serve --resp`" }
    : Promise.resolve(url);
}

function redis(): Place {
  if (spawnSync("redis-server", ["--version"]).status !== 0) {
    return { missing: "redis-server is not installed" };
  }
  const directory = mkdtempSync(join(tmpdir(), "penstock-redis-"));
  const path = join(directory, "socket");
  const settings = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", directory];
  const server = spawn("redis-server", settings, { stdio: ["ignore", "pipe", "inherit"] });
  after(async () => {
    const ended = once(server, "exit");
    server.kill();
    await ended;
    rmSync(directory, { recursive: true });
  });
  return new Promise((resolve, reject) => {
    server.on("exit", () => reject(new Error("redis-server ended before it was ready")));
    createInterface(server.stdout).on("line", (line) => {
      if (line.includes("ready to accept connections") || line.includes("Ready to accept connections")) {
        resolve(`unix://${path}`);
      }
    });
  });
}

/** Tests of what a gateway alone has. */
export function overGateway(define: (over: OverBoth) => void): void {
  const place = gateway();
  define((title, needs, body) => test(title, (t) => run(t, "penstock", place, needs, body)));
}

async function run(
  t: TestContext,
  name: Server["name"],
  place: Place,
  needs: readonly string[],
  body: Body,
): Promise<void> {
  if ("missing" in place) {
    t.skip(place.missing);
    return;
  }
  const url = await place;
  const server: Server = {
    name,
    url,
    async client(context, options = {}) {
      const client = await connect({ url, ...options });
      context.after(() => client.disconnect());
      return client;
    },
  };
  const client = await server.client(t);
  for (const command of needs) {
    const [row] = (await client.send(["COMMAND", "INFO", command])) as (unknown[] | null)[];
    if (row === null || row === undefined) {
      t.skip(`${name} has no ${command}`);
      return;
    }
  }
  await body(t, client, server);
}

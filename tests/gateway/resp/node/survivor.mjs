/**
 * A program that adds numbered entries and follows them, while the gateway and the broker are killed under it.
 *
 *   survivor.mjs NAME KEY        the name of a library as clients.mjs has it
 *
 * It prints `added N ID` for each acknowledged entry and `read N ID` for each that it read. Once a line came on
 * standard input it adds no more, reads what it added, and ends.
 */
import { once } from "node:events";

import { ALL, PLACES } from "./clients.mjs";

const [, , name, key] = process.argv;
const { open } = ALL.find((each) => each.name === name);
const AT_ONCE = 20;
let next = 0;
let stopping = false;
once(process.stdin, "data").then(() => {
  stopping = true;
  process.stdin.destroy();
});

async function connected() {
  const client = await open(PLACES.tcp);
  await client.connect();
  return client;
}

/** Ask until there is an answer: a lost connection and a broker that starts are errors that pass. */
async function persist(client, words) {
  for (;;) {
    try {
      return await client.send(words);
    } catch (error) {
      if (!/TRYAGAIN|[Cc]losed|[Ss]ocket|ECONN|EPIPE|retries|disconnect/.test(`${error.name} ${error.message}`)) {
        throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

async function add(client) {
  while (!stopping) {
    const number = next++;
    const id = await persist(client, ["XADD", key, "*", "value", number]);
    console.log(`added ${number} ${id}`);
  }
}

async function follow(client, adding) {
  const missing = new Set();
  let [last, all, seen] = ["0", false, 0];
  void adding.then(() => (all = true));
  while (!all || seen < next) {
    const reply = await persist(client, ["XREAD", "COUNT", 100, "BLOCK", 200, "STREAMS", key, last]);
    for (const [id, [, value]] of reply === null ? [] : entries(reply)) {
      const number = Number(value);
      last = String(id);
      missing.add(number);
      while (missing.delete(seen)) {
        seen += 1;
      }
      console.log(`read ${number} ${last}`);
    }
  }
}

/** The entries of the one stream of a reply, in RESP2 and in RESP3. */
function entries(reply) {
  const found = Array.isArray(reply) ? reply : Object.entries(reply);
  return Array.isArray(found[0]) ? found[0][1] : found[1];
}

const [writer, reader] = [await connected(), await connected()];
const adding = Promise.all(Array.from({ length: AT_ONCE }, () => add(writer)));
await Promise.all([adding, follow(reader, adding)]);
writer.end();
reader.end();

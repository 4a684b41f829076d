/**
 * Records by the TypeScript client, for test_doors.py: PACKAGE is its compiled module, PENSTOCK the gateway's address.
 *
 *   door.mjs in TOPIC       adds the entries of a JSON document on standard input
 *   door.mjs out TOPIC      prints the entries of a topic as such a document
 *
 * An entry is an array of pairs: the name of a field, and its content in Base64.
 */
import { json } from "node:stream/consumers";

const { connect } = await import(process.env["PACKAGE"]);
const [, , way, topic] = process.argv;
const client = await connect(process.env["PENSTOCK"]);
if (way === "in") {
  for (const entry of await json(process.stdin)) {
    await client.streams.add(topic, entry.map(([name, content]) => [name, Buffer.from(content, "base64")]));
  }
} else {
  const entries = await client.streams.range(topic);
  const coded = entries.map(({ pairs }) => pairs.map(([name, content]) => [`${name}`, content.toString("base64")]));
  console.log(JSON.stringify(coded));
}
await client.disconnect();

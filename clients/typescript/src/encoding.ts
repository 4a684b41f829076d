/** Commands as the bytes that servers read: an array of bulk strings. Pure. */
import type { Argument } from "./replies.js";

const LINE_END = Buffer.from("\r\n");

/** One command. Text between large payloads is gathered, so that few buffers are made. */
export function encode(words: readonly Argument[]): Buffer {
  const parts: Buffer[] = [];
  let text = `*${words.length}\r\n`;
  for (const word of words) {
    if (typeof word === "object") {
      const bytes = Buffer.from(word.buffer, word.byteOffset, word.byteLength);
      parts.push(Buffer.from(`${text}$${bytes.length}\r\n`), bytes, LINE_END);
      text = "";
    } else {
      const said = typeof word === "string" ? word : decimal(word);
      text += `$${Buffer.byteLength(said)}\r\n${said}\r\n`;
    }
  }
  if (text !== "") {
    parts.push(Buffer.from(text));
  }
  return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
}

/** The digits of a whole number. Throws `RangeError` for any other. */
function decimal(number: number | bigint): string {
  if (typeof number === "number" && !Number.isSafeInteger(number)) {
    throw new RangeError(`${number} is not a whole number that is exact: use a bigint`);
  }
  return number.toString();
}

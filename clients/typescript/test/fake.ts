/** A server of RESP that answers what a test tells it to. */
import { createServer, type Server, type Socket } from "node:net";

import { ReplyParser } from "../src/parser.js";
import { asArray, asText } from "../src/replies.js";

/** One command that came, and the way to answer it. */
export interface Received {
  readonly words: readonly string[];
  /** The number of its connection, from 1 on. */
  readonly connection: number;
  /** Send bytes of a reply. */
  answer(wire: string): void;
  /** End the connection. */
  cut(): void;
}

/** Commands are kept in `received`; HELLO is answered, unless `greeting` says otherwise. */
export class Fake {
  greeting: (hello: Received) => void = (hello) => hello.answer("%0\r\n");
  readonly received: Received[] = [];
  connections = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #waiting: { least: number; resolve: () => void }[] = [];
  respond: ((command: Received) => void) | undefined;

  private constructor() {
    this.#server = createServer((socket) => this.#serve(socket));
  }

  static async start(respond?: (command: Received) => void): Promise<Fake> {
    const fake = new Fake();
    fake.respond = respond;
    await new Promise<void>((resolve) => fake.#server.listen(0, "127.0.0.1", resolve));
    return fake;
  }

  get url(): string {
    const address = this.#server.address();
    return `tcp://127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
  }

  /** Resolves when so many commands have come, with the first words of all. */
  async until(least: number): Promise<string[]> {
    if (this.received.length < least) {
      await new Promise<void>((resolve) => this.#waiting.push({ least, resolve }));
    }
    return this.received.map((each) => each.words.join(" "));
  }

  /** Resolves when so many connections are left. */
  async untilOpen(count: number): Promise<void> {
    while (this.#sockets.size !== count) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** End all connections. */
  cut(): void {
    this.#sockets.forEach((socket) => socket.destroy());
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #serve(socket: Socket): void {
    const connection = ++this.connections;
    const parser = new ReplyParser({ maxReplyBytes: 1 << 24 });
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => undefined);
    socket.on("data", (chunk: Buffer) => {
      for (const reply of parser.feed(chunk)) {
        this.#take({
          words: asArray(reply).map(asText),
          connection,
          answer: (wire) => void socket.write(wire),
          cut: () => void socket.destroy(),
        });
      }
    });
  }

  #take(command: Received): void {
    if (command.words[0] === "HELLO") {
      this.greeting(command);
      return;
    }
    this.received.push(command);
    this.respond?.(command);
    this.#waiting.filter((each) => this.received.length >= each.least).forEach((each) => each.resolve());
  }
}

/** What stands between a client and a server: passes bytes on, in plain or behind TLS, and can be cut. */
import { connect, createServer, type Server, type Socket } from "node:net";
import { createServer as createSecureServer, type TlsOptions } from "node:tls";

import { settled } from "../src/options.js";

export class Proxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(url: string, secrets: TlsOptions | undefined) {
    const { place } = settled({ url });
    const pass = (socket: Socket): void => {
      const behind = connect(place.kind === "unix" ? { path: place.path } : { host: place.host, port: place.port });
      for (const [one, other] of [[socket, behind], [behind, socket]] as const) {
        this.#sockets.add(one);
        one.pipe(other);
        one.on("error", () => other.destroy());
        one.on("close", () => {
          other.destroy();
          this.#sockets.delete(one);
        });
      }
    };
    this.#server = secrets === undefined ? createServer(pass) : createSecureServer(secrets, pass);
  }

  static async start(url: string, secrets?: TlsOptions): Promise<Proxy> {
    const proxy = new Proxy(url, secrets);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" ? (address?.port ?? 0) : 0;
  }

  /** End all connections. */
  cut(): void {
    this.#sockets.forEach((socket) => socket.destroy());
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Acknowledgements of one group, gathered: those that come while one is on its way leave together in the next one. */
import type { Group } from "./groups.js";

const ACK_IDS = 1_000;

interface Waiting {
  readonly id: string;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** See the module. */
export class Acks {
  readonly #group: Group;
  #waiting: Waiting[] = [];
  #sending = false;

  constructor(group: Group) {
    this.#group = group;
  }

  /** Acknowledge one entry. Resolves when the server has it. */
  add(id: string): Promise<void> {
    const acknowledged = new Promise<void>((resolve, reject) => this.#waiting.push({ id, resolve, reject }));
    if (!this.#sending) {
      void this.#send();
    }
    return acknowledged;
  }

  async #send(): Promise<void> {
    this.#sending = true;
    while (this.#waiting.length > 0) {
      const some = this.#waiting.splice(0, ACK_IDS);
      try {
        await this.#group.ack(some.map((each) => each.id));
        some.forEach((each) => each.resolve());
      } catch (error) {
        some.forEach((each) => each.reject(error));
      }
    }
    this.#sending = false;
  }
}

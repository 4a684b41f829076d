/** A queue in order of arrival. What was taken is let go at once. Pure. */
export class Fifo<T> {
  #items: (T | undefined)[] = [];
  #taken = 0;

  get size(): number {
    return this.#items.length - this.#taken;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  /** The oldest, which leaves; undefined if there is none. */
  shift(): T | undefined {
    if (this.#taken === this.#items.length) {
      return undefined;
    }
    const item = this.#items[this.#taken];
    this.#items[this.#taken] = undefined;
    this.#taken += 1;
    if (this.#taken >= 64 && 2 * this.#taken >= this.#items.length) {
      this.#items = this.#items.slice(this.#taken);
      this.#taken = 0;
    }
    return item;
  }

  /** Everything, oldest first; the queue is empty then. */
  drain(): T[] {
    const rest = this.#items.slice(this.#taken) as T[];
    this.#items = [];
    this.#taken = 0;
    return rest;
  }
}

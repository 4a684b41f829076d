/**
 * Calls what a program gave to be told by, so that what these callbacks throw ends nothing else.
 *
 * Contract: errors that no call reports go to `onError`. What that throws itself is printed, as nothing is left to
 * tell.
 */

/** Is told of an error that no call reports. */
export type OnError = (error: unknown) => void;

/** A callback that never throws: what it throws, or rejects with, goes to `failed`. */
export function guarded<Told extends readonly unknown[]>(
  callback: (...told: Told) => unknown,
  failed: OnError,
): (...told: Told) => void {
  return (...told) => {
    try {
      const done = callback(...told);
      if (done instanceof Promise) {
        done.catch(failed);
      }
    } catch (error) {
      failed(error);
    }
  };
}

/** Tells errors to the program, or prints them. Never throws. */
export function teller(onError: OnError = print): OnError {
  return guarded(onError, print);
}

function print(error: unknown): void {
  console.error(error);
}

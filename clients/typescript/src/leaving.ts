// The calls of a handle from their beginning to their end, and which of them their callers have left.
//
//   call of pay         ├──────── effect ────────┤ its result is recorded
//   its caller          ├──────┤ aborted
//   the same call again         ├ waits ─────────┤ the recorded answer
//
// Without a key only the journal shows whether a call is another one or the same. So the same call waits until the journal knows how
// the first one ended. Calls that begin while all callers wait are calls of their own, even with the same arguments.

import type { Caller } from "./caller.js";
import type { CallKey } from "./replay.js";

/** A call that has begun. */
export interface Begun {
  readonly caller: Caller;
  readonly fingerprint: string;
  /** Absent for a call without a key, which is found by its fingerprint. */
  readonly key: CallKey | undefined;
  /** Its request, while its effect runs that must not run twice. */
  readonly running: string | undefined;
}

export class Leaving {
  readonly #begun = new Map<Begun, Promise<unknown>>();

  /** Runs the operation of a call. */
  async during<T>(call: Begun, operation: () => Promise<T>): Promise<T> {
    const ended = operation();
    this.#begun.set(call, ended.catch(() => undefined));
    try {
      return await ended;
    } finally {
      this.#begun.delete(call);
    }
  }

  /** The ends of calls with a fingerprint that their callers have left. */
  same(fingerprint: string): Promise<unknown>[] {
    return [...this.#begun].filter(([call]) => call.caller.hasLeft && !call.key && call.fingerprint === fingerprint).map(([, ended]) => ended);
  }

  /** The request of an effect that runs although its caller has left. */
  running(): string | undefined {
    return [...this.#begun.keys()].find((call) => call.caller.hasLeft && call.running !== undefined)?.running;
  }

  /** The calls beside one whose callers wait. */
  beside(own: Begun): Begun[] {
    return [...this.#begun.keys()].filter((call) => call !== own && !call.caller.hasLeft);
  }
}

// A function whose calls go through the gate of a run.

import type { Call, Calling } from "./call.js";
import type { Cancelling, Run } from "./run.js";

export interface ToolOptions<A> extends Omit<Calling, "key"> {
  /** The idempotency key of a call; `undefined` for a call without one. */
  key?: (args: A) => string | null | undefined;
}

export interface Tool<A, R> {
  (run: Run, args: A, options?: Cancelling): Promise<R>;
  readonly toolName: string;
}

/** Makes a function whose calls go through the gate of the run that is their first argument.
 *
 * After `Failed`, or an error of `failedOn`, the call is recorded as failed. After any other error the effect may have happened: no
 * result is recorded, and the call stays pending. */
export function tool<A, R>(name: string, options: ToolOptions<A>, effect: (args: A, call: Call) => R | Promise<R>): Tool<A, Awaited<R>> {
  const { key, ...calling } = options;
  const call = (run: Run, args: A, cancelling: Cancelling = {}) =>
    run.tool<R>(name, args, { ...calling, ...cancelling, key: key?.(args) }, (of) => effect(args, of));
  return Object.assign(call, { toolName: name });
}

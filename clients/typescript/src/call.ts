// The effect of a call: its argument, its answer, and its options.

import type { Ends } from "./ends.js";

/** The argument of an effect. */
export interface Call {
  /** The request's record id: unique, and the same for all attempts. */
  readonly id: string;
  /** 1 for the first attempt; higher if an earlier attempt may have happened. */
  readonly attempt: number;
  /** The key to pass to the receiver. */
  readonly idempotencyKey: string | undefined;
  /** Aborted when the caller stops waiting. */
  readonly signal: AbortSignal | undefined;
}

/** A call's answer. */
export interface Answer<R> {
  /** The result of the effect; as JSON if it was recorded. */
  readonly result: R;
  /** Whether the answer came from the journal, and the effect did not run now. */
  readonly recorded: boolean;
  readonly callId: string;
}

/** Further attempts of an effect that may have happened, each recorded before it runs. */
export interface Retry {
  /** The maximum number of attempts in this process. */
  readonly attempts: number;
  /** The milliseconds before the next attempt, after `failed` attempts; `undefined` for no other attempt. Default: 1 s, doubled each
   * time, at most 30 s. */
  readonly pauseMs?: (failed: number, error: unknown) => number | undefined;
}

/** The options of a call. */
export interface Calling extends Ends {
  /** Identifies the call at its receiver, and makes it safe to repeat. */
  key?: string | null;
  /** A second call with the same arguments is the same call, for example because the arguments contain an id. */
  unique?: boolean;
  /** The effect may run any number of times, as in a tool that only reads. Needs the server feature `bases`. */
  repeatable?: boolean;
  retry?: Retry;
}

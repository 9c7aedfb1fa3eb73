// A handle on a run that this process claimed.

import type { Completed, Pending } from "./answers.js";
import type { WholeRecovery } from "./api.js";
import type { Answer, Call, Calling } from "./call.js";
import { Caller } from "./caller.js";
import { checkText, Usage } from "./errors.js";
import { Gate } from "./gate.js";
import type { Json } from "./json.js";
import { storable } from "./marker.js";
import { newId } from "./records.js";
import type { Session } from "./session.js";
import { toJson } from "./values.js";

const STATUSES = ["completed", "failed", "cancelled"] as const;

/** The state of a run after it was claimed. */
export interface Recovery {
  /** `open`, or how the run ended. */
  readonly status: string;
  /** Whether the run can resume without a decision or a restored content. */
  readonly resumable: boolean;
  /** Why it is not resumable. */
  readonly reason: string | null;
  /** The messages of the checkpoint to resume at, as the program wrote them. */
  readonly messages: any[];
  /** Its state. */
  readonly state: any;
  readonly hasCheckpoint: boolean;
  /** Calls that may have happened, as of the claim: `class`, `reason`, `evidence`, `revision`, … */
  readonly pending: readonly Pending[];
  /** Calls that ended after the checkpoint. */
  readonly completed: readonly Completed[];
}

export const recoveryOf = (found: WholeRecovery): Recovery => ({
  status: found.status,
  resumable: found.resumable,
  reason: found.reason ?? null,
  messages: found.checkpoint?.messages ?? [],
  state: found.checkpoint?.state ?? null,
  hasCheckpoint: Boolean(found.checkpoint),
  pending: found.pending,
  completed: found.completed,
});

/** The caller's `AbortSignal`. Aborted, the operation throws the signal's reason; the handle stays usable, and completes what it has
 * begun. */
export interface Cancelling {
  signal?: AbortSignal;
}

/** Runs an operation, unless its caller has already stopped waiting. */
async function waitFor(options: Cancelling, operation: () => Promise<unknown>): Promise<void> {
  const caller = new Caller(options.signal);
  caller.check();
  await caller.wait(operation());
}

/** A run that this process claimed. Its operations may be called concurrently. Leaving the handle never ends the run. */
export class Run {
  readonly #session: Session;
  readonly #recovery: Recovery;

  constructor(session: Session, recovery: WholeRecovery) {
    this.#session = session;
    this.#recovery = recoveryOf(recovery);
  }

  /** The state of the run after the claim. A process that reads it resumes at its checkpoint: later calls without a key are new, even
   * if the checkpoint covers the same call. Any other process begins at the run's start. */
  get recovery(): Recovery {
    this.#session.replay.atCheckpoint = true;
    return this.#recovery;
  }

  get id(): string {
    return this.#session.runId;
  }

  /** The epoch that this handle claimed; 0 if the run had ended. */
  get epoch(): number {
    return this.#session.writer.epoch;
  }

  /** The id of the run's last checkpoint: from the recovery, or taken by this handle. */
  get checkpointId(): string | undefined {
    return this.#session.base.checkpointId;
  }

  /** Whether the process resumes at a checkpoint that covers a call. */
  isCovered(callId: string): boolean {
    return this.#session.replay.isCovered(callId);
  }

  /** Whether the connection removes content from records. */
  get isRedacted(): boolean {
    return this.#session.api.config.redaction !== undefined;
  }

  /** Calls that may have happened: of earlier processes, and of this handle. `recovery.pending` is as of the claim. */
  get pending(): Partial<Pending>[] {
    return this.#session.replay.pending(this.#session.outbox.interrupted());
  }

  /** The number of results that are not recorded yet, and their bytes. */
  get held(): { count: number; bytes: number } {
    return this.#session.outbox.held();
  }

  /** Runs `effect` unless the journal has the call's answer, and records its outcome.
   *
   * Throws `Invalid` for a part of `args` without JSON, with its path. If a result cannot be recorded, it is returned, and the call
   * ends without it: the same call then throws `ResultNotRecorded`.
   *
   * The effect did not run if this throws `ReconcileRequired`, `ResultNotRecorded`, `Fenced`, `MissingContent`, `Unavailable`, `Stale`
   * or `Conflict` with `happened` `nothing` or `unknown`. Otherwise `happened` describes the state of its result. `Failed` is the
   * recorded failure of the effect. */
  async call<R>(tool: string, args: unknown, options: Calling & Cancelling, effect: (call: Call) => R | Promise<R>): Promise<Answer<Awaited<R>>> {
    const caller = new Caller(options.signal);
    const operation = new Gate(this.#session, tool, args, options, caller).run(effect);
    // Settles at once what an interrupted call leaves behind.
    const settled = operation.finally(() => (caller.left ? this.#session.leave() : undefined));
    return caller.wait(settled);
  }

  /** As `call`; returns the result alone. */
  async tool<R>(tool: string, args: unknown, options: Calling & Cancelling, effect: (call: Call) => R | Promise<R>): Promise<Awaited<R>> {
    return (await this.call(tool, args, options, effect)).result;
  }

  /** Counts as a call in flight: for calls whose answers enter the messages together. A checkpoint inside the step does not cover
   * these calls. */
  step<R>(operation: () => Promise<R>): Promise<R> {
    return this.#session.recent.step(operation);
  }

  /** Records a message of the conversation; `kind` is `user`, `assistant`, … */
  async turn(kind: string, content: unknown, options: Cancelling = {}): Promise<void> {
    checkText("the kind of a turn", kind);
    const { redaction } = this.#session.api.config;
    const value = redaction ? redaction.json(null, toJson(content)) : toJson(content);
    const payload = { type: "conversation_turn", message_id: newId(), kind, content: value };
    await waitFor(options, () => this.#session.append(payload));
  }

  /** Records the state of the loop. Pass all messages; only new messages are written.
   *
   * While calls are in flight, the checkpoint lists as unanswered every call that was answered since no call was in flight: a process
   * that resumes there gets these answers from the journal once more. If no call is in flight, no call may be answered between
   * collecting `messages` and `state` and the start of this method. */
  async checkpoint(messages: readonly unknown[] = [], state: unknown = null, options: { turn?: number } & Cancelling = {}): Promise<void> {
    if (!Array.isArray(messages)) {
      throw new Usage(`a checkpoint has a list of messages, not a value of type ${messages === null ? "null" : typeof messages}; pass other data as the state`);
    }
    const converted: Json[] = messages.map((message) => toJson(message));
    const value = toJson(state);
    await waitFor(options, () => this.#session.checkpoint(converted, value, options.turn ?? 0));
  }

  /** Ends the run. An ended run answers recorded calls, and accepts its last checkpoint and the same end again. Any other operation
   * throws `Conflict`: no effect runs, and no record is appended. */
  async end(status: (typeof STATUSES)[number] = "completed", reason = "", options: Cancelling = {}): Promise<void> {
    if (!STATUSES.includes(status)) throw new Usage(`a run ends as one of ${STATUSES.join(", ")}, not ${JSON.stringify(status)}`);
    if (typeof reason !== "string") throw new Usage(`the reason of an end is a text, not a value of type ${typeof reason}; pass a string`);
    // The text of an exception may have the name of a file.
    await waitFor(options, () => this.#session.end(status, storable(reason)));
  }

  /** Settles failed or cancelled operations, as the next operation would. Throws `ClaimLost` or `Fenced` if another process has the
   * run; the log then has held results as evidence. */
  async reopen(options: Cancelling = {}): Promise<void> {
    await waitFor(options, () => this.#session.reopen());
  }

  /** Records the results that interrupted calls hold, if there are any and the server answers. Throws no `RunlogError`. */
  leave(): Promise<void> {
    return this.#session.leave();
  }

  /** `await using run = await rl.open(…)` leaves the run at the end of the block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.leave();
  }
}

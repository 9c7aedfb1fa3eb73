// Unrecorded results and interrupted calls. The handle's next operation settles them.
//
//   intent acknowledged ─▶ admitted ─▶ running ─▶ ended (its result is held) ─▶ recorded
//   dropped there:        never started  abandoned   the result is released
//
// A call has one of `callsMax` slots from before its intent until its result is recorded.

import type { Position } from "./answers.js";
import type { Record } from "./records.js";
import type { CallKey, RecordedCall } from "./replay.js";

/** The maximum bytes of unrecorded results. An empty outbox accepts a result of any size. */
const HELD_BYTES_MAX = 64 * 2 ** 20;

/** A permit of a call. Repeated releases have no effect. */
export class Slot {
  #release: (() => void) | undefined;
  constructor(release: () => void) {
    this.#release = release;
  }

  release(): void {
    this.#release?.();
    this.#release = undefined;
  }
}

/** The result of an effect that ran, until it is recorded. Its record keeps its id however often it is sent. */
export interface HeldResult {
  readonly record: Record;
  readonly size: number;
  readonly call: RecordedCall;
  readonly key: CallKey | undefined;
  readonly slot: Slot;
  /** Whether its caller has stopped waiting. */
  released: boolean;
}

/** An acknowledged intent, or attempt, whose effect this process never started. */
export interface NeverStarted {
  readonly request: string;
  /** The call, unless it is among the recorded calls already: an attempt of it, whose append was unknown. */
  readonly call?: RecordedCall;
  readonly key?: CallKey;
  readonly recordId: string;
  readonly position: Position;
}

/** The record that permits an effect. */
export interface AdmittedBy {
  readonly recordId: string;
  readonly position: Position;
}

export class Outbox {
  readonly running = new Set<string>();
  /** Calls that were dropped while the effect ran: it may have happened. */
  abandoned: [CallKey | undefined, RecordedCall][] = [];
  /** Recorded calls that answered a call, but whose answer never reached the agent. */
  returned: RecordedCall[] = [];
  readonly neverStarted: NeverStarted[] = [];
  /** By the record id of the request. */
  readonly results = new Map<string, HeldResult>();

  /** Removes and returns the abandoned and the returned calls. */
  takeInterrupted(): { abandoned: Outbox["abandoned"]; returned: RecordedCall[] } {
    const { abandoned, returned } = this;
    [this.abandoned, this.returned] = [[], []];
    return { abandoned, returned };
  }

  /** The abandoned and the returned calls. */
  interrupted(): RecordedCall[] {
    return [...this.abandoned.map(([, call]) => call), ...this.returned];
  }

  /** Adds a result, if there is space. Returns whether there was. */
  hold(held: HeldResult): boolean {
    const fits = this.results.size === 0 || this.held().bytes + held.size <= HELD_BYTES_MAX;
    if (fits) this.results.set(held.call.id, held);
    return fits;
  }

  /** The number of unrecorded results, and their bytes. */
  held(): { count: number; bytes: number } {
    const results = [...this.results.values()];
    return { count: results.length, bytes: results.reduce((sum, held) => sum + held.size, 0) };
  }

  /** The oldest result whose caller has stopped waiting. */
  nextReleased(): HeldResult | undefined {
    return [...this.results.values()].find((held) => held.released);
  }

  /** Removes the result of a call: it is recorded, or never will be. */
  remove(request: string): HeldResult | undefined {
    const held = this.results.get(request);
    this.results.delete(request);
    held?.slot.release();
    return held;
  }
}

/** A call after its intent is acknowledged. When dropped, it notes the state of its effect in the outbox. */
export class InFlight {
  #stage: "admitted" | "running" | "ended" | "done" = "admitted";

  constructor(
    readonly outbox: Outbox, public call: RecordedCall, readonly key: CallKey | undefined, private admittedBy: AdmittedBy, readonly slot: Slot,
  ) {
    outbox.running.add(call.id);
  }

  /** Whether the effect runs, or may have happened. */
  get isRunning(): boolean {
    return this.#stage === "running";
  }

  /** Marks the start of the effect. */
  start(): void {
    this.#stage = "running";
  }

  /** Marks that another attempt is acknowledged. */
  admitAgain(attempts: number, admittedBy: AdmittedBy): void {
    this.call = { ...this.call, pending: this.call.pending && { ...this.call.pending, attempts } };
    this.admittedBy = admittedBy;
    this.#stage = "admitted";
  }

  /** Marks the end of the effect, with the result `record`. Returns whether the outbox has space for it. */
  end(record: Record, size: number): boolean {
    const call = { ...this.call, pending: undefined };
    const isHeld = this.outbox.hold({ record, size, call, key: this.key, slot: this.slot, released: false });
    if (isHeld) this.#stage = "ended";
    return isHeld;
  }

  /** Marks the result as recorded. */
  recorded(): void {
    this.#stage = "done";
    this.outbox.remove(this.call.id);
  }

  /** Marks that the result can never be recorded: the call stays pending. */
  unrecordable(): void {
    this.outbox.remove(this.call.id);
    this.#stage = "running";
  }

  /** Marks that the call's operation has ended. */
  drop(): void {
    const { call, key, outbox } = this;
    const stage = this.#stage;
    this.#stage = "done";
    outbox.running.delete(call.id);
    if (stage === "admitted") outbox.neverStarted.push({ request: call.id, call, key, ...this.admittedBy });
    if (stage === "running") {
      const reason = "interrupted while the effect ran: it may have happened";
      const pending = { retrySafe: key !== undefined, reason, attempts: call.pending?.attempts ?? 1, evidence: [] };
      outbox.abandoned.push([key, { ...call, pending }]);
    }
    const held = stage === "ended" ? outbox.results.get(call.id) : undefined;
    if (held) held.released = true;
    else this.slot.release();
  }
}

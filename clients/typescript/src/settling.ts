// Settles the remainder of a handle's earlier operations: records without an answer, interrupted calls, results whose caller has
// stopped waiting.
//
//   makeReady ─▶ unacknowledged records are sent again ─▶ interrupted calls answer the next calls
//             ─▶ intents whose effect never started are withdrawn ─▶ released results are recorded
//             the run is lost or ended ─▶ results are left as evidence

import type { Outcome, Pending, Writer as WriterName } from "./answers.js";
import type { Api } from "./api.js";
import type { MessageList } from "./checkpoint.js";
import { Conflict, Fenced, Forbidden, Invalid, ReconcileRequired, RunlogError, TooLarge, Unavailable } from "./errors.js";
import { Leaving } from "./leaving.js";
import { Permits } from "./locks.js";
import { withoutContent } from "./marker.js";
import { Outbox, type NeverStarted } from "./outbox.js";
import { Recent } from "./recent.js";
import { INTENTS, newId, requestOf, RESULTS, type Record } from "./records.js";
import { callKey, keyOf, recordedCall, Replay } from "./replay.js";
import { tookEffect, Writer } from "./writer.js";

const EVIDENCE_TRIES = 3;

/** A claimed run with the operations that are not settled yet. */
export class Settling {
  readonly writer: Writer;
  readonly outbox = new Outbox();
  readonly recent = new Recent();
  readonly leaving = new Leaving();
  replay = new Replay();
  /** The list on which the next checkpoint is based. */
  base: MessageList = { hashes: [] };
  readonly #lock = new Permits(1);

  constructor(readonly api: Api, readonly runId: string) {
    this.writer = new Writer(api, runId);
  }

  /** Runs a part of an operation while no other operation of the handle runs. */
  async locked<T>(operation: () => Promise<T> | T): Promise<T> {
    const ms = this.api.config.deadlineMs;
    if (!(await this.#lock.acquire(ms))) {
      const message = `timed out after ${ms / 1000} s waiting for an earlier operation on run ${this.runId}`;
      throw new Unavailable(message, { runId: this.runId });
    }
    try {
      return await operation();
    } finally {
      this.#lock.release();
    }
  }

  /** Settles unacknowledged records, interrupted calls and released results. The lock is held.
   *
   * Throws if no record can be appended any more; with `mayHaveEnded`, an ended run does not throw. */
  async makeReady(mayHaveEnded = false): Promise<void> {
    const { writer, outbox, replay } = this;
    if (!writer.over) await this.#settleUnacknowledged().catch(unless(Fenced, Conflict));
    if (writer.over) {
      await this.#appendAllEvidence().catch(unless(RunlogError));
      if (writer.ended === undefined || !mayHaveEnded) writer.checkOver();
    }
    const { abandoned, returned } = outbox.takeInterrupted();
    for (const [key, call] of abandoned) replay.restore(key, call);
    for (const call of returned) replay.putBack(undefined, call);
    if (writer.over) return;
    await this.#settleNeverStarted();
    await this.#recordReleased();
    await writer.syncIfUnsure();
  }

  async #settleUnacknowledged(): Promise<void> {
    const { writer } = this;
    const before = writer.unacknowledged ?? [];
    let settled: Awaited<ReturnType<Writer["settle"]>>;
    try {
      settled = await writer.settle();
    } catch (error) {
      // `#recordReleased` ends the call without the content.
      const isContent = error instanceof Invalid || error instanceof TooLarge;
      if (isContent && before.some((record) => this.outbox.results.has(requestOf(record)))) return;
      throw error;
    }
    if (!settled) return;
    settled.sent.forEach((record, at) => this.#noteSettled(record, settled.outcomes[at]!));
    writer.check(settled.sent, settled.outcomes);
  }

  #noteSettled(record: Record, outcome: Outcome): void {
    const { type } = record.payload;
    const hasEffect = tookEffect(outcome);
    if (INTENTS.includes(type) && hasEffect && this.writer.wrote(outcome)) this.#noteLandedIntent(record, outcome);
    else if (RESULTS.includes(type) && hasEffect) this.markRecorded(requestOf(record));
    else if (type === "run_lifecycle" && record.payload["status"] !== "started" && hasEffect) this.writer.end(String(record.payload["status"]));
    else if (type === "loop_checkpoint" && !hasEffect) this.base = { hashes: [] };
  }

  /** Handles an intent or attempt that is in the log after all. Its caller got an error, and its effect never started. */
  #noteLandedIntent(record: Record, outcome: Outcome): void {
    const { payload, record_id: recordId } = record;
    const position = outcome.position!;
    if (payload.type === "tool_call_attempt") {
      // The request is among the recorded calls, and the journal has its key and its state.
      this.outbox.neverStarted.push({ request: requestOf(record), recordId, position });
      return;
    }
    const tool = String(payload["tool_name"]);
    const key = callKey(tool, record["idempotency_key"] as string | undefined);
    const pending = { retrySafe: true, reason: "its effect was never started", attempts: 1, evidence: [] };
    const call = { id: recordId, fingerprint: String(payload["fingerprint"]), tool, pending };
    this.replay.add(outcome.journal_seq ?? 0, key, call);
    this.outbox.neverStarted.push({ request: recordId, call, key, recordId, position });
  }

  /** Settles intents whose effect this process never started, so that the calls can run again. */
  async #settleNeverStarted(): Promise<void> {
    const { api, writer, outbox } = this;
    for (let intent = outbox.neverStarted[0]; intent; intent = outbox.neverStarted[0]) {
      const answer = await api.outcome(this.runId, intent.recordId, intent.position, api.config.readBackMs);
      if (!writer.isWriterIn(answer)) throw writer.lose(this.takenOver(intent.recordId, answer));
      if (!tookEffect(answer) || !writer.wrote(answer)) {
        // The journal refused the intent, but that answer was lost.
        if (intent.call) this.replay.forget(intent.request);
        outbox.neverStarted.shift();
        continue;
      }
      let pending = await this.pendingCall(intent.request);
      if (needsNotDone(pending)) {
        try {
          await writer.append(writer.records.notDone(intent.request, writer.epoch));
        } catch (error) {
          // An operator decided, an earlier attempt left evidence, or the token may not decide: the journal has the call's state.
          unless(Conflict, Forbidden, ReconcileRequired)(error);
          writer.unacknowledged = undefined;
        }
        pending = await this.pendingCall(intent.request);
      }
      this.#restore(intent, pending);
      outbox.neverStarted.shift();
    }
  }

  /** The journal's current state of a pending call. `undefined` for a call that is not pending. */
  async pendingCall(request: string): Promise<Pending | undefined> {
    return (await this.api.pending(this.runId))?.pending.find(({ id }) => id === request);
  }

  /** Makes a call with the journal's state answer the next call. */
  #restore({ call, key }: NeverStarted, pending: Pending | undefined): void {
    const known = pending && recordedCall(pending);
    if (known) this.replay.restore(keyOf(pending) ?? key, known);
    else if (call) this.replay.restore(key, { ...call, pending: undefined });
  }

  /** Appends the results whose caller has stopped waiting. */
  async #recordReleased(): Promise<void> {
    for (let held = this.outbox.nextReleased(); held; held = this.outbox.nextReleased()) {
      try {
        await this.appendResult(held.record);
      } catch (error) {
        // An operator decided how the call ended; the decision is its answer.
        const isDecided = error instanceof Conflict && ["transition", "ended"].includes(String(error.problem["reason"]));
        if (!isDecided) throw error;
      }
      this.markRecorded(held.call.id);
    }
  }

  /** Marks a held result as recorded: the journal now answers the same call. */
  markRecorded(request: string): void {
    const held = this.outbox.remove(request);
    if (held) this.replay.restore(held.key, held.call);
  }

  /** Marks that the agent receives the answer of a call. The lock is held. */
  markAnswered(callId: string): void {
    this.replay.markAnswered(callId);
    this.recent.answered(callId);
  }

  /** Reads decisions that were made since. */
  async refresh(): Promise<void> {
    const { writer, outbox, replay } = this;
    let now = await this.api.pending(this.runId);
    // The answer is of an older state and lacks newer calls, or a skip has taken the last numbers away.
    if (now && (now.epoch < writer.epoch || (now.epoch === writer.epoch && now.next_journal_seq < writer.nextJournalSeq))) {
      now = await this.api.pending(this.runId, writer.seen);
    }
    if (!now || now.epoch < writer.epoch) return;
    // Its calls are another process's.
    if (now.epoch > writer.epoch && writer.ended === undefined) throw writer.notWriterIn(now.epoch);
    replay.refresh(now);
    replay.adopt(now, (call) => outbox.running.has(call) || outbox.results.has(call));
  }

  /** Appends the result of a call. If the server refuses it for its content, the call ends without its result. The lock is held. */
  async appendResult(record: Record): Promise<void> {
    try {
      await this.writer.append(record);
    } catch (error) {
      if (!(error instanceof Invalid || error instanceof TooLarge)) throw error;
      if (error.happened !== "nothing") {
        // An earlier try had no answer, as when a server refuses a long body and cuts the connection off.
        const landed = await this.api.landed(this.runId, record.record_id);
        this.writer.unacknowledged = undefined;
        if (landed && tookEffect(landed)) return;
      }
      this.api.config.warn(`the result of call ${requestOf(record)} is not recorded: ${error.message}`);
      await this.writer.append(withoutContent(record, error));
    }
  }

  // A lost or ended run

  /** Appends all released results as evidence, including a result whose append was unknown. */
  async #appendAllEvidence(): Promise<void> {
    const { writer, outbox } = this;
    for (const record of writer.unacknowledged ?? []) {
      if (RESULTS.includes(record.payload.type) && !outbox.results.has(requestOf(record))) await this.#appendEvidence(record);
    }
    writer.unacknowledged = undefined;
    for (let held = outbox.nextReleased(); held; held = outbox.nextReleased()) {
      await this.keepEvidence(held.record);
      outbox.remove(held.call.id);
    }
    for (let intent = outbox.neverStarted[0]; intent; intent = outbox.neverStarted[0]) {
      // Only the new writer of a lost run knows whether it started the effect since.
      if (!writer.lost && needsNotDone(await this.pendingCall(intent.request))) {
        const record = writer.records.notDone(intent.request, writer.epoch);
        await writer.appendEvidence(record).catch(unless(Forbidden, ReconcileRequired));
      }
      outbox.neverStarted.shift();
    }
  }

  /** Appends a result as evidence until the journal keeps it. */
  async keepEvidence(result: Record): Promise<void> {
    let record = result;
    for (let tries = 0; tries < EVIDENCE_TRIES; tries++) {
      if (await this.#appendEvidence(record)) return;
      record = { ...record, record_id: newId() };
    }
    const message = `run ${this.runId}: a result was refused ${EVIDENCE_TRIES} times and is not kept as evidence yet`;
    throw new Unavailable(message, { action: "reopen", runId: this.runId });
  }

  async #appendEvidence(record: Record): Promise<boolean> {
    try {
      return await this.writer.appendEvidence(record);
    } catch (error) {
      if (!(error instanceof Invalid || error instanceof TooLarge)) throw error;
      return this.writer.appendEvidence(withoutContent(record, error));
    }
  }

  /** Makes the error for an applied intent whose effect belongs to the run's new writer. */
  takenOver(recordId: string, writer: WriterName): Fenced {
    const message =
      `run ${this.runId} was taken over by writer ${writer.writer_id} in epoch ${writer.epoch} after record ${recordId}: its effect was ` +
      "not run here";
    return new Fenced(message, { runId: this.runId, recordId });
  }
}

/** Whether this process must record that a call did not happen, so that it can run again. This process started neither its last
 * intent nor its last attempt.
 *
 * A call with a key, or a repeatable one, may run again anyway, and an earlier attempt of it may have happened: a `not_done` would be
 * false. Any other call gets an attempt only after a decision that it did not happen. If a result of an earlier attempt arrived since,
 * somebody else decides. */
const needsNotDone = (pending: Pending | undefined): boolean =>
  pending !== undefined && pending.class !== "retry_safe" && !pending.evidence.length;

type ErrorKind = abstract new (...args: never[]) => RunlogError;

/** A handler that throws every error but these kinds. */
export const unless = (...kinds: ErrorKind[]) => (error: unknown): void => {
  if (!kinds.some((kind) => error instanceof kind)) throw error;
};

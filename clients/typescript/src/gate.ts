// The gate: an effect runs at most once, unless its key makes running it again safe.
//
//   recorded, completed ─▶ the recorded answer; the effect does not run
//   recorded, pending   ─▶ retry_safe: attempt appended, read back ─▶ effect ─▶ result
//                          otherwise: ReconcileRequired; nothing runs
//   new                 ─▶ intent appended, read back ─▶ effect ─▶ result
//
// Read back: at `latest`, as applied, as this handle's record, with this handle still the run's writer, and with a call that has not
// changed since. Matching a call and appending its intent happens one call at a time; read-backs and effects of many calls overlap.

import type { ReadBack } from "./answers.js";
import type { TimedOutcome } from "./api.js";
import type { Answer, Call, Calling } from "./call.js";
import type { Caller } from "./caller.js";
import { SentAt, sleep, TIMER_MAX, within } from "./clock.js";
import { checkEnds, endOf, failureOf } from "./ends.js";
import {
  checkText, Conflict, Failed, Fenced, Invalid, isDoubt, ReconcileRequired, RunlogError, Stale, TooLarge, Unavailable, Usage,
  type Happened,
} from "./errors.js";
import { argsSha256, fingerprint, type Json } from "./json.js";
import { readMarker } from "./marker.js";
import { InFlight, Slot } from "./outbox.js";
import { newId, type Record } from "./records.js";
import { ran, Refusals } from "./refusals.js";
import { callKey, KeyConflict, type CallKey, type PendingCall, type RecordedCall } from "./replay.js";
import type { Session } from "./session.js";
import { argumentsJson, errorName, errorText, typeName } from "./values.js";
import { tookEffect } from "./writer.js";

/** The maximum milliseconds from a read-back to the start of the effect. After that the gate reads back once more: another process
 * may have taken the run over. */
const FRESH = 5_000;
/** The maximum milliseconds from the first send of an intent or attempt to the start of its effect. A server lets an operator decide
 * about a call once its run's writer has written nothing for 30 s (docs/protocol.md, "Start the effect at once"). A later answer to
 * the intent shows only that it was applied. The call may have been decided since. */
const START_WITHIN = 20_000;

/** A call whose effect may run. */
interface Admitted {
  readonly flight: InFlight;
  attempt: number;
  /** The answer to its intent or attempt. */
  acked: TimedOutcome;
  /** The time of the last read-back. */
  readBack: SentAt;
  /** Whether the effect happened, if this attempt is not started. */
  notStarted: Happened;
}

/** One call of a tool. */
export class Gate {
  readonly key: CallKey | undefined;
  readonly #refusals: Refusals;
  readonly #unique: boolean;
  readonly #repeatable: boolean;
  readonly #argsHash: string;
  readonly fingerprint: string;
  readonly #arguments: Json;
  /** Whether the call may run again although it may have happened. */
  #isSafeToRetry: boolean;
  #attemptsHere = 0;
  #flight: InFlight | undefined;

  constructor(readonly session: Session, readonly tool: string, args: unknown, readonly options: Calling, readonly caller: Caller) {
    const { config } = session.api;
    checkText("the name of a tool", tool);
    this.key = callKey(tool, options.key);
    this.#refusals = new Refusals(session.runId, tool);
    this.#unique = (options.unique ?? false) && !this.key;
    this.#repeatable = options.repeatable ?? false;
    this.#isSafeToRetry = this.key !== undefined;
    checkEnds(options, tool, config);
    this.#checkRetry();
    let value: Json;
    try {
      value = argumentsJson(args);
    } catch (error) {
      if (!(error instanceof Invalid)) throw error;
      throw error.copy(`the arguments of ${tool} cannot be recorded, and nothing ran: ${error.message}`);
    }
    this.#argsHash = argsSha256(value);
    this.fingerprint = fingerprint(tool, this.#argsHash);
    this.#arguments = config.redaction ? config.redaction.json(tool, value) : value;
  }

  get running(): string | undefined {
    return this.#flight?.isRunning && !this.#isSafeToRetry ? this.#flight.call.id : undefined;
  }

  #checkRetry(): void {
    const { retry } = this.options;
    if (!retry) return;
    if (!Number.isInteger(retry.attempts) || retry.attempts < 1) throw new Usage(`retry of ${this.tool} has 1 or more attempts, not ${retry.attempts}`);
    if (retry.pauseMs !== undefined && typeof retry.pauseMs !== "function") throw new Usage(`pauseMs of ${this.tool} is a function`);
    if (this.key || this.#repeatable) return;
    throw new Usage(
      `retry of ${this.tool} may repeat its effect: give it a key that the receiver recognises, or \`repeatable\` if running it again does ` +
        "no harm. Without either, leave out retry: after an error the call waits for a decision",
    );
  }

  /** Runs `effect` unless the journal has the call's answer, and records how it ended. */
  async run<R>(effect: (call: Call) => R | Promise<R>): Promise<Answer<Awaited<R>>> {
    const { session } = this;
    if (typeof effect !== "function") {
      throw new Usage(`the effect of ${this.tool} is not a function: ${typeName(effect)}; nothing ran or was recorded`);
    }
    this.caller.check();
    session.divergence.noteCall(this.tool, this.#repeatable);
    const operation = () => this.#run(effect as (call: Call) => unknown);
    return session.recent.call(() => session.leaving.during(this, operation)) as Promise<Answer<Awaited<R>>>;
  }

  async #run(effect: (call: Call) => unknown): Promise<Answer<unknown>> {
    await this.#waitForSame();
    const slot = await this.#slot();
    let admitted: Admitted | Answer<unknown>;
    try {
      admitted = await this.#admit(slot);
    } catch (error) {
      slot.release();
      throw error;
    }
    if ("result" in admitted) {
      slot.release();
      return admitted;
    }
    this.#flight = admitted.flight;
    try {
      return await this.#perform(admitted, effect);
    } finally {
      admitted.flight.drop();
    }
  }

  async #perform(admitted: Admitted, effect: (call: Call) => unknown): Promise<Answer<unknown>> {
    const { session } = this;
    const { flight } = admitted;
    for (;;) {
      // A caller that has left leaves a call that was never started.
      this.caller.check();
      // The process may have been suspended since the read-back.
      if (admitted.readBack.age() > FRESH) {
        await this.#readBackAgain(admitted);
        continue;
      }
      flight.start();
      this.#attemptsHere++;
      const call = { id: flight.call.id, attempt: admitted.attempt, idempotencyKey: this.key?.key, signal: this.caller.signal };
      let result: unknown;
      let failure: Failed | undefined;
      try {
        result = await effect(call);
      } catch (error) {
        failure = failureOf(this.options, error, this.tool, session.api.config);
        if (!failure) {
          const pause = this.#pause(error);
          if (pause === undefined) throw this.#unknown(flight, error);
          await sleep(pause);
          await this.#admitAgain(admitted, `retried after ${errorName(error)}`);
          continue;
        }
      }
      return await this.#record(flight, result, failure);
    }
  }

  /** The milliseconds until the next attempt of an effect that may have happened. `undefined` if it does not run again. */
  #pause(error: unknown): number | undefined {
    const { retry } = this.options;
    if (!retry || !this.#isSafeToRetry || this.#attemptsHere >= retry.attempts || this.caller.left) return undefined;
    if (!retry.pauseMs) return Math.min(1000 * 2 ** (this.#attemptsHere - 1), 30_000);
    let pause: unknown;
    try {
      pause = retry.pauseMs(this.#attemptsHere, error);
      if (pause === undefined || (typeof pause === "number" && pause >= 0 && pause <= TIMER_MAX)) return pause;
    } catch (thrown) {
      pause = thrown;
    }
    this.session.api.config.warn(`pauseMs of ${this.tool} gave no milliseconds from 0 to ${TIMER_MAX}, so its effect does not run again: ${errorText(pause)}`);
    return undefined;
  }

  /** Waits for the ends of the same calls that their callers have left. */
  async #waitForSame(): Promise<void> {
    const { session } = this;
    const same = this.key ? [] : session.leaving.same(this.fingerprint);
    if (!same.length) return;
    if (!(await within(session.api.config.deadlineMs, Promise.all(same)))) {
      const message = `the same call of ${this.tool}, whose caller has stopped waiting, is running in this process; retry when it has ended`;
      throw new Unavailable(message, { runId: session.runId });
    }
    this.caller.check();
  }

  async #slot(): Promise<Slot> {
    const { session } = this;
    const { callsMax, deadlineMs } = session.api.config;
    // Held results use slots, too.
    if (session.outbox.nextReleased()) await session.settle();
    if (!(await session.slots.acquire(deadlineMs))) {
      const message = `timed out waiting for one of the ${callsMax} calls in flight on run ${session.runId}`;
      throw new Unavailable(message, { runId: session.runId });
    }
    return new Slot(() => session.slots.release());
  }

  // Before the effect

  async #admit(slot: Slot): Promise<Admitted | Answer<unknown>> {
    const { session } = this;
    const found = await session.locked(() => this.#match(slot));
    if ("recorded" in found) return this.#recorded(found.recorded);
    const { flight, attempt, acked } = found;
    try {
      return { flight, attempt, acked, readBack: await this.#checkMayRun(flight, acked), notStarted: "unknown" };
    } catch (error) {
      flight.drop();
      // The intent is in the log.
      if (error instanceof RunlogError) error.happened = "unknown";
      throw error;
    }
  }

  /** Finds the recorded call that answers this call, or appends an intent or attempt. The lock is held. */
  async #match(slot: Slot): Promise<{ recorded: RecordedCall } | { flight: InFlight; attempt: number; acked: TimedOutcome }> {
    const { session, key } = this;
    const { replay, writer } = session;
    await session.makeReady(true);
    if (writer.ended !== undefined || replay.unresolved() || replay.hasRevocable(key)) await session.refresh();
    await session.coveredCalls.find(replay, key);
    this.caller.check();
    const found = replay.take(key, this.tool, this.fingerprint, this.#unique);
    if (found instanceof KeyConflict) {
      const message = `the idempotency key belongs to call ${found.id} of ${this.tool}, which has other arguments`;
      throw new Conflict(message, { action: "fix_the_input", runId: session.runId, recordId: found.id });
    }
    if (found) {
      // Calls of adapters and of ended runs intentionally begin at the start.
      const begins = replay.tookCovered && !this.#unique && writer.ended === undefined;
      session.divergence.noteAsked(this.tool, found.id, begins);
    }
    const matched = found ? await this.#again(found, slot) : await this.#intend(slot);
    if (this.#unique) replay.markUnique("recorded" in matched ? matched.recorded : matched.flight.call);
    return matched;
  }

  async #readBackAgain(admitted: Admitted): Promise<void> {
    try {
      admitted.readBack = await this.#checkMayRun(admitted.flight, { ...admitted.acked, askedAt: undefined });
    } catch (error) {
      if (error instanceof RunlogError) error.happened = admitted.notStarted;
      throw error;
    }
  }

  /** Appends the intent of a new call. No new effect runs while an older effect is unresolved. */
  async #intend(slot: Slot): Promise<{ flight: InFlight; attempt: number; acked: TimedOutcome }> {
    const { session, key } = this;
    const { writer, replay } = session;
    if (writer.ended !== undefined) {
      const covers = !key && replay.atCheckpoint && replay.covers
        ? "; this process read `run.recovery`, so it must not make calls again that the last checkpoint covers" : "";
      throw writer.afterEnd(writer.ended, `no recorded call answers this one of ${this.tool}, and nothing new runs${covers}`);
    }
    const blocking = session.allowUnresolved ? undefined : replay.unresolved();
    if (blocking) throw this.#refusals.reconcile(blocking[0], "no new effect runs before it is resolved", undefined, blocking[1]);
    const running = session.allowUnresolved ? undefined : session.leaving.running();
    if (running !== undefined) {
      const message =
        `call ${running} is running in this process, and its caller has stopped waiting: no new effect runs before it has ended; retry then`;
      throw new Unavailable(message, { runId: session.runId, recordId: running });
    }
    // The key of a call shows that it repeats no other.
    if (!key && !this.#repeatable) {
      const others = () => session.leaving.beside(this).map((call) => call.fingerprint);
      await session.divergence.check(this.tool, this.#unique, () => session.recent.steps, others);
    }
    const payload = {
      type: "tool_call_requested",
      request_id: newId(),
      call_id: "1",
      tool_name: this.tool,
      args_sha256: this.#argsHash,
      fingerprint: this.fingerprint,
      arguments: this.#arguments,
    };
    const hasBases = (await session.api.features()).has("bases");
    if (this.#repeatable && !key && !hasBases) this.#warnOfRepeatable();
    const repeatable: { [name: string]: Json } = this.#repeatable ? { repeatable: true } : {};
    const facts = hasBases ? { unresolved: session.allowUnresolved ? "allow" : "refuse", ...repeatable } : undefined;
    const record = writer.records.make(payload, { key: key?.key, facts });
    const acked = await writer.append(record, true);
    this.#isSafeToRetry = key !== undefined || (this.#repeatable && hasBases);
    const pending: PendingCall = { retrySafe: this.#isSafeToRetry, reason: "running in this process", attempts: 1, evidence: [] };
    const call = { id: record.record_id, fingerprint: this.fingerprint, tool: this.tool, pending };
    replay.add(acked.journal_seq ?? 0, key, call);
    const flight = new InFlight(session.outbox, call, key, { recordId: call.id, position: acked.position! }, slot);
    return { flight, attempt: 1, acked };
  }

  #warnOfRepeatable(): void {
    const { session } = this;
    if (session.warnedOfRepeatable) return;
    session.warnedOfRepeatable = true;
    session.api.config.warn(
      `${this.tool} is repeatable, but the server of run ${session.runId} cannot record that, because it lacks the feature \`bases\`: if ` +
        "the process dies in such a call, the call waits for a decision. Give the tool a key instead",
    );
  }

  /** Handles a recorded call: answers it, or runs it again if that is safe. */
  async #again(found: RecordedCall, slot: Slot): Promise<{ recorded: RecordedCall } | { flight: InFlight; attempt: number; acked: TimedOutcome }> {
    const { session, key } = this;
    const { writer, outbox } = session;
    const { pending } = found;
    if (!pending && !outbox.running.has(found.id)) return { recorded: found };
    try {
      if (outbox.running.has(found.id)) {
        const message = `call ${found.id} of ${this.tool} is running in this process; retry when it has ended`;
        throw new Unavailable(message, { runId: session.runId, recordId: found.id });
      }
      if (!pending!.retrySafe) throw this.#refusals.reconcile(found.id, pending!.reason, pending);
      if (writer.ended !== undefined) {
        const what =
          `call ${found.id} of ${this.tool} did not end, and is not run again; find out whether it happened, then decide: ` +
          this.#refusals.decision(found.id);
        throw writer.afterEnd(writer.ended, what, found.id);
      }
      this.#isSafeToRetry = key !== undefined || this.#repeatable;
      const attempt = pending!.attempts + 1;
      const acked = await this.#appendAttempt(found.id, attempt, pending!.reason);
      const call = { ...found, pending: { ...pending!, attempts: attempt } };
      const flight = new InFlight(outbox, call, key, { recordId: acked.record_id, position: acked.position! }, slot);
      return { flight, attempt, acked };
    } catch (error) {
      if (!key) outbox.returned.push(found);
      throw error;
    }
  }

  async #appendAttempt(call: string, attempt: number, reason: string): Promise<TimedOutcome> {
    const { writer } = this.session;
    try {
      return await writer.append(writer.records.make({ type: "tool_call_attempt", request_record_id: call, attempt, reason }), true);
    } catch (error) {
      if (!(error instanceof ReconcileRequired) || isDoubt(error)) throw error;
      // A result arrived since the call was read.
      throw this.#refusals.reconcile(call, error.message);
    }
  }

  /** Records another attempt of an effect that this process ran. The effect may have happened if this throws. */
  async #admitAgain(admitted: Admitted, reason: string): Promise<void> {
    const { session } = this;
    const { flight } = admitted;
    admitted.attempt++;
    admitted.notStarted = "unrecorded";
    try {
      await session.locked(async () => {
        await session.makeReady();
        admitted.acked = await this.#appendAttempt(flight.call.id, admitted.attempt, reason);
        flight.admitAgain(admitted.attempt, { recordId: admitted.acked.record_id, position: admitted.acked.position! });
      });
      admitted.readBack = await this.#checkMayRun(flight, admitted.acked);
    } catch (error) {
      if (error instanceof RunlogError) error.happened = admitted.notStarted;
      throw error;
    }
  }

  /** Checks that this handle's intent was applied, that its call has not changed since, **and** that this handle still writes the run.
   * All are read at `latest` after the acknowledgement, in the same request if the server supports it. The time of the answer reveals
   * a pause of this process. Returns the time of the read-back. */
  async #checkMayRun(flight: InFlight, acked: TimedOutcome): Promise<SentAt> {
    const { session } = this;
    const { writer, api, runId } = session;
    const ms = api.config.readBackMs;
    const { record_id: recordId } = acked;
    let begun = acked.askedAt;
    let answer: ReadBack;
    if (begun && begun.age() <= ms && acked.writer) answer = { ...acked, ...acked.writer };
    else {
      begun = new SentAt();
      answer = await api.outcome(runId, recordId, acked.position!, ms);
    }
    const details = { action: "reopen", happened: "unknown", runId } as const;
    if (begun.age() > ms) throw new Stale(`timed out after ${ms / 1000} s reading back record ${recordId} of run ${runId}`, details);
    const age = acked.sentAt.age();
    if (age > START_WITHIN) {
      const message =
        `record ${recordId} of run ${runId} was sent ${Math.round(age / 1000)} s ago, more than ${START_WITHIN / 1000} s: its effect was ` +
        "not run, because an operator may have decided about the call since; reopen the run";
      throw new Stale(message, details);
    }
    if (!tookEffect(answer)) throw writer.refused(recordId, answer);
    if (!writer.wrote(answer)) throw writer.notOwn(recordId, answer);
    if (!writer.isWriterIn(answer)) {
      if (answer.epoch < writer.epoch) throw writer.notWriterIn(answer.epoch);
      throw writer.lose(session.takenOver(recordId, answer));
    }
    if (answer.changed) throw this.#refusals.changed(flight.call.id, recordId, await session.pendingCall(flight.call.id));
    return begun;
  }

  /** Reads the recorded answer. If that fails, the call stays available. */
  async #recorded(found: RecordedCall): Promise<Answer<unknown>> {
    const { session } = this;
    try {
      const answer = await session.api.call(session.runId, found.id);
      const ofResult = (content: { payload_type: string }) => content.payload_type !== "tool_call_requested";
      const lost = answer.missing_content.filter(ofResult);
      if (lost.length || answer.dropped.some(ofResult)) throw this.#refusals.answerLost(found.id, answer.status, lost);
      // A status without an answer must not look like an empty answer.
      if (answer.status !== "completed" && answer.status !== "failed") {
        // The next call reads an unresolved call again.
        session.replay.markUnresolved(found);
        throw this.#refusals.reconcile(found.id, "its recorded answer was not found");
      }
      const mark = readMarker(found.id, answer.result);
      if (mark) throw this.#refusals.notRecorded(found.id, mark);
      await session.locked(() => {
        if (!this.caller.answered()) this.caller.check();
        session.markAnswered(found.id);
      });
      if (answer.status === "failed") {
        const failed = new Failed(answer.error!.kind, answer.error!.message);
        failed.recorded = true;
        throw failed;
      }
      return { result: answer.result ?? null, recorded: true, callId: found.id };
    } catch (error) {
      if (!this.key && !(error instanceof Failed)) session.outbox.returned.push(found);
      throw error;
    }
  }

  // After the effect

  /** Appends the result of the effect, which is held until it is in the log. */
  async #record(flight: InFlight, result: unknown, failure: Failed | undefined): Promise<Answer<unknown>> {
    const { session } = this;
    const request = flight.call.id;
    const [payload, size] = endOf(session.api.config, this.tool, request, result, failure);
    const record = session.writer.records.make(payload);
    const kept = flight.end(record, size) ? "held" : "unrecorded";
    let isLocked = false;
    try {
      await session.locked(() => {
        isLocked = true;
        return this.#appendResult(flight, record, kept);
      });
    } catch (error) {
      throw isLocked || !(error instanceof RunlogError) ? error : ran(error, request, kept);
    }
    if (failure) throw failure;
    return { result, recorded: false, callId: request };
  }

  async #appendResult(flight: InFlight, record: Record, kept: Happened): Promise<void> {
    const { session } = this;
    const request = flight.call.id;
    try {
      await session.makeReady();
    } catch (error) {
      if (!(error instanceof RunlogError)) throw error;
      if (!session.writer.over) throw ran(error, request, kept);
      try {
        await session.keepEvidence(record);
      } catch {
        throw ran(error, request, kept);
      }
      flight.recorded();
      throw ran(error, request, "evidence");
    }
    try {
      await session.appendResult(record);
    } catch (error) {
      if (error instanceof Fenced) flight.recorded();
      else if (error instanceof Invalid || error instanceof TooLarge) flight.unrecordable();
      if (!(error instanceof RunlogError)) throw error;
      throw ran(error, request, error instanceof Fenced ? "evidence" : error instanceof Invalid || error instanceof TooLarge ? "unrecorded" : kept);
    }
    flight.recorded();
    if (this.caller.answered()) session.markAnswered(request);
    // The answer did not reach the agent: it answers the next same call.
    else session.replay.restore(this.key, { ...flight.call, pending: undefined });
  }

  /** Makes the error of an effect with an unknown outcome: no result is recorded, and the call stays pending. */
  #unknown(flight: InFlight, error: unknown): RunlogError {
    let why = `${errorName(error)}: ${errorText(error)}`.replace(/: $/, "");
    let found: RunlogError;
    if (this.#isSafeToRetry) {
      const safe = this.key ? "its key makes it safe to retry" : "it is repeatable, so retry it";
      found = this.#refusals.mayHaveHappened(flight.call.id, why, safe);
    } else {
      if (this.#repeatable) why += "; it is repeatable, but this server cannot record that, because it lacks the feature `bases`";
      found = this.#refusals.reconcile(flight.call.id, why);
      found.happened = "unrecorded";
    }
    found.cause = error;
    return found;
  }
}

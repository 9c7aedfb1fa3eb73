// The core of a handle on a run. Operations run one at a time; each first settles records, calls and results of earlier operations.
//
//   operation ─▶ lock ─▶ makeReady (see `settling`) ─▶ append

import type { Head } from "./answers.js";
import { NO_RECORDS, type Api, type TimedOutcome, type WholeRecovery } from "./api.js";
import { buildCheckpoint, listOf } from "./checkpoint.js";
import { Covered } from "./covered.js";
import { Divergence, type OnDivergence } from "./divergence.js";
import { Active, Conflict, Internal, RunlogError } from "./errors.js";
import { encode, type Json } from "./json.js";
import { Permits } from "./locks.js";
import { lifecycle, newId, type Payload } from "./records.js";
import { Replay } from "./replay.js";
import { Settling, unless } from "./settling.js";

export interface Opening {
  /** Throw `Active` if the run has a record that is younger than this many milliseconds. */
  unlessActiveMs?: number;
  /** Resume at the start, not at the checkpoint: the journal answers all recorded calls. The same holds for a handle whose `recovery`
   * was never read. */
  fromStart?: boolean;
  /** Run new effects even while an older effect must be decided. */
  allowUnresolved?: boolean;
  /** A new call without a key throws `Diverged`, and nothing runs, as long as recorded calls after the checkpoint were not asked for.
   * `allow` permits it: for a program that does not make its calls again. While other calls or several steps are in flight there is only
   * a warning, except for unique calls. */
  onDivergence?: OnDivergence;
}

/** A run that this process has claimed. */
export class Session extends Settling {
  readonly slots: Permits;
  readonly coveredCalls: Covered;
  readonly divergence: Divergence;
  readonly allowUnresolved: boolean;
  /** The state of the last checkpoint. */
  state: Json = null;
  warnedOfRepeatable = false;

  constructor(api: Api, runId: string, readonly options: Opening) {
    super(api, runId);
    this.slots = new Permits(api.config.callsMax);
    this.coveredCalls = new Covered(api, runId);
    this.divergence = new Divergence(api, runId, options.onDivergence ?? "raise");
    this.allowUnresolved = options.allowUnresolved ?? false;
  }

  // Opening

  /** Claims the run and returns its recovery after the claim. An ended run is read, not claimed. */
  async open(): Promise<WholeRecovery> {
    const { writer } = this;
    const head = await this.api.run(this.runId);
    if (this.options.unlessActiveMs !== undefined) await this.#claimInactive(head, this.options.unlessActiveMs);
    else if (!head || head.status === "open") await writer.claimAfter(head?.epoch ?? 0);
    const recovery = await this.api.recovery(this.runId, this.options.fromStart ?? false, true);
    if (!recovery) throw new Internal(`run ${this.runId} has no records after its claim`, { runId: this.runId });
    if (writer.epoch) writer.sync(recovery);
    this.replay = new Replay(recovery);
    this.base = listOf(recovery.checkpoint);
    this.state = recovery.checkpoint?.state ?? null;
    this.divergence.expect(recovery, recovery.checkpoint?.covers_journal_seq ?? 0);
    if (recovery.status !== "open") writer.end(recovery.status);
    else if (recovery.next_journal_seq === 1) await writer.append(writer.records.make(lifecycle("started")));
    return recovery;
  }

  /** Claims the run as it was read, so that a process that writes to it meanwhile is not fenced. An ended run is not claimed. */
  async #claimInactive(read: Head | undefined, within: number): Promise<void> {
    const hasOnlyIf = (await this.api.features()).has("only_if");
    let head = read;
    for (const isLast of [false, false, true]) {
      if (head) {
        this.#checkInactive(head, within);
        if (head.status !== "open") return;
      }
      try {
        return await this.writer.claimAfter(head?.epoch ?? 0, hasOnlyIf ? (head?.hash ?? NO_RECORDS) : undefined);
      } catch (error) {
        if (!(error instanceof Conflict) || isLast || !hasOnlyIf) throw error;
        // The run has got a record: is its process active?
        head = await this.api.run(this.runId);
      }
    }
  }

  #checkInactive(head: Head, within: number): void {
    const age = head.age_millis ?? 0;
    if (head.status !== "open" || age >= within) return;
    const when = head.age_millis === null || head.age_millis === undefined
      ? "has a last record whose time is in the future; if its process is dead, open the run without the age check"
      : `appended its last record ${(age / 1000).toFixed(1)} s ago`;
    const message = `run ${this.runId} is active and was not taken over: writer ${head.writer_id} in epoch ${head.epoch} ${when}`;
    throw new Active(message, head.writer_id, head.epoch, age, this.runId);
  }

  // Operations

  /** Appends a record and waits until it is applied. */
  append(payload: Payload): Promise<TimedOutcome> {
    return this.locked(async () => {
      await this.makeReady();
      return this.writer.append(this.writer.records.make(payload));
    });
  }

  /** Ends the run, unless it has already ended in the same way. */
  end(status: string, reason: string): Promise<void> {
    return this.locked(async () => {
      await this.makeReady(true);
      if (this.writer.ended !== undefined) return this.#checkSameEnd(this.writer.ended, status, reason);
      await this.writer.append(this.writer.records.make(lifecycle(status, reason)));
      this.writer.end(status);
    });
  }

  async #checkSameEnd(ended: string, status: string, reason: string): Promise<void> {
    const recorded = await this.api.endReason(this.runId, ended);
    // Records of another SDK have no reason.
    if (status === ended && (recorded === undefined || recorded === reason)) return;
    const what = `it cannot end as ${status} for the reason ${JSON.stringify(reason)}, because it ended for the reason ${JSON.stringify(recorded)}`;
    throw this.writer.afterEnd(ended, what);
  }

  /** Records messages and state. Writes only messages that the last checkpoint lacks. An ended run accepts only its last checkpoint
   * again. */
  checkpoint(messages: readonly Json[], state: Json, turn: number): Promise<void> {
    // Begins before the wait for the lock: the messages lack answers that arrive meanwhile.
    return this.recent.checkpoint((lacking) =>
      this.locked(async () => {
        await this.makeReady(true);
        await this.#appendCheckpoint(messages, state, turn, lacking);
      }),
    );
  }

  async #appendCheckpoint(given: readonly Json[], givenState: Json, turn: number, lacking: ReadonlySet<string>): Promise<void> {
    const { writer, api: { config: { redaction } } } = this;
    if (!this.replay.atCheckpoint) await this.coveredCalls.readAll(this.replay);
    const messages = redaction ? given.map((message) => redaction.json(null, message)) : given;
    const state = redaction ? redaction.json(null, givenState) : givenState;
    const fields = {
      checkpoint_seq: writer.nextCheckpointSeq,
      covers_journal_seq: writer.nextJournalSeq - 1,
      unanswered: [...new Set([...this.replay.unanswered(), ...lacking])],
      turn,
    };
    const recordId = newId();
    const [payload, following] = buildCheckpoint(this.base, recordId, messages, fields, state);
    const isSame = () => following.hashes.join() === this.base.hashes.join() && encode(state) === encode(this.state);
    if (writer.ended !== undefined && isSame()) return;
    try {
      await writer.append(writer.records.make(payload, { recordId }));
    } catch (error) {
      // The base may be wrong: the next checkpoint is written whole.
      if (error instanceof Conflict && writer.ended === undefined) this.base = { hashes: [] };
      throw error;
    }
    [this.base, this.state] = [following, state];
    this.divergence.forget();
  }

  /** Settles earlier operations. */
  settle(): Promise<void> {
    return this.locked(() => this.makeReady(true));
  }

  /** Records results and decisions of interrupted operations, as far as possible now. */
  async leave(): Promise<void> {
    if (this.outbox.nextReleased() || this.outbox.neverStarted.length) await this.settle().catch(unless(RunlogError));
  }

  /** Settles earlier operations, and checks that this handle still writes the run. */
  reopen(): Promise<void> {
    return this.locked(async () => {
      await this.makeReady();
      const head = await this.api.run(this.runId);
      if (!head || !this.writer.isWriterIn(head)) throw this.writer.notWriterIn(head?.epoch ?? 0);
    });
  }
}

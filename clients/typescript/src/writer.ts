// The writer of a run: claims it, and appends one request of records after the other.
//
//   ready ──append──▶ unacknowledged ──answered──▶ ready
//                       │   └── no answer: settle() sends the same records again before anything else
//                       └── refused as fenced ──▶ lost: results can only be left as evidence
//
// Records that are sent again keep their ids and content, so that they are in the log once. A late first copy is a repeat.

import type { Head, Outcome, Position, Writer as WriterName } from "./answers.js";
import type { Api, TimedOutcome } from "./api.js";
import {
  ClaimLost, Conflict, Fenced, Forbidden, Invalid, MissingContent, RunlogError, Stale, TooLarge,
} from "./errors.js";
import type { Json } from "./json.js";
import { INTENTS, newId, Records, type Record } from "./records.js";
import { hex, sha256Hex } from "./sha256.js";

const KEPT_AS_EVIDENCE: readonly unknown[] = [undefined, null, "fenced", "ended", "not_started_here", "transition"];

/** Whether a record was applied, now or when it was first appended. */
export const tookEffect = (outcome: { outcome: string; reason?: string | null }): boolean =>
  (outcome.outcome === "applied" || outcome.outcome === "repeat") && (outcome.reason ?? null) === null;

/** A claim of a run. Every send has the same record id, so a copy of the claim never supersedes this process. */
interface Claim {
  readonly recordId: string;
  readonly writerId: string;
  readonly epoch: number;
  /** The bytes whose SHA-256 is the claim's commitment. Absent if the server does not have the feature `commitments`. */
  readonly secret?: Uint8Array;
  /** The secret of the writer's previous claim. */
  readonly shown?: Uint8Array;
}

/** The members by which the server recognises the handle, so that calls which it started under earlier claims stay its own. */
const handleOf = ({ secret, shown }: Claim): { [name: string]: Json } => ({
  ...(secret && { commitment: sha256Hex(secret) }),
  ...(shown && { shown: hex(shown) }),
});

/** Appends to one run. Its operations are serialised by its owner. */
export class Writer {
  readonly records: Records;
  writerId = "";
  epoch = 0;
  nextJournalSeq = 1;
  nextCheckpointSeq = 1;
  /** The position of the run's last known record. */
  seen: Position | undefined;
  /** The error for further appends, if the run was lost or ended. */
  over: RunlogError | undefined;
  /** The status with which the run ended, if no other process has taken it over since. */
  ended: string | undefined;
  /** Records that were sent without an answer. They may be in the log. */
  unacknowledged: readonly Record[] | undefined;
  numbersUnsure = false;
  /** A claim whose outcome is unknown. */
  #claim: Claim | undefined;
  /** The secret of the last claim that took effect. */
  #secret: Uint8Array | undefined;

  constructor(readonly api: Api, readonly runId: string) {
    this.records = new Records(api.config, runId);
  }

  /** Whether another process has the run. */
  get lost(): boolean {
    return this.over instanceof Fenced || this.over instanceof ClaimLost;
  }

  /** Claims the epoch after `epoch`. A retry after a failure sends the same claim.
   *
   * With `onlyIf`, the hash of the run's head in this epoch, the claim throws `Conflict` if the run then has another head, and fences
   * no other process. The server must have the feature `only_if`. `purpose` is appended to the name of this process in the claim. */
  async claimAfter(epoch: number, onlyIf?: string, purpose = ""): Promise<void> {
    const claim = await this.#claimOf(epoch + 1);
    if (onlyIf === undefined) await this.#appendClaim(claim);
    else {
      const claimed_by = this.api.config.claimedBy + purpose;
      const body = { record_id: claim.recordId, writer_id: claim.writerId, claimed_by, ...handleOf(claim), only_if: { hash: onlyIf } };
      try {
        await this.api.claim(this.runId, body);
      } catch (error) {
        if (error instanceof ClaimLost || error instanceof Conflict) this.#claim = undefined;
        throw error;
      }
    }
    this.#begin(claim);
  }

  /** Adopts a claim that was applied: records now have its writer id and epoch. */
  #begin(claim: Claim): void {
    this.writerId = claim.writerId;
    this.epoch = claim.epoch;
    this.#secret = claim.secret;
    this.#claim = this.over = this.unacknowledged = undefined;
  }

  /** Adopts this writer's claim if the run's head shows that it was applied, although its answer was lost. Returns whether it did. */
  adopt(head: WriterName): boolean {
    const claim = this.#claim;
    if (!claim || head.writer_id !== claim.writerId || head.epoch !== claim.epoch) return false;
    this.#begin(claim);
    return true;
  }

  /** The claim of an epoch. While its outcome is unknown, the same claim is returned. A writer that claims its run again keeps its
   * id. */
  async #claimOf(epoch: number): Promise<Claim> {
    if (this.#claim?.epoch !== epoch) {
      const commits = (await this.api.features()).has("commitments");
      const secret = commits ? crypto.getRandomValues(new Uint8Array(32)) : undefined;
      this.#claim = { recordId: newId(), writerId: this.writerId || newId(), epoch, secret, shown: commits ? this.#secret : undefined };
    }
    return this.#claim!;
  }

  async #appendClaim(claim: Claim): Promise<void> {
    const { writerId: writer_id, epoch } = claim;
    const payload = { type: "run_claim", writer_id, epoch, claimed_by: this.api.config.claimedBy };
    const facts = handleOf(claim);
    const made = this.records.make(payload, { recordId: claim.recordId, facts: Object.keys(facts).length ? facts : undefined });
    const record = { ...made, writer_id, writer_epoch: epoch };
    const [outcome] = await this.api.append(this.runId, [record]);
    this.#claim = undefined;
    if (tookEffect(outcome!)) return;
    if (outcome!.reason === "fenced") throw new ClaimLost(`another process claimed run ${this.runId} first`, { runId: this.runId });
    throw this.refused(record.record_id, outcome!);
  }

  /** Takes the next numbers from the run's head. Throws if another process writes the run. */
  sync(head: Pick<Head, "writer_id" | "epoch" | "next_journal_seq" | "next_checkpoint_seq" | "position">): void {
    if (!this.isWriterIn(head)) throw this.notWriterIn(head.epoch);
    this.nextJournalSeq = head.next_journal_seq;
    this.nextCheckpointSeq = head.next_checkpoint_seq;
    this.#notePosition(head);
    this.numbersUnsure = false;
  }

  #notePosition({ position }: { position?: Position | null }): void {
    if (position && !(this.seen && this.seen.offset >= position.offset)) this.seen = position;
  }

  /** Reads the next numbers after a refusal. */
  async syncIfUnsure(): Promise<void> {
    if (!this.numbersUnsure) return;
    const head = await this.api.run(this.runId);
    if (!head) throw this.notWriterIn(0);
    this.sync(head);
  }

  /** Whether an answer names this writer as the run's writer. */
  isWriterIn(answer: WriterName): boolean {
    return answer.writer_id === this.writerId && answer.epoch === this.epoch;
  }

  /** Whether this writer wrote the record with this outcome, and not another process under the same id. A server without the feature
   * `record_writer` does not report it; ids are random, so they do not collide by chance. */
  wrote(outcome: { record_writer?: WriterName | null }): boolean {
    return !outcome.record_writer || this.isWriterIn(outcome.record_writer);
  }

  /** Makes the error for an intent of another writer: its effect may have run there. */
  notOwn(recordId: string, outcome: { record_writer?: WriterName | null }): Conflict {
    const writer = outcome.record_writer!;
    const message =
      `record ${recordId} of run ${this.runId} belongs to writer ${writer.writer_id} in epoch ${writer.epoch}: the id was already in the ` +
      "log, and the effect was not run here";
    return new Conflict(message, { runId: this.runId, recordId });
  }

  /** Makes the error for an answer that names another writer: the run is lost, unless the answer is older than the claim. */
  notWriterIn(seen: number): RunlogError {
    if (seen < this.epoch) {
      const message = `an answer about run ${this.runId} is of epoch ${seen}, older than this handle's ${this.epoch}; retry`;
      return new Stale(message, { runId: this.runId });
    }
    return this.lose(new ClaimLost(`another process claimed run ${this.runId}`, { runId: this.runId }));
  }

  /** Marks the run as lost: another process writes it. */
  lose(error: RunlogError): RunlogError {
    if (!this.lost) [this.over, this.ended] = [error, undefined];
    return error;
  }

  /** Marks the run as ended. */
  end(status: string): void {
    this.ended = status;
    this.over = this.afterEnd(status, "it answers recorded calls and accepts no new record");
  }

  /** Makes the error for an operation that an ended run refuses. */
  afterEnd(status: string, what: string, recordId?: string): Conflict {
    return new Conflict(`run ${this.runId} is ${status}: ${what}`, { action: "fix_the_input", runId: this.runId, recordId });
  }

  /** Throws if no record can be appended any more. */
  checkOver(): void {
    if (this.over) throw this.over.copy();
  }

  /** Makes the error for a refused record. */
  refused(recordId: string, outcome: { reason?: string | null; detail?: string | null }): RunlogError {
    const reason = String(outcome.reason);
    const details = { runId: this.runId, recordId, problem: { reason } };
    if (reason === "fenced") {
      return new Fenced(`record ${recordId} of run ${this.runId} was refused as fenced; another process took the run over`, details);
    }
    return new Conflict(`record ${recordId} of run ${this.runId} was refused as ${reason}: ${outcome.detail ?? ""}`, details);
  }

  /** The record with this writer's id and epoch. */
  #signed(record: Record): Record {
    return { ...record, writer_id: this.writerId, writer_epoch: this.epoch };
  }

  /** Appends a record and returns its outcome; it is applied. `readBack` as for `Api.append`.
   *
   * Throws `Fenced` or `Conflict` if the record was refused. After an error with `unknown` the record is in `unacknowledged`. */
  async append(record: Record, readBack = false): Promise<TimedOutcome> {
    return (await this.appendAll([record], readBack))[0]!;
  }

  /** As `append`, for several records in one request. */
  async appendAll(records: readonly Record[], readBack = false): Promise<TimedOutcome[]> {
    this.checkOver();
    if (this.unacknowledged) throw new Error("an earlier append is not settled");
    this.unacknowledged = records.map((record) => this.#signed(record));
    let outcomes: TimedOutcome[];
    try {
      outcomes = await this.#send(this.unacknowledged, readBack);
    } catch (error) {
      if (error instanceof RunlogError && error.happened === "nothing") this.unacknowledged = undefined;
      throw error;
    }
    this.check(records, outcomes);
    return outcomes;
  }

  /** Resends the unacknowledged records. Returns them with their outcomes; `undefined` if there were none. */
  async settle(): Promise<{ sent: readonly Record[]; outcomes: readonly Outcome[] } | undefined> {
    const sent = this.unacknowledged;
    if (!sent) return undefined;
    try {
      return { sent, outcomes: await this.#send(sent) };
    } catch (error) {
      const isFinal = [Invalid, TooLarge, MissingContent, Forbidden].some((kind) => error instanceof kind);
      // The server never accepts these records, so it did not accept them the first time.
      if (isFinal) this.unacknowledged = undefined;
      // The journal's state settles the call of a decision.
      if (error instanceof Forbidden && sent[0]!.payload.type === "effect_resolution") return undefined;
      throw error;
    }
  }

  async #send(records: readonly Record[], readBack = false): Promise<TimedOutcome[]> {
    const outcomes = await this.api.append(this.runId, records, readBack);
    this.unacknowledged = undefined;
    records.forEach((record, at) => this.#note(record, outcomes[at]!));
    return outcomes;
  }

  #note({ payload }: Record, outcome: Outcome): void {
    this.#notePosition(outcome);
    // A refusal may consume numbers.
    if (!tookEffect(outcome)) {
      this.numbersUnsure = true;
      return;
    }
    this.nextJournalSeq = Math.max(this.nextJournalSeq, (outcome.journal_seq ?? 0) + 1);
    if (payload.type === "loop_checkpoint") {
      this.nextCheckpointSeq = Math.max(this.nextCheckpointSeq, Number(payload["checkpoint_seq"]) + 1);
    }
  }

  /** Throws if a record was refused, or is an intent of another writer. A fenced record loses the run. */
  check(records: readonly Record[], outcomes: readonly Outcome[]): void {
    records.forEach(({ record_id, payload }, at) => {
      const outcome = outcomes[at]!;
      if (!tookEffect(outcome)) {
        const error = this.refused(record_id, outcome);
        throw error instanceof Fenced ? this.lose(error) : error;
      }
      if (INTENTS.includes(payload.type) && !this.wrote(outcome)) throw this.notOwn(record_id, outcome);
    });
  }

  /** Appends a result for a writer that lost the run, or whose run ended. The journal refuses it and keeps it as evidence. Returns
   * whether the journal keeps it. */
  async appendEvidence(record: Record): Promise<boolean> {
    const [outcome] = await this.api.append(this.runId, [this.#signed(record)]);
    return KEPT_AS_EVIDENCE.includes(outcome!.reason);
  }
}

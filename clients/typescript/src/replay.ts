// The recorded calls of a run that a resumed agent has not requested yet.
//
//   call with a key     ─▶ the recorded call with this key, every time
//   call without a key  ─▶ the oldest recorded call with the same tool and arguments that has answered no call yet
//   neither             ─▶ the call is new

import type { Completed, Evidence, Pending, Position, RecoveryAnswer } from "./answers.js";
import { checkText, isBlank, Usage } from "./errors.js";

/** A request whose end is not recorded. */
export interface PendingCall {
  readonly retrySafe: boolean;
  readonly reason: string;
  readonly attempts: number;
  readonly evidence: readonly Evidence[];
}

/** A request in the journal; `pending` is absent once it has ended. */
export interface RecordedCall {
  readonly id: string;
  readonly fingerprint: string;
  readonly tool: string;
  readonly pending?: PendingCall;
}

/** The tool and the idempotency key of a call that has one. */
export interface CallKey {
  readonly tool: string;
  readonly key: string;
  /** Both as one text. */
  readonly id: string;
}

/** The key belongs to the request `id`, which has other arguments. */
export class KeyConflict {
  constructor(readonly id: string) {}
}

/** The `journal_seq` and the occurrence of a request. They order requests of one fingerprint as the log has them: after a skip, void
 * calls can have one `journal_seq`. */
type Order = readonly [number, number];
/** Stands for the occurrence of a request that this process appended. Void calls with its number precede it in the log. */
const APPENDED = 2 ** 32;

export const orderOf = (call: Completed | Pending): Order => [call.journal_seq, call.occurrence ?? 0];
export const byOrder = (a: Order, b: Order): number => a[0] - b[0] || a[1] - b[1];

const keyIn = (tool: string, key: string): CallKey => ({ tool, key, id: JSON.stringify([tool, key]) });

/** The key of a new call. Throws `Usage` for a key without a visible character, which identifies no call at the receiver. */
export function callKey(tool: string, key: string | null | undefined): CallKey | undefined {
  if (key === undefined || key === null) return undefined;
  checkText(`the idempotency key of ${tool}`, key);
  if (isBlank(key)) {
    throw new Usage(`the idempotency key of ${tool} is empty or blank: give a key that only this call has, or none for a call without one`);
  }
  return keyIn(tool, key);
}

/** The key of a recorded call. An empty key, which older clients recorded, counts as no key. */
export const keyOf = (call: Completed | Pending): CallKey | undefined =>
  call.idempotency_key ? keyIn(call.tool_name, call.idempotency_key) : undefined;

export const pendingCall = (found: Pending): PendingCall =>
  ({ retrySafe: found.class === "retry_safe", reason: found.reason, attempts: found.attempts, evidence: found.evidence });

const isPending = (found: Completed | Pending): found is Pending => "class" in found;

/** A completed or pending call; `undefined` for an effect without a fingerprint, which no call of an agent can match. */
export const recordedCall = (found: Completed | Pending): RecordedCall | undefined => found.fingerprint
  ? { id: found.id, fingerprint: found.fingerprint, tool: found.tool_name, pending: isPending(found) ? pendingCall(found) : undefined }
  : undefined;

export class Replay {
  /** Whether the process resumes at the checkpoint. */
  atCheckpoint = false;
  /** Whether the last request that was taken has no key and is covered by the checkpoint. */
  tookCovered = false;
  /** The number that the checkpoint covers; 0 without one. */
  readonly covers: number;
  /** The run's last record as of the recovery. */
  readonly position: Position | undefined;
  /** Whether `addCovered` must add the requests that the checkpoint covers before one of them can be found. */
  lacksCovered: boolean;
  #keyless = new Map<string, RecordedCall[]>();
  #keyed = new Map<string, RecordedCall>();
  /** Requests of unique calls that this process made or took, by fingerprint. */
  readonly #unique = new Map<string, string>();
  readonly #unanswered = new Map<string, Order>();
  /** Requests without a key that have answered a call of this agent. They answer no other call, even if the journal refuses their
   * result or a skip voids it, so that they are pending again. */
  readonly #used = new Map<string, Order | undefined>();
  /** The tools of pending requests that block new effects, by request. */
  #unresolved = new Map<string, string>();
  /** The pending requests in the journal, as last read. */
  #details = new Map<string, Pending>();
  /** Requests without a key that the checkpoint covers as answered and that were not taken yet. A process that does not resume there starts at
   * the run's beginning, and has not received their answers. */
  #covered = new Map<string, Order>();
  readonly #uncovered: Set<string>;
  /** The requests that the checkpoint lists as unanswered. */
  readonly #listed: Set<string>;

  constructor(recovery?: RecoveryAnswer) {
    this.covers = recovery?.checkpoint?.covers_journal_seq ?? 0;
    this.#listed = new Set(recovery?.checkpoint?.unanswered);
    this.position = recovery?.position ?? undefined;
    this.lacksCovered = this.covers > 0;
    const found: [Order, CallKey | undefined, RecordedCall][] = [];
    // Possibly no call can match it, and no new effect runs until it is decided.
    for (const pending of recovery?.pending ?? []) this.#markUncertain(pending);
    for (const each of [...(recovery?.completed ?? []), ...(recovery?.pending ?? [])]) {
      const call = recordedCall(each);
      if (call) found.push([orderOf(each), keyOf(each), call]);
    }
    this.#uncovered = new Set(found.map(([, , call]) => call.id));
    const covered = new Set(recovery?.pending.filter((pending) => this.#hasAnswered(pending)).map((pending) => pending.id));
    for (const [order, key, call] of found.sort((a, b) => byOrder(a[0], b[0]))) {
      (covered.has(call.id) ? this.#covered : this.#unanswered).set(call.id, order);
      if (!key) this.#queue(call.fingerprint).push(call);
      else if (!this.#keyed.has(key.id)) this.#keyed.set(key.id, call);
    }
  }

  #queue(fingerprint: string): RecordedCall[] {
    const queue = this.#keyless.get(fingerprint) ?? [];
    this.#keyless.set(fingerprint, queue);
    return queue;
  }

  /** Whether the checkpoint may cover a call: a key identifies its call forever, and a process may start at the run's beginning. */
  needsCovered(key: CallKey | undefined): boolean {
    return this.lacksCovered && (key ? !this.#keyed.has(key.id) : !this.atCheckpoint);
  }

  /** Adds the requests that the checkpoint covers, from a recovery of the whole run. A skip may have voided an end since the process
   * opened the run, so that a request is pending. */
  addCovered({ completed, pending }: Pick<RecoveryAnswer, "completed" | "pending">): void {
    this.lacksCovered = false;
    const keyed = new Map<string, RecordedCall>();
    const fingerprints = new Set<string>();
    for (const each of [...completed, ...pending].sort((a, b) => byOrder(orderOf(a), orderOf(b)))) {
      if (each.journal_seq > this.covers || this.#uncovered.has(each.id)) continue;
      if (isPending(each)) this.#markUncertain(each);
      const [key, call] = [keyOf(each), recordedCall(each)];
      if (!call) continue;
      if (!key) {
        this.#covered.set(call.id, orderOf(each));
        this.#queue(call.fingerprint).push(call);
        fingerprints.add(call.fingerprint);
      } else if (!keyed.has(key.id)) keyed.set(key.id, call);
    }
    for (const [key, call] of keyed) this.#keyed.set(key, call);
    for (const fingerprint of fingerprints) this.#queue(fingerprint).sort((a, b) => byOrder(this.#order(a.id), this.#order(b.id)));
  }

  #order(callId: string): Order {
    return this.#unanswered.get(callId) ?? this.#covered.get(callId) ?? [0, 0];
  }

  /** Adds the request with a key, which the checkpoint covers. */
  addKeyed(key: CallKey, call: RecordedCall): void {
    if (!this.#keyed.has(key.id)) this.#keyed.set(key.id, call);
  }

  /** From now on, the request answers every unique call with its fingerprint. */
  markUnique(call: RecordedCall): void {
    this.#unique.set(call.fingerprint, call.id);
  }

  /** Finds the recorded call that answers a call; `undefined` for a new call. A recorded call without a key is removed, since it
   * answers once, unless the call is unique. */
  take(key: CallKey | undefined, tool: string, fingerprint: string, unique: boolean): RecordedCall | KeyConflict | undefined {
    this.tookCovered = false;
    if (key) {
      const found = this.#keyed.get(key.id);
      return found && found.fingerprint !== fingerprint ? new KeyConflict(found.id) : found;
    }
    this.#skipCovered();
    // A further unique call is the same call, and takes no other one.
    const same = unique ? this.#unique.get(fingerprint) : undefined;
    const queue = this.#keyless.get(fingerprint) ?? [];
    const at = queue.findIndex((call) => same === undefined || call.id === same);
    const [taken] = at < 0 ? [] : queue.splice(at, 1);
    if (!taken) return same === undefined ? undefined : { id: same, fingerprint, tool };
    const order = this.#covered.get(taken.id);
    if (order) {
      this.#covered.delete(taken.id);
      this.#unanswered.set(taken.id, order);
      this.tookCovered = true;
    }
    return taken;
  }

  /** Removes requests that the checkpoint covers, if the process resumes there. */
  #skipCovered(): void {
    if (!this.atCheckpoint || !this.#covered.size) return;
    const covered = this.#covered;
    this.#covered = new Map();
    this.#filterKeyless((call) => !covered.has(call.id));
  }

  #filterKeyless(keep: (call: RecordedCall) => boolean): void {
    for (const [fingerprint, queue] of this.#keyless) this.#keyless.set(fingerprint, queue.filter(keep));
  }

  /** Puts back a request whose answer did not reach the agent. It answers a call again, in the order of the log. */
  putBack(key: CallKey | undefined, call: RecordedCall): void {
    const used = this.#used.get(call.id);
    this.#used.delete(call.id);
    if (used) this.#unanswered.set(call.id, used);
    if (key) {
      this.#keyed.set(key.id, call);
      return;
    }
    const queue = this.#queue(call.fingerprint);
    const at = queue.findIndex((other) => byOrder(this.#order(other.id), this.#order(call.id)) > 0);
    queue.splice(at < 0 ? queue.length : at, 0, call);
  }

  /** As `putBack`, whether or not the request was taken before. */
  restore(key: CallKey | undefined, call: RecordedCall): void {
    this.#remove(call.id, call.fingerprint);
    if (call.pending && !call.pending.retrySafe) this.#unresolved.set(call.id, call.tool);
    else this.#unresolved.delete(call.id);
    this.putBack(key, call);
  }

  /** Removes a request that was refused. */
  forget(callId: string): void {
    this.#unanswered.delete(callId);
    this.#unresolved.delete(callId);
    for (const [key, call] of this.#keyed) if (call.id === callId) this.#keyed.delete(key);
    for (const [fingerprint, id] of this.#unique) if (id === callId) this.#unique.delete(fingerprint);
    this.#filterKeyless((call) => call.id !== callId);
  }

  #remove(callId: string, fingerprint: string): void {
    const queue = this.#keyless.get(fingerprint);
    if (queue) this.#keyless.set(fingerprint, queue.filter((call) => call.id !== callId));
  }

  /** Adds requests that are pending in the journal and missing here, except requests of calls in flight. A request whose answer
   * the agent has only blocks new effects. */
  adopt(recovery: RecoveryAnswer, isBusy: (callId: string) => boolean): void {
    for (const pending of recovery.pending) {
      if (isBusy(pending.id)) continue;
      this.#details.set(pending.id, pending);
      const call = recordedCall(pending);
      if (!call || this.#isUsed(call, pending)) {
        this.#markUncertain(pending);
        continue;
      }
      this.#uncovered.add(call.id);
      if (!this.#unanswered.has(call.id) && !this.#covered.has(call.id)) this.#unanswered.set(call.id, orderOf(pending));
      const key = keyOf(pending);
      const queue = this.#keyless.get(call.fingerprint) ?? [];
      if (!(key ? this.#keyed.has(key.id) : queue.some((known) => known.id === call.id))) this.restore(key, call);
    }
  }

  #isUsed(call: RecordedCall, pending: Pending): boolean {
    const isUsed = this.#used.has(call.id) || (this.atCheckpoint && this.#hasAnswered(pending));
    return isUsed && this.#unique.get(call.fingerprint) !== call.id;
  }

  /** Whether the checkpoint covers a pending request without a key as answered. The journal refused its result later, or a skip
   * voids it. */
  #hasAnswered(pending: Pending): boolean {
    return pending.journal_seq <= this.covers && !this.#listed.has(pending.id) && !keyOf(pending);
  }

  /** Whether the process resumes at a checkpoint that covers a request. */
  isCovered(callId: string): boolean {
    return this.atCheckpoint && this.covers > 0 && !this.#uncovered.has(callId);
  }

  /** Adds a new request. */
  add(journalSeq: number, key: CallKey | undefined, call: RecordedCall): void {
    this.#uncovered.add(call.id);
    this.#unanswered.set(call.id, [journalSeq, APPENDED]);
    if (key) this.#keyed.set(key.id, call);
  }

  /** Marks that the agent has received the request's answer. */
  markAnswered(callId: string): void {
    const order = this.#unanswered.get(callId);
    this.#unanswered.delete(callId);
    this.#unresolved.delete(callId);
    const keyed = [...this.#keyed].find(([, call]) => call.id === callId);
    if (keyed) this.#keyed.set(keyed[0], { ...keyed[1], pending: undefined });
    else if (!this.#used.has(callId)) this.#used.set(callId, order);
  }

  /** Marks a request that may be pending, until the journal's state is read. */
  markUnresolved(call: RecordedCall): void {
    this.#unresolved.set(call.id, call.tool);
  }

  #markUncertain(pending: Pending): void {
    this.#details.set(pending.id, pending);
    if (pending.class !== "retry_safe") this.#unresolved.set(pending.id, pending.tool_name);
  }

  /** Requests whose answer the agent has not received, oldest first. */
  unanswered(): string[] {
    this.#skipCovered();
    return [...this.#unanswered, ...this.#covered].sort((a, b) => byOrder(a[1], b[1])).map(([id]) => id);
  }

  /** A pending request that blocks new effects, if any, and its tool. */
  unresolved(): readonly [string, string] | undefined {
    return [...this.#unresolved].sort(([a], [b]) => (a < b ? -1 : 1))[0];
  }

  /** The requests that may have happened, oldest first, and the calls interrupted since the last operation. Requests of this process
   * lack members that the journal adds, as `revision`. */
  pending(interrupted: readonly RecordedCall[]): Partial<Pending>[] {
    const known = new Map([...this.#keyed.values(), ...[...this.#keyless.values()].flat(), ...interrupted].map((call) => [call.id, call]));
    const found: Partial<Pending>[] = [...this.#unresolved.keys()].filter((id) => !known.has(id)).flatMap((id) => this.#details.get(id) ?? []);
    for (const call of known.values()) {
      if (!call.pending) continue;
      const { retrySafe, reason, attempts, evidence } = call.pending;
      const state = { class: retrySafe ? "retry_safe" : "reconcile_required", reason, attempts, evidence: [...evidence] };
      found.push({ id: call.id, tool_name: call.tool, fingerprint: call.fingerprint, ...this.#details.get(call.id), ...state });
    }
    const order = (of: Partial<Pending>) => this.#unanswered.get(of.id!) ?? ([0, 0] as const);
    return found.sort((a, b) => byOrder(order(a), order(b)));
  }

  /** Whether a pending request may run again only by a decision, which evidence can revoke, or the call with `key` is pending:
   * somebody may have decided about it. */
  hasRevocable(key: CallKey | undefined): boolean {
    const keyed = key && this.#keyed.get(key.id);
    return [...this.#keyless.values(), keyed ? [keyed] : []].some((calls) => calls.some((call) => call.pending?.retrySafe));
  }

  /** Updates requests from the journal: decisions and evidence may have been recorded in the meantime, and a skip may have voided an
   * end. */
  refresh(recovery: RecoveryAnswer): void {
    const still = new Map(recovery.pending.map((pending) => [pending.id, pending]));
    this.#details = still;
    const blocks = (id: string) => still.has(id) && still.get(id)!.class !== "retry_safe";
    this.#unresolved = new Map([...this.#unresolved].filter(([id]) => blocks(id)));
    const refreshed = (call: RecordedCall): RecordedCall => {
      const pending = still.get(call.id);
      if (blocks(call.id)) this.#unresolved.set(call.id, call.tool);
      return { ...call, pending: pending && pendingCall(pending) };
    };
    this.#keyless = new Map([...this.#keyless].map(([fingerprint, queue]) => [fingerprint, queue.map(refreshed)]));
    this.#keyed = new Map([...this.#keyed].map(([key, call]) => [key, refreshed(call)]));
  }
}

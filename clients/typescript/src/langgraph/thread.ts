// A LangGraph thread as a run: one writer, and an index that every checkpoint of the run carries.
//
//   put     ─▶ one request: a numbered `checkpoint` record (found by its correlation entries), then a loop checkpoint that covers exactly
//              that number, with the values as its messages and the index as its state
//   read    ─▶ the run's latest loop checkpoint has the index: the newest checkpoint of each namespace, by that number
//   delete  ─▶ a `tombstone` record, then a loop checkpoint with the new index; a deleted thread starts another incarnation
//
// A checkpoint record whose loop checkpoint never arrived is not complete, and not shown.
//
// Of two workers on a thread, the writer of the last record continues, through any number of servers:
//
//   a  checkpoint ── checkpoint ──────────── refused: fenced ─▶ only b's claim since ─▶ claims again, and continues
//   b  read ─────────────────── claim ─▶ the thread has a newer checkpoint ─▶ `Fenced`

import { NO_RECORDS, type Api } from "../api.js";
import { buildCheckpoint, listOf, type Kept, type MessageList } from "../checkpoint.js";
import { ClaimLost, Conflict, Fenced, Internal, Unavailable, type RunlogError } from "../errors.js";
import type { Json } from "../json.js";
import { Permits } from "../locks.js";
import { newId, recordOf, type Record } from "../records.js";
import { unless } from "../settling.js";
import { Writer } from "../writer.js";
import { FAMILY, Index, isBefore, isSame, keyOf, placeOf, versionOf, type Head, type Key, type Marker, type Version } from "./heads.js";
import { Loops } from "./loops.js";
import type { Draft, Known } from "./pieces.js";
import { checkpointEntry, namespaceEntry, Reader, threadEntry, writesEntry } from "./reader.js";

const NAMESPACES_MAX = 64;
const SEEN_MAX = 1024;
/** The purpose in a claim whose writer gives up, without a record, if another writer's record came before the claim. */
const AS_READ = ", to continue the thread as it read it";
/** The maximum number of times that one write takes its thread back. */
const REGAINS_MAX = 16;
/** The version of a thread without records. */
const EMPTY: Version = [0, 1];

/** Sets a member as the newest, and removes the oldest ones. */
function keep<K, V>(map: Map<K, V>, key: K, value: V, max: number): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > max) map.delete(oldest!);
}

/** The members of a checkpoint in the state of its loop checkpoint, encoded. */
export interface Entry {
  readonly [member: string]: Json;
  readonly parent: string | null;
  readonly checkpoint: Json;
  readonly metadata: Json;
  /** The layout of its values. */
  readonly channels: Json;
}

/** A checkpoint without its values. */
export interface Stored {
  readonly ns: string;
  readonly id: string;
  readonly parent: string | undefined;
  readonly entry: Entry;
}

/** A saver's state of one thread, with its claim. */
export class Thread extends Reader {
  readonly #lock = new Permits(1);
  #writer: Writer | undefined;
  /** A claim whose answer was lost; the next try sends the same claim. */
  #claiming: Writer | undefined;
  #index = new Index();
  readonly #lists = new Map<string, MessageList>();
  /** The thread's version when a checkpoint was last read. */
  readonly #seen = new Map<Key, Version>();
  /** The last checkpoint of each namespace that this saver wrote under its claim. */
  readonly #written = new Map<string, Key>();
  /** The epoch of the last record that this saver wrote. */
  #wroteIn = 0;
  /** Checkpoints that were not stored. Their writes and successors get the same error. */
  readonly #refused = new Map<Key, RunlogError>();
  /** Checkpoints that were written under a lost claim: a loop that continues from them is superseded. */
  #stale = new Set<Key>();
  /** The namespace and the version that a loop had read whose claim was refused, until the thread is read again. */
  #refusedClaim: { ns: string; version: Version } | undefined;
  readonly #loops: Loops;
  readonly known = new Map<string, Known>();

  constructor(api: Api, prefix: string, threadId: string) {
    super(api, prefix, threadId);
    this.#loops = new Loops(this.runId);
  }

  /** Runs an operation after the earlier ones of this saver on the thread, in their order. */
  async locked<T>(operation: () => Promise<T>): Promise<T> {
    if (!(await this.#lock.acquire(this.api.config.deadlineMs))) {
      throw new Unavailable(`timed out waiting for an earlier operation on run ${this.runId}`, { runId: this.runId });
    }
    try {
      return await operation();
    } finally {
      this.#lock.release();
    }
  }

  // Reading

  /** Allows a loop to continue from this checkpoint, unless another writer claims the run later. */
  noteRead(head: Head, key: Key, isLatest: boolean): void {
    const version = versionOf(head);
    this.#loops.noteRead(key, version, isLatest);
    // An answer that is older than the claim.
    if (this.#writer && !this.#writer.over && head.epoch < this.#writer.epoch) return;
    this.noticeClaim(head);
    if (["", this.#refusedClaim?.ns].includes(placeOf(key)[0])) this.#refusedClaim = undefined;
    if (isLatest) this.#stale.delete(key);
    if (!this.#stale.has(key)) keep(this.#seen, key, version, SEEN_MAX);
  }

  /** Notes that another writer has claimed the run. */
  noticeClaim(head: Head): void {
    if (this.#writer && !this.#writer.over && head.epoch > this.#writer.epoch) this.#supersede(this.#writer);
  }

  /** Allows a loop to begin the thread, unless another writer begins it first. */
  noteAbsent(key: Key): void {
    keep(this.#seen, key, EMPTY, SEEN_MAX);
  }

  /** Notes a checkpoint that is not stored. */
  refuse(key: Key, error: RunlogError): RunlogError {
    keep(this.#refused, key, error, SEEN_MAX);
    return error;
  }

  /** The error for writes of a checkpoint, and for its successor, if it was not stored. */
  refusalOf(key: Key): RunlogError | undefined {
    return this.#refused.get(key)?.copy();
  }

  #supersede(writer: Writer): void {
    writer.lose(this.#fenced());
    this.#stale = new Set(this.#written.values());
    this.#written.clear();
    this.known.clear();
  }

  #fenced(): Fenced {
    return new Fenced(`another writer took over run ${this.runId}; read the thread again to continue it`, { runId: this.runId });
  }

  /** Resends records without an answer, so that reads see them. Notes a lost claim. */
  async settle(): Promise<void> {
    const writer = this.#writer;
    if (!writer || writer.over || !writer.unacknowledged) return;
    await this.locked(() => this.#settle(writer).catch(unless(Fenced)));
  }

  // Writing

  /** As `write`, for a checkpoint of a loop. Throws `Fenced` if another loop of this saver has continued `parent`. */
  async continueLoop<T>(parent: Key, id: string, once: (writer: Writer) => Promise<T>): Promise<T> {
    const [ns, parentId] = placeOf(parent);
    // Every loop reads the thread before it begins it.
    this.#loops.check(parent, id, parentId !== null || this.#seen.has(parent));
    const written = await this.write(parent, once);
    this.#loops.noteContinued(parent, id, this.#seen.get(keyOf(ns, id))!);
    return written;
  }

  /** Writes under this saver's claim. Writes again if a claim came in between whose worker gave up. The lock is held. */
  async write<T>(parent: Key, once: (writer: Writer) => Promise<T>, forWrites = false): Promise<T> {
    this.#loops.check(parent, undefined, false);
    for (let left = REGAINS_MAX; ; left--) {
      const writer = await this.#ready(parent, forWrites);
      try {
        return await once(writer);
      } catch (error) {
        if (!(error instanceof Fenced) || left <= 1) throw error;
      }
    }
  }

  /** The version of the thread that a loop has read or written. A loop puts writes while their checkpoint is still being put: the last
   * read of the namespace counts. */
  #lastSeen(parent: Key, forWrites: boolean): Version | undefined {
    const seen = this.#seen.get(parent);
    if (seen || !forWrites) return seen;
    const [ns] = placeOf(parent);
    let last: Version | undefined;
    for (const [key, version] of this.#seen) if (placeOf(key)[0] === ns && (!last || isBefore(last, version))) last = version;
    return last;
  }

  /** Whether a loop continues although another worker claimed the thread: the loop has the last state that this saver wrote, and since
   * then there are only claims of workers that continue a thread as they read it. They read an older state, and give up. */
  async #mayRegain(parent: Key, head: Head, forWrites: boolean): Promise<boolean> {
    const writer = this.#writer;
    if (!writer || head.epoch <= writer.epoch || this.#wasRefused(parent, forWrites)) return false;
    const written: Version = [writer.epoch, writer.nextCheckpointSeq];
    if (!this.#stale.has(parent) && !isSame(this.#lastSeen(parent, forWrites), written)) return false;
    for (const line of await this.api.newestRecords(this.runId, REGAINS_MAX)) {
      if (line.payload_type !== "run_claim") return line.epoch === this.#wroteIn;
      if (!String(recordOf(line.payload)["claimed_by"]).endsWith(AS_READ)) return false;
    }
    return false;
  }

  /** Returns this saver's claim. Claims now if it has none, or if its claim was lost and `parent` was read since. A loop that another
   * loop supersedes gets `Fenced`, and claims nothing: the other loop continues. Without a parent it takes the run over in any case, also
   * if its content is lost. The lock is held. */
  async #ready(parent: Key | undefined, forWrites = false): Promise<Writer> {
    const writer = this.#writer;
    if (writer && !writer.over) {
      await this.#settle(writer);
      if (writer.numbersUnsure) await this.#sync(writer, false);
      return writer;
    }
    const head = await this.head(parent === undefined);
    if (head && head.status !== "open") {
      throw new Writer(this.api, this.runId).afterEnd(head.status, "its thread can be read, and neither written nor deleted");
    }
    let regains = false;
    let claiming = this.#claiming;
    if (!head || !claiming?.adopt(head)) {
      if (parent !== undefined && head) {
        regains = await this.#mayRegain(parent, head, forWrites);
        if (!regains) this.#checkRead(parent, head, forWrites);
      }
      claiming = this.#claiming ??= new Writer(this.api, this.runId);
      try {
        await this.#appendClaim(claiming, parent, head);
      } catch (error) {
        if (!(error instanceof Fenced)) throw error;
        // Another claim or record came first. Checks whether its worker gives up.
        if (regains) return this.#ready(parent, forWrites);
        if (parent !== undefined) {
          const version = this.#lastSeen(parent, forWrites) ?? (head ? versionOf(head) : EMPTY);
          this.#refusedClaim = { ns: placeOf(parent)[0], version };
        }
        throw error;
      }
    }
    return this.#begin(claiming, parent, head, regains);
  }

  /** Whether the loop of a write ends, because its claim was refused. A loop that runs ahead has further writes, of checkpoints that were
   * never put. They must not fence the worker that continues. */
  #wasRefused(parent: Key, forWrites: boolean): boolean {
    if (!this.#refusedClaim) return false;
    const seen = this.#lastSeen(parent, forWrites);
    return !seen || !isBefore(this.#refusedClaim.version, seen);
  }

  async #begin(claimed: Writer, parent: Key | undefined, head: Head | undefined, regains: boolean): Promise<Writer> {
    this.#claiming = this.#refusedClaim = undefined;
    this.#writer = claimed;
    claimed.numbersUnsure = true;
    if (!regains) this.#written.clear();
    // This saver wrote the last checkpoints.
    else for (const key of this.#stale) this.#written.set(placeOf(key)[0], key);
    this.#stale.clear();
    await this.#sync(claimed, parent === undefined);
    if (parent !== undefined && claimed.nextCheckpointSeq !== (head?.next_checkpoint_seq ?? 1)) {
      // Another writer's checkpoint arrived before the claim.
      this.#supersede(claimed);
      throw this.#fenced();
    }
    return claimed;
  }

  /** Claims the run; with a parent only as it was read. Throws `Fenced` if another record or claim came first. */
  async #appendClaim(claiming: Writer, parent: Key | undefined, head: Head | undefined): Promise<void> {
    const onlyIf = parent === undefined ? undefined : (head?.hash ?? NO_RECORDS);
    try {
      await claiming.claimAfter(head?.epoch ?? 0, onlyIf, AS_READ);
    } catch (error) {
      if (!(error instanceof ClaimLost) && !(error instanceof Conflict && onlyIf !== undefined)) throw error;
      this.#claiming = undefined;
      throw this.#fenced();
    }
  }

  async #settle(writer: Writer): Promise<void> {
    const settled = await writer.settle();
    if (!settled) return;
    writer.numbersUnsure = true;
    try {
      writer.check(settled.sent, settled.outcomes);
    } catch (error) {
      if (error instanceof Fenced) {
        this.#supersede(writer);
        throw this.#fenced();
      }
      // A refused record has no effect, and its caller got an error.
      if (!(error instanceof Conflict)) throw error;
    }
  }

  /** Throws `Fenced` for a loop that another loop supersedes. */
  #checkRead(parent: Key, head: Head, forWrites: boolean): void {
    if (this.#wasRefused(parent, forWrites)) throw this.#fenced();
    if (this.#stale.has(parent)) {
      // The loop gets this error once. Another loop that reads the checkpoint may continue from it.
      this.#stale.delete(parent);
      this.#seen.delete(parent);
      throw this.#fenced();
    }
    const seen = this.#lastSeen(parent, forWrites);
    // A claim or a checkpoint of another writer came after the read.
    if (!isSame(seen, versionOf(head)) && (this.#writer || seen)) throw this.#fenced();
  }

  /** Reads the next numbers, the index and a base for the next checkpoint from the journal. */
  async #sync(writer: Writer, isLost: boolean): Promise<void> {
    const found = await this.api.resumePoint(this.runId, true);
    if (!found) throw new Internal(`run ${this.runId} has no records after its claim`, { runId: this.runId });
    try {
      writer.sync(found);
    } catch (error) {
      if (!(error instanceof ClaimLost)) throw error;
      this.#supersede(writer);
      throw this.#fenced();
    }
    const index = await this.indexOf(found, isLost);
    this.#lists.clear();
    // A checkpoint without content is no base: the next checkpoint is written whole.
    this.#lists.set("", index.removed ? { hashes: [] } : listOf(found.checkpoint));
    this.#index = new Index(index.incarnation, index.heads, index.more, this.prefix);
  }

  /** Appends records under the claim. */
  async #append(writer: Writer, records: readonly Record[]): Promise<void> {
    try {
      await writer.appendAll(records);
    } catch (error) {
      if (error instanceof Fenced) {
        this.#supersede(writer);
        throw this.#fenced();
      }
      if (error instanceof Conflict) writer.numbersUnsure = true;
      throw error;
    }
    this.#wroteIn = writer.epoch;
  }

  /** Puts a checkpoint under the claim. */
  async put(writer: Writer, { ns, id, parent, entry }: Stored, draft: Draft): Promise<void> {
    const [number, loop, { incarnation }] = [writer.nextJournalSeq, newId(), this.#index];
    const content = { incarnation, ns, id, parent: parent ?? null, covers: number, loop, metadata: entry.metadata };
    const correlation = [threadEntry(incarnation), namespaceEntry(incarnation, ns), checkpointEntry(incarnation, ns, id)];
    const record = writer.records.host(FAMILY, "checkpoint", content, number, correlation);
    const base = this.#lists.get(ns) ?? [...this.#lists.values()].at(-1) ?? { hashes: [] };
    const marker: Marker = { ns, id, covers: number, loop };
    await this.#appendIndex(writer, record, loop, this.#index.withHead(marker), entry, await draft.pieces(base), base, ns);
    keep(this.#written, ns, keyOf(ns, id), NAMESPACES_MAX);
    keep(this.#seen, keyOf(ns, id), [writer.epoch, writer.nextCheckpointSeq], SEEN_MAX);
    keep(this.known, ns, draft.known(id), NAMESPACES_MAX);
    this.#loops.notePut(keyOf(ns, id));
  }

  /** Puts writes of a checkpoint's task under the claim. */
  async putWrites(writer: Writer, ns: string, id: string, content: { [name: string]: Json }): Promise<void> {
    const { incarnation } = this.#index;
    const record = writer.records.host(FAMILY, "writes", { ...content, incarnation }, undefined, [writesEntry(incarnation, ns, id)]);
    await this.#append(writer, [record]);
  }

  /** Appends a numbered record, and the loop checkpoint that covers it. */
  async #appendIndex(
    writer: Writer, record: Record, loop: string, index: Index, entry: Json, pieces: readonly (Json | Kept)[], base: MessageList, ns: string,
  ): Promise<void> {
    const fields = { checkpoint_seq: writer.nextCheckpointSeq, covers_journal_seq: writer.nextJournalSeq, session_id: FAMILY };
    const [payload, following] = buildCheckpoint(base, loop, pieces, fields, index.state(entry));
    await this.#append(writer, [record, writer.records.make(payload, { recordId: loop })]);
    this.#index = index;
    keep(this.#lists, ns, following, NAMESPACES_MAX);
  }

  /** Deletes the thread, also if its content is lost. Takes the run over. The lock is held. */
  async delete(): Promise<void> {
    const writer = await this.#ready(undefined);
    const { incarnation } = this.#index;
    const record = writer.records.host(FAMILY, "tombstone", { incarnation, keys: [] }, writer.nextJournalSeq, [threadEntry(incarnation)]);
    const index = new Index(incarnation + 1, new Map(), false, this.prefix);
    await this.#appendIndex(writer, record, newId(), index, null, [], { hashes: [] }, "");
    this.#written.clear();
    this.known.clear();
    this.#loops.noteDeleted(this.#seen.keys(), [writer.epoch, writer.nextCheckpointSeq]);
  }
}

// Which checkpoints the loops of one saver have continued: of two loops that read the same checkpoint, the first one that continues it
// goes on, and the other one gets `Fenced`.
//
//   loop a  read p ────── put c (after p)
//   loop b      read p ──────────────────── put d (after p) ─▶ `Fenced`

import { Fenced } from "../errors.js";
import { isBefore, placeOf, type Key, type Version } from "./heads.js";

const KEPT_MAX = 1024;

interface Ended {
  /** The checkpoint that continued another one; absent for a deleted checkpoint. */
  readonly next: string | undefined;
  /** The thread's version then. */
  readonly version: Version;
}

/** The continued and the deleted checkpoints of a thread. */
export class Loops {
  readonly #ended = new Map<Key, Ended>();

  constructor(readonly runId: string) {}

  /** Throws `Fenced` if `parent` was deleted. Throws it also for a loop that has read `parent`, if another loop has continued it: with
   * another checkpoint than `id`. */
  check(parent: Key, id: string | undefined, hasRead: boolean): void {
    const ended = this.#ended.get(parent);
    if (!ended) return;
    const isContinued = ended.next !== undefined;
    if (isContinued && (!hasRead || ended.next === id)) return;
    const how = isContinued ? "was continued by another loop of this saver" : "was deleted after this loop read it";
    const [, checkpoint] = placeOf(parent);
    const which = checkpoint === null ? "the empty thread" : `checkpoint ${checkpoint}`;
    throw new Fenced(`${which} of run ${this.runId} ${how}: invoke the graph again to read the thread and continue it`, { runId: this.runId });
  }

  /** Notes that a loop has continued `parent`. */
  noteContinued(parent: Key, id: string, version: Version): void {
    this.#note(parent, { next: id, version });
  }

  /** Notes a deleted thread, whose checkpoints loops in flight must not continue. A loop may begin it again. */
  noteDeleted(keys: Iterable<Key>, version: Version): void {
    for (const key of keys) {
      if (placeOf(key)[1] === null) this.#ended.delete(key);
      else this.#note(key, { next: undefined, version });
    }
  }

  /** Notes a checkpoint that exists, also again after its thread was deleted. */
  notePut(key: Key): void {
    const ended = this.#ended.get(key);
    if (ended && ended.next === undefined) this.#ended.delete(key);
  }

  /** Lets a loop continue a checkpoint that was read by its id, or that is the newest one again. */
  noteRead(key: Key, version: Version, isLatest: boolean): void {
    const ended = this.#ended.get(key);
    if (ended && (!isLatest || !isBefore(version, ended.version))) this.#ended.delete(key);
  }

  #note(key: Key, ended: Ended): void {
    this.#ended.delete(key);
    this.#ended.set(key, ended);
    const [oldest] = this.#ended.keys();
    if (this.#ended.size > KEPT_MAX) this.#ended.delete(oldest!);
  }
}

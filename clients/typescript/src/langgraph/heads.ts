// The index of a thread: the newest checkpoint of each namespace. The state of each loop checkpoint carries it.
//
// The newest checkpoint is the last applied checkpoint, even if another checkpoint has a higher id: an id contains the time of the
// machine that made it.

import type { Checkpoint } from "../answers.js";
import { Conflict, MissingContent } from "../errors.js";
import { isObject, type Json, type JsonObject } from "../json.js";

export const FAMILY = "langgraph";
/** Namespaces whose newest checkpoint the index names. Others are found by a scan of their records. */
const HEADS_MAX = 32;

/** The location of a checkpoint. */
export interface Marker {
  readonly ns: string;
  readonly id: string;
  readonly parent?: string;
  readonly covers: number;
  /** The id of the loop checkpoint. */
  readonly loop: string;
  readonly metadata?: Json;
}

/** The newest checkpoint of a namespace: its id, the number that it covers, its loop checkpoint. */
type Newest = readonly [string, number, string];

/** The current content of a thread. */
export class Index {
  constructor(
    readonly incarnation = 0,
    /** In the order of their use. */
    readonly heads: ReadonlyMap<string, Newest> = new Map(),
    /** Whether `heads` lacks namespaces. */
    readonly more = false,
    /** The prefix of the saver that wrote the thread. */
    readonly prefix: string | undefined = undefined,
    /** Whether the content of the latest loop checkpoint was removed. The thread then has no checkpoints. */
    readonly removed = false,
  ) {}

  /** Reads the index from the run's latest loop checkpoint. */
  static of(checkpoint: Checkpoint | null | undefined): Index {
    const state = checkpoint?.state;
    const found = isObject(state) ? (state[FAMILY] as JsonObject | undefined) : undefined;
    if (!found) return new Index(0, new Map(), Boolean(checkpoint));
    const heads = Object.entries(found["heads"] as JsonObject).map(([ns, head]): [string, Newest] => {
      const [id, covers, loop] = head as Json[];
      return [ns, [String(id), Number(covers), String(loop)]];
    });
    const prefix = found["prefix"];
    return new Index(Number(found["incarnation"]), new Map(heads), Boolean(found["more"]), typeof prefix === "string" ? prefix : undefined);
  }

  /** The state of a loop checkpoint. */
  state(entry: Json): Json {
    const { incarnation, more, prefix } = this;
    const heads: { [ns: string]: Json } = {};
    for (const [ns, head] of this.heads) Object.defineProperty(heads, ns, { value: [...head], enumerable: true });
    return { [FAMILY]: { incarnation, heads, more, prefix: prefix ?? null, entry } };
  }

  /** A copy with another checkpoint, which is the newest one of its namespace. */
  withHead({ ns, id, covers, loop }: Marker): Index {
    const heads = new Map(this.heads);
    heads.delete(ns);
    heads.set(ns, [id, covers, loop]);
    let { more } = this;
    for (const each of heads.keys()) {
      if (heads.size <= HEADS_MAX) break;
      if (!each) continue;
      heads.delete(each);
      more = true;
    }
    return new Index(this.incarnation, heads, more, this.prefix);
  }
}

/** The current state of a run. */
export interface Head {
  readonly writer_id: string;
  readonly epoch: number;
  readonly next_checkpoint_seq: number;
  /** Changes with every applied record. */
  readonly hash: string;
  readonly index: Index;
  /** `open`, or how the run ended. */
  readonly status: string;
  /** The run's latest loop checkpoint. */
  readonly loop: Checkpoint | undefined;
}

/** The run's epoch, and the number of its next checkpoint: changes with every claim and every checkpoint. */
export type Version = readonly [number, number];
export const versionOf = ({ epoch, next_checkpoint_seq }: Head): Version => [epoch, next_checkpoint_seq];
export const isSame = (a: Version | undefined, b: Version): boolean => a !== undefined && a[0] === b[0] && a[1] === b[1];
export const isBefore = (a: Version, b: Version): boolean => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);

/** A namespace and a checkpoint id as one text; no id before the first checkpoint. */
export type Key = string;
export const keyOf = (ns: string, id: string | undefined): Key => JSON.stringify([ns, id ?? null]);
export const placeOf = (key: Key): [string, string | null] => JSON.parse(key) as [string, string | null];

/** The run is a thread of a saver with another prefix, which extends this saver's prefix or is extended by it. */
export function foreignThread(runId: string, prefix: string, other: string): Conflict {
  const [own, others] = [prefix, other].map((each) => JSON.stringify(runId.startsWith(each) ? runId.slice(each.length) : runId));
  const message =
    `run ${runId} is the thread ${others} of a saver with the prefix ${JSON.stringify(other)}, and not the thread ${own} of the prefix ` +
    `${JSON.stringify(prefix)}: give the savers prefixes that do not begin with each other`;
  return new Conflict(message, { action: "fix_the_input", runId, problem: { reason: "foreign_thread" } });
}
export const isForeign = (error: unknown): boolean => error instanceof Conflict && error.problem["reason"] === "foreign_thread";

/** The content of a checkpoint, or of a message in it, was removed on purpose. It need not be restored. */
export class RemovedContent extends MissingContent {}

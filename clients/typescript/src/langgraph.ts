// `RunlogSaver`: a checkpointer of LangGraph.js that keeps each thread in a run.
//
// Read: this file → langgraph/thread (who writes a thread) → langgraph/reader (its records) → langgraph/pieces, langgraph/serde (values).

import type { RunnableConfig } from "@langchain/core/runnables";
import {
  BaseCheckpointSaver, compareWritesSortKeys, getCheckpointId, maxChannelVersion, WRITES_IDX_MAP, writesSortKey, type ChannelVersions,
  type Checkpoint, type CheckpointListOptions, type CheckpointMetadata, type CheckpointPendingWrite, type CheckpointTuple, type PendingWrite,
  type SerializerProtocol,
} from "@langchain/langgraph-checkpoint";
import { Api } from "./api.js";
import { Config, type Settings } from "./config.js";
import { Conflict, Fenced, Invalid, RunlogError, Usage } from "./errors.js";
import type { Json } from "./json.js";
import { isForeign, keyOf, RemovedContent, type Head, type Index, type Marker } from "./langgraph/heads.js";
import { Draft, dump, load, valuesOf, type Known } from "./langgraph/pieces.js";
import type { Writes } from "./langgraph/reader.js";
import { strict } from "./langgraph/serde.js";
import { Thread, type Entry } from "./langgraph/thread.js";
import { runsPage } from "./operators.js";

export { StrictSerializer, TypeNotAllowed } from "./langgraph/serde.js";

const PAGE_MIN = 10;
const PAGE_MAX = 1000;
const TASKS = "__pregel_tasks";
const ERROR = "__error__";
/** Ticks of a second in a time-based id. */
const UUID_TICKS = 10_000_000;

export interface SaverSettings extends Settings {
  /** The run of a thread is `prefix` and its id. Default: `langgraph/`. */
  prefix?: string;
  /** A serializer of your own. Default: `StrictSerializer`. */
  serde?: SerializerProtocol;
}

/** The checkpoint or thread that a config names. */
interface Target {
  readonly threadId: string;
  readonly ns: string;
  readonly id: string | undefined;
}

function targetOf(config: RunnableConfig): Target {
  const { thread_id: threadId, checkpoint_ns: ns } = config.configurable ?? {};
  if (threadId === undefined || threadId === null || threadId === "") {
    throw new Usage("the config has no thread: pass { configurable: { thread_id: \"…\" } } to the graph");
  }
  return { threadId: String(threadId), ns: String(ns ?? ""), id: getCheckpointId(config) || undefined };
}

/** A checkpointer that keeps a thread as the run `prefix + thread_id`. A thread of a saver with another prefix, as `a:b:` beside `a:`, is
 * refused with `Conflict`.
 *
 * One saver object at a time writes a thread: the first write claims its run, and a superseded saver gets `Fenced`. To take over, read
 * the thread again.
 *
 * Values are JSON, `Map`, `Set`, `RegExp`, `Error`, `Uint8Array`, and LangChain's messages. An object of another class that
 * LangChain serializes throws `TypeNotAllowed`. */
export class RunlogSaver extends BaseCheckpointSaver {
  readonly #api: Api;
  readonly #prefix: string;
  /** Kept as long as the saver: some hundred bytes each, and the hashes of the values. */
  readonly #threads = new Map<string, Thread>();

  constructor(url: string | readonly string[], { prefix = "langgraph/", serde, ...settings }: SaverSettings = {}) {
    super(strict(serde));
    if (!prefix) throw new Usage('an empty prefix would make every run of the journal a thread: pass prefix: "chat/", for example');
    this.#api = new Api(new Config(url, settings));
    this.#prefix = prefix;
  }

  #thread(threadId: string): Thread {
    let thread = this.#threads.get(threadId);
    if (!thread) this.#threads.set(threadId, (thread = new Thread(this.#api, this.#prefix, threadId)));
    return thread;
  }

  // Reading

  /** The checkpoint that the config names, or the newest one. */
  async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    if (config.configurable?.["thread_id"] === undefined) return undefined;
    const { threadId, ns, id } = targetOf(config);
    const thread = this.#thread(threadId);
    await thread.settle();
    const head = await thread.head();
    if (!head) {
      thread.noteAbsent(keyOf(ns, id));
      return undefined;
    }
    const marker = await thread.find(head.index, ns, id);
    const found = marker && (await this.#read(thread, head.index, marker, head, id !== undefined));
    thread.noteRead(head, keyOf(ns, found?.checkpoint.id), id === undefined);
    return found;
  }

  /** Reads a checkpoint with its writes. `undefined` if it is incomplete, or, unless it must be there, if its content was removed. */
  async #read(thread: Thread, index: Index, marker: Marker, head: Head | undefined, isNamed: boolean): Promise<CheckpointTuple | undefined> {
    try {
      const loop = await thread.load(marker, head?.loop);
      if (!loop) return undefined;
      const writes = await thread.writes(index.incarnation, marker.ns, marker.id);
      return await this.#assembled(thread, index, marker, loop, writes);
    } catch (error) {
      if (error instanceof RemovedContent && !isNamed) {
        this.#api.config.warn(error.message);
        return undefined;
      }
      const where = `checkpoint ${marker.id} of thread ${thread.threadId}`;
      if (error instanceof Invalid) throw error.copy(`${where}: ${error.message}`);
      if (error instanceof RunlogError || !(error instanceof TypeError)) throw error;
      throw new Invalid(`${where} was not written by a RunlogSaver: ${String(error)}`, { cause: error });
    }
  }

  async #assembled(
    thread: Thread, index: Index, marker: Marker, loop: { state?: Json; messages?: Json[] }, records: readonly Writes[],
  ): Promise<CheckpointTuple> {
    const { entry } = (loop.state as any).langgraph as { entry: Entry };
    const checkpoint = (await load(this.serde, entry.checkpoint, "it")) as Checkpoint;
    const metadata = (await load(this.serde, entry.metadata, "its metadata")) as CheckpointMetadata;
    checkpoint.channel_values = await valuesOf(this.serde, loop.messages ?? [], entry.channels);
    const configOf = (id: string) => ({ configurable: { thread_id: thread.threadId, checkpoint_ns: marker.ns, checkpoint_id: id } });
    const found: CheckpointTuple = {
      config: configOf(marker.id), checkpoint, metadata, pendingWrites: await this.#writesOf(records),
    };
    if (entry.parent === null) return found;
    if (checkpoint.v < 4) await this.#migrate(checkpoint, await thread.writes(index.incarnation, marker.ns, entry.parent));
    return { ...found, parentConfig: configOf(entry.parent) };
  }

  /** Moves the sends of the parent's tasks into a checkpoint of a LangGraph before version 4 of the format, as each saver must. */
  async #migrate(checkpoint: Checkpoint, ofParent: readonly Writes[]): Promise<void> {
    const sends = (await this.#writesOf(ofParent)).filter(([, channel]) => channel === TASKS).map(([, , value]) => value);
    const versions = Object.values(checkpoint.channel_versions);
    checkpoint.channel_values[TASKS] = sends;
    checkpoint.channel_versions[TASKS] = versions.length ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
  }

  /** The writes that count: the first of a task's writes with one index; the last of errors and interrupts. */
  async #writesOf(records: readonly Writes[]): Promise<CheckpointPendingWrite[]> {
    const counting = new Map<string, { path: string; task: string; index: number; channel: string; value: unknown }>();
    for (const { task, path, writes } of records) {
      for (const [index, channel, value] of writes) {
        const place = JSON.stringify([task, index]);
        if (index < 0 || !counting.has(place)) counting.set(place, { path, task, index, channel, value });
      }
    }
    const sortKey = ({ path, task, index }: { path: string; task: string; index: number }) => writesSortKey(path, task, index);
    const ordered = [...counting.values()].sort((a, b) => compareWritesSortKeys(sortKey(a), sortKey(b)));
    const found: CheckpointPendingWrite[] = [];
    for (const { task, channel, value } of ordered) found.push([task, channel, await this.#written(channel, value)]);
    return found;
  }

  async #written(channel: string, value: unknown): Promise<unknown> {
    try {
      return await load(this.serde, value, `a write to the channel ${channel}`);
    } catch (error) {
      // The error of a task is only shown, and must not keep its thread from being read.
      if (channel === ERROR && error instanceof Invalid) return error.message;
      throw error;
    }
  }

  /** Yields checkpoints thread by thread, in each thread from the last written to the first. Without a thread in `config` it reads all
   * threads. `before` leaves out checkpoints whose ids are not below that id. */
  async *list(config: RunnableConfig, options: CheckpointListOptions = {}): AsyncGenerator<CheckpointTuple> {
    const { thread_id: threadId, checkpoint_ns: ns } = config.configurable ?? {};
    const id = getCheckpointId(config) || undefined;
    const end = options.before && (getCheckpointId(options.before) || undefined);
    let left = options.limit ?? Infinity;
    if (left <= 0) return;
    for await (const thread of threadId === undefined ? this.#allThreads() : [this.#thread(String(threadId))]) {
      for await (const [index, marker] of this.#markers(thread, ns, left, threadId !== undefined)) {
        if ((id !== undefined && marker.id !== id) || (end !== undefined && marker.id >= end)) continue;
        if (!(await this.#matches(marker, options.filter))) continue;
        const found = await this.#read(thread, index, marker, undefined, false);
        if (!found) continue;
        yield found;
        if (--left <= 0) return;
      }
    }
  }

  async *#allThreads(): AsyncGenerator<Thread> {
    let cursor: string | null | undefined;
    do {
      const page = await runsPage(this.#api, cursor ?? undefined, { prefix: this.#prefix });
      for (const { run_id } of page.items) yield this.#thread(run_id.slice(this.#prefix.length));
      cursor = page.cursor;
    } while (cursor);
  }

  /** The checkpoints of a thread, page by page. A thread of another saver is left out, unless the config names it. */
  async *#markers(thread: Thread, ns: string | undefined, limit: number, isNamed: boolean): AsyncGenerator<[Index, Marker]> {
    let head: Head | undefined;
    try {
      head = await thread.head();
    } catch (error) {
      if (isNamed || !isForeign(error)) throw error;
    }
    if (!head) return;
    const seen = new Set<string>();
    let cursor: string | undefined;
    do {
      let page: Marker[];
      [page, cursor] = await thread.newestMarkers(head.index.incarnation, ns, cursor, Math.min(PAGE_MAX, Math.max(PAGE_MIN, limit)), seen);
      for (const marker of page) yield [head.index, marker];
    } while (cursor !== undefined);
  }

  async #matches(marker: Marker, filter: { [name: string]: unknown } | undefined): Promise<boolean> {
    const terms = Object.entries(filter ?? {});
    if (!terms.length) return true;
    const metadata = (await load(this.serde, marker.metadata, `the metadata of checkpoint ${marker.id}`)) as { [name: string]: unknown };
    return terms.every(([name, value]) => Object.hasOwn(metadata, name) && metadata[name] === value);
  }

  // Writing

  /** Stores a checkpoint. Throws `Fenced` if another saver took the thread over, and `Conflict` for an id below its parent's: readers that
   * compare ids would consider it the older checkpoint. */
  async put(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, newVersions: ChannelVersions): Promise<RunnableConfig> {
    const { threadId, ns, id: parent } = targetOf(config);
    const { id } = checkpoint;
    const thread = this.#thread(threadId);
    const [own, before] = [keyOf(ns, id), keyOf(ns, parent)];
    const encoding = started(this.#encoded(checkpoint, metadata, newVersions, parent, thread.known.get(ns)));
    await thread.locked(async () => {
      const refused = thread.refusalOf(before) ?? (parent !== undefined && id < parent ? clockConflict(threadId, id, parent) : undefined);
      // The loop may still put writes of this checkpoint, and its successor.
      if (refused) throw thread.refuse(own, refused);
      const { draft, entry } = await encoding;
      // A change of the state beside a loop forks the thread on purpose. Parallel subgraphs may share a namespace.
      const isLoop = !ns && (metadata.source === "input" || metadata.source === "loop");
      try {
        const once = (writer: Parameters<Thread["put"]>[0]) => thread.put(writer, { ns, id, parent, entry }, draft);
        await (isLoop ? thread.continueLoop(before, id, once) : thread.write(before, once));
      } catch (error) {
        if (error instanceof Fenced) thread.refuse(own, error);
        throw error;
      }
    });
    return { configurable: { thread_id: threadId, checkpoint_ns: ns, checkpoint_id: id } };
  }

  async #encoded(
    checkpoint: Checkpoint, metadata: CheckpointMetadata, newVersions: ChannelVersions, parent: string | undefined, known: Known | undefined,
  ) {
    const { channel_values: values, ...rest } = checkpoint;
    const draft = await Draft.of(this.serde, values, checkpoint.channel_versions, newVersions, parent, known);
    const entry: Entry = {
      parent: parent ?? null,
      checkpoint: await dump(this.serde, rest, "a checkpoint"),
      metadata: await dump(this.serde, metadata, "the metadata of a checkpoint"),
      channels: draft.layout(),
    };
    return { draft, entry };
  }

  /** Stores writes of a task. Throws `Fenced` if another saver took the thread over. */
  async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string, taskPath = ""): Promise<void> {
    const { threadId, ns, id } = targetOf(config);
    if (id === undefined) throw new Usage("the config of writes has no checkpoint_id");
    const thread = this.#thread(threadId);
    const encoding = started(Promise.all(writes.map(async ([channel, value], at): Promise<Json> =>
      [WRITES_IDX_MAP[channel] ?? at, channel, await dump(this.serde, value, `a write to the channel ${channel}`)])));
    await thread.locked(async () => {
      // Checked under the lock: the checkpoint may be refused while its writes wait for the lock. They must not claim the thread for a
      // loop that has ended.
      const refused = thread.refusalOf(keyOf(ns, id));
      if (refused) throw refused;
      const content = { task: taskId, path: taskPath, writes: await encoding };
      await thread.write(keyOf(ns, id), (writer) => thread.putWrites(writer, ns, id, content), true);
    });
  }

  /** Deletes a thread from all answers, and takes it over. Its bytes stay in the log. */
  async deleteThread(threadId: string): Promise<void> {
    const thread = this.#thread(String(threadId));
    await thread.locked(async () => {
      const head = await thread.head(true);
      if (!head) return;
      thread.noticeClaim(head);
      await thread.delete();
    });
  }
}

/** Encoding begins before the wait for earlier operations, and its error is thrown after it. */
function started<T>(encoding: Promise<T>): Promise<T> {
  encoding.catch(() => undefined);
  return encoding;
}

/** Makes the error for a checkpoint whose id is below its parent's because this machine's clock is slow. */
function clockConflict(threadId: string, id: string, parent: string): Conflict {
  const [own, other] = [ticksOf(id), ticksOf(parent)];
  const by = own === undefined || other === undefined ? "" : ` by at least ${(Number(other - own) / UUID_TICKS).toFixed(3)} s`;
  const message =
    `checkpoint ${id} of thread ${threadId} was not stored: its id is below ${parent}, its parent's. The clock of this machine is behind ` +
    `the clock of the machine that wrote the parent${by}: set the clocks, then invoke the graph again`;
  return new Conflict(message, { action: "retry" });
}

/** The time in an id of version 6, in units of 100 ns. */
function ticksOf(id: string): bigint | undefined {
  const [, high, middle, low] = /^([0-9a-f]{8})-([0-9a-f]{4})-6([0-9a-f]{3})-/.exec(id) ?? [];
  return low === undefined ? undefined : BigInt(`0x${high}${middle}${low}`);
}

// Reads a thread: its index, and the records of its checkpoints and writes.

import type { Checkpoint, RecordLine } from "../answers.js";
import type { Api, WholeRecovery } from "../api.js";
import { Internal, MissingContent } from "../errors.js";
import { isObject, type Json, type JsonObject } from "../json.js";
import { digest, recordOf } from "../records.js";
import { foreignThread, Index, RemovedContent, type Head, type Marker } from "./heads.js";
import { bytesOf } from "./pieces.js";

const PAGE_MIN = 10;
const FEATURES = ["base64", "checkpoints", "only_if", "order"];

type Entry = readonly [string, string];

/** The correlation entry of a thread's records. */
export const threadEntry = (incarnation: number): Entry => ["lg.thread", String(incarnation)];
/** The correlation entry of a namespace's records. */
export const namespaceEntry = (incarnation: number, ns: string): Entry => ["lg.namespace", digest(incarnation, ns)];
export const checkpointEntry = (incarnation: number, ns: string, id: string): Entry => ["lg.checkpoint", digest(incarnation, ns, id)];
export const writesEntry = (incarnation: number, ns: string, id: string): Entry => ["lg.writes", digest(incarnation, ns, id)];

/** The writes of a task in one record. */
export interface Writes {
  readonly task: string;
  readonly path: string;
  readonly writes: readonly [number, string, unknown][];
}

/** A thread in the journal. */
export class Reader {
  readonly runId: string;
  #warnedAt: number | undefined;

  constructor(readonly api: Api, readonly prefix: string, readonly threadId: string) {
    this.runId = prefix + threadId;
  }

  /** Throws `Internal` for a server that is too old for a saver. */
  async checkServer(): Promise<void> {
    const features = await this.api.features();
    const lacking = FEATURES.filter((feature) => !features.has(feature));
    if (lacking.length) throw new Internal(`the server lacks the features ${lacking.join(", ")}, which a saver needs: upgrade it`);
  }

  /** Reads the run and its index from one state of the log. Throws `MissingContent` if the content of the latest checkpoint is lost and
   * `isLost` is false. */
  async head(isLost = false): Promise<Head | undefined> {
    await this.checkServer();
    const found = await this.api.resumePoint(this.runId, true);
    if (!found) return undefined;
    const index = await this.indexOf(found, isLost);
    const { writer_id, epoch, next_checkpoint_seq, status, hash = "" } = found;
    return { writer_id, epoch, next_checkpoint_seq, status, hash, index, loop: (!index.removed && found.checkpoint) || undefined };
  }

  /** The index in the latest loop checkpoint. If retention removed its content, warns, and returns the empty index of a new
   * incarnation. */
  async indexOf(recovery: WholeRecovery, isLost: boolean): Promise<Index> {
    const { checkpoint, next_checkpoint_seq: next } = recovery;
    if ((checkpoint?.checkpoint_seq ?? 0) >= next - 1) {
      const index = Index.of(checkpoint);
      if (index.prefix !== undefined && index.prefix !== this.prefix) throw foreignThread(this.runId, this.prefix, index.prefix);
      return index;
    }
    const missing = recovery.missing_content.find((each) => each.payload_type === "loop_checkpoint");
    if (missing && !isLost) {
      const message = `the latest checkpoint of run ${this.runId} cannot be read: its content is lost; restore it, or delete the thread`;
      throw new MissingContent(message, { runId: this.runId, recordId: missing.record_id });
    }
    if (this.#warnedAt !== next) {
      this.#warnedAt = next;
      this.api.config.warn(
        `the latest checkpoint of run ${this.runId}, or a message in it, was removed, as by \`runlog retention\`: the thread has no ` +
          "checkpoints now, and its next checkpoint starts it anew",
      );
    }
    return new Index((await this.#lastIncarnation()) + 1, new Map(), false, this.prefix, true);
  }

  /** The thread's newest incarnation with a record. Records keep their correlation entries when their content is removed. */
  async #lastIncarnation(): Promise<number> {
    const has = async (incarnation: number) => (await this.api.recordsPage(this.runId, threadEntry(incarnation), undefined, 1)).records.length > 0;
    let [low, high] = [0, 1];
    while (await has(high)) [low, high] = [high, 2 * high];
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (await has(middle)) low = middle;
      else high = middle;
    }
    return low;
  }

  /** Reads a page of the checkpoints of a namespace or a thread, without deleted checkpoints, last written first, and the next page's
   * cursor. `seen` has the places of earlier pages. */
  async newestMarkers(
    incarnation: number, ns: string | undefined, cursor: string | undefined, limit: number, seen: Set<string>,
  ): Promise<[Marker[], string | undefined]> {
    const entry = ns === undefined ? threadEntry(incarnation) : namespaceEntry(incarnation, ns);
    const page = await this.api.recordsPage(this.runId, entry, cursor, limit, "desc");
    const found = this.#markersIn(page.records, incarnation, seen).filter((marker) => ns === undefined || marker.ns === ns);
    return [found, page.next_cursor ?? undefined];
  }

  /** The checkpoints in records, which come newest first. Only the newest record of a checkpoint counts. */
  #markersIn(newestFirst: readonly RecordLine[], incarnation: number, seen: Set<string>): Marker[] {
    const markers: Marker[] = [];
    for (const line of newestFirst) {
      const [kind, content] = this.#content(line) ?? [];
      if (!content || content["incarnation"] !== incarnation) continue;
      if (kind === "tombstone") for (const place of content["keys"] as Json[]) seen.add(JSON.stringify(place));
      if (kind !== "checkpoint") continue;
      const { ns, id, parent, covers, loop, metadata } = content as unknown as Marker;
      const place = JSON.stringify([ns, id]);
      if (!seen.has(place)) markers.push({ ns, id, parent, covers: Number(covers), loop, metadata });
      seen.add(place);
    }
    return markers;
  }

  /** Finds a checkpoint by its id, or the newest checkpoint of a namespace. */
  async find(index: Index, ns: string, id: string | undefined): Promise<Marker | undefined> {
    if (id !== undefined) {
      const page = await this.api.recordsPage(this.runId, checkpointEntry(index.incarnation, ns, id), undefined, 1000, "desc");
      return this.#markersIn(page.records, index.incarnation, new Set()).find((marker) => marker.ns === ns && marker.id === id);
    }
    const head = index.heads.get(ns);
    if (head) return { ns, id: head[0], covers: head[1], loop: head[2] };
    if (!index.more) return undefined;
    const seen = new Set<string>();
    let cursor: string | undefined;
    do {
      let page: Marker[];
      [page, cursor] = await this.newestMarkers(index.incarnation, ns, cursor, PAGE_MIN, seen);
      for (const marker of page) if (await this.api.landed(this.runId, marker.loop)) return marker;
    } while (cursor !== undefined);
    return undefined;
  }

  /** Reads the loop checkpoint of a checkpoint; uses `latest` if it has the right id. `undefined` if it is not in the journal: then the
   * checkpoint is incomplete. */
  async load(marker: Marker, latest?: Checkpoint): Promise<Checkpoint | undefined> {
    if (latest?.checkpoint_id === marker.loop) return latest;
    const found = await this.api.checkpointById(this.runId, marker.loop);
    if (found || !(await this.api.landed(this.runId, marker.loop))) return found;
    const message = `checkpoint ${marker.id} of run ${this.runId} cannot be read: its content was removed, as by \`runlog retention\``;
    throw new RemovedContent(message, { runId: this.runId, recordId: marker.loop });
  }

  /** Reads the writes of a checkpoint, record by record, in their order. */
  async writes(incarnation: number, ns: string, id: string): Promise<Writes[]> {
    const writes: Writes[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.api.recordsPage(this.runId, writesEntry(incarnation, ns, id), cursor);
      for (const line of page.records) {
        const content = this.#content(line)?.[1];
        if (content) writes.push(content as unknown as Writes);
      }
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
    return writes;
  }

  /** The type and the content of a record; `undefined` if retention removed it. */
  #content(line: RecordLine): [string, JsonObject] | undefined {
    if (!isObject(line.record)) {
      if (isObject(line.payload) && "dropped" in line.payload) return undefined;
      const message = `record ${line.record_id} of run ${this.runId} cannot be read: its content is lost`;
      throw new MissingContent(message, { runId: this.runId, recordId: line.record_id });
    }
    const payload = recordOf(line.record["payload"]);
    const text = new TextDecoder().decode(bytesOf(String(recordOf(payload["bytes"])["base64"])));
    return [String(payload["payload_type"]), JSON.parse(text) as JsonObject];
  }
}

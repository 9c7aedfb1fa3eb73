// The pieces of a thread's values: one for each value, or for each item of a list. A checkpoint has the pieces of its base by their
// hashes, so an unchanged value is not sent again.
//
//   value ─▶ LangGraph's format ─▶ piece `["json", base64]` ─┬─▶ in the base's list: its hash
//                                                            └─▶ new: the piece

import type { ChannelVersions, SerializerProtocol } from "@langchain/langgraph-checkpoint";
import { Kept, type MessageList } from "../checkpoint.js";
import { Invalid } from "../errors.js";
import type { Json } from "../json.js";
import { base64 } from "../values.js";

/** A longer list is stored as one value. */
const ITEMS_MAX = 32_768;

type Version = number | string | undefined;

export function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Encodes a value; `what` names it in errors. */
export async function dump(serde: SerializerProtocol, value: unknown, what: string): Promise<Json> {
  try {
    const [kind, data] = await serde.dumpsTyped(value);
    return [kind, base64(data)];
  } catch (error) {
    throw error instanceof Invalid ? error.copy(`${what} cannot be stored: ${error.message}`) : error;
  }
}

/** Decodes a value. */
export async function load(serde: SerializerProtocol, piece: unknown, what: string): Promise<any> {
  const [kind, text] = Array.isArray(piece) ? (piece as unknown[]) : [];
  if (typeof kind !== "string" || typeof text !== "string") throw new Invalid(`${what} cannot be read: it is not a pair of a format and base64 text`);
  try {
    return await serde.loadsTyped(kind, bytesOf(text));
  } catch (error) {
    if (error instanceof Invalid) throw error.copy(`${what} cannot be read: ${error.message}`);
    // A serializer of the program's own threw it.
    throw new Invalid(`${what} cannot be read: ${String(error)}`, { cause: error });
  }
}

/** The pieces of a channel's value. */
interface Channel {
  readonly version: Version;
  readonly isList: boolean;
  readonly kept: readonly Kept[];
}

/** The pieces of the checkpoint that a process put last in a namespace. */
export interface Known {
  readonly checkpointId: string;
  readonly channels: ReadonlyMap<string, Channel>;
}

/** The values of a checkpoint that is about to be stored. */
export class Draft {
  readonly #channels = new Map<string, Channel>();
  readonly #pieces = new Map<string, Json[]>();

  private constructor(readonly serde: SerializerProtocol, readonly values: Readonly<Record<string, unknown>>) {}

  /** Encodes the channels that `newVersions` names, and channels of the parent that this process does not know. Without a parent, a
   * channel that `newVersions` does not name has no value to store. */
  static async of(
    serde: SerializerProtocol, values: Readonly<Record<string, unknown>>, versions: ChannelVersions, newVersions: ChannelVersions,
    parent: string | undefined, known: Known | undefined,
  ): Promise<Draft> {
    const draft = new Draft(serde, values);
    for (const name of Object.keys(values)) {
      const before = parent !== undefined && known?.checkpointId === parent ? known.channels.get(name) : undefined;
      const version = Object.hasOwn(versions, name) ? versions[name] : undefined;
      if (!Object.hasOwn(newVersions, name)) {
        if (parent === undefined) continue;
        // Within a chain of checkpoints, a version identifies a value.
        if (before && version !== undefined && before.version === version) {
          draft.#channels.set(name, before);
          continue;
        }
      }
      await draft.#encode(name, version);
    }
    return draft;
  }

  async #encode(name: string, version: Version): Promise<void> {
    const value = this.values[name];
    const isList = Array.isArray(value) && value.length <= ITEMS_MAX;
    const pieces: Json[] = [];
    for (const item of isList ? (value as unknown[]) : [value]) pieces.push(await dump(this.serde, item, `the channel ${name}`));
    this.#pieces.set(name, pieces);
    this.#channels.set(name, { version, isList, kept: pieces.map((piece) => Kept.of(piece)) });
  }

  /** Name, whether a list, and count of pieces, channel by channel. */
  layout(): Json {
    return [...this.#channels].map(([name, { isList, kept }]) => [name, isList, kept.length]);
  }

  /** The pieces, in the order of the layout; pieces of the base's list without content. */
  async pieces(base: MessageList): Promise<(Json | Kept)[]> {
    const inBase = new Set(base.hashes);
    const pieces: (Json | Kept)[] = [];
    for (const [name, { version, kept }] of this.#channels) {
      if (!this.#pieces.has(name) && !kept.every(({ hash }) => inBase.has(hash))) await this.#encode(name, version);
      const own = this.#pieces.get(name);
      for (const [at, piece] of this.#channels.get(name)!.kept.entries()) pieces.push(inBase.has(piece.hash) ? piece : own![at]!);
    }
    return pieces;
  }

  /** The known pieces after these were stored. */
  known(checkpointId: string): Known {
    return { checkpointId, channels: this.#channels };
  }
}

/** Joins the pieces to the values of the channels. */
export async function valuesOf(serde: SerializerProtocol, pieces: readonly unknown[], layout: unknown): Promise<Record<string, unknown>> {
  const values: Record<string, unknown> = {};
  let at = 0;
  for (const [name, isList, count] of layout as [string, boolean, number][]) {
    const found: unknown[] = [];
    for (const piece of pieces.slice(at, at + count)) found.push(await load(serde, piece, `the channel ${name}`));
    Object.defineProperty(values, name, { value: isList ? found : found[0], enumerable: true, configurable: true, writable: true });
    at += count;
  }
  return values;
}

// Message lists of checkpoints: a record contains only messages that its base's list lacks (docs/spec.md, "Checkpoints").
//
//   base    a b c d e f          (an applied checkpoint's list)
//   own     X Y                  (this record's messages)
//   spans   base 0..2, own 0..1, base 3..6, own 1..2
//   list    a b X d e f Y

import type { WholeRecovery } from "./api.js";
import { TooLarge } from "./errors.js";
import { encode, type Json } from "./json.js";
import type { Payload } from "./records.js";
import { hex, sha256, sha256Hex, utf8 } from "./sha256.js";

const MESSAGES_MAX = 1 << 16;
const MESSAGE_BYTES_MAX = 64 * 2 ** 20;
const SPAN_BYTES = 16;
const BASE_BYTES = 80;

/** The list of an applied checkpoint, by the hexadecimal hashes of its messages. Without a checkpoint the next one is written whole. */
export interface MessageList {
  readonly checkpointId?: string;
  readonly hashes: readonly string[];
}

/** A message of the base's list, in place of its content. */
export class Kept {
  constructor(readonly hash: string, readonly size: number) {}

  /** The message with a content. */
  static of(message: Json): Kept {
    const text = utf8(encode(message));
    return new Kept(sha256Hex(text), text.length);
  }
}

/** The list of a checkpoint that was read. */
export const listOf = (checkpoint: WholeRecovery["checkpoint"]): MessageList =>
  checkpoint ? { checkpointId: checkpoint.checkpoint_id, hashes: checkpoint.message_texts.map(sha256Hex) } : { hashes: [] };

interface Span {
  readonly fromBase: boolean;
  readonly from: number;
  count: number;
}

/** The payload of the checkpoint of `messages` and `state`, and the base of the checkpoint after it. Linear in both lists. Throws
 * `TooLarge` for a list that readers refuse. */
export function buildCheckpoint(
  base: MessageList, checkpointId: string, messages: readonly (Json | Kept)[], fields: { [name: string]: Json }, state: Json,
): [Payload, MessageList] {
  const parts = messages.map((message) => (message instanceof Kept ? message : Kept.of(message)));
  const keeps = messages.some((message) => message instanceof Kept);
  const size = parts.reduce((sum, part) => sum + part.size, 0);
  if (parts.length > MESSAGES_MAX || size > MESSAGE_BYTES_MAX) {
    const limits = `more than ${MESSAGES_MAX} or ${MESSAGE_BYTES_MAX}`;
    throw new TooLarge(`a checkpoint has ${parts.length} messages of ${size} bytes, ${limits}; compact them`);
  }
  const hashes = parts.map((part) => part.hash);
  const { own, spans, ownBytes } = draft(base, messages, parts);
  const payload: { [name: string]: Json } & { type: string } = { type: "loop_checkpoint", checkpoint_id: checkpointId, ...fields, schema_version: 1 };
  if (base.checkpointId !== undefined && (keeps || ownBytes + SPAN_BYTES * spans.length + BASE_BYTES < size)) {
    payload["base"] = base.checkpointId;
    payload["messages"] = own;
    if (!areDefault(spans, base.hashes.length, own.length)) {
      payload["spans"] = spans.map(({ fromBase, from, count }) => ({ from_base: fromBase, from, count }));
    }
  } else payload["messages"] = messages.filter((message) => !(message instanceof Kept)) as Json[];
  if (state !== null) payload["state"] = state;
  payload["state_hash"] = stateHash(hashes, state);
  return [payload, { checkpointId, hashes }];
}

/** The own messages and spans of a list on a base. */
function draft(base: MessageList, messages: readonly (Json | Kept)[], parts: readonly Kept[]) {
  const own: Json[] = [];
  const ownAt = new Map<string, number>();
  const spans: Span[] = [];
  let ownBytes = 0;
  const add = (fromBase: boolean, from: number) => {
    const last = spans.at(-1);
    if (last && last.fromBase === fromBase && last.from + last.count === from) last.count++;
    else spans.push({ fromBase, from, count: 1 });
  };
  // The first position of a hash counts.
  const places = new Map<string, number>();
  base.hashes.forEach((hash, at) => { if (!places.has(hash)) places.set(hash, at); });
  let after = 0;
  parts.forEach(({ hash, size }, index) => {
    // Tries the position after the last message first, which keeps repeated messages in one span.
    const at = base.hashes[after] === hash ? after : places.get(hash);
    if (at !== undefined) {
      add(true, at);
      after = at + 1;
      return;
    }
    let known = ownAt.get(hash);
    if (known === undefined) {
      const message = messages[index]!;
      if (message instanceof Kept) throw new Error("a message without its content is not in the base's list");
      known = own.push(message) - 1;
      ownAt.set(hash, known);
      ownBytes += size;
    }
    add(false, known);
  });
  return { own, spans, ownBytes };
}

/** Whether the spans are the base's whole list, followed by the own messages. */
function areDefault(spans: readonly Span[], base: number, own: number): boolean {
  const expected = [{ fromBase: true, count: base }, { fromBase: false, count: own }].filter(({ count }) => count > 0);
  return spans.length === expected.length && spans.every((span, at) =>
    span.fromBase === expected[at]!.fromBase && span.from === 0 && span.count === expected[at]!.count);
}

/** SHA-256 over the messages' hashes and the SHA-256 of the Avro encodings of usage, reports and state. */
function stateHash(hashes: readonly string[], state: Json): string {
  // No usage, no reports; then the branch of the union, and the state as Avro writes a string.
  const text = state === null ? undefined : utf8(encode(state));
  const head = text ? [0, 0, 2, ...long(text.length)] : [0, 0, 0];
  const rest = new Uint8Array(head.length + (text?.length ?? 0));
  rest.set(head);
  if (text) rest.set(text, head.length);
  return sha256Hex(bytesOf(hashes.join("") + hex(sha256(rest))));
}

const bytesOf = (digits: string) => Uint8Array.from({ length: digits.length / 2 }, (_, at) => parseInt(digits.slice(2 * at, 2 * at + 2), 16));

/** A length as Avro writes a long: zigzag, seven bits at a time. */
function long(length: number): number[] {
  const out: number[] = [];
  let value = length * 2;
  for (; value > 0x7f; value = Math.floor(value / 128)) out.push((value % 128) | 0x80);
  return [...out, value];
}

// The marker that ends a call whose result cannot be recorded (docs/protocol.md, "Results that cannot be recorded").
//
// `call` is the record id of the request. It distinguishes a marker from every other result: from results that were recorded
// earlier, by other clients, and from markers of other calls.

import { TooLarge, type Marker, type RunlogError } from "./errors.js";
import { encode, isObject, type Json, type JsonObject } from "./json.js";
import { newId, type Payload, type Record } from "./records.js";
import { utf8 } from "./sha256.js";

export const MARKER = "runlog.result_not_recorded";
/** Maximum characters of a marker's message, and of a truncated failure message. */
const TEXT_MAX = 1000;

/** The marker of a call. `bytes` is the length of the result's JSON, if it has one. */
export function marker(call: string, reason: string, message: string, type: string | null = null, bytes: number | null = null): JsonObject {
  return { [MARKER]: { call, reason, message: cut(storable(message)), type, bytes } };
}

/** The members of a call's marker; `undefined` for a result. */
export function readMarker(call: string | undefined, result: Json | undefined): Marker | undefined {
  if (!isObject(result) || Object.keys(result).length !== 1) return undefined;
  const found = result[MARKER];
  return isObject(found) && (call === undefined || found["call"] === call) ? (found as unknown as Marker) : undefined;
}

/** Ends the call of a record that the server refused for its content: a record under another id, with a marker in place of the
 * result, or with the beginning of a failure's message. */
export function withoutContent(record: Record, error: RunlogError): Record {
  const payload: { [name: string]: Json } & { type: string } = { ...record.payload };
  if (payload.type === "tool_call_failed") {
    payload["error_kind"] = cut(String(payload["error_kind"]));
    payload["error_message"] = cutText(String(payload["error_message"]), error.message);
  } else {
    const reason = error instanceof TooLarge ? "too_large" : "invalid";
    const bytes = utf8(encode(payload["result"] ?? null)).length;
    payload["result"] = marker(String(payload["request_record_id"]), reason, error.message, null, bytes);
  }
  return { ...record, record_id: newId(), payload: payload satisfies Payload };
}

/** The beginning of a text that cannot be recorded whole, and the reason. */
export const cutText = (text: string, why: string): string => `${cut(text)} [${text.length} characters, not recorded: ${cut(why)}]`;

/** Escapes lone surrogates, so that every server stores the text. */
export const storable = (text: string): string =>
  text.replace(/\p{Surrogate}/gu, (found) => `\\u${found.charCodeAt(0).toString(16)}`);

const cut = (text: string) => Array.from(text.slice(0, 2 * TEXT_MAX)).slice(0, TEXT_MAX).join("");

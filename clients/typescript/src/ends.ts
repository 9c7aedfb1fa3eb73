// Decides how the effect of a call ended, and makes the payload that records it. No other module decides that.
//
//   returned                           ─▶ tool_call_completed, with the result, or with the marker that says why it is left out
//   threw `Failed` or one of `failedOn` ─▶ tool_call_failed
//   threw anything else                ─▶ unknown: no result is recorded, and the call stays pending

import type { Config } from "./config.js";
import { Failed, RunlogError, Unknown, Usage } from "./errors.js";
import { encode, type Json } from "./json.js";
import { cutText, marker, readMarker, storable } from "./marker.js";
import type { Payload } from "./records.js";
import { REDACTED } from "./redact.js";
import { utf8 } from "./sha256.js";
import { errorName, errorText, NoJson, toJson, typeName } from "./values.js";

/** Bytes of a result's JSON, or of a failure's message. No server stores more. */
const RESULT_BYTES_MAX = 64 * 2 ** 20;

type ErrorClass = abstract new (...args: never[]) => Error;
/** Errors: a class, several classes, or a function that recognises them. */
export type Kinds = ErrorClass | readonly ErrorClass[] | ((error: unknown) => boolean);

/** The errors that determine how an effect ended. Any other error means that it may have happened. */
export interface Ends {
  /** The effect did not happen and will not. */
  failedOn?: Kinds;
  /** The effect may have happened, although the error is one of `failedOn`. */
  unknownOn?: Kinds;
}

const isClass = (kind: unknown): kind is ErrorClass =>
  typeof kind === "function" && (kind === Error || (kind as { prototype?: unknown }).prototype instanceof Error);

const warned = new Set<string>();

/** Throws `Usage` for a value that recognises no errors, and warns of `failedOn` that covers lost answers. */
export function checkEnds(ends: Ends, tool: string, config: Config): void {
  for (const [name, kinds] of Object.entries({ failedOn: ends.failedOn, unknownOn: ends.unknownOn })) {
    const isList = Array.isArray(kinds) && kinds.every(isClass);
    if (kinds !== undefined && !isList && typeof kinds !== "function") {
      throw new Usage(`${name} of ${tool} is a class of errors, an array of such classes, or a function`);
    }
  }
  const [failed, unknown] = [classesOf(ends.failedOn), classesOf(ends.unknownOn)];
  if (!failed || !unknown || warned.has(tool)) return;
  const covers = (classes: readonly ErrorClass[], lost: ErrorClass) => classes.some((each) => each === lost || lost.prototype instanceof each);
  // `fetch` throws both for an answer that did not arrive.
  const lost = [TypeError, DOMException].filter((each) => covers(failed, each) && !covers(unknown, each)).map((each) => each.name);
  if (!lost.length) return;
  warned.add(tool);
  config.warn(
    `failedOn of ${tool} covers ${lost.join(", ")}: the request was sent and its answer lost. Its effect may have happened, but the ` +
      "journal would say that it did not. Name narrower errors, or name these in unknownOn",
  );
}

const classesOf = (kinds: Kinds | undefined): readonly ErrorClass[] | undefined =>
  kinds === undefined ? [] : Array.isArray(kinds) ? (kinds as readonly ErrorClass[]) : isClass(kinds) ? [kinds] : undefined;

/** The failure to record. `undefined` if the effect may have happened, and so if a function throws or returns a promise. */
export function failureOf(ends: Ends, error: unknown, tool: string, config: Config): Failed | undefined {
  try {
    if (error instanceof Unknown || isOf(ends.unknownOn, error)) return undefined;
    if (error instanceof Failed) return error;
    if (!isOf(ends.failedOn, error)) return undefined;
  } catch (thrown) {
    config.warn(`failedOn and unknownOn of ${tool} do not say how its effect ended, so it may have happened: ${errorText(thrown)}`);
    return undefined;
  }
  return new Failed(errorName(error), errorText(error), { cause: error });
}

function isOf(kinds: Kinds | undefined, error: unknown): boolean {
  const classes = classesOf(kinds);
  if (classes) return classes.some((each) => error instanceof each);
  const found: unknown = (kinds as (error: unknown) => unknown)(error);
  if (typeof (found as { then?: unknown } | null | undefined)?.then !== "function") return Boolean(found);
  void Promise.resolve(found).catch(() => undefined);
  throw new Usage("a function that recognises errors returns true or false, not a promise");
}

/** The payload that ends a call, and its bytes. Succeeds for any result or error of its effect. */
export function endOf(config: Config, tool: string, request: string, result: unknown, failure: Failed | undefined): [Payload, number] {
  try {
    return endWith(config, tool, request, result, failure);
  } catch (error) {
    // Neither a text of the result nor of the failure is safe to convert.
    const why = `it cannot be converted: ${errorName(error)}`;
    if (failure) return [{ type: "tool_call_failed", request_record_id: request, error_kind: "Failed", error_message: why }, why.length];
    return [{ type: "tool_call_completed", request_record_id: request, result: marker(request, "no_json", why, typeName(result)) }, 0];
  }
}

function endWith(config: Config, tool: string, request: string, result: unknown, failure: Failed | undefined): [Payload, number] {
  const { redaction } = config;
  const redacted = (text: string) => {
    try {
      return redaction ? redaction.text(text) : text;
    } catch {
      return REDACTED;
    }
  };
  if (!failure) {
    const [value, bytes] = recordable(config, tool, request, result, redacted);
    return [{ type: "tool_call_completed", request_record_id: request, result: value }, bytes];
  }
  let message = storable(redacted(String(failure.text)));
  // A server that refuses a long body may close the connection before its answer arrives.
  if (message.length > RESULT_BYTES_MAX) message = cutText(message, `the message is longer than ${RESULT_BYTES_MAX}`);
  return [
    { type: "tool_call_failed", request_record_id: request, error_kind: storable(String(failure.kind)), error_message: message },
    message.length,
  ];
}

/** The result as JSON, or the marker with the reason why it is left out; and the bytes of the JSON. */
function recordable(config: Config, tool: string, request: string, result: unknown, redacted: (text: string) => string): [Json, number] {
  const { redaction } = config;
  const type = typeName(result);
  const without = (reason: string, message: string, bytes: number | null): [Json, number] => {
    config.warn(`the result of call ${request} is not recorded: ${message}`);
    return [marker(request, reason, message, type, bytes), bytes ?? 0];
  };
  let value: Json;
  let bytes: number;
  try {
    value = toJson(result, true);
    bytes = utf8(encode(value)).length;
  } catch (error) {
    // Its message may contain a part of the result.
    const message = redaction ? `a part of the result has no JSON, at $${error instanceof NoJson ? error.place : ""}` : errorText(error);
    return without("no_json", redacted(message), null);
  }
  if (bytes > RESULT_BYTES_MAX) return without("too_large", `the result has ${bytes} bytes, more than ${RESULT_BYTES_MAX}`, bytes);
  if (readMarker(request, value)) return without("invalid", "the result is a marker of this call", bytes);
  if (!redaction) return [value, bytes];
  try {
    const changed = redaction.json(tool, value);
    return [changed, utf8(encode(changed)).length];
  } catch (error) {
    return without("redaction", `the redaction threw ${error instanceof RunlogError ? error.kind : typeName(error)}`, bytes);
  }
}

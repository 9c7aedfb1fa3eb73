// Values as JSON: one text for each value, in every process and every client.
//
//   string, number, bigint, boolean, null ─▶ themselves        Date ─▶ ISO 8601
//   array ─▶ array    plain object, Map ─▶ object               Uint8Array ─▶ text, or {"base64": …} if it is no UTF-8
//   Set ─▶ array, sorted by the canonical text of its elements  objects with `toJSON` ─▶ its value

import { Invalid } from "./errors.js";
import { canonical, DEPTH_MAX, isObject, Refused, setMember, setOrder, type Json } from "./json.js";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** A value, or a part of it at the path `place`, has no JSON. */
export class NoJson extends Invalid {
  place = "";
  constructor(readonly why: string) {
    super(why);
  }

  /** Returns the error with the path from the enclosing value. */
  inside(step: string): this {
    this.place = step + this.place;
    this.message = `${this.why}, at $${this.place}`;
    return this;
  }
}

/** The name of a value's type. Never throws: a class may have a static member `name` of any type, and a getter may throw. */
export function typeName(value: unknown): string {
  if (typeof value !== "object" || value === null) return value === null ? "null" : typeof value;
  try {
    const maker: unknown = (value as { constructor?: unknown }).constructor;
    const name: unknown = typeof maker === "function" ? maker.name : undefined;
    return typeof name === "string" && name ? name : "object";
  } catch {
    return "object";
  }
}

/** The name of anything that was thrown. Never throws. */
export function errorName(error: unknown): string {
  try {
    if (error instanceof Error && typeof error.name === "string" && error.name) return error.name;
  } catch {
    // A getter threw.
  }
  return typeName(error);
}

/** The text of anything that was thrown. Never throws. */
export function errorText(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return typeName(error);
  }
}

/** Converts a value to JSON. Throws `Invalid` with the path of a part without JSON. `result` makes NaN and the infinities text, and
 * `undefined` null. */
export const toJson = (value: unknown, result = false): Json => convert(value, result, 1);

/** Converts arguments to JSON with a canonical form. Throws `Invalid` with the path of a part without one. */
export function argumentsJson(value: unknown): Json {
  const converted = toJson(value);
  try {
    canonical(converted);
  } catch (error) {
    if (error instanceof Refused) throw findRefused(converted, `it has no canonical JSON: ${error.code}`);
    throw error;
  }
  return converted;
}

function convert(value: unknown, result: boolean, depth: number): Json {
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "bigint") {
    if (Number.isFinite(Number(value))) return value;
    throw new NoJson("an integer beyond the range of a double has no JSON that every reader understands");
  }
  if (typeof value === "number") {
    if (Number.isFinite(value)) return value;
    if (result) return String(value);
    throw new NoJson(`${value} has no JSON`);
  }
  if (value === undefined && result) return null;
  if (typeof value !== "object") throw noJson(value);
  if (depth > DEPTH_MAX) throw new NoJson(`it nests deeper than ${DEPTH_MAX} levels`);
  try {
    return container(value, result, depth);
  } catch (error) {
    if (error instanceof Invalid) throw error;
    // A getter or a `toJSON` of the value's type threw it.
    throw new NoJson(`a value of type ${typeName(value)} has no JSON: ${errorName(error)}: ${errorText(error).split("\n")[0]}`);
  }
}

function container(value: object, result: boolean, depth: number): Json {
  if (Array.isArray(value)) return elements(value, result, depth);
  if (value instanceof Date) return date(value);
  if (value instanceof Uint8Array) return bytes(value);
  if (value instanceof Map) return members([...value].map(([key, member]) => [keyText(key), member]), result, depth);
  if (value instanceof Set) return elements([...value], result, depth, "[*]").sort(bySetOrder);
  const { toJSON } = value as { toJSON?: unknown };
  if (typeof toJSON === "function") return convert(toJSON.call(value, ""), result, depth + 1);
  const prototype: unknown = Object.getPrototypeOf(value);
  // Objects of another realm have another `Object.prototype`.
  const isPlain = prototype === null || Object.getPrototypeOf(prototype as object) === null;
  if (!isPlain) throw noJson(value);
  return members(Object.entries(value), result, depth);
}

const noJson = (value: unknown) =>
  new NoJson(`a value of type ${typeName(value)} has no JSON; pass a plain object, or give it \`toJSON\``);

function members(entries: readonly [string, unknown][], result: boolean, depth: number): Json {
  const named: Record<string, Json> = {};
  for (const [name, member] of entries) {
    // As in JSON.stringify, a member without a value is an absent member.
    if (member === undefined) continue;
    if (Object.hasOwn(named, name)) throw new NoJson(`two keys are the same text ${JSON.stringify(name)}`);
    setMember(named, name, at(stepTo(name), () => convert(member, result, depth + 1)));
  }
  return named;
}

const elements = (values: readonly unknown[], result: boolean, depth: number, step?: string): Json[] =>
  Array.from(values, (element, index) => at(step ?? `[${index}]`, () => convert(element, result, depth + 1)));

function at<T>(step: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof NoJson ? error.inside(step) : error;
  }
}

const stepTo = (name: string) => (NAME.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`);

/** Compares by code points, as other clients do, not by UTF-16 units. */
function bySetOrder(one: Json, other: Json): number {
  const [a, b] = [Array.from(setOrder(one)), Array.from(setOrder(other))];
  const differs = a.findIndex((character, index) => character !== b[index]);
  if (differs < 0 || differs >= b.length) return a.length - b.length;
  return a[differs]!.codePointAt(0)! - b[differs]!.codePointAt(0)!;
}

function keyText(key: unknown): string {
  if (typeof key === "string") return key;
  if (typeof key === "boolean" || typeof key === "bigint" || (typeof key === "number" && Number.isFinite(key))) return String(key);
  if (key instanceof Date) return date(key);
  throw new NoJson(`a key of type ${typeName(key)} has no text`);
}

/** The same text as of the other clients: without a fraction, or with microseconds. */
function date(value: Date): string {
  if (Number.isNaN(value.getTime())) throw new NoJson("an invalid Date has no JSON");
  return value.toISOString().replace(/\.(\d{3})Z$/, (_, millis: string) => (millis === "000" ? "Z" : `.${millis}000Z`));
}

function bytes(value: Uint8Array): Json {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value);
  } catch {
    return { base64: base64(value) };
  }
}

const CHUNK = 0x8000;

export function base64(value: Uint8Array): string {
  const parts: string[] = [];
  for (let at = 0; at < value.length; at += CHUNK) parts.push(String.fromCharCode(...value.subarray(at, at + CHUNK)));
  return btoa(parts.join(""));
}

/** Makes the error for the deepest part of a value without canonical form. */
function findRefused(value: Json, why: string): NoJson {
  const isPart = (part: Json) => {
    try {
      canonical(part);
      return false;
    } catch {
      return true;
    }
  };
  const parts: [string, Json][] = Array.isArray(value)
    ? value.map((element: Json, index) => [`[${index}]`, element])
    : isObject(value) ? Object.entries(value).map(([name, member]) => [stepTo(name), member]) : [];
  const found = parts.find(([, part]) => isPart(part));
  return found ? findRefused(found[1], why).inside(found[0]) : new NoJson(why);
}

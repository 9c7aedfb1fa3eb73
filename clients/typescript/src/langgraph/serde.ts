// A serializer in LangGraph's format that makes only values of a closed list of types.
//
// LangGraph's `JsonPlusSerializer` passes each constructor record that it reads to LangChain's `load`, which instantiates any class of
// LangChain with arguments from the record. This serializer makes messages itself, and throws `TypeNotAllowed` for any other class. What
// it writes, it reads first, so that an unreadable value is never stored.

import * as messages from "@langchain/core/messages";
import { DeltaSnapshot, JsonPlusSerializer, type SerializerProtocol } from "@langchain/langgraph-checkpoint";
import { Invalid, Usage } from "../errors.js";
import { sha256Hex } from "../sha256.js";

/** A stored value has a class that is not on the list. No code of the class ran. */
export class TypeNotAllowed extends Invalid {}

const MESSAGES = ["AI", "Human", "System", "Tool", "Function", "Chat"].flatMap((kind) => [`${kind}Message`, `${kind}MessageChunk`]);
const CLASSES: ReadonlySet<string> = new Set([...MESSAGES, "RemoveMessage"]);
/** Characters of a regular expression, whose compilation takes time. */
const PATTERN_MAX = 1024;
/** Hashes of values that were read back, about 3 MB. */
const WRITTEN_MAX = 32_768;
const NESTING_MAX = 1000;
const NAME_MAX = 200;
const ESCAPED = "__lc_escaped__";
/** Writes. It never reads. */
const LANGGRAPH = new JsonPlusSerializer();

type Value = { [name: string]: unknown };

/** LangGraph's JSON format for plain values, `Map`, `Set`, `RegExp`, `Error`, `Uint8Array`, and LangChain's messages. */
export class StrictSerializer implements SerializerProtocol {
  readonly #written = new Set<string>();

  async dumpsTyped(value: unknown): Promise<[string, Uint8Array]> {
    let typed: [string, Uint8Array];
    try {
      typed = await LANGGRAPH.dumpsTyped(value);
    } catch (error) {
      throw new Invalid(`it has no JSON: ${String(error)}`, { cause: error });
    }
    const [type, data] = typed;
    if (type !== "json") return typed;
    const text = new TextDecoder().decode(data);
    checkWhole(value, text);
    await this.#readBack(text);
    return typed;
  }

  async #readBack(text: string): Promise<void> {
    // Only objects of LangChain can be unreadable.
    if (!/"lc":\s*1\b/.test(text)) return;
    const hash = sha256Hex(text);
    if (this.#written.has(hash)) return;
    revive(parse(text));
    if (this.#written.size >= WRITTEN_MAX) this.#written.clear();
    this.#written.add(hash);
  }

  async loadsTyped(type: string, data: Uint8Array | string): Promise<unknown> {
    if (type === "bytes") return typeof data === "string" ? new TextEncoder().encode(data) : data;
    if (type !== "json") throw new TypeNotAllowed(`the format ${shown(type)} is not read: it is another program's`);
    return revive(parse(typeof data === "string" ? data : new TextDecoder().decode(data)));
  }
}

/** Throws for a value that LangGraph's serializer replaced by a text, or of which it replaced a part: for a `bigint` and for a circle. */
function checkWhole(value: unknown, text: string): void {
  const isReplaced = /^"\[unable to serialize/.test(text) && typeof value !== "string";
  if (!isReplaced && !text.includes('"[Circular]"')) return;
  try {
    JSON.stringify(value);
  } catch (error) {
    throw new Invalid(`it has no JSON: ${String(error)}`, { cause: error });
  }
  if (isReplaced) throw new Invalid("it has no JSON: a part is a bigint or contains itself");
}

/** The serializer that a program gave, with LangGraph's default replaced by `StrictSerializer`. */
export function strict(serde: SerializerProtocol | undefined): SerializerProtocol {
  if (!serde || serde.constructor === JsonPlusSerializer) return new StrictSerializer();
  if (serde instanceof JsonPlusSerializer) {
    throw new Usage(`${serde.constructor.name} makes any object of LangChain that the journal names: extend StrictSerializer instead`);
  }
  return serde;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Invalid(`it is not JSON: ${String(error)}`);
  }
}

/** The value of a record's part. LangChain escapes records in the arguments of its objects that are data of the program: `isData`. */
function revive(value: unknown, depth = 0, inObject = false, isData = false): unknown {
  if (depth > NESTING_MAX) throw new Invalid(`it has more than ${NESTING_MAX} levels`);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => revive(item, depth + 1, inObject, isData));
  const record = value as Value;
  if (inObject && Object.keys(record).length === 1 && Object.hasOwn(record, ESCAPED)) return revive(record[ESCAPED], depth + 1, true, true);
  const isObject = !isData && record["lc"] === 1 && record["type"] === "constructor" && Array.isArray(record["id"]);
  if (isObject) checkName(record["id"] as unknown[]);
  const members: Value = {};
  for (const [name, member] of Object.entries(record)) {
    const made = revive(member, depth + 1, inObject || (isObject && name === "kwargs"), isData);
    // An assignment to `__proto__` would replace the prototype.
    Object.defineProperty(members, name, { value: made, enumerable: true, configurable: true, writable: true });
  }
  if (members["lc"] === 2) return special(members);
  return isObject ? message(members) : members;
}

/** Throws for a class that is not on the list. */
function checkName(id: unknown[]): void {
  const [module, namespace] = id;
  const name = id.at(-1);
  const isListed = module === "langchain_core" && namespace === "messages" && id.length >= 3 && typeof name === "string" && CLASSES.has(name);
  if (isListed) return;
  throw new TypeNotAllowed(
    `the class ${shown(id.join("."))} is not allowed, and no object of it was made: keep messages and plain values in the state`,
  );
}

function message({ id, kwargs }: Value): unknown {
  const name = (id as string[]).at(-1)!;
  try {
    return new (messages as unknown as { [name: string]: new (fields: unknown) => unknown })[name]!(kwargs);
  } catch (error) {
    throw new Invalid(`an object of the class ${name} cannot be made again: ${String(error)}`);
  }
}

/** A value that has no JSON; a record that LangGraph does not write stays as it is. */
function special(record: Value): unknown {
  if (record["type"] === "undefined") return undefined;
  if (record["type"] === "delta_snapshot" && Object.hasOwn(record, "value")) return new DeltaSnapshot(record["value"]);
  const { type, id, args, method } = record as { type: unknown; id: unknown; args: unknown; method: unknown };
  if (type !== "constructor" || !Array.isArray(id) || id.length !== 1 || !Array.isArray(args)) return record;
  if (method !== undefined && method !== null && !(id[0] === "Uint8Array" && method === "from")) return record;
  return instance(String(id[0]), args) ?? record;
}

function instance(name: string, args: unknown[]): unknown {
  const [first, second] = args;
  const items = args.length === 1 && Array.isArray(first) ? (first as unknown[]) : undefined;
  const isPair = (item: unknown) => Array.isArray(item) && item.length === 2;
  const isByte = (item: unknown) => typeof item === "number" && Number.isInteger(item) && item >= 0 && item <= 255;
  if (name === "Set" && items) return new Set(items);
  if (name === "Map" && items?.every(isPair)) return new Map(items as [unknown, unknown][]);
  if (name === "Uint8Array" && items?.every(isByte)) return Uint8Array.from(items as number[]);
  if (name === "Error" && args.length === 1 && typeof first === "string") return new Error(first);
  if (name === "RegExp" && args.length === 2 && typeof first === "string" && typeof second === "string") return pattern(first, second);
  return undefined;
}

function pattern(source: string, flags: string): RegExp | undefined {
  if (source.length > PATTERN_MAX) throw new Invalid(`a stored pattern has more than ${PATTERN_MAX} characters`);
  try {
    return new RegExp(source, flags);
  } catch {
    return undefined;
  }
}

/** Formats untrusted text for an error. */
const shown = (text: string): string => (text.length <= NAME_MAX ? text : `${text.slice(0, NAME_MAX)}…`);

// Redacts content before a record is made. Pure.
//
// Fingerprints and argument hashes cover the original arguments, so a call is recognised although its arguments are redacted.
// Content that is read from the journal is redacted.

import { Usage } from "./errors.js";
import { isObject, setMember, type Json } from "./json.js";
import { typeName } from "./values.js";

export const REDACTED = "[redacted]";

type Pointer = readonly string[];

/** The content to remove from arguments, results, failures, turns and checkpoints. `policyId` names the policy in every record. Ids,
 * keys, statuses and tool names never change, because the journal finds, judges and recognises records by them. */
export class Redaction {
  readonly #pointers: readonly (readonly [string | null, Pointer])[];
  readonly #patterns: readonly ((text: string) => string)[];

  constructor(readonly policyId: string, pointers: Redaction["pointers"] = [], patterns: Redaction["patterns"] = []) {
    this.#pointers = pointers;
    this.#patterns = patterns;
  }

  get pointers(): readonly (readonly [string | null, Pointer])[] {
    return this.#pointers;
  }

  get patterns(): readonly ((text: string) => string)[] {
    return this.#patterns;
  }

  /** Removes the value at a JSON pointer (RFC 6901; a segment `*` matches every member or element) from arguments and results of
   * `tool`. With null, from arguments and results of all tools, turns, and messages and state of checkpoints. */
  pointer(tool: string | null, pointer: string): Redaction {
    const segments = pointer.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    return new Redaction(this.policyId, [...this.#pointers, [tool, segments]], this.#patterns);
  }

  /** Applies a function to every string value and to the text of failures. Names of members are not changed. */
  texts(pattern: (text: string) => string): Redaction {
    return new Redaction(this.policyId, this.#pointers, [...this.#patterns, pattern]);
  }

  /** Redacts a value. */
  json(tool: string | null, value: Json): Json {
    return this.#change(value, this.#pointers.filter(([only]) => only === null || only === tool).map(([, pointer]) => pointer));
  }

  /** Redacts a text. */
  text(text: string): string {
    const changed: unknown = this.#patterns.reduce((before, pattern) => pattern(before), text);
    if (typeof changed !== "string") throw new Usage(`a function of a Redaction returned ${typeName(changed)}, not a text`);
    return changed;
  }

  #change(value: Json, pointers: readonly Pointer[]): Json {
    if (pointers.some((pointer) => pointer.length === 0)) return REDACTED;
    if (typeof value === "string") return this.text(value);
    if (Array.isArray(value)) return value.map((element: Json, at) => this.#change(element, below(pointers, String(at))));
    if (!isObject(value)) return value;
    const changed: Record<string, Json> = {};
    for (const [name, member] of Object.entries(value)) setMember(changed, name, this.#change(member, below(pointers, name)));
    return changed;
  }
}

const below = (pointers: readonly Pointer[], name: string): Pointer[] =>
  pointers.filter(([first]) => first === "*" || first === name).map((pointer) => pointer.slice(1));

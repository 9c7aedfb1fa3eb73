// JSON whose integers are exact, its canonical form, and fingerprints of calls (docs/spec.md, "Tool calls").
//
//   text ─▶ parse ─▶ value: an integer beyond 2^53 is a bigint, every other number a number ─▶ encode ─▶ text

import { Invalid } from "./errors.js";
import { sha256Hex } from "./sha256.js";

/** A JSON value. A bigint is an integer; a number is a double, as it is in the canonical form. */
export type Json = null | boolean | number | bigint | string | readonly Json[] | { readonly [name: string]: Json };
export type JsonObject = { readonly [name: string]: Json };

export const DEPTH_MAX = 128;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPE = /\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))/y;
const ESCAPES: Record<string, string> = { b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const WORDS: readonly [string, Json][] = [["true", true], ["false", false], ["null", null]];
const LONE_SURROGATE = /\p{Surrogate}/u;

/** A text or value without canonical form. */
export class Refused extends Error {
  constructor(readonly code: "syntax" | "duplicate_key" | "not_finite" | "lone_surrogate" | "too_deep") {
    super(code);
  }
}

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Sets a member of a new object, also one with the name `__proto__`. */
export function setMember(object: Record<string, unknown>, name: string, value: unknown): void {
  if (name === "__proto__") Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
  else object[name] = value;
}

class Parser {
  at = 0;

  /** `strict` refuses what has no canonical form. Otherwise the last of two members with one name counts. */
  constructor(readonly text: string, readonly strict: boolean) {}

  whole(): Json {
    const value = this.value(1);
    this.space();
    if (this.at < this.text.length) throw new Refused("syntax");
    return value;
  }

  space(): void {
    while (" \t\n\r".includes(this.text[this.at] ?? "x")) this.at++;
  }

  /** Accepts a character after white space. Returns whether it is there. */
  accept(character: string): boolean {
    this.space();
    if (this.text[this.at] !== character) return false;
    this.at++;
    return true;
  }

  expect(character: string): void {
    if (!this.accept(character)) throw new Refused("syntax");
  }

  match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at += found[0].length;
    return found;
  }

  value(depth: number): Json {
    this.space();
    const first = this.text[this.at];
    if (first === '"') return this.string();
    if (first === "{" || first === "[") {
      if (this.strict && depth > DEPTH_MAX) throw new Refused("too_deep");
      return first === "{" ? this.object(depth) : this.array(depth);
    }
    for (const [word, value] of WORDS) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.number();
  }

  object(depth: number): Json {
    const object: Record<string, Json> = {};
    this.members((name) => {
      if (this.strict && Object.hasOwn(object, name)) throw new Refused("duplicate_key");
      setMember(object, name, this.value(depth + 1));
    });
    return object;
  }

  /** Reads the members of an object; `read` reads each value. */
  members(read: (name: string) => void): void {
    this.expect("{");
    if (this.accept("}")) return;
    do {
      this.space();
      const name = this.string();
      this.expect(":");
      read(name);
    } while (this.accept(","));
    this.expect("}");
  }

  array(depth: number): Json {
    const array: Json[] = [];
    this.elements(() => array.push(this.value(depth + 1)));
    return array;
  }

  elements(read: () => void): void {
    this.expect("[");
    if (this.accept("]")) return;
    do read(); while (this.accept(","));
    this.expect("]");
  }

  string(): string {
    if (this.text[this.at] !== '"') throw new Refused("syntax");
    this.at++;
    let text = "";
    for (;;) {
      text += this.match(PLAIN)![0];
      if (this.text[this.at] === '"') break;
      const escape = this.match(ESCAPE);
      if (!escape) throw new Refused("syntax");
      text += escape[1] ? (ESCAPES[escape[1]] ?? escape[1]) : String.fromCharCode(parseInt(escape[2]!, 16));
    }
    this.at++;
    return text;
  }

  number(): Json {
    const found = this.match(NUMBER);
    if (!found) throw new Refused("syntax");
    const value = Number(found[0]);
    if (found[1] === undefined && found[2] === undefined) return Number.isSafeInteger(value) ? value + 0 : BigInt(found[0]);
    if (this.strict && !Number.isFinite(value)) throw new Refused("not_finite");
    return value;
  }
}

/** Parses an answer. Throws `Refused` for a text that is no JSON. */
export function parse(text: string): Json {
  // Integers of fifteen digits are exact in the platform's parser, which is many times faster.
  if (/[0-9]{16}/.test(text)) return new Parser(text, false).whole();
  try {
    return JSON.parse(text) as Json;
  } catch {
    throw new Refused("syntax");
  }
}

/** The canonical form of a JSON text: RFC 8785, but integers keep their digits and a name must be unique. Throws `Refused`. */
export const canonicalText = (text: string): string => canonical(new Parser(text, true).whole());

/** The canonical form of a value. Throws `Refused`. */
export function canonical(value: Json): string {
  const text = write(value, 1);
  if (LONE_SURROGATE.test(text) || text.includes("\\ud")) checkSurrogates(value);
  return text;
}

/** The sort key of an element of a set: its canonical form, here also with lone surrogates. */
export const setOrder = (value: Json): string => write(value, 1);

function checkSurrogates(value: Json): void {
  const check = (text: string) => { if (LONE_SURROGATE.test(text)) throw new Refused("lone_surrogate"); };
  if (typeof value === "string") check(value);
  else if (Array.isArray(value)) value.forEach(checkSurrogates);
  else if (isObject(value)) {
    for (const [name, member] of Object.entries(value)) {
      check(name);
      checkSurrogates(member);
    }
  }
}

function write(value: Json, depth: number): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new Refused("not_finite");
    return String(value);
  }
  if (depth > DEPTH_MAX) throw new Refused("too_deep");
  if (!isObject(value)) return `[${value.map((element) => write(element, depth + 1)).join(",")}]`;
  const names = Object.keys(value).sort((a, b) => (a < b ? -1 : 1));
  return `{${names.map((name) => `${JSON.stringify(name)}:${write(value[name]!, depth + 1)}`).join(",")}}`;
}

/** The hexadecimal SHA-256 of the arguments' canonical form. */
export const argsSha256 = (args: Json): string => sha256Hex(canonical(args));

/** The fingerprint of a call: its tool, and the hash of its arguments. */
export const fingerprint = (tool: string, argsHash: string): string => `v1:${sha256Hex(`${tool}\0${argsHash}`)}`;

/** The compact text that is sent. Throws `Invalid` for a value that has no JSON. */
export function encode(value: Json): string {
  if (typeof value === "string" || typeof value === "boolean" || value === null) return JSON.stringify(value);
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new Invalid(`a value does not serialise as JSON: ${value}`);
    // Without the fraction a reader would take it for an integer of that many exact digits.
    const isLongDouble = Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < 1e21;
    return isLongDouble ? `${value}.0` : String(value);
  }
  if (!isObject(value)) return `[${value.map(encode).join(",")}]`;
  return `{${Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}:${encode(member)}`).join(",")}}`;
}

/** The unparsed text of a member of a JSON object; `undefined` if it is absent. */
export function memberText(text: string, name: string): string | undefined {
  const parser = new Parser(text, false);
  let found: string | undefined;
  parser.members((member) => {
    const value = unparsed(parser);
    if (member === name) found = value;
  });
  return found;
}

/** The unparsed texts of the elements of a JSON array. */
export function elementTexts(text: string): string[] {
  const parser = new Parser(text, false);
  const found: string[] = [];
  parser.elements(() => found.push(unparsed(parser)));
  return found;
}

function unparsed(parser: Parser): string {
  parser.space();
  const start = parser.at;
  parser.value(1);
  return parser.text.slice(start, parser.at);
}

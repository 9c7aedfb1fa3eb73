// @ts-check
// JSON whose numbers keep their digits.

/** A number that JavaScript would write in another way. */
export class Exact {
  /** @param {string} text */
  constructor(text) { this.text = text; }
  toString() { return this.text; }
  valueOf() { return Number(this.text); }
}

/** @param {string} text @returns {any} */
export function parse(text) {
  return JSON.parse(text, /** @type {any} */ ((key, value, context) => {
    const source = typeof value === 'number' && context && context.source;
    return source && source !== String(value) ? new Exact(source) : value;
  }));
}

/** Whether the browser tells the text of a number. Others round digits. */
export const isExact = parse('1.0') instanceof Exact;

/** Writes control, bidirectional and invisible characters as escapes. @param {string} text */
export const visible = (text) => text.replace(/(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (each) => each.split('').map((unit) => '\\u' + unit.charCodeAt(0).toString(16).padStart(4, '0')).join(''));
const quote = (text) => visible(JSON.stringify(text));

/** Writes JSON. @param {number} [depth] @returns {string} */
export function write(value, depth = 0) {
  if (value instanceof Exact) return value.text;
  if (typeof value === 'string') return quote(value);
  if (value === null || typeof value !== 'object') return String(value ?? null);
  const isList = Array.isArray(value);
  const names = Object.keys(value);
  if (!names.length) return isList ? '[]' : '{}';
  const indent = '  '.repeat(depth + 1);
  const items = names.map((name) => indent + (isList ? '' : quote(name) + ': ') + write(value[name], depth + 1));
  const [open, close] = isList ? '[]' : '{}';
  return open + '\n' + items.join(',\n') + '\n' + '  '.repeat(depth) + close;
}

/** Writes a value in one line. Texts in lists and objects have quotes. @returns {string} */
export function brief(value, isInner = false) {
  if (typeof value === 'string') return isInner ? quote(value) : visible(value);
  if (value === null || typeof value !== 'object' || value instanceof Exact) return String(value);
  if (Array.isArray(value)) return '[' + value.map((each) => brief(each, true)).join(', ') + ']';
  const members = Object.entries(value).map(([name, item]) => (/^[\w.-]+$/.test(name) ? name : quote(name)) + ' ' + brief(item, true)).join(', ');
  return isInner ? '{' + members + '}' : members;
}

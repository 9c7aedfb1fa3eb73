// @ts-check
// JSON whose numbers keep their digits: an amount of 129.00 or an id of twenty digits is shown as it was recorded.

/** A number that JavaScript would write in another way, with the text that the server sent. */
export class Exact {
  /** @param {string} text */
  constructor(text) { this.text = text; }
  toString() { return this.text; }
  valueOf() { return Number(this.text); }
}

/** Parses JSON. Numbers that JavaScript would write in another way become `Exact`. @param {string} text @returns {any} */
export function parse(text) {
  return JSON.parse(text, /** @type {any} */ ((key, value, context) => {
    const source = typeof value === 'number' && context && context.source;
    return source && source !== String(value) ? new Exact(source) : value;
  }));
}

/** Writes a value as JSON, indented by two spaces. @param {number} [depth] @returns {string} */
export function write(value, depth = 0) {
  if (value instanceof Exact) return value.text;
  if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'null';
  const isList = Array.isArray(value);
  const names = Object.keys(value);
  if (!names.length) return isList ? '[]' : '{}';
  const indent = '  '.repeat(depth + 1);
  const items = names.map((name) => indent + (isList ? '' : JSON.stringify(name) + ': ') + write(value[name], depth + 1));
  const [open, close] = isList ? '[]' : '{}';
  return open + '\n' + items.join(',\n') + '\n' + '  '.repeat(depth) + close;
}

/** Writes a value in one line: a text as it is, anything else as JSON. @returns {string} */
export function brief(value) {
  if (typeof value === 'string') return value;
  if (value instanceof Exact) return value.text;
  if (value === null || typeof value !== 'object') return String(value);
  if (Array.isArray(value)) return '[' + value.map(brief).join(', ') + ']';
  return Object.entries(value).map(([name, item]) => name + ' ' + brief(item)).join(', ');
}

// @ts-check

/** @typedef {{ id: string | null, event: string, data: string }} Message */

/** The most characters of a message. */
const MAX = 4 << 20;

/** Returns a function that takes the next piece of the stream and returns the messages that it completes. */
export function parser() {
  let rest = '';
  let from = 0;
  let size = 0;
  /** @type {string[]} */
  let lines = [];
  /** @param {string} piece @returns {Message[]} */
  return (piece) => {
    /** @type {Message[]} */
    const messages = [];
    rest += piece;
    const ends = /\r\n|\n|\r/g;
    let begin = 0;
    for (;;) {
      ends.lastIndex = from;
      const end = ends.exec(rest);
      // A CR at the end of a piece may be half of a line end.
      if (!end || (end[0] === '\r' && ends.lastIndex === rest.length)) {
        from = (end ? end.index : rest.length) - begin;
        rest = rest.slice(begin);
        if (size + rest.length > MAX) throw Object.assign(new Error('a message is too long'), { kind: 'usage' });
        return messages;
      }
      const line = rest.slice(begin, end.index);
      begin = from = ends.lastIndex;
      if (line) { lines.push(line); size += line.length; continue; }
      const message = read(lines);
      lines = [];
      size = 0;
      if (message) messages.push(message);
    }
  };
}

/** @param {string[]} lines @returns {Message | null} */
function read(lines) {
  /** @type {Message} */
  const message = { id: null, event: 'message', data: '' };
  const data = [];
  for (const line of lines) {
    const colon = line.indexOf(':');
    if (colon === 0) continue;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'data') data.push(value);
    if (name === 'event') message.event = value;
    if (name === 'id') message.id = value;
  }
  if (!data.length) return null;
  message.data = data.join('\n');
  return message;
}

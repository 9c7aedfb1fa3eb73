// @ts-check

/** @typedef {{ id: string | null, event: string, data: string }} Message */

/** Returns a function that takes the next piece of the stream and returns the messages that it completes. */
export function parser() {
  let rest = '';
  /** @type {string[]} */
  let lines = [];
  /** @param {string} piece @returns {Message[]} */
  return (piece) => {
    /** @type {Message[]} */
    const messages = [];
    rest += piece;
    for (;;) {
      const end = rest.search(/\r\n|\n|\r/);
      // A CR at the end of a piece may be half of a line end.
      if (end < 0 || (rest[end] === '\r' && end === rest.length - 1)) return messages;
      const line = rest.slice(0, end);
      rest = rest.slice(end + (rest.startsWith('\r\n', end) ? 2 : 1));
      if (line) { lines.push(line); continue; }
      const message = read(lines);
      lines = [];
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

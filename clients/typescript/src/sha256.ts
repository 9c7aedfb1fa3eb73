// SHA-256 (FIPS 180-4). The platform's own digest is asynchronous, and would let calls that were begun together change their order.

const [ROUNDS, START] = constants();

function constants(): [Uint32Array, Uint32Array] {
  const rounds: number[] = [];
  const start: number[] = [];
  const fraction = (root: number) => ((root - Math.floor(root)) * 2 ** 32) >>> 0;
  for (let n = 2; rounds.length < 64; n++) {
    let isPrime = true;
    for (let divisor = 2; divisor * divisor <= n; divisor++) if (n % divisor === 0) isPrime = false;
    if (!isPrime) continue;
    if (start.length < 8) start.push(fraction(Math.sqrt(n)));
    rounds.push(fraction(Math.cbrt(n)));
  }
  return [Uint32Array.from(rounds), Uint32Array.from(start)];
}

const encoder = new TextEncoder();

/** The bytes of a text in UTF-8. A lone surrogate becomes the replacement character. */
export const utf8 = (text: string): Uint8Array<ArrayBuffer> => encoder.encode(text);

export const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The digest of bytes, or of a text in UTF-8. */
export function sha256(content: Uint8Array | string): Uint8Array<ArrayBuffer> {
  const bytes = typeof content === "string" ? utf8(content) : content;
  const whole = bytes.length - (bytes.length % 64);
  const rest = bytes.subarray(whole);
  const end = new Uint8Array(rest.length < 56 ? 64 : 128);
  end.set(rest);
  end[rest.length] = 0x80;
  const bits = new DataView(end.buffer);
  bits.setUint32(end.length - 8, Math.floor(bytes.length / 2 ** 29));
  bits.setUint32(end.length - 4, (bytes.length << 3) >>> 0);
  const state = Uint32Array.from(START);
  const words = new Uint32Array(64);
  const content32 = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < whole; at += 64) block(state, words, content32, at);
  for (let at = 0; at < end.length; at += 64) block(state, words, bits, at);
  const digest = new Uint8Array(32);
  const out = new DataView(digest.buffer);
  state.forEach((word, at) => out.setUint32(4 * at, word));
  return digest;
}

export const sha256Hex = (content: Uint8Array | string): string => hex(sha256(content));

const turn = (word: number, bits: number) => (word >>> bits) | (word << (32 - bits));

function block(state: Uint32Array, words: Uint32Array, from: DataView, at: number): void {
  for (let i = 0; i < 16; i++) words[i] = from.getUint32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const [a, b] = [words[i - 15]!, words[i - 2]!];
    const [s0, s1] = [turn(a, 7) ^ turn(a, 18) ^ (a >>> 3), turn(b, 17) ^ turn(b, 19) ^ (b >>> 10)];
    words[i] = words[i - 16]! + s0 + words[i - 7]! + s1;
  }
  let a = state[0]!, b = state[1]!, c = state[2]!, d = state[3]!, e = state[4]!, f = state[5]!, g = state[6]!, h = state[7]!;
  for (let i = 0; i < 64; i++) {
    const t1 = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[i]! + words[i]!) | 0;
    const t2 = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => { state[i] = state[i]! + word; });
}

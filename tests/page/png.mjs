// Makes a screenshot small: at most 256 colours, its most frequent ones that differ.
import { crc32, deflateSync, inflateSync } from 'node:zlib';

const near = (a, b, c) => {
  const [toA, toB, toC] = [Math.abs(b - c), Math.abs(a - c), Math.abs(a + b - 2 * c)];
  return toA <= toB && toA <= toC ? a : toB <= toC ? b : c;
};

/** Reads an image with 8 bits of red, green and blue for each pixel, as Chromium writes it. */
function read(file) {
  const parts = [];
  for (let at = 8; at < file.length;) {
    const size = file.readUInt32BE(at);
    parts.push({ name: file.toString('latin1', at + 4, at + 8), bytes: file.subarray(at + 8, at + 8 + size) });
    at += 12 + size;
  }
  const head = parts[0].bytes;
  if (head[8] !== 8 || head[9] !== 2 || head[12] !== 0) throw new Error('the image is not 8 bits of red, green and blue');
  const [width, height] = [head.readUInt32BE(0), head.readUInt32BE(4)];
  const lines = inflateSync(Buffer.concat(parts.filter(({ name }) => name === 'IDAT').map(({ bytes }) => bytes)));
  const row = width * 3;
  const pixels = Buffer.alloc(row * height);
  for (let y = 0, at = 0; y < height; y += 1) {
    const filter = lines[at++];
    for (let x = 0; x < row; x += 1, at += 1) {
      const to = y * row + x;
      const left = x < 3 ? 0 : pixels[to - 3];
      const above = y ? pixels[to - row] : 0;
      const corner = y && x >= 3 ? pixels[to - row - 3] : 0;
      pixels[to] = lines[at] + [0, left, above, (left + above) >> 1, near(left, above, corner)][filter];
    }
  }
  return { width, height, pixels };
}

function part(name, bytes) {
  const body = Buffer.concat([Buffer.from(name, 'latin1'), bytes]);
  const ends = Buffer.alloc(8);
  ends.writeUInt32BE(bytes.length, 0);
  ends.writeUInt32BE(crc32(body), 4);
  return Buffer.concat([ends.subarray(0, 4), body, ends.subarray(4)]);
}

/** @param {Buffer} file a PNG @returns {Buffer} the PNG with a palette */
export function small(file) {
  const { width, height, pixels } = read(file);
  const counts = new Map();
  for (let at = 0; at < pixels.length; at += 3) {
    const colour = pixels.readUIntBE(at, 3);
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  const parts = (colour) => [colour >> 16, (colour >> 8) & 255, colour & 255];
  const distance = (a, b) => parts(a).reduce((sum, value, nth) => sum + (value - parts(b)[nth]) ** 2, 0);
  // Skips a colour that is close to a chosen one: a small icon may be the only place of its colour.
  const palette = [];
  for (const [colour] of [...counts].sort((a, b) => b[1] - a[1])) if (palette.length < 256 && palette.every((other) => distance(colour, other) > 40)) palette.push(colour);
  const indices = new Map(palette.map((colour, index) => [colour, index]));
  const closest = (colour) => palette.reduce((best, other, index) => (distance(colour, other) < distance(colour, palette[best]) ? index : best), 0);
  for (const colour of counts.keys()) if (!indices.has(colour)) indices.set(colour, closest(colour));
  const lines = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) lines[y * (width + 1) + 1 + x] = indices.get(pixels.readUIntBE((y * width + x) * 3, 3));
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8);
  return Buffer.concat([file.subarray(0, 8), part('IHDR', head), part('PLTE', Buffer.from(palette.flatMap(parts))),
    part('IDAT', deflateSync(lines, { level: 9 })), part('IEND', Buffer.alloc(0))]);
}

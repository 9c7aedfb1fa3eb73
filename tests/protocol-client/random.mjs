/** Random numbers from 0 to 1 that follow from a seed (mulberry32). */
export function random(seed) {
  let a = 0;
  for (const c of String(seed)) a = Math.imul(a ^ c.charCodeAt(0), 0x9e3779b1) >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

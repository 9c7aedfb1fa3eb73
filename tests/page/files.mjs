// The files of the page as the server serves them. The test of the page compares them with the server's own.
import { readdirSync, readFileSync } from 'node:fs';

const ui = new URL('../../projector/server/ui/', import.meta.url);

/** Bytes of all files together, compressed. */
export const BYTES_MAX = 55 * 1024;

/** Does the same as the server's `compact`. @param {string} source */
function compact(source) {
  let inComment = false;
  return source.split('\n').map((line) => line.trimStart()).map((line) => {
    const begins = line.startsWith('/*') && (!line.includes('*/') || line.indexOf('*/') + 2 === line.length);
    const isText = !inComment && !begins && !line.startsWith('//');
    inComment = (inComment || begins) && !line.endsWith('*/');
    return isText ? line.replace(/\/\*\* @.*?\*\/ /g, '').replace(/<\/.*?>/g, '<//>') : '';
  }).join('\n');
}

/** The contents by name. */
export const files = new Map(['', 'vendor/'].flatMap((folder) => readdirSync(new URL(folder || '.', ui), { withFileTypes: true })
  .filter((entry) => entry.isFile() && entry.name !== 'SHA256SUMS')
  .map(({ name }) => {
    const source = readFileSync(new URL(folder + name, ui), 'utf8');
    return [folder + name, !folder && /\.(js|css)$/.test(name) ? compact(source) : source];
  })));

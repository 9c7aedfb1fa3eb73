// The files of the page as the server serves them. The test of the page compares them with the server's own.
import { readdirSync, readFileSync } from 'node:fs';

const ui = new URL('../../projector/server/ui/', import.meta.url);

/** Bytes of all files together, compressed. */
export const BYTES_MAX = 55 * 1024;

/** Code whose blanks have no meaning, and the code without them. */
export const BLANKS = {
  js: [...[' => ', ' = ', ' === ', ' !== ', ' && ', ' || ', ' ?? ', ' + ', ' * ', ' >= ', ' <= ', ' < ', ' > ', ' ? ', ' : '].map((code) => [code, code.trim()]), ['({ ', '({'], [' })', '})'], [') {', '){'], ['; }', '}'], ['{ ', '{'], [' }', '}'], ['if (', 'if('], ['for (', 'for('],
    [';\n}', '}'], ['\n}', '}'], ['{\n', '{'], ['(\n', '('], [',\n', ','], [';\n', ';'], ['\n<', '<'], ['>\n', '>']],
  css: [['\n', ''], [': ', ':'], [' { ', '{'], [' {', '{'], ['; ', ';'], [', ', ','], [' }', '}'], [';}', '}'], [' > ', '>']],
};

/** Does the same as the server's `compact`. @param {string} source @param {string[][]} blanks */
function compact(source, blanks) {
  let inComment = false;
  const lines = source.split('\n').map((line) => line.trimStart()).filter((line) => {
    const begins = line.startsWith('/*') && (!line.includes('*/') || line.indexOf('*/') + 2 === line.length);
    const isText = !inComment && !begins && !line.startsWith('//') && line !== '';
    inComment = (inComment || begins) && !line.endsWith('*/');
    return isText;
  });
  const short = lines.map((line) => line.replace(/\/\*\* @.*?\*\/ /g, '').replace(/<\/.*?>/g, '<//>') + '\n').join('');
  return blanks.reduce((text, [from, to]) => text.replaceAll(from, to), short);
}

/** The contents by name. */
export const files = new Map(['', 'vendor/'].flatMap((folder) => readdirSync(new URL(folder || '.', ui), { withFileTypes: true })
  .filter((entry) => entry.isFile() && entry.name !== 'SHA256SUMS')
  .map(({ name }) => {
    const source = readFileSync(new URL(folder + name, ui), 'utf8');
    const blanks = folder ? undefined : BLANKS[name.split('.').pop()];
    return [folder + name, blanks ? compact(source, blanks) : source];
  })));

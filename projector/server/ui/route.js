// @ts-check
// The address is the state of the page: a link shows another person the same view, position and filters.
import { signal } from './signals.js';

/** @typedef {{ view: string, run: string | null, query: Record<string, string> }} Route */

/** @param {string} path @param {string} search @returns {Route} */
export function read(path, search) {
  const parts = path.replace(/^\/ui\/?/, '').split('/');
  let run = null;
  try { run = parts[0] === 'runs' && parts[1] ? decodeURIComponent(parts.slice(1).join('/')) : null; } catch { /* malformed */ }
  return { view: run ? 'run' : parts[0] || 'decisions', run, query: Object.fromEntries(new URLSearchParams(search)) };
}

/** Writes an address. Members without a value are left out. @param {Partial<Route>} route */
export function write({ view, run, query }) {
  const path = '/ui/' + (run ? 'runs/' + encodeURIComponent(run) : view);
  const set = Object.entries(query || {}).filter(([, value]) => value !== '' && value !== undefined && value !== null);
  const search = new URLSearchParams(set).toString();
  return path + (search ? '?' + search : '');
}

const isPage = typeof location !== 'undefined';

export const route = signal(isPage ? read(location.pathname, location.search) : read('/ui', ''));

if (isPage) addEventListener('popstate', () => { route.value = read(location.pathname, location.search); });

/** @param {Partial<Route>} to @param {boolean} [replace] whether the back button skips the current one */
export function go(to, replace = false) {
  const address = write(to);
  if (address === location.pathname + location.search) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', address);
  route.value = read(location.pathname, location.search);
}

/** @param {Record<string, any>} members @param {boolean} [replace] */
export function change(members, replace = false) {
  const { view, run, query } = route.value;
  go({ view, run, query: { ...query, ...members } }, replace);
}

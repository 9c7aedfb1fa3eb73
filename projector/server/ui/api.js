// @ts-check
// Requests. The token is sent in a header only, never in an address.
import { signal } from './signals.js';
import { parse } from './exact.js';

/** A storage, empty if the browser permits none. @param {'localStorage' | 'sessionStorage'} name @returns {any} */
export function kept(name) {
  try { return window[name]; } catch { return { getItem() { return null; }, setItem() {}, removeItem() {} }; }
}

const KEPT = 'runlog.token';

export const token = signal(kept('sessionStorage').getItem(KEPT) || '');

/** @param {string} text @param {boolean} keep for this tab, also after a reload */
export function useToken(text, keep) {
  const storage = kept('sessionStorage');
  if (keep && text) storage.setItem(KEPT, text); else storage.removeItem(KEPT);
  kept('localStorage').removeItem('runlog.who');
  token.value = text;
}

export const server = signal({ answers: true, since: 0 });

function answered(answers) {
  if (server.value.answers !== answers) server.value = { answers, since: Date.now() };
}

/** `kind` is `away` if no answer came. */
export class Refused extends Error {
  constructor(problem) {
    super(problem.detail || problem.title || 'no answer');
    this.kind = problem.kind || 'unavailable';
    this.reason = problem.reason || null;
    this.status = problem.status || 0;
    this.retryAfter = problem.retryAfter || 0;
  }
}

/** @param {Record<string, string>} [more] */
export const headers = (more) => ({ ...(token.value ? { authorization: 'Bearer ' + token.value } : {}), ...more });

/** The page's addresses name positions without a log. The empty log stands for the server's own. @param {Record<string, any>} [query] */
export function search(query) {
  const set = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false);
  return set.length ? '?' + new URLSearchParams(set.map(([name, value]) => [name, value + (name === 'as_of' ? '@' : '')])) : '';
}

/** @param {string} path @param {RequestInit} options @returns {Promise<any>} */
async function send(path, options) {
  /** @type {Response} */
  let response;
  let text;
  try {
    response = await fetch(path, { cache: 'no-store', ...options });
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    answered(false);
    throw new Refused({ kind: 'away' });
  }
  answered(true);
  let answer;
  try { answer = parse(text); } catch { answer = { title: 'the answer is not JSON', status: response.status }; }
  if (!response.ok) throw new Refused({ ...answer, retryAfter: Number(response.headers.get('retry-after')) });
  return answer;
}

/** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
export const get = (path, query, signal) => send(path + search(query), { headers: headers(), signal });

/** @param {string} path @param {string} body JSON @returns {Promise<any>} */
export const post = (path, body) =>
  send(path, { method: 'POST', body, headers: headers({ 'content-type': 'application/json' }) });

/** @param {string} id */
export const run = (id) => '/v1/runs/' + encodeURIComponent(id);

/**
 * Reads at most `most` pages. `more` is the next page's cursor, or null.
 * @param {string} path @param {Record<string, any>} query @param {string} member @param {number} most
 * @param {AbortSignal} [signal] @param {(items: any[], page: any) => void} [each]
 */
export async function pages(path, query, member, most, signal, each) {
  /** @type {any[]} */
  const items = [];
  let cursor = query.cursor ?? null;
  let last = null;
  for (let page = 0; page < most && (page === 0 || cursor); page++) {
    last = await get(path, { ...query, cursor }, signal);
    items.push(...last[member]);
    cursor = last.next_cursor;
    each?.(items, last);
  }
  return { items, more: cursor, last };
}

// @ts-check
// The caller and the server: their permissions and figures.
import { signal, computed } from './signals.js';
import { get, server, token } from './api.js';
import { heard, state, tell } from './live.js';
import * as words from './words.js';

/** Null until the server answered. */
export const caller = signal(/** @type {any} */ (null));

/** Null until the server answered, or if the credential does not allow it. */
export const overview = signal(/** @type {any} */ (null));

export const asksForToken = signal(false);

/** The token was refused, or there is none and the server asks for one. */
export const isUnknown = signal(false);

/** Whether the credential has a scope. Without an answer of the server, it may. @param {string} scope */
export const allows = (scope) => !caller.value || caller.value.scopes.includes(scope);

/** Why this server accepts no decision: the sentences of `words.readOnly`, or empty. */
export const readOnly = signal('');

/** Whether the credential may see figures and lists of the whole journal. */
export const watches = () => allows('operate') || allows('audit');

export const waiting = computed(() => overview.value?.pending.reconcile_required.waiting ?? null);

export const freshness = computed(() => {
  if (!server.value.answers) return { word: 'away', text: 'no answer' };
  if (isUnknown.value) return { word: 'denied', text: 'no token' };
  const now = overview.value;
  if (!now) return { word: 'loading', text: 'connecting' };
  if (now.stopped.length) return { word: 'stopped', text: 'partition ' + now.stopped.join(', ') + ' is stopped' };
  if (now.lag === null) return { word: 'behind', text: 'the log does not answer' };
  if (now.lag > 0) return { word: 'behind', text: 'behind by ' + now.lag.toLocaleString('en') };
  return { word: 'current', text: 'shows all of the log' };
});

let timer = 0;
let isAsking = false;
let isWanted = false;
/** The applied offsets of the last overview, by partition. @type {Map<number, number>} */
let applied = new Map();

async function ask() {
  if (isAsking) { isWanted = true; return; }
  isAsking = true;
  isWanted = false;
  await askOnce();
  isAsking = false;
  clearTimeout(timer);
  if (isUnknown.value && !isWanted) return;
  const often = !server.value.answers || state.value !== 'live';
  timer = setTimeout(ask, isWanted ? 250 : document.hidden ? 15000 : often ? 2000 : 3000);
}

async function askOnce() {
  const asked = token.value;
  try {
    // A server that was away may be another one now.
    const asksAgain = !caller.value || !server.value.answers;
    // A home can change while its servers run.
    const [known, journal] = await Promise.all([asksAgain ? get('/v1/whoami') : caller.value, get('/v1/journal')]);
    if (asked !== token.value) return;
    caller.value = known;
    readOnly.value = words.readOnly(journal);
    if (!caller.value.scopes.includes('read_meta')) throw Object.assign(new Error(), { kind: 'forbidden' });
    const now = await get('/v1/overview');
    if (asked !== token.value) return;
    overview.value = now;
    isUnknown.value = false;
    const isNews = now.partitions.some(({ partition, applied: next }) => applied.has(partition) && applied.get(partition) !== next && !(heard.get(partition) >= next - 1));
    applied = new Map(now.partitions.map(({ partition, applied: next }) => [partition, next]));
    if (isNews) tell({ run: '', type: '', partition: -1, offset: -1 });
  } catch (error) {
    const kind = /** @type {any} */ (error).kind;
    if (asked !== token.value) return;
    if (kind === 'unauthenticated') {
      isUnknown.value = true;
      caller.value = overview.value = null;
      asksForToken.value = true;
      return;
    }
    if (kind === 'forbidden') overview.value = null;
  }
}

export function refresh() {
  clearTimeout(timer);
  timer = setTimeout(ask, 250);
}

export function start() {
  token.subscribe(() => {
    caller.value = overview.value = null;
    isUnknown.value = false;
    ask();
  });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
}

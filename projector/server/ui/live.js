// @ts-check
// News of records. All tabs of a browser share one stream: the tab with the lock reads it for the others. The stream lacks
// refused records, and a page without locks has no stream. So `session` compares the overview with the news.
import { signal } from './signals.js';
import { headers, search, token, Refused } from './api.js';
import { parse } from './exact.js';
import { parser } from './sse.js';

/** @typedef {{ run: string, type: string, partition: number, offset: number, time?: string }} News `run` is empty if unknown. */

/** The source of news: `starting`, `live`, `waiting` (until the stream connects again) or `polling`. */
export const state = signal(/** @type {'starting' | 'live' | 'waiting' | 'polling'} */ ('starting'));

/** @type {Set<(news: News) => void>} */
const listeners = new Set();

/** @param {(news: News) => void} listener */
export function listen(listener) {
  listeners.add(listener);
  return () => { listeners.delete(listener); };
}

export const heard = new Map();

/** @param {News} news */
export function tell(news) {
  heard.set(news.partition, news.offset);
  listeners.forEach((listener) => listener(news));
}

const sleep = (millis, signal) => new Promise((done) => {
  const timer = setTimeout(done, millis);
  signal.addEventListener('abort', () => { clearTimeout(timer); done(null); }, { once: true });
});

/** @param {AbortSignal} signal @param {(news: News) => void} each @param {(now: typeof state.value) => void} report */
async function follow(signal, each, report) {
  let last = '';
  let wait = 500;
  /** @type {any} */
  let reader;
  while (!signal.aborted) {
    try {
      const from = last ? headers({ 'last-event-id': last }) : headers();
      const response = await fetch('/v1/tail' + search({ from: 'end' }), { cache: 'no-store', signal, headers: from });
      if (!response.ok || !response.body) throw new Refused(parse(await response.text()));
      report('live');
      wait = 500;
      const take = parser();
      reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        for (const { id, event, data } of take(part.value)) {
          if (id) last = id;
          if (event !== 'message') continue;
          const line = parse(data);
          each({ run: line.run_id, type: line.payload_type, partition: line.position.partition, offset: line.position.offset, time: line.logged_at || line.timestamp });
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      reader?.cancel().catch(() => {});
      const kind = /** @type {any} */ (error).kind || 'away';
      if (kind === 'usage') last = '';
      // A stopped partition or a full quota of streams does not end soon.
      if (kind !== 'away' && kind !== 'unavailable') { report('polling'); await sleep(30000, signal); continue; }
    }
    report('waiting');
    await sleep(wait, signal);
    wait = Math.min(wait * 2, 8000);
  }
}

/** A name that differs by token: a tab hears of its own token's runs only. */
async function channelOf(text) {
  const bytes = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
  return 'runlog-news-' + [...bytes.slice(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function share(text, signal) {
  if (!navigator.locks || !globalThis.crypto?.subtle) { state.value = 'polling'; return; }
  const name = await channelOf(text);
  if (signal.aborted) return;
  const channel = new BroadcastChannel(name);
  let leads = false;
  channel.onmessage = ({ data }) => {
    if (data.ask && leads) channel.postMessage({ state: state.value });
    if (data.state) state.value = data.state;
    if (data.news) tell(data.news);
  };
  channel.postMessage({ ask: true });
  signal.addEventListener('abort', () => channel.close());
  const lead = () => {
    leads = true;
    // Records between the streams of two tabs are lost: the state tells so.
    const report = (now) => { state.value = now; if (!signal.aborted) channel.postMessage({ state: now }); };
    report('starting');
    return follow(signal, (news) => { tell(news); if (!signal.aborted) channel.postMessage({ news }); }, report);
  };
  await navigator.locks.request(name, { signal }, lead).catch(() => {});
}

export function start() {
  /** @type {AbortController | undefined} */
  let end;
  token.subscribe((text) => {
    end?.abort();
    end = new AbortController();
    state.value = 'starting';
    share(text, end.signal);
  });
}

// @ts-check
import { h } from './vendor/preact.js';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.js';
import { signal } from './signals.js';
import htm from './vendor/htm.js';
import { pages } from './api.js';
import { brief, Exact, visible, write as json } from './exact.js';
import { hiding } from './fold.js';
import { listen } from './live.js';
import { go, write } from './route.js';
import { allows, asksForToken, overview, watches } from './session.js';
import * as words from './words.js';

export const html = htm.bind(h);

/** @type {Record<string, string>} */
const ICONS = {
  decide: 'M8 2 14.5 13.5h-13L8 2Zm0 4.5v3.2m0 1.7v.3',
  runs: 'M2 4h12M2 8h8M2 12h10',
  live: 'M1.5 8h3l2-5 3 10 2-5h3',
  partitions: 'M2.5 3.5h11v3h-11zM2.5 9.5h11v3h-11z',
  refused: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM4 4l8 8',
  audit: 'M4 2h8v12H4zM6 5.5h4M6 8h4m-4 2.5h2',
  search: 'M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9Zm3.4 7.9L14 14',
  theme: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 0v12M8 5h4.8M8 8h5.9M8 11h4.8',
  key: 'M10.5 2.5a3 3 0 1 1-2.4 4.8L3 12.5V14h2l.5-1.5H7L8 10m3-4.6v.1',
  adopt: 'M2 8h8M7 5l3 3-3 3M13.5 3v10',
  check: 'm3 8.5 3.3 3.3L13 5',
  cross: 'm4 4 8 8m0-8-8 8',
  unknown: 'M5.6 6a2.4 2.4 0 1 1 3.4 2.2c-.8.4-1 .8-1 1.6m0 2v.3',
  keys: 'M1.5 4.5h13v7h-13zM4 7h.5m2.5 0h.5m2.5 0h.5M5 9.3h6',
  link: 'M6.5 9.5l3-3M7 4.5l1.5-1.5a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5l-1.5 1.5A3 3 0 0 1 3 8.5L4.5 7',
  shield: 'M8 1.8 13.5 4v4c0 3-2.3 5.3-5.5 6.3C4.8 13.3 2.5 11 2.5 8V4L8 1.8Z',
};
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${ICONS[name]} /></svg>`;

export const Link = ({ to, children, ...rest }) => html`<a href=${write(to)} ...${rest} onClick=${(event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(to);
}}>${children}</a>`;

export const Badge = ({ tone, children, title }) => html`<span class=${'badge ' + tone} title=${title}>${children}</span>`;

export function RunName({ id, most = 64 }) {
  const end = Math.max(id.lastIndexOf('/'), id.lastIndexOf(':')) + 1;
  const short = words.shorten(id, most);
  const isWhole = short === id;
  return html`<bdi class="runname" title=${isWhole ? undefined : id}>${isWhole && end < id.length
    ? html`<span class="quiet">${id.slice(0, end)}</span>${id.slice(end)}` : short}</bdi>`;
}

export function Code({ value, label = 'JSON' }) {
  const text = useMemo(() => json(value), [value]);
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, 6000);
  return html`<pre class="code" tabindex="0" role="region" aria-label=${label}>${paint(shown)}${text.length > shown.length && html`…
<button type="button" onClick=${() => setWhole(true)}>Show all ${words.count(text.length)} characters</button>`}</pre>`;
}

/** @param {string} text */
function paint(text) {
  const parts = text.split(/("(?:[^"\\\n]|\\.)*"(?:(?=:))?)/);
  return parts.map((part, at) => {
    if (at % 2 === 0) return part;
    return html`<span class=${parts[at + 1]?.startsWith(':') ? 'json-name' : 'json-text'}>${part}</span>`;
  });
}

/** The reason why a value is not shown, or null. */
export function hidden(value) {
  return { masked: 'Masked, since its privacy class is ' + value?.masked, dropped: 'Deleted by retention', unreadable: 'Nested too deeply to be shown' }[hiding(value)] || null;
}

/** The reason why a line lacks its payload, or null. */
export const absent = (payload) => words.APART[payload?.type] || hidden(payload);

export const Masked = ({ why }) => html`<p class="masked"><${Icon} name="shield" /><span>${why}.${allows('read_content') ? '' : html` Your token lacks the scope <code>read_content</code>.`}</span></p>`;

export function Long({ text, most = 300 }) {
  const [whole, setWhole] = useState(false);
  if (whole || text.length <= most) return text;
  return html`${text.slice(0, most)}… <button type="button" class="text" onClick=${() => setWhole(true)}>Show all ${words.count(text.length)} characters</button>`;
}

/** A JSON object as a list of its members; another value as JSON. `isMasked`: each member may be masked. */
export function Members({ value, label, isMasked = false }) {
  const why = hidden(value);
  if (why) return html`<${Masked} why=${why} />`;
  const names = value && typeof value === 'object' && !Array.isArray(value) && !(value instanceof Exact) ? Object.keys(value) : [];
  if (!names.length || names.length > 40) return html`<${Code} value=${value} label=${label} />`;
  const isLong = (item) => item && typeof item === 'object' && !(item instanceof Exact) && brief(item).length > 60;
  return html`<dl class="members" aria-label=${label}>${names.map((name) => html`<div key=${name}><dt><bdi>${visible(name)}</bdi></dt>
    <dd dir="auto">${(isMasked && hidden(value[name])) || (isLong(value[name]) ? html`<${Code} value=${value[name]} label=${name} />` : html`<${Long} text=${brief(value[name])} />`)}</dd></div>`)}</dl>`;
}

export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`;

export const Loading = ({ lines = 4 }) => html`<div class="loading" role="status" aria-label="Loading">${Array.from({ length: lines }, (_, at) => html`<i key=${at}></i>`)}</div>`;

export function Trouble({ problem, children }) {
  if (!problem) return null;
  const [title, what] = words.problem(problem);
  return html`<div class="notice bad" role="alert"><b>${title}.</b> ${what}
    ${problem.message && problem.kind !== 'away' && html`<small dir="auto">${problem.message}</small>`}
    ${problem.kind === 'unauthenticated' && html`<button type="button" onClick=${() => { asksForToken.value = true; }}>Enter a token</button>`}${children}</div>`;
}

export const NeedsScope = ({ scope, to }) => (allows(scope) ? null
  : html`<p class="notice quiet" id=${'needs-' + scope}><${Icon} name="shield" /><span>Your token may not ${to}: this needs the scope <code>${scope}</code>.</span></p>`);

export function Dialog({ title, onClose, children }) {
  const dialog = useRef(/** @type {any} */ (null));
  useEffect(() => { dialog.current.showModal(); }, []);
  return html`<dialog ref=${dialog} onClose=${onClose} aria-label=${title}>
    <header><h2>${title}</h2><button type="button" class="bare" aria-label="Close" onClick=${() => dialog.current.close()}><${Icon} name="cross" /></button></header>${children}</dialog>`;
}

export const Segments = ({ label, value, options, onChange }) => html`<div class="segments" role="group" aria-label=${label}>${options.map(([key, text, number]) =>
  html`<button type="button" key=${key} aria-pressed=${value === key} onClick=${() => onChange(key)}>${text}${number !== undefined && number !== null && html` <b>${words.count(number)}</b>`}</button>`)}</div>`;

const NO_ANSWER = { answer: null, problem: null, at: 0, isDone: false };

/**
 * Loads an answer, whose last one stays meanwhile. `load` may show a part of the first answer.
 * @param {(signal: AbortSignal, show: (part: any) => void) => any} load
 */
export function useAnswer(load, inputs) {
  const [state, setState] = useState(/** @type {any} */ (NO_ANSWER));
  const ask = useRef(/** @type {AbortController | null} */ (null));
  const timer = useRef(0);
  const begun = useRef(0);
  const again = useRef(false);
  const reload = useCallback(() => {
    // A busy log must not abort each answer.
    if (ask.current && performance.now() - begun.current < 30000) { again.current = true; return; }
    ask.current?.abort();
    clearTimeout(timer.current);
    again.current = false;
    begun.current = performance.now();
    const mine = ask.current = new AbortController();
    const show = (answer, isDone) => setState((last) => (mine.signal.aborted || (last.isDone && !isDone) ? last : { answer, problem: null, at: performance.now(), isDone }));
    Promise.resolve(load(mine.signal, (part) => show(part, false))).then(
      (answer) => show(answer, true),
      (problem) => {
        if (mine.signal.aborted) return;
        setState((last) => ({ ...last, problem }));
        if (['away', 'unavailable', 'stale', 'overloaded'].includes(problem.kind)) timer.current = setTimeout(reload, (problem.retryAfter || 3) * 1000);
      },
    ).then(() => {
      if (ask.current !== mine) return;
      ask.current = null;
      if (again.current) reload();
    });
  }, inputs);
  useLayoutEffect(() => {
    setState(NO_ANSWER);
    reload();
    return () => { ask.current?.abort(); ask.current = null; clearTimeout(timer.current); };
  }, [reload]);
  return { ...state, reload };
}

/** Calls `act` at most every `millis`, also once after the last call. @param {() => void} act @param {number} millis */
export function useThrottle(act, millis) {
  const latest = useRef(act);
  latest.current = act;
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current) return;
    timer.current = setTimeout(() => { timer.current = 0; latest.current(); }, millis);
  }, [millis]);
}

export const now = signal(performance.now());
if (typeof document !== 'undefined') setInterval(() => { if (!document.hidden) now.value = performance.now(); }, 1000);

/** @param {number | null | undefined} age @param {number} at */
export const aged = (age, at) => (age === null || age === undefined ? null : age + Math.max(0, now.value - at));

export function Rows({ items, height, render, label, current, onEnd, foot, role = 'list', head, rowClass, style }) {
  const box = useRef(/** @type {any} */ (null));
  const [seen, setSeen] = useState({ top: 0, tall: 800 });
  const measure = () => {
    if (!box.current) return;
    const { scrollTop, clientHeight } = box.current;
    const top = Math.floor(scrollTop / height);
    setSeen((last) => (last.top === top && last.tall === clientHeight ? last : { top, tall: clientHeight }));
    if (onEnd && scrollTop + clientHeight > items.length * height - 400) onEnd();
  };
  useLayoutEffect(() => {
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [items.length]);
  useLayoutEffect(() => {
    if (current === undefined || current < 0) return;
    const headHeight = head ? 34 : 0;
    const { scrollTop, clientHeight } = box.current;
    const top = current * height;
    if (top < scrollTop) box.current.scrollTop = top;
    else if (top + height + headHeight > scrollTop + clientHeight) box.current.scrollTop = top + height + headHeight - clientHeight;
  }, [current, items.length > 0]);
  const first = Math.max(0, seen.top - 8);
  const shown = items.slice(first, seen.top + Math.ceil(seen.tall / height) + 8);
  const row = role === 'list' ? 'listitem' : role === 'table' ? 'row' : undefined;
  return html`<div class="rows" ref=${box} onScroll=${measure} role=${items.length ? role : undefined} aria-label=${items.length ? label : undefined} aria-rowcount=${role === 'table' ? items.length + 1 : undefined} tabindex="-1" style=${style}>${head}
    <div class="rows-all" role="presentation" style=${{ height: items.length * height + 'px' }}>${shown.map((item, at) =>
      html`<div class=${'rows-one' + (rowClass ? ' ' + rowClass(item, first + at) : '')} key=${item.key} role=${row} aria-setsize=${row === 'listitem' ? items.length : undefined} aria-posinset=${row === 'listitem' ? first + at + 1 : undefined} aria-rowindex=${row === 'row' ? first + at + 2 : undefined} style=${{ top: (first + at) * height + 'px', height: height + 'px' }}>${render(item, first + at)}</div>`)}</div>${foot}</div>`;
}

/** A windowed list with a head. A column is its title, the content of a cell, and the classes of its cells. `widths`: of a CSS grid. */
export const Table = ({ columns, widths, current, ...rest }) => html`<${Rows} height=${40} role="table" current=${current} ...${rest} style=${{ '--widths': widths }}
  rowClass=${(item, nth) => 'row' + (nth === current ? ' current' : '')}
  head=${html`<div class="row-head" role="row" aria-rowindex="1">${columns.map(([title, , kind]) => html`<span key=${title} role="columnheader" class=${kind}>${title}</span>`)}</div>`}
  render=${(item) => columns.map(([title, content, kind]) => html`<span key=${title} role="cell" class=${kind}>${content(item)}</span>`)} />`;

/** @param {Record<string, () => void>} keys */
export function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const press = (event) => {
      const act = latest.current[event.detail.key];
      if (!act) return;
      event.detail.preventDefault();
      act();
    };
    addEventListener('runlog-key', press);
    return () => removeEventListener('runlog-key', press);
  }, []);
}

/** The index of the row that the keys chose, or -1. Other rows may move it. @param {any[]} items @param {(item: any) => void} open */
export function useCursor(items, open) {
  const [key, setKey] = useState(null);
  const current = items.findIndex((each) => each.key === key);
  const step = (by) => setKey(items[Math.max(0, Math.min(items.length - 1, current + by))]?.key);
  useKeys({ j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1), Enter: () => { if (items[current]) open(items[current]); } });
  return current;
}

/** The beginning of a run's id. `set` is called when the typing pauses. */
export function Search({ value = '', set }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => set(typed), 250);
  };
  return html`<label class="search"><${Icon} name="search" /><span class="out">Run id begins with</span><input data-search spellcheck="false" placeholder="Run id begins with …" value=${text} onInput=${type} /><kbd>/</kbd></label>`;
}

/** A link to a section of docs/concepts.md. @param {{ of: string }} props */
export const Meaning = ({ of }) => html`<a class="meaning" href=${'/ui/concepts#' + of} target="_blank">What does this mean?</a>`;

export function Top({ title, children, tools, meaning }) {
  useEffect(() => { document.title = title + ' · Runlog'; });
  return html`<header class="top"><div class="top-title"><h1>${title}</h1><p class="quiet">${children} <${Meaning} of=${meaning} /></p></div><div class="top-tools">${tools}</div></header>`;
}

/** Says that the token lacks both scopes of operators and auditors. */
export const NeedsWatch = ({ to }) => (watches() ? null : html`<p class="notice quiet"><${Icon} name="shield" /><span>Your token may not ${to}: this needs the scope <code>operate</code> or <code>audit</code>.</span></p>`);

/** Names the partitions whose `what` a list may lack. */
export function Lacks({ what }) {
  const lacks = overview.value?.unavailable_partitions;
  return lacks?.length ? html`<div class="notice amber" role="status"><b>This list may lack ${what} of partition ${lacks.join(', ')}</b>, which is stopped, rebuilt or does not answer.</div>` : null;
}

/**
 * A table of a list of the server, which is read again after news. `rowsOf` may sort the items that were read.
 * `order` says which items are the first, `first` how many pages to read at once.
 */
export function Listing({ path, query, member, open, empty, order, first = 1, rowsOf = (items) => items, ...table }) {
  const [most, setMost] = useState(first);
  const id = path + JSON.stringify(query);
  const { answer, problem, reload } = useAnswer((signal) => pages(path, { limit: 500, ...query }, member, most, signal).then((list) => ({ ...list, id })), [id, most]);
  const last = useRef(/** @type {any} */ (null));
  if (answer) last.current = answer;
  const list = last.current?.id === id ? last.current : null;
  const items = useMemo(() => rowsOf(list?.items || []).map((item) => ({ ...item, key: words.place(item.position) + ' ' + (item.position.index || 0) })), [list]);
  const soon = useThrottle(reload, 2000 * Math.ceil((items.length || 1) / 500));
  useEffect(() => listen(soon), [soon]);
  const current = useCursor(items, open);
  return html`<${Trouble} problem=${problem} /><${Lacks} what="records" />
    ${!list ? (problem ? null : html`<div class="pad"><${Loading} lines=${6} /></div>`)
      : !items.length && !list.more ? empty
        : html`<${Table} items=${items} current=${current} ...${table} foot=${list.more ? html`<p class="rows-foot">These are the first ${words.count(items.length)}, ${order}. <button type="button" class="text" onClick=${() => setMost(most + 9)}>Load more</button></p>` : null} />`}`;
}

// @ts-check
// The newest records of all runs, from the stream that all tabs share. Content does not pass between tabs: a row opens its run.
import { useEffect, useRef, useState } from './vendor/hooks.js';
import { kindOf } from './fold.js';
import { listen, state } from './live.js';
import { Empty, html, Link, RunName, Search, Segments, Table, Top, useCursor, useThrottle } from './parts.js';
import { change, go, route } from './route.js';
import * as words from './words.js';

/** Rows that are kept. */
const MAX = 500;
const KINDS = [['', 'All'], ['turn', 'Turns'], ['call', 'Calls'], ['checkpoint', 'Checkpoints'], ['claim', 'Takeovers'], ['decision', 'Decisions']];

const at = ({ run, partition, offset }) => ({ run, query: { at: words.place({ partition, offset }) } });
const COLUMNS = [
  ['Time, UTC', ({ time }) => words.clock(time), 'mono faint'],
  ['Run', (each) => (each.run ? html`<${Link} to=${at(each)}><${RunName} id=${each.run} /><//>` : html`<span class="amber-text">Records may be missing here: the stream began again.</span>`), 'cell-main'],
  ['What', ({ type }) => (type ? words.type(type) : ''), ''],
  ['Position', (each) => (each.run ? words.place(each) : ''), 'mono faint number cell-place'],
];

export function Tail() {
  const { query: { kind = '', prefix = '' } } = route.value;
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [isPaused, setPaused] = useState(false);
  const [passed, setPassed] = useState(0);
  const all = useRef(/** @type {any[]} */ ([]));
  const next = useRef(0);
  const add = (row) => {
    all.current.push({ ...row, key: next.current++ });
    if (all.current.length > 2 * MAX) all.current.splice(0, MAX);
  };
  const draw = useThrottle(() => {
    if (isPaused) setPassed(next.current - 1 - (rows[0]?.key ?? -1));
    else setRows(all.current.slice(-MAX).reverse());
  }, 200);
  useEffect(() => {
    all.current = [];
    setRows([]);
    return listen((news) => {
      const of = kindOf(news.type);
      if (!news.run.startsWith(prefix) || !news.run || (kind && kind !== (of === 'done' || of === 'failed' ? 'call' : of))) return;
      add(news);
      draw();
    });
  }, [kind, prefix]);
  const source = state.value;
  const last = useRef(source);
  useEffect(() => {
    if (source === 'live' && last.current !== source && all.current.length) { add({ run: '' }); draw(); }
    last.current = source;
  }, [source]);
  const current = useCursor(rows, (each) => { if (each.run) go(at(each)); });
  return html`<section class="view">
    <${Top} title="Live" meaning="how-data-flows" tools=${html`<${Search} value=${prefix} set=${(prefix) => change({ prefix }, true)} />`}>Applied records as they arrive, the newest first. The last ${MAX} are kept here.<//>
    <div class="filters"><${Segments} label="Kind" value=${kind} options=${KINDS} onChange=${(name) => change({ kind: name })} />
      <button type="button" class="chip" aria-pressed=${isPaused} onClick=${() => { setPaused(!isPaused); setPassed(0); draw(); }}>${isPaused ? 'Continue' : 'Pause'}${passed ? html` <b>${words.count(passed)} newer</b>` : null}</button></div>
    ${source === 'polling' ? html`<${Empty} title="This page has no stream">The server limits its streams, a partition is stopped, or the browser permits none without HTTPS. The other views ask every 2 s.<//>`
      : rows.length ? html`<${Table} items=${rows} label="Newest records" columns=${COLUMNS} current=${current} widths="1fr 5fr 2fr 1fr" />` : html`<${Empty} title="Waiting for a record">The next record ${prefix || kind ? 'that matches ' : ''}appears here at once.<//>`}
  </section>`;
}

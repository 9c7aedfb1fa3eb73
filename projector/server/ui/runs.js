// @ts-check
import { useEffect, useMemo, useRef, useState } from './vendor/hooks.js';
import { get, pages } from './api.js';
import { listen } from './live.js';
import { aged, Badge, Empty, html, Lacks, Link, Loading, now, RunName, Search, Segments, Table, Top, Trouble, useAnswer, useCursor, useThrottle } from './parts.js';
import { change, go, route } from './route.js';
import { overview, refresh } from './session.js';
import * as words from './words.js';

const PAGE = 100;
const PAGES_MAX = 100;

const STATUS = [['', 'All'], ['open', 'Open'], ['completed', 'Completed'], ['failed', 'Failed'], ['cancelled', 'Cancelled']];
const SINCE = [['', 'Any time', 0], ['1h', 'Last hour', 3600e3], ['1d', 'Last day', 86400e3], ['7d', 'Last week', 7 * 86400e3], ['idle-1h', 'No record for an hour'], ['idle-1d', 'No record for a day']];
/** @type {Record<string, string>} */
const TONES = { open: 'blue', completed: 'green', failed: 'red', cancelled: 'grey' };

/** Reads the list, newest first. */
function readRuns(query, most, signal) {
  const span = Number(SINCE.find(([name]) => name === query.since)?.[2] || 0);
  return pages('/v1/runs', { prefix: query.prefix, status: query.status, stuck: query.stuck === '1', since: span ? new Date(Date.now() - span).toISOString() : '', idle: query.since?.split('idle-')[1], newest: true, summary: true, limit: PAGE }, 'runs', most, signal);
}

/** The runs that wait for a decision, and the runs with a running call; no runs if there are too many such calls. */
async function readEffects(prefix, signal) {
  const { effects, next_cursor: more } = await get('/v1/effects', { pending: true, unsafe: true, prefix, limit: 1000 }, signal);
  // A mark on some of the runs would say that the others need no decision.
  if (more) return { waiting: new Map(), running: new Map(), isPart: true };
  const named = (running) => new Map(effects.filter((each) => (each.state === 'running') === running).map((each) => [each.run_id, each]));
  return { waiting: named(false), running: named(true) };
}

/** The columns of the table. @param {number} at when the list was read @param {any} effects */
const columns = (at, effects) => [
  ['Run', (run) => html`<${Link} to=${{ run: run.run_id, query: {} }}><${RunName} id=${run.run_id} /><//>`, 'cell-main'],
  ['State', (run) => {
    const waits = effects?.waiting.get(run.run_id);
    const runs = effects?.running.get(run.run_id);
    return html`<${Badge} tone=${TONES[run.status] || 'grey'}>${run.status}<//>${waits ? html`<${Badge} tone="amber" title=${waits.tool_name}>needs a decision<//>` : runs ? html`<${Badge} tone="blue quiet" title=${runs.tool_name}>running a call<//>` : null}`;
  }, 'cell-state'],
  ['Records', (run) => words.count(run.records), 'number'],
  ['Takeovers', (run) => (run.epoch > 1 ? html`<span class="amber-text">${run.epoch - 1}</span>` : html`<span class="faint">–</span>`), 'number'],
  ['Agent', ({ summary }) => summary.agent_id, 'faint'],
  ['Calls', ({ summary: { effects: { completed, failed, pending, has_more: more } } }) => html`${words.count(completed + failed + pending)}${more ? '+' : ''}${failed ? html`, <span class="red-text">${words.count(failed)} failed</span>` : null}`, 'number'],
  ['Took', (run) => words.duration(Date.parse(run.updated_at) - Date.parse(run.summary.started_at)), 'number'],
  ['Last record', (run) => {
    const age = aged(run.age_millis, at);
    return html`<span class=${age !== null && age < 4000 ? 'fresh-text' : 'quiet'} title=${words.moment(run.updated_at) + ' UTC'}>${words.ago(age)}</span>`;
  }, 'number cell-age'],
];

export function Runs() {
  const { query } = route.value;
  const [most, setMost] = useState(1);
  const { answer, problem, at, reload } = useAnswer((signal) => readRuns(query, most, signal), [query.prefix, query.status, query.stuck, query.since, most]);
  const effects = useAnswer((signal) => readEffects(query.prefix, signal), [query.prefix]);
  const kept = useRef(/** @type {any} */ (null));
  if (answer) kept.current = { answer, at, filter: [query.prefix, query.status, query.stuck, query.since].join() };
  const isSame = kept.current?.filter === [query.prefix, query.status, query.stuck, query.since].join();
  const list = answer || (isSame ? kept.current.answer : null);
  const soon = useThrottle(() => { reload(); effects.reload(); refresh(); }, 700 * most);
  useEffect(() => listen(soon), [soon]);
  const runs = useMemo(() => (list?.items || []).map((run) => ({ ...run, key: run.run_id })), [list]);
  const current = useCursor(runs, ({ run_id: run }) => go({ run, query: {} }));
  now.value;
  const filter = (members) => { setMost(1); change(members); };
  const waiting = overview.value?.pending.reconcile_required.waiting;
  const counts = query.prefix ? null : overview.value?.runs;
  const isFiltered = query.prefix || query.status || query.stuck || query.since;
  return html`<section class="view">
    <${Top} title="Runs" meaning="how-data-flows" tools=${html`<${Search} value=${query.prefix} set=${(prefix) => { setMost(1); change({ prefix }, true); }} />`}>
      The newest record first.${effects.answer?.isPart ? ' Too many calls wait to mark their runs: use the filter.' : ''}<//>
    <div class="filters"><${Segments} label="Status" value=${query.status || ''} options=${STATUS.map(([name, title]) => [name, counts ? title + ' ' + words.count(name ? counts[name] : Object.values(counts).reduce((sum, more) => sum + more)) : title])} onChange=${(status) => filter({ status })} />
      <button type="button" class="chip" aria-pressed=${query.stuck === '1'} onClick=${() => filter({ stuck: query.stuck === '1' ? '' : '1' })}><i></i>Needs a decision${waiting ? html` <b>${words.count(waiting)}</b>` : ''}</button>
      <label class="select"><span class="out">Last record</span><select value=${query.since || ''} onChange=${(event) => filter({ since: event.target.value })}>${SINCE.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label></div>
    <${Trouble} problem=${problem} /><${Lacks} what="runs" />
    ${!list && !problem ? html`<div class="pad"><${Loading} lines=${8} /></div>`
      : list && !runs.length ? html`<${Empty} title=${isFiltered ? 'No run matches' : 'No run yet'}>${isFiltered ? html`Change the filters, or <button type="button" class="text" onClick=${() => filter({ prefix: '', status: '', stuck: '', since: '' })}>show all runs</button>.` : html`The first record of an agent appears here at once. <code>runlog demo --serve</code> shows an example.`}<//>`
        : list ? html`<${Table} items=${runs} label="Runs" current=${current} columns=${columns(kept.current?.at || at, effects.answer)} widths="5fr 3fr 1fr 1fr 1.5fr 1.5fr 1fr 1.5fr"
            onEnd=${() => { if (answer?.more && most < PAGES_MAX) setMost(most + 1); }}
            foot=${list.more && most >= PAGES_MAX ? html`<p class="rows-foot">The first ${words.count(runs.length)} runs. Narrow the list to see others.</p>` : null} />` : null}
  </section>`;
}

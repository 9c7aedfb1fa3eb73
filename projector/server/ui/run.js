// @ts-check
import { useEffect, useMemo, useRef, useState } from './vendor/hooks.js';
import { get, pages, run as pathOf } from './api.js';
import { brief } from './exact.js';
import { before, claims, differ, entry, fold, isBeyond, isNewest, leave, spanOf, withRefused } from './fold.js';
import { listen } from './live.js';
import { absent, aged, Badge, Code, Empty, hidden, html, Icon, Link, Loading, Long, Masked, Members, now, RunName, Segments, Trouble, useAnswer, useKeys, useThrottle } from './parts.js';
import { change, route } from './route.js';
import { allows } from './session.js';
import { Answer, Outcome } from './decide.js';
import { Slider, Waterfall } from './waterfall.js';
import * as words from './words.js';

const PAGE = 1000;
const RECORDS_MAX = 12000;
/** Longer runs ask for a record's content when it is chosen. */
const KEPT_MAX = 500;

/** @type {Record<string, string>} */
const TONES = { open: 'blue', completed: 'green', failed: 'red', cancelled: 'grey' };
const KINDS = [['', 'All'], ['turn', 'Turns'], ['call', 'Calls'], ['checkpoint', 'Checkpoints'], ['claim', 'Takeovers']];

const EVENTUAL = { consistency: 'eventual' };

/** Whether new records are added to the known ones. Around an older position of a long run, only `]` reads more. */
const follows = (known) => !known?.upTo || known.reachesEnd;

/** Reads the run's state. A run in doubt is in a list only. */
const readHead = (id, signal) => get(pathOf(id), EVENTUAL, signal).catch(async (problem) => {
  const [head] = problem.reason === 'doubt' ? (await get('/v1/runs', { prefix: id, in_doubt: true, limit: 1, ...EVENTUAL }, signal)).runs : [];
  if (head?.run_id !== id) throw problem;
  return { ...head, doubt: problem };
});

/**
 * Reads the records, or the records after the known ones: all of them if the known ones reached the end, otherwise a page. Of a very
 * long run, reads the newest, or the newest up to `upTo`.
 */
export async function readRecords(id, upTo, known, signal, show) {
  const path = pathOf(id) + '/records';
  const first = get(path, known ? { cursor: known.entries[known.entries.length - 1].cursor, limit: PAGE, ...EVENTUAL } : { limit: 200, ...EVENTUAL }, signal);
  first.catch(() => {});
  const head = await readHead(id, signal);
  const toEntries = (lines, begin) => lines.map((line, nth) => entry(line, begin + nth, begin + lines.length <= KEPT_MAX));
  if (known) {
    let { records, next_cursor: cursor } = await first;
    while (cursor && follows(known) && records.length < RECORDS_MAX) {
      const page = await get(path, { cursor, limit: PAGE, ...EVENTUAL }, signal);
      records = records.concat(page.records);
      cursor = page.next_cursor;
    }
    // The newest records of a very long run take the place of the known ones.
    if (cursor && !upTo) return readRecords(id, upTo, null, signal, show);
    return { ...known, head, entries: records.length ? known.entries.concat(toEntries(records, known.entries.length)) : known.entries, reachesEnd: !cursor };
  }
  const isLong = head.records > RECORDS_MAX;
  const query = { limit: PAGE, ...EVENTUAL, ...(isLong ? { order: 'desc', as_of: upTo } : {}) };
  /** @type {any[]} */
  let lines = [];
  for (let cursor = null, isDone = false; !isDone;) {
    const page = await (cursor || isLong ? get(path, { ...query, cursor }, signal).catch((problem) => { if (problem.kind === 'not_found') return { records: [] }; throw problem; }) : first);
    lines = isLong ? page.records.reverse().concat(lines) : lines.concat(page.records);
    // The run does not exist as of a position before its first record.
    if (!lines.length) lines = (await first).records;
    cursor = page.next_cursor;
    isDone = !cursor || lines.length >= RECORDS_MAX;
    const entries = toEntries(lines, 0);
    known = { head, entries, isDone, hasEarlier: isLong && !!cursor, reachesEnd: isLong ? !upTo || entries[entries.length - 1]?.offset >= head.position.offset : !cursor };
    show(known);
  }
  return known;
}

function useRecords(id, upTo) {
  const known = useRef(/** @type {any} */ (null));
  const { answer, problem, at, reload } = useAnswer((signal, show) => {
    if (known.current?.upTo !== upTo) known.current = null;
    return readRecords(id, upTo, known.current, signal, show).then((read) => (known.current = { ...read, upTo }));
  }, [id, upTo]);
  const soon = useThrottle(() => { if (follows(known.current)) reload(); }, 400);
  useEffect(() => listen(({ run }) => { if (run === id || !run) soon(); }), [soon, id]);
  return { head: null, entries: [], ...answer, problem, at, reload };
}

const isWaiting = (effect) => effect.class !== 'retry_safe' && effect.state !== 'running';

function Resume({ id, place, isHead, onOpen, onWaits }) {
  const [asked, setAsked] = useState(place);
  useEffect(() => { const timer = setTimeout(() => setAsked(place), 120); return () => clearTimeout(timer); }, [place]);
  const may = allows('read_content');
  const { answer, problem } = useAnswer((signal) => (may ? get(pathOf(id) + '/recovery', { as_of: isHead ? undefined : asked, content: false, limit: 200, ...EVENTUAL }, signal).then((recovery) => ({ recovery, key: isHead ? '' : asked })) : null), [id, asked, isHead, may]);
  const last = useRef(/** @type {any} */ (null));
  if (answer) last.current = answer;
  const waits = answer?.key === '' && answer.recovery.pending.some(isWaiting);
  useEffect(() => { if (answer?.key === '') onWaits(waits); }, [answer, waits]);
  const shown = last.current;
  const title = isHead ? 'A process that takes over now' : 'A process that takes over here';
  if (!may || !shown || (problem && !answer)) return html`<section class="resume"><h2>${title}</h2>${!may ? html`<${Masked} why="Not shown" />` : problem ? html`<${Trouble} problem=${problem} />` : html`<${Loading} lines=${3} />`}</section>`;
  const { recovery } = shown;
  const { checkpoint, completed, pending, next_cursor: more, records_after: after } = recovery;
  const calls = completed.length ? (more ? 'more than ' : '') + words.plural(completed.length, 'call') + ' answered from the journal' : 'No call to answer from the journal';
  return html`<section class=${'resume' + (answer && shown.key === (isHead ? '' : place) ? '' : ' old')} aria-live="polite"><h2>${title}</h2><ul>
    <li class=${recovery.resumable ? 'good' : recovery.status === 'open' ? 'wait' : ''}><b>${words.resumes(recovery)}</b>${recovery.reason && !pending.length ? html`<span dir="auto">${recovery.reason}</span>` : null}</li>
    <li class="good"><b>${checkpoint ? html`Starts at <button type="button" class="text" onClick=${() => onOpen(checkpoint.position)}>checkpoint ${checkpoint.checkpoint_seq}</button>` : 'Starts at the beginning'}</b><span>${checkpoint ? words.plural(after, 'record') + ' after it' : 'No checkpoint; ' + words.plural(after, 'record')}</span></li>
    <li class=${completed.length ? 'good' : ''}><b>${calls}</b>${completed.length ? html`<span>${[...new Set(completed.map((each) => each.tool_name))].slice(0, 5).join(', ')}</span>` : null}</li>
    ${pending.slice(0, 20).map((each) => (each.class === 'retry_safe'
      ? html`<li class="again" key=${each.id}><b><code>${words.shorten(each.tool_name)}</code> runs again</b><span>${each.idempotency_key || each.dedupe_key ? html`with the key <bdi class="mono">${words.shorten(each.idempotency_key || each.dedupe_key, 30)}</bdi>` : 'somebody decided that it did not happen'}</span></li>`
      : html`<li class="wait" key=${each.id}><b><code>${words.shorten(each.tool_name)}</code> ${each.state === 'running' ? 'is running' : 'may have happened'}</b><span>${each.state === 'running' ? 'Its process still has the run' : each.evidence.length ? words.plural(each.evidence.length, 'late result') : 'No result, no key'}</span>${isHead && isWaiting(each) ? html`<${Link} class="button primary" to=${{ view: 'decisions', query: { run: id, kind: each.kind, effect: each.id } }}>Decide<//>` : null}</li>`))}
    ${pending.length > 20 ? html`<li><span>and ${words.count(pending.length - 20)} more</span></li>` : null}
  </ul></section>`;
}

/** @param {string} id @param {boolean} raw @param {AbortSignal} signal */
async function readLine(id, each, raw, signal) {
  if (each.line && !raw) return each.line;
  const limit = each.batchIndex ? PAGE : 64;
  const { records } = await get(pathOf(id) + '/records', { as_of: words.place(each), order: 'desc', limit, raw, ...EVENTUAL }, signal);
  return records.find((line) => line.record_id === each.id && line.position.offset === each.offset) || null;
}

function Detail({ id, row, raw, onRaw, onGo }) {
  const { query } = route.value;
  const view = query.as || 'read';
  const may = allows('read_content');
  const isRefused = row.kind === 'refused';
  const { answer, problem } = useAnswer((signal) => (isRefused ? [] : Promise.all([...new Set([row.first, row.last])].map((each) => readLine(id, each, raw, signal)))), [id, row.key, row.last, raw]);
  const lines = (answer || []).filter(Boolean);
  const [first] = lines;
  const last = lines[lines.length - 1];
  const title = { turn: row.name + ' turn', refused: 'A refused record' }[/** @type {string} */ (row.kind)] || row.name;
  return html`<section class="detail" aria-label="Chosen record">
    <header><h2><bdi>${words.shorten(title, 40)}</bdi></h2>${isRefused ? null : html`<div class="detail-tools"><${Segments} label="Form" value=${view} options=${[['read', 'Read'], ['json', 'JSON']]} onChange=${(as) => change({ as: as === 'read' ? '' : as }, true)} />
      <button type="button" class="chip" aria-pressed=${raw} disabled=${!may} title=${may ? 'Show content that is masked by its privacy class. The audit log records this' : 'This needs the scope read_content'} onClick=${() => onRaw(!raw)}>Unmasked</button></div>`}</header>
    <dl class="facts"><div><dt>Position</dt><dd><button type="button" class="text mono" title="Show what a process gets that takes over here" onClick=${onGo}>${words.place(row.first)}</button></dd></div>${row.first.seq ? html`<div><dt>Number</dt><dd>${row.first.seq}</dd></div>` : null}${row.first.epoch ? html`<div><dt>By</dt><dd>${words.process(row.first.epoch)}</dd></div>` : null}<div><dt>UTC</dt><dd class="mono">${row.first.stamp.slice(11, 23).replace('Z', '')}</dd></div>${row.kind === 'call' && row.last !== row.first ? html`<div><dt>Took</dt><dd>${words.duration(row.last.time - row.first.time)}</dd></div>` : null}</dl>
    ${isRefused ? html`<p>It is in the log and has no effect: ${row.text}.</p><p class="quiet small">Record <bdi class="mono">${words.shorten(row.first.id, 60)}</bdi>. A result that was refused is kept as evidence with its call.</p>` : null}
    ${problem ? html`<${Trouble} problem=${problem} />` : null}
    ${!answer && !problem ? html`<${Loading} lines=${3} />` : null}
    ${view === 'json' ? lines.map((line) => html`<${Code} key=${line.record_id} value=${line} label=${'Record ' + line.record_id} />`)
      : first && html`<${Content} id=${id} row=${row} first=${first} last=${last} raw=${raw} />`}
    ${first ? html`<p class="quiet small record-id">Record <bdi class="mono">${words.shorten(row.first.id, 70)}</bdi></p>` : null}
  </section>`;
}

const bubbles = (messages) => messages.slice(-100).map((each, at) => html`<div class="bubble" key=${at} dir="auto"><i>${brief(each.role ?? '')}</i> <${Long} text=${brief(each.content ?? each)} most=${2000} /></div>`);

/** The newest messages of a checkpoint's whole list, or what it and another one do not share. They are unmasked, so a click asks for them. */
function Conversation({ id, checkpoint }) {
  const [wants, setWants] = useState('');
  const read = (path, query, signal) => get(pathOf(id) + '/checkpoints' + path, { ...query, ...EVENTUAL }, signal);
  const { answer: list } = useAnswer((signal) => read('', { limit: 500 }, signal), [id]);
  const { answer, problem } = useAnswer((signal) => wants && Promise.all([...new Set([checkpoint, wants])].map((each) => read('/' + encodeURIComponent(each), {}, signal))), [id, checkpoint, wants]);
  if (!allows('read_content')) return null;
  return html`<div class="buttons"><button type="button" class="text" title="The audit log records this" onClick=${() => setWants(checkpoint)}>Show the conversation</button>
    ${list?.checkpoints[1] && html`<label class="select">Compare with <select value=${wants === checkpoint ? '' : wants} onChange=${(event) => setWants(event.target.value)}>${[{}, ...list.checkpoints].map(({ checkpoint_id: each, checkpoint_seq: nth }) => each !== checkpoint && html`<option key=${each} value=${each || ''}>${nth ? 'checkpoint ' + nth : '…'}</option>`)}</select></label>`}</div>
    <${Trouble} problem=${problem} />${answer?.[1] ? differ(answer).map(({ nth, messages, state }) => html`<h3>Only in checkpoint ${nth}: ${words.plural(messages.length, 'message')}</h3>${bubbles(messages)}${Object.keys(state)[0] && html`<${Members} value=${state} label="State" />`}`)
    : answer && html`<h3>The conversation, the last ${Math.min(100, answer[0].messages.length)} of ${words.plural(answer[0].messages.length, 'message')}</h3>${bubbles(answer[0].messages)}`}`;
}

function Content({ id, row, first, last, raw }) {
  const payload = first.payload || {};
  const why = absent(payload);
  if (why && row.kind !== 'call') return html`<${Masked} why=${why} />`;
  switch (row.kind) {
    case 'call': return html`<h3>Arguments</h3>${why ? html`<${Masked} why=${why} />` : payload.arguments === null || payload.arguments === undefined ? html`<p class="quiet">None</p>` : html`<${Members} value=${payload.arguments} label="Arguments" />`}
      <h3>${{ failed: 'Failure', decided: 'Decision' }[row.status] || 'Result'}</h3>${last === first ? html`<p class="amber-text">None at this position</p>` : last.payload_type === 'effect_resolution' && !absent(last.payload) ? html`<${Decision} payload=${last.payload} isRaw=${raw} />` : html`<${Outcome} payload=${last.payload} call=${first.record_id} isRaw=${raw} label="Result" />`}
      ${last.status === 'adopt' ? html`<${Answer} key=${first.record_id} id=${id} call=${first.record_id} at=${words.place(row.last)} title="The agent gets" />` : null}`;
    case 'turn': return html`<div class="bubble" dir="auto">${(!raw && hidden(payload.content)) || brief(payload.content ?? '')}</div>`;
    case 'decision': return html`<${Decision} payload=${payload} principal=${first} isRaw=${raw} />`;
    case 'checkpoint': return html`<dl class="facts tall"><div><dt>Covers</dt><dd>up to number ${payload.covers_journal_seq ?? '–'}</dd></div><div><dt>Messages here</dt><dd>${Array.isArray(payload.messages) ? payload.messages.length : '–'}</dd></div></dl>${payload.checkpoint_id ? html`<${Conversation} key=${first.record_id} id=${id} checkpoint=${payload.checkpoint_id} />` : null}<${Code} value=${payload} label="Checkpoint" />`;
    default: return html`<${Members} value=${payload} label="Content" isMasked=${!raw} />`;
  }
}

const Decision = ({ payload, principal, isRaw }) => html`<dl class="facts tall"><div><dt>Decided</dt><dd>${words.DECIDED[payload.decision] || payload.decision}</dd></div>
  <div><dt>By</dt><dd><bdi>${brief(payload.who)}</bdi>${principal?.principal ? html` <span class="quiet">as <bdi>${principal.principal}</bdi>${principal.principal_verified ? ', verified' : ', not verified'}</span>` : null}</dd></div><div><dt>Because</dt><dd dir="auto">${brief(payload.why)}</dd></div></dl>${payload.decision === 'done' ? html`<${Outcome} payload=${payload} isRaw=${isRaw} label="Result" />` : null}`;

export function Run({ id }) {
  const { query } = route.value;
  const [upTo, setUpTo] = useState(query.at || '');
  const { head, entries, isDone, hasEarlier, reachesEnd, problem, at: readAt, reload } = useRecords(id, upTo);
  // A refused record does not change the run.
  const refusedAnswer = useAnswer((signal) => (isDone ? pages('/v1/anomalies', { run: id, limit: 500, ...EVENTUAL }, 'anomalies', 1, signal) : null), [id, isDone && readAt]);
  const kept = useRef(/** @type {any} */ ({ items: [] }));
  if (refusedAnswer.answer) kept.current = refusedAnswer.answer;
  const { items: anomalies, more } = kept.current;
  const scale = query.scale === 'time' ? 'time' : 'order';
  const last = entries.length - 1;
  const asked = query.at ? Number(query.at.split(':')[1]) : NaN;
  const found = isNaN(asked) ? last : entries.findLastIndex((each) => each.offset <= asked);
  const at = Math.max(0, found);
  const isHead = isNewest(asked, at === last, reachesEnd, isDone);
  useEffect(() => { if (isDone && entries.length && isBeyond(entries, asked, hasEarlier, reachesEnd)) setUpTo(query.at || ''); }, [isDone, query.at, entries]);
  const choose = (index, more = {}) => change({ at: index >= last && reachesEnd ? '' : words.place(entries[leave(entries, at, Math.min(last, index))]), ...more }, true);
  const all = useMemo(() => withRefused(fold(entries, at), anomalies, entries), [entries, at, anomalies]);
  const rows = useMemo(() => (query.kind ? all.filter(({ kind }) => kind === query.kind || (query.kind === 'call' && ['decision', 'refused'].includes(kind))) : all), [all, query.kind]);
  const bands = useMemo(() => claims(entries), [entries]);
  const refused = useMemo(() => anomalies.map(({ position }) => before(entries, position)), [entries, anomalies]);
  const row = query.sel ? all.find(({ key, first }) => key === query.sel || first.id === query.sel) : isHead ? all[all.length - 1] : all.find(({ first, last: end }) => end.index === at || first.index === at);
  const jump = (by, far) => {
    let next = leave(entries, at, Math.max(0, at + by));
    if (next > last && !reachesEnd) return reload();
    if (far) while (next > 0 && next < last && !['run_claim', 'loop_checkpoint'].includes(entries[next].type)) next += by;
    choose(next, { sel: '' });
  };
  const select = (target) => change({ sel: target.key }, true);
  const step = (by) => { const next = rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(row) + by))]; if (next) select(next); };
  useKeys({ '[': () => jump(-1, false), ']': () => jump(1, false), '{': () => jump(-1, true), '}': () => jump(1, true), h: () => change({ at: '', sel: '' }, true),
    j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1) });
  useEffect(() => { document.title = words.shorten(id, 40) + ' · Runlog'; }, [id]);
  const [raw, setRaw] = useState(false);
  const [copied, setCopied] = useState(false);
  const [waits, setWaits] = useState(false);
  now.value;
  if (!head || !entries.length) {
    return html`<section class="view"><header class="top"><div class="top-title"><p class="crumb"><${Link} to=${{ view: 'runs' }}>Runs<//></p><h1><${RunName} id=${id} /></h1></div></header>
      ${!problem ? html`<div class="pad"><${Loading} lines=${8} /></div>` : problem.kind === 'not_found' ? html`<${Empty} title="No such run">No record of it has been applied, or your token does not show it. <button type="button" class="text" onClick=${reload}>Ask again</button><//>` : html`<${Trouble} problem=${problem}><button type="button" onClick=${reload}>Ask again</button><//>`}</section>`;
  }
  const chosen = entries[at];
  const took = spanOf(entries, hasEarlier, reachesEnd);
  const share = async () => {
    // The link names the position even at the head, so that its reader sees this state.
    const address = new URL(location.href);
    address.searchParams.set('at', words.place(chosen));
    try { await navigator.clipboard.writeText(address.href); setCopied(true); setTimeout(() => setCopied(false), 2000); } catch { change({ at: words.place(chosen) }, true); }
  };
  return html`<section class="view run">
    <header class="top run-top"><div class="top-title"><p class="crumb"><${Link} to=${{ view: 'runs' }}>Runs<//></p><h1><${RunName} id=${id} most=${72} /> <${Badge} tone=${TONES[head.status] || 'grey'}>${head.status}<//>${waits ? html`<${Badge} tone="amber">needs a decision<//>` : null}</h1></div>
      <dl class="facts"><div><dt>Records</dt><dd>${words.count(head.records)}</dd></div><div><dt>Takeovers</dt><dd>${Math.max(0, head.epoch - 1)}</dd></div><div><dt>Refused</dt><dd>${words.count(anomalies.length)}${more ? '+' : ''}</dd></div><div><dt>Took</dt><dd>${took === null ? '–' : words.duration(took)}</dd></div><div><dt>Last record</dt><dd>${words.ago(aged(head.age_millis, readAt))}</dd></div><div><dt>Run hash</dt><dd class="mono" title=${head.hash}>${String(head.hash).slice(0, 8)}</dd></div></dl></header>
    <${Trouble} problem=${head.doubt} />
    ${isDone && took === null ? html`<div class="notice amber" role="status"><b>These are ${words.count(entries.length)} of ${words.count(head.records)} records.</b> The rest is too long to show at once. ${hasEarlier ? html`<button type="button" class="text" onClick=${() => { setUpTo(words.place(entries[0])); change({ at: words.place(entries[0]), sel: '' }, true); }}>Show earlier records</button>` : null}</div>` : null}
    ${!isDone ? html`<p class="progress" role="status">Loaded ${words.count(entries.length)} of ${words.count(head.records)} records …</p>` : null}
    <div class="when"><${Slider} entries=${entries} bands=${bands} at=${at} refused=${refused} onChange=${(index) => choose(index)} />
      <p class="where"><span class="mono">${words.place(chosen)}</span><span>record ${words.count(at + 1)} of ${words.count(entries.length)}${took === null ? ' loaded' : ''}</span><span>${words.type(chosen.type)}</span><span class="mono">${words.moment(chosen.stamp)} UTC</span>
        ${isHead ? reachesEnd && html`<span class="at-head">the newest record</span>` : html`<button type="button" class="text" onClick=${() => change({ at: '', sel: '' }, true)}>Go to the newest</button>`}
        <button type="button" class="text share" onClick=${share}><${Icon} name="link" />${copied ? 'Link copied' : 'Link to this position'}</button></p></div>
    <div class="run-body"><div class="run-rows"><div class="run-bar"><${Segments} label="Records" value=${query.kind || ''} options=${KINDS} onChange=${(kind) => change({ kind, sel: '' })} />
        <${Segments} label="Scale" value=${query.scale || ''} options=${[['', 'Order'], ['time', 'Time']]} onChange=${(name) => change({ scale: name })} /></div>
        ${rows.length ? html`<${Waterfall} rows=${rows} entries=${entries} upTo=${at} scale=${scale} chosen=${row?.key || ''} onChoose=${select} />` : html`<${Empty} title="No such record">This run has none of this kind.<//>`}</div>
      <aside class="run-side"><${Resume} id=${id} place=${words.place(chosen)} isHead=${isHead && !head.doubt} onWaits=${setWaits} onOpen=${({ offset }) => { const row = all.find(({ first }) => first.offset === offset); if (row) select(row); }} />${row ? html`<${Detail} id=${id} row=${row} raw=${raw} onRaw=${setRaw} onGo=${() => choose(row.first.index, { sel: row.key })} />` : null}</aside></div>
  </section>`;
}

// @ts-check
// Records without effect: records that a rule refused, and bytes that are no record.
import { useState } from './vendor/hooks.js';
import { get } from './api.js';
import { visible } from './exact.js';
import { dump } from './fold.js';
import { Dialog, Empty, html, Link, Listing, NeedsScope, NeedsWatch, RunName, Segments, Top, Trouble, useAnswer } from './parts.js';
import { PLACE, Skip, SkipButton } from './partitions.js';
import { change, go, route } from './route.js';
import { allows, overview, refresh, watches } from './session.js';
import * as words from './words.js';

const ORDER = 'in the order of the partitions';

/** The address of a refused record in its run. */
const inRun = ({ run_id: run, record_id: id, position }) => ({ run, query: { at: words.place(position), sel: 'refused:' + id + ':' + position.offset } });

const REFUSED = [
  ['Run', (each) => html`<${Link} to=${inRun(each)}><${RunName} id=${each.run_id} /><//>`, 'cell-main'],
  ['Because', ({ reason }) => words.reason(reason), ''],
  ['Record', ({ record_id: id }) => html`<bdi title=${visible(id)}>${words.shorten(id, 40)}</bdi>`, 'faint mono'],
  ['Written by', ({ epoch }) => words.process(epoch), 'faint'],
  ['Position', ({ position }) => words.place(position), 'mono faint number cell-place'],
];

const UNREADABLE = [
  ['Position', ({ position }) => html`<${Link} to=${{ view: 'refused', query: { show: 'unreadable', at: words.place(position) } }} class="mono">${words.place(position)}<//>`, 'cell-main'],
  ['Because', ({ reason }) => words.unreadable(reason), ''],
  ['Bytes', ({ bytes }) => words.count(bytes), 'number'],
  ['SHA-256', ({ sha256 }) => sha256, 'faint mono'],
];

/** Bytes that are no record. They are content, so a click asks for them. */
function Bytes({ place, onClose }) {
  const [wants, setWants] = useState(false);
  const [skipped, setSkipped] = useState('');
  const may = allows('operate') && allows('read_content');
  const { answer, problem } = useAnswer((signal) => (wants ? get('/v1/dead-letters/' + place, {}, signal) : null), [place, wants]);
  return html`<${Dialog} title=${'Unreadable bytes at ' + place} onClose=${onClose}><div class="said">
    ${answer ? html`<p dir="auto">${visible(answer.detail)}</p><p class="quiet small">SHA-256 <span class="mono">${answer.sha256}</span></p>
      ${answer.hex ? html`<pre class="code hex" tabindex="0" role="region" aria-label="Bytes">${dump(answer.hex)}</pre>` : html`<p class="masked">${answer.dropped ? 'Deleted by retention' : 'The log no longer has them'}</p>`}
      ${answer.hex.length / 2 < answer.bytes ? html`<p class="quiet">The first ${words.count(answer.hex.length / 2)} of ${words.count(answer.bytes)} bytes.</p>` : null}`
    : html`<p>No server can read these bytes as a record, so they have no effect. Find out which client wrote them.</p>
      <button type="button" disabled=${!may || wants} title="The audit log records this" aria-describedby="needs-operate needs-read_content" onClick=${() => setWants(true)}>Show the bytes</button>`}
    <${Trouble} problem=${problem} /><${NeedsScope} scope="operate" to="read or skip these bytes" /><${NeedsScope} scope="read_content" to="read these bytes" />
    <p class="quiet small">A skip takes them from this list for every reader. They stay in the log.</p>
    <div class="buttons"><${SkipButton} place=${place} onOpen=${setSkipped} /></div>
    ${skipped ? html`<${Skip} place=${place} onDone=${refresh} onClose=${() => setSkipped('')} />` : null}</div><//>`;
}

export function Refused() {
  const { query } = route.value;
  const isBytes = query.show === 'unreadable';
  const now = overview.value;
  return html`<section class="view">
    <${Top} title="Refused" meaning=${isBytes ? 'when-something-is-wrong' : 'how-data-flows'} tools=${html`<${Segments} label="Show" value=${isBytes ? 'unreadable' : ''} options=${[['', 'Refused records', now?.refused], ['unreadable', 'Unreadable bytes', now?.dead_letters]]} onChange=${(show) => change({ show, at: '', run: '' })} />`}>Records that are in the log and have no effect.<//>
    ${query.run && !isBytes ? html`<p class="narrowed">Only records of <${RunName} id=${query.run} /> <button type="button" class="text" onClick=${() => change({ run: '' })}>show all</button></p>` : null}
    ${!isBytes ? html`<${Listing} key="refused" path="/v1/anomalies" query=${{ run: query.run }} member="anomalies" label="Refused records" order=${ORDER} columns=${REFUSED} widths="4fr 3fr 3fr 1.5fr 1fr" open=${(each) => go(inRun(each))}
        empty=${html`<${Empty} title="No record was refused">A record that breaks a rule appears here, such as a result of a process that had lost its run.<//>`} />`
      : watches() ? html`<${Listing} key="bytes" path="/v1/dead-letters" query=${{}} member="records" label="Unreadable bytes" order=${ORDER} columns=${UNREADABLE} widths="1.2fr 3fr 1fr 5fr" open=${({ position }) => change({ at: words.place(position) })}
        empty=${html`<${Empty} title="Every record can be read">Bytes that a foreign client wrote into the log appear here.<//>`} />`
        : html`<${NeedsWatch} to="list unreadable bytes" />`}
    ${isBytes && PLACE.test(query.at) && watches() ? html`<${Bytes} key=${query.at} place=${query.at} onClose=${() => change({ at: '' })} />` : null}
  </section>`;
}

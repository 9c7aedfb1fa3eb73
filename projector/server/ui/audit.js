// @ts-check
// Who decided what: decisions, which are records of runs, and retention horizons. No list of the server has the skips.
import { get, run as pathOf, token } from './api.js';
import { brief, visible } from './exact.js';
import { absent, Empty, html, Link, Listing, NeedsWatch, RunName, Segments, Top, useAnswer } from './parts.js';
import { change, go, route } from './route.js';
import { watches } from './session.js';
import * as words from './words.js';

/** The records of the decisions that were shown, by position. @type {Map<string, Promise<any>>} */
const lines = new Map();
token.subscribe(() => lines.clear());

/** Reads the record of an event, masked, and the name of its tool if the request is among the records before it. */
function lineOf({ key, run_id: run, record_id: id, position }) {
  if (lines.size > 2000) lines.clear();
  const known = lines.get(key);
  if (known) return known;
  const line = get(pathOf(run) + '/records', { as_of: words.place(position), order: 'desc', limit: position.index ? 1000 : 16, consistency: 'eventual' })
    .then(({ records }) => {
      const line = records.find((each) => each.record_id === id && words.place(each.position) === words.place(position)) || {};
      return { ...line, tool: records.find((each) => each.record_id === line.answers)?.tool_name };
    });
  lines.set(key, line);
  line.catch(() => lines.delete(key));
  return line;
}

const fromPayload = ({ payload }, text) => absent(payload) || (payload ? text(payload) : 'not found');

/** The call of a decision, and the decision. The line has them although its payload may be deleted. */
export const callOf = (line) => words.shorten(line.tool || line.answers || '') || fromPayload(line, () => '');
export const decisionOf = (line) => words.DECIDED[line.status] || visible(line.status || '') || fromPayload(line, () => '');

/** Shows a part of the record of an event. `text` writes it from the line. */
function Told({ event, text }) {
  const { answer, problem } = useAnswer(() => lineOf(event), [event.key]);
  if (!answer) return problem ? 'cannot be read' : '…';
  return html`<span dir="auto">${text(answer)}</span>`;
}
const told = (text) => (event) => html`<${Told} event=${event} text=${text} />`;

const inRun = ({ run_id: run, record_id: sel, position }) => ({ run, query: { at: words.place(position), sel } });
const DECISIONS = [
  ['Time, UTC', ({ timestamp }) => words.moment(timestamp), 'mono faint'],
  ['Run', (each) => html`<${Link} to=${inRun(each)}><${RunName} id=${each.run_id} /><//>`, 'cell-main'],
  ['Call', told(callOf), 'faint mono'],
  ['Decided', told(decisionOf), 'two'],
  ['By', told((line) => fromPayload(line, ({ who }) => { const { principal, principal_verified: isVerified } = line; return html`<span title=${principal && visible(principal) + (isVerified ? ', verified' : ', not verified')}>${words.shorten(brief(who ?? ''), 40)}${principal && !isVerified ? ', not verified' : ''}</span>`; })), 'two'],
  ['Because', told((line) => fromPayload(line, ({ why }) => words.shorten(brief(why ?? ''), 160))), 'faint two'],
  ['Position', ({ position }) => words.place(position), 'mono faint number cell-place'],
];
const HORIZONS = [
  ['Content before', ({ until }) => words.moment(until) + ' UTC', 'mono'],
  ['Of', ({ family }) => words.type(family), 'cell-main'],
  ['By', ({ who }) => words.shorten(who, 40), ''],
  ['Because', ({ why }) => html`<span dir="auto">${words.shorten(why, 160)}</span>`, 'faint'],
  ['Position', ({ position }) => words.place(position), 'mono faint number'],
];

/** Decisions, the newest first. A record of another type may claim to be of their family. */
export const decisions = (events) => events.filter(({ payload_type: type }) => type === 'effect_resolution').sort((a, b) => (a.timestamp < b.timestamp ? 1 : a.timestamp > b.timestamp ? -1 : 0));

export function Audit() {
  const { query } = route.value;
  const isRetention = query.show === 'retention';
  return html`<section class="view">
    <${Top} title="Audit" meaning="decisions" tools=${html`<${Segments} label="Show" value=${isRetention ? 'retention' : ''} options=${[['', 'Decisions'], ['retention', 'Retention']]} onChange=${(show) => change({ show })} />`}>Who decided what, and why. Skips are not listed here: they are in the server’s audit log.<//>
    ${!isRetention ? html`<${Listing} key="decisions" path="/v1/events" query=${{ family: 'effect_resolution' }} member="events" label="Decisions" order="partition by partition, so newer decisions may be missing" rowsOf=${decisions} columns=${DECISIONS} widths="150px 3fr 2fr 4fr 2fr 4fr 70px" first=${10} open=${(each) => go(inRun(each))}
        empty=${html`<${Empty} title="No decision yet">Each decision about a call that may have happened appears here.<//>`} />`
      : watches() ? html`<${Listing} key="horizons" path="/v1/horizons" query=${{}} member="horizons" label="Retention horizons" order="in the order of the partitions" columns=${HORIZONS} widths="2fr 3fr 2fr 5fr 1fr" open=${() => {}}
        empty=${html`<${Empty} title="No content was deleted">“runlog retention” deletes the content of old records.<//>`} />`
        : html`<${NeedsWatch} to="list retention horizons" />`}
  </section>`;
}

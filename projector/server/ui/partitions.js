// @ts-check
// The partitions and the server's findings, and the dialog that voids a record. A skip has the plan that its author saw. If the server
// refuses that plan, the dialog shows the present one.
import { useEffect, useRef, useState } from './vendor/hooks.js';
import { get, kept, post } from './api.js';
import { visible, write } from './exact.js';
import { Badge, Dialog, Empty, html, Loading, NeedsScope, NeedsWatch, RunName, Segments, Table, Top, Trouble, useAnswer } from './parts.js';
import { change, route } from './route.js';
import { allows, caller, overview, refresh, watches } from './session.js';
import * as words from './words.js';

const WHO = 'runlog.who';
/** PARTITION:OFFSET. */
export const PLACE = /^\d+:\d+$/;

/** The offset stays a text, since it may have more digits than a number keeps. */
const skip = (place, who, why, query, plan = '') => post('/v1/skips?' + query,
  '{"partition":' + place.replace(':', ',"offset":') + ',"who":' + JSON.stringify(who) + ',"why":' + JSON.stringify(why) + plan + '}');
const planOf = (place) => skip(place, 'a dry run', 'a dry run', 'dry_run=true');

/** The consequences of a skip, in words. */
function Plan({ plan }) {
  const detail = plan.detail && html`<p class="notice quiet"><span dir="auto">${visible(plan.detail)}</span></p>`;
  if (plan.target === 'stop') return html`<p><b>The partition stopped here.</b> A skip voids this record for every reader, and the partition continues behind it. If a newer version can read the record, start that version instead.</p>${detail}`;
  if (plan.target === 'unreadable') return html`<p><b>These bytes cannot be read.</b> A skip takes them from the list of unreadable records. No run changes.</p>${detail}`;
  if (plan.target !== 'readable') return html`<p>The server says “${visible(plan.target)}”, which this page does not know.</p>`;
  return html`<p><b>This record can be read, and its partition did not stop here.</b> It is a ${words.type(plan.payload_type || 'record')}${plan.run_id ? html` of the run <${RunName} id=${plan.run_id} />` : null}. A skip takes it from every reader.</p>
    <p>${plan.displaced === null ? 'The later records of its run that would be refused were not counted: the run is too long.' : plan.displaced ? html`<b>${words.plural(plan.displaced, 'later record')}</b> of the run would be refused.` : 'No later record of the run would be refused.'} Its effects wait for a decision.</p>`;
}

/** @param {{ place: string, onClose: () => void, onDone: () => void }} props */
export function Skip({ place, onClose, onDone }) {
  const [seen, setSeen] = useState(/** @type {any} */ (null));
  const [isChanged, setChanged] = useState(false);
  const [typed, setTyped] = useState('');
  const [force, setForce] = useState(false);
  const [why, setWhy] = useState('');
  const [who, setWho] = useState(caller.value?.principal || kept('localStorage').getItem(WHO) || '');
  const [sending, setSending] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [made, setMade] = useState(/** @type {any} */ (null));
  const show = (plan) => { setSeen(plan); setTyped(''); setForce(false); };
  useEffect(() => { planOf(place).then(show, setProblem); }, [place]);
  const isKnown = seen && ['stop', 'unreadable', 'readable'].includes(seen.target);
  const isReadable = seen?.target === 'readable';
  const missing = [typed.trim() !== place && 'type the position', isReadable && !force && 'confirm that its processes ended', !why.trim() && 'say why', !who.trim() && 'say who you are'].filter(Boolean);
  const send = async (event) => {
    event.preventDefault();
    if (missing.length || sending || made || !isKnown) return;
    setSending(true);
    setProblem(null);
    try {
      setMade(await skip(place, who.trim(), why.trim(), isReadable ? 'force=true' : '', ',"plan":' + write(seen)));
      kept('localStorage').setItem(WHO, who.trim());
      onDone();
    } catch (/** @type {any} */ error) {
      setChanged(error.kind === 'conflict');
      if (error.kind === 'conflict') await planOf(place).then(show, setProblem);
      else setProblem(error);
    }
    setSending(false);
  };
  const mayBeRecorded = problem && seen && words.mayBeDone(problem);
  return html`<${Dialog} title=${'Skip the record at ' + place} onClose=${onClose}>
    ${made ? html`<div class="said" role="status">${made.outcome === 'applied' ? html`<p><b>The record is void for every reader.</b> The skip is in the log at <span class="mono">${words.place(made.position)}</span>, with your name and reason.</p>` : html`<p><b>The skip was not applied</b>: ${words.reason(made.reason || made.outcome)}.</p>`}
      <div class="buttons"><button type="button" class="primary" autofocus onClick=${onClose}>Close</button></div></div>`
    : html`<form onSubmit=${send}>
      ${isChanged ? html`<p class="notice amber" role="alert"><b>The journal knows more now.</b> Read what the skip would do, then confirm it again.</p>` : null}
      ${seen ? html`<${Plan} plan=${seen} />` : problem ? null : html`<${Loading} lines=${3} />`}
      <${Trouble} problem=${problem}>${mayBeRecorded ? html`<small>The skip may have been recorded all the same. Close this, and look at the partition before you skip again.</small>` : null}<//>
      ${isKnown ? html`${isReadable ? html`<label class="tick danger"><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /><span>I ended all processes of the run. Void the record all the same.</span></label>` : null}
        <label class="field"><span>Why?</span><textarea rows="2" value=${why} placeholder="A client of a test wrote it; ticket 4711" onInput=${(event) => setWhy(event.target.value)}></textarea></label>
        <div class="pair"><label class="field"><span>Your name</span><input value=${who} autocomplete="name" onInput=${(event) => setWho(event.target.value)} /></label>
        <label class="field"><span>Type <code>${place}</code></span><input class="mono" value=${typed} autocomplete="off" spellcheck="false" onInput=${(event) => setTyped(event.target.value)} /></label></div>
        <button class="wide danger" disabled=${missing.length > 0 || sending || mayBeRecorded} aria-describedby="skip-missing">${sending ? 'Skipping …' : 'Void this record for every reader'}</button>
        <p class="quiet small" id="skip-missing">${missing.length ? 'Still missing: ' + missing.join(', ') + '. ' : ''}The skip stays in the log with your name and reason.</p>` : null}
    </form>`}<//>`;
}

/** A button that asks for the dialog, for callers that may skip. Its parent shows the dialog, which outlives the button. */
export const SkipButton = ({ place, onOpen }) => html`<button type="button" disabled=${!allows('operate')} aria-describedby="needs-operate" onClick=${() => onOpen(place)}>Skip ${place} …</button>`;

/** The state of a partition: a tone and words. @returns {[string, string]} */
export function stateOf({ state, lag }) {
  if (state === 'stopped') return ['red', 'stopped'];
  if (lag === null) return ['amber', 'the log does not answer'];
  return lag > 0 ? ['amber', 'behind by ' + words.count(lag)] : ['green', 'shows all of the log'];
}

const COLUMNS = [
  ['Partition', ({ partition }) => 'Partition ' + partition, 'cell-main'],
  ['State', (each) => { const [tone, text] = stateOf(each); return html`<${Badge} tone=${tone}>${text}<//>`; }, 'cell-state'],
  ['Next record', ({ applied }) => words.count(applied), 'mono number'],
  ['End of the log', ({ end }) => words.count(end), 'mono number'],
];

/** The position that a finding advises to skip, or null. Other stops end in another way: a skip there would void a good record. */
export const advised = ({ fix }) => /dead-letter skip (\d+:\d+)/.exec(fix)?.[1] || null;

/** Compares the indices with a fold of the whole log. */
function Verify() {
  const [{ isBusy, answer, problem }, set] = useState(/** @type {any} */ ({}));
  const verify = () => { set({ isBusy: true }); post('/v1/verify', '').then((answer) => set({ answer }), (problem) => set({ problem })); };
  const differs = answer?.partitions.flatMap(({ partition, indices }) => indices.filter((each) => each.live_digest !== each.rebuilt_digest).map(({ name }) => name + ' of partition ' + partition)) || [];
  return html`<div><button type="button" disabled=${!watches() || isBusy} onClick=${verify}>${isBusy ? 'Verifying: this reads the whole log …' : 'Verify the indices'}</button> <span role="status">${answer ? (answer.equal ? 'The indices are equal to a new reading of the log: ' + words.plural(answer.records, 'record') + ' in ' + words.duration(answer.seconds * 1000) + '.' : html`<b>The indices differ from the log</b>: ${differs.join(', ')}.`) : ''}</span><${Trouble} problem=${problem} /></div>`;
}

export function Partitions() {
  const { query } = route.value;
  const now = overview.value;
  const mayWatch = watches();
  const { answer, problem, reload } = useAnswer((signal) => (mayWatch ? get('/v1/doctor', {}, signal) : null), [mayWatch]);
  const stopped = now?.stopped.join();
  const known = useRef(stopped);
  useEffect(() => { if (known.current !== stopped) reload(); known.current = stopped; }, [stopped]);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) reload(); }, 10000);
    return () => clearInterval(timer);
  }, [reload]);
  const [place, setPlace] = useState('');
  const [isOpen, setOpen] = useState('');
  const done = () => { reload(); refresh(); };
  const all = now?.partitions || [];
  const shown = (query.show === 'behind' ? all.filter((each) => stateOf(each)[0] !== 'green') : all).map((each) => ({ ...each, key: each.partition }));
  return html`<section class="view">
    <${Top} title="Partitions" meaning="when-something-is-wrong" tools=${html`<${Segments} label="Show" value=${query.show || ''} options=${[['', 'All', all.length], ['behind', 'Behind or stopped']]} onChange=${(show) => change({ show })} />`}>Each partition is a part of the log. The runs of a stopped partition are shown as of the stop.${now ? html` Server ${now.version}, journal <bdi class="mono">${now.journal_id}</bdi>, topic <bdi class="mono">${now.topic}</bdi>.` : null}<//>
    <div class="findings" tabindex="0" role="region" aria-label="Findings">
      <${NeedsWatch} to="read why a partition stopped, and what to do" />
      <${Trouble} problem=${problem} />
      ${answer?.findings.map((finding) => html`<article key=${finding.what} class=${'notice ' + (finding.severity === 'error' ? 'bad' : 'amber')}><b dir="auto">${visible(finding.what)}</b><p class="quiet" dir="auto">${visible(finding.fix)}</p>
        ${advised(finding) && finding.severity === 'error' ? html`<div class="buttons"><${SkipButton} place=${advised(finding)} onOpen=${setOpen} /></div>` : null}</article>`)}
      ${answer && !answer.findings.length ? html`<p class="notice quiet">Nothing is wrong.</p>` : null}
      <${NeedsScope} scope="operate" to="skip records" />
      ${allows('operate') ? html`<form class="top-tools" onSubmit=${(event) => { event.preventDefault(); setOpen(place.trim()); }}><label class="search"><span class="out">Void another record</span><input class="mono" placeholder="Another PARTITION:OFFSET" value=${place} onInput=${(event) => setPlace(event.target.value)} /></label><button disabled=${!PLACE.test(place.trim())}>Show what a skip does …</button></form>` : null}
      <${Verify} />
      ${isOpen ? html`<${Skip} key=${isOpen} place=${isOpen} onDone=${done} onClose=${() => setOpen('')} />` : null}
    </div>
    ${!now ? html`<div class="pad"><${Loading} lines=${4} /></div>` : shown.length ? html`<${Table} items=${shown} label="Partitions" columns=${COLUMNS} widths="2fr 3fr 1fr 1fr" />` : html`<${Empty} title="No partition is behind">All of them show all of the log.<//>`}
  </section>`;
}

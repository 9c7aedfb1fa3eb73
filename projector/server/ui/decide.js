// @ts-check
// One effect that may have happened. A decision is about the state that its author saw: the pane keeps this state until its
// reader asks for a newer one, and the server refuses the decision if the effect has changed since.
import { useEffect, useRef, useState } from './vendor/hooks.js';
import { get, kept, pages, post, run, token } from './api.js';
import { brief, Exact, isExact, visible } from './exact.js';
import { absent, aged, Badge, Code, hidden, html, Icon, Link, Loading, Long, Masked, Members, NeedsScope, now, RunName, Trouble, useAnswer } from './parts.js';
import { change } from './route.js';
import { allows, caller, readOnly } from './session.js';
import { body, changes, ended, find, happened, isTyped, keyOf, marker, proofOf, refit } from './fold.js';
import * as words from './words.js';

const WHO = 'runlog.who';

/** The forms that were left, by effect. @type {Map<string, any>} */
const drafts = new Map();
// Another token may be of another person.
token.subscribe(() => drafts.clear());

/** Null: the effect is no longer in the list. Masked content stays masked. */
export async function readEffect(effect, signal, hasEnded = false) {
  const found = find(await pages('/v1/effects', { pending: !hasEnded, contradicted: hasEnded, prefix: effect.run_id, limit: 1000 }, 'effects', 10, signal), effect);
  return found && hasEnded ? { ...found, evidence: found.contradicting } : found;
}

async function readStory(effect, signal) {
  const path = run(effect.run_id) + '/records';
  const before = await get(path, { as_of: words.place(effect.position), order: 'desc', limit: 8, consistency: 'eventual' }, signal);
  const request = before.records.find((line) => line.record_id === effect.id) || before.records[0];
  const turns = before.records.filter((line) => line.payload_type === 'conversation_turn').slice(0, 2).reverse();
  const claim = before.records.find((line) => line.payload_type === 'run_claim');
  const after = request ? (await get(path, { cursor: request.cursor, limit: 40, consistency: 'eventual' }, signal)).records : [];
  return { request, turns, claim, after };
}

/** @param {AbortSignal} signal */
async function readAll(effect, signal, hasEnded) {
  const [seen, story, doubt] = await Promise.all([readEffect(effect, signal, hasEnded), readStory(effect, signal),
    get(run(effect.run_id), { consistency: 'eventual' }, signal).then(() => null, (problem) => problem.reason === 'doubt' && problem)]);
  return { seen, story, doubt };
}

const concealed = (payload) => payload && (absent(payload) || hidden(payload.result) || hidden(payload.error_message));

export function Outcome({ payload, label, call = payload?.request_record_id, isRaw = false }) {
  if (!payload) return html`<${Masked} why="Not shown" />`;
  const why = isRaw ? absent(payload) : concealed(payload);
  if (why) return html`<${Masked} why=${why} />`;
  const lost = marker(payload.result, call);
  if (lost) return html`<p class="masked">The tool returned a result that could not be recorded: <span dir="auto">${brief(lost.message)}</span></p>`;
  if ('error_message' in payload) return html`<p class="failure" dir="auto"><b>${brief(payload.error_kind)}</b> ${brief(payload.error_message)}</p>`;
  if (typeof payload.result === 'string') return html`<p class="text-result" dir="auto"><${Long} text=${brief(payload.result)} most=${4000} /></p>`;
  return html`<${Code} value=${'result' in payload ? payload.result : payload} label=${label} />`;
}

function Late({ evidence, isOnly, effect }) {
  const [raw, setRaw] = useState(/** @type {any} */ (null));
  const isSame = (each) => proofOf(each) === proofOf(evidence);
  const load = () => get(run(effect.run_id) + '/recovery', { limit: 1, consistency: 'eventual' }).then(({ pending }) =>
    setRaw(pending.find((each) => each.kind === effect.kind && each.id === effect.id)?.evidence.find(isSame) || { problem: { kind: 'unlisted' } }), (problem) => setRaw({ problem }));
  return html`<article class="late"><header><b>A late result says that it ${ended(evidence)}</b>${evidence.adoptable && !isOnly ? html`<${Badge} tone="violet">the one to adopt<//>` : null}</header>
    <${Outcome} payload=${raw?.payload || evidence.payload} label="The late result" call=${effect.id} isRaw=${!!raw?.payload} />
    ${allows('read_content') && effect.state && !raw?.payload && concealed(evidence.payload) ? html`<button type="button" class="text" title="The audit log records this" onClick=${load}>Show the content</button>` : null}<${Trouble} problem=${raw?.problem} />
    <footer>Arrived ${words.moment(evidence.logged_at)} UTC from ${words.process(evidence.epoch)}${evidence.claimed_by ? html` on <bdi>${words.shorten(evidence.claimed_by, 40)}</bdi>` : ''}, when ${words.reason(evidence.reason)}. <bdi>${words.shorten(evidence.record_id, 40)}</bdi>, <span class="mono">${words.place(evidence.position)}</span></footer></article>`;
}

function Story({ effect, story, at, made }) {
  const { request, turns, claim, after } = story;
  /** @type {any[]} */
  const items = [];
  for (const line of turns) items.push({ line, kind: 'turn', text: html`<i>${line.payload.kind || 'turn'}</i> <span dir="auto">${absent(line.payload) || hidden(line.payload.content) || words.shorten(brief(line.payload.content ?? ''), 160)}</span>` });
  const who = claim?.payload.claimed_by;
  if (request) items.push({ line: request, kind: 'call', text: html`<b>The call began</b>${effect.agent_id ? html`, by <bdi>${words.shorten(effect.agent_id, 40)}</bdi>` : ''}${who ? html` on <bdi>${words.shorten(who, 40)}</bdi>` : ''}` });
  for (const line of after) {
    const { payload, payload_type: type } = line;
    const isOwn = line.answers === effect.id;
    if (type === 'run_claim') items.push({ line, kind: 'claim', text: html`<b>Another process took the run over</b>${payload.claimed_by ? html`: <bdi>${words.shorten(payload.claimed_by, 48)}</bdi>` : ''}` });
    if (type === 'tool_call_attempt' && isOwn) items.push({ line, kind: 'call', text: html`<b>The call began again</b>, attempt ${payload.attempt}` });
    if (type === 'effect_resolution' && isOwn) items.push({ line, kind: 'decision', text: html`<b>${words.shorten(payload.who || 'somebody', 40)}</b> decided: ${words.DECIDED[line.status] || line.status}. <span dir="auto">${words.shorten(payload.why || '', 200)}</span>` });
  }
  for (const evidence of effect.evidence) items.push({ evidence, kind: 'late', text: html`<b>A result arrived late</b> and was refused: ${words.reason(evidence.reason)}` });
  const offset = (item) => (item.line || item.evidence).position.offset;
  items.sort((a, b) => offset(a) - offset(b));
  return html`<ol class="story">${items.map(({ line, evidence, kind, text }) => {
    const record = line || evidence;
    return html`<li class=${kind} key=${kind + record.record_id + words.place(record.position)}><time>${words.clock(record.logged_at || record.timestamp)}</time><p>${text} <${Link} class="at" to=${{ run: effect.run_id, query: { at: words.place(record.position) } }} aria-label=${'Open the run at ' + words.place(record.position)}>${words.place(record.position)}<//></p></li>`;
  })}<li class=${made ? 'decision' : 'now'}><time>now</time><p>${made ? html`<b>You decided</b>: ${words.DECIDED[made.decision]}` : effect.status && effect.status !== 'pending' ? 'The call has ended, and a late result says otherwise' : effect.state === 'running' ? html`Its process wrote to the run ${words.ago(aged(effect.run?.age_millis, at))}: it may still record the result` : effect.evidence.length ? html`No result that counts: somebody must say whether <b>it happened</b>` : html`No result: it <b>may have happened</b>`}</p></li></ol>`;
}

function AskReceiver({ effect }) {
  const shown = !hidden(effect.arguments) && effect.arguments && typeof effect.arguments === 'object' ? Object.entries(effect.arguments).filter(([, value]) => typeof value !== 'object' || value === null || value instanceof Exact).slice(0, 3) : [];
  return html`<p class="ask quiet">Ask the receiver for ${shown.length ? shown.map(([name, value], at) => html`${at ? ', ' : ''}${visible(name)} <bdi class="mono strong">${words.shorten(brief(value), 40)}</bdi>`) : html`this call of <code>${words.shorten(effect.tool_name)}</code>`} at about <span class="mono strong">${words.moment(effect.since)}</span> UTC${effect.idempotency_key ? html`, or for the key <bdi class="mono strong">${words.shorten(effect.idempotency_key, 48)}</bdi>` : ''}.</p>`;
}

function Changed({ before, fresh, onRead, isRefused }) {
  const news = changes(before, fresh);
  return html`<div class=${'notice ' + (isRefused ? 'bad' : 'amber')} role="alert"><b>${isRefused ? 'Not decided: the journal knows more than you saw.' : 'The journal knows more now.'}</b>
    <ul>${news.map((text) => html`<li key=${text}>${text}</li>`)}</ul>
    ${isRefused ? html`<span>Nothing changed.</span>` : null}
    <div class="buttons"><button type="button" class="primary" onClick=${onRead}>Read it again</button></div></div>`;
}

const adoptTitle = (late) => 'It ' + ended(late) + ', as the late result says';

function Form({ effect, draft, setDraft, isStale, isReading, onChanged, onDecided, onRead, onRefused, at }) {
  const [sending, setSending] = useState(false);
  const [refusal, setRefusal] = useState(/** @type {any} */ (null));
  const { decision, why, result, typed, against, force } = draft;
  const who = draft.who ?? (caller.value?.principal || kept('localStorage').getItem(WHO) || '');
  const set = (members) => setDraft({ ...draft, ...members });
  const late = effect.evidence;
  const adoptable = late.find((each) => each.adoptable) || null;
  const proof = adoptable && happened(adoptable) ? adoptable : null;
  const tool = visible((effect.tool_name || '').trim() || effect.kind);
  const isKeyed = !!(effect.idempotency_key || effect.dedupe_key);
  const choice = words.CHOICES.find((each) => each.decision === decision);
  const may = allows('resolve') && isExact && !effect.isTwin && !readOnly.value;
  const isRunning = effect.state === 'running' || refusal?.reason === 'active';
  let resultError = '';
  if (decision === 'done') {
    try { if (result.trim()) JSON.parse(result); else resultError = 'empty'; } catch { resultError = 'This is not JSON yet. A text needs quotes: "RF-20931"'; }
  }
  const isRepeat = decision === 'not_done';
  const missing = [
    !choice && 'choose what is so', isRepeat && !isTyped(typed, tool) && 'type the tool’s name', isRepeat && proof && against !== proofOf(proof) && 'confirm against which result',
    resultError && 'enter the result', !why.trim() && 'say how you know', !who.trim() && 'say who you are', isRunning && !force && 'wait, or decide anyway',
  ].filter(Boolean);
  const send = async (event) => {
    event.preventDefault();
    if (missing.length || sending || !may || isStale || isReading) return;
    setSending(true);
    const text = JSON.stringify(body(draft, who, effect, isRunning));
    try {
      // The result's digits stay as they were typed.
      const outcome = await post(run(effect.run_id) + '/effects/' + encodeURIComponent(effect.id) + '/resolution',
        decision === 'done' ? text.slice(0, -1) + ',"result":' + result.trim() + '}' : text);
      kept('localStorage').setItem(WHO, who.trim());
      drafts.delete(keyOf(effect));
      onDecided({ decision, outcome, adopted: decision === 'adopt' && adoptable });
    } catch (error) {
      const problem = /** @type {any} */ (error);
      // Some conflicts are no change: an equal call, for example.
      const fresh = problem.kind === 'conflict' && problem.reason !== 'active' ? await readEffect(effect).catch(() => undefined) : effect;
      const isOld = fresh?.basis !== effect.basis;
      setRefusal(isOld ? { kind: 'changed', fresh } : problem);
      onRefused(isOld);
      onChanged();
    }
    setSending(false);
  };
  const later = refusal && words.mayBeDone(refusal);
  return html`<form class="choices" onSubmit=${send} aria-label="Decision">
    ${refusal?.kind === 'changed' ? html`<${Changed} before=${effect} fresh=${refusal.fresh} isRefused=${true} onRead=${() => { setRefusal(null); onRead(); }} />` : null}
    ${effect.isTwin ? html`<p class="notice bad">Two pending effects have this id. The page cannot decide about them.</p>` : null}
    <fieldset disabled=${!may || sending || isReading}><legend>Did <code>${tool}</code> happen?</legend>
      ${words.CHOICES.map(({ decision: name, icon, title, follows, keyed }) => {
        const isOff = name === 'adopt' && !adoptable;
        const adoptsFailure = name === 'adopt' && adoptable && !happened(adoptable);
        return html`<label key=${name} class=${'choice ' + name + (decision === name ? ' chosen' : '') + (isOff ? ' off' : '')}>
          <input type="radio" name="decision" value=${name} disabled=${isOff} checked=${decision === name} onChange=${() => { set({ decision: name, isOld: false, force: force && !refusal }); if (refusal?.kind !== 'changed') setRefusal(null); }} /><${Icon} name=${icon} />
          <span><b>${adoptsFailure ? adoptTitle(adoptable) : title}</b><small>${isOff ? 'No late result has arrived.' : adoptsFailure ? 'The agent gets this end, and continues with it.' : isKeyed && keyed ? keyed : follows}</small></span></label>`;
      })}</fieldset>
    ${choice && may ? html`<div class="because">
      ${decision === 'done' ? html`<label class="field"><span>The result, as JSON</span><textarea class="mono" rows="3" spellcheck="false" value=${result} aria-invalid=${!!(resultError && resultError !== 'empty')} aria-describedby="result-help" onInput=${(event) => set({ result: event.target.value })}></textarea><small id="result-help">${resultError && resultError !== 'empty' ? resultError : 'The agent gets exactly this value.'}</small></label>` : null}
      ${isRepeat ? html`<p class="notice quiet"><span>First make sure that every process that may have started the call is stopped. ${isKeyed ? html`The next process sends the key <bdi class="mono">${words.shorten(effect.idempotency_key || effect.dedupe_key, 48)}</bdi> again.` : 'The call has no key, so its receiver cannot notice a repetition.'}</span></p>` : null}
      ${isRepeat && proof ? html`<label class="tick danger"><input type="checkbox" checked=${against === proofOf(proof)} onChange=${(event) => set({ against: event.target.checked ? proofOf(proof) : '' })} /><span>A late result says that it <b>did</b> happen. I decide against the record <bdi class="mono">${words.shorten(proof.record_id, 40)}</bdi>.</span></label>` : null}
      <label class="field"><span>How do you know?</span><textarea rows="2" value=${why} placeholder=${isRepeat ? 'The receiver has no such call' : 'The receiver has it as RF-20931'} onInput=${(event) => set({ why: event.target.value })}></textarea></label>
      <div class="pair"><label class="field"><span>Your name</span><input value=${who} autocomplete="name" onInput=${(event) => set({ who: event.target.value })} /></label>
      ${isRepeat ? html`<label class="field"><span>Type <code>${tool}</code></span><input class="mono" value=${typed} autocomplete="off" spellcheck="false" onInput=${(event) => set({ typed: event.target.value })} /></label>` : null}</div>
    </div>` : null}
    ${isRunning && may ? html`<div class="notice amber"><b>Its process may still be at work.</b> It wrote to the run ${words.ago(aged(effect.run?.age_millis, at))}. Its own result is better than a decision: wait until it has written nothing for 30 s, or stop it.
      <label class="tick"><input type="checkbox" checked=${force} onChange=${(event) => set({ force: event.target.checked })} /><span>I stopped the process. Decide now.</span></label></div>` : null}
    ${refusal && refusal.kind !== 'changed' && refusal.reason !== 'active' ? html`<${Trouble} problem=${refusal}>${later ? html`<small>The decision may have been recorded. Read the effect again first.</small><button type="button" onClick=${() => { setRefusal(null); onRead(); }}>Read it again</button>` : null}<//>` : null}
    <${NeedsScope} scope="resolve" to="decide" />
    <button class=${'wide ' + (isRepeat ? 'danger' : 'primary')} disabled=${missing.length > 0 || sending || !may || isStale || isReading || later} aria-describedby=${may ? 'decision-basis' : 'needs-resolve'}>${sending ? 'Deciding …' : choice ? choice.action : 'Choose what is so'}</button>
    <p class="quiet small" id="decision-basis">${choice && missing.length ? 'Still missing: ' + missing.join(', ') + '. ' : ''}Decided about the state you see (revision ${effect.revision}). It stays in the log with your name and reason.</p>
  </form>`;
}

function Ended({ effect }) {
  return html`<section class="choices"><b>The call ended before, as ${effect.status}</b><${Answer} id=${effect.run_id} call=${effect.id} kind=${effect.kind} title="The agent got" />
    <p class="notice quiet"><span>The effect may have happened twice, or although the call failed. Compare with the receiver. The agent keeps its answer.</span></p></section>`;
}

/** An answer is unmasked, so a click asks for it, unless its reader just decided about the call. Only calls of tools have one. */
export function Answer({ id, call, kind = 'tool_call', title, at, isAsked = false }) {
  const [wants, setWants] = useState(isAsked);
  const may = allows('read_content') && kind === 'tool_call';
  const { answer, problem } = useAnswer((signal) => (may && wants ? get(run(id) + '/calls/' + encodeURIComponent(call), { as_of: at, consistency: isAsked ? '' : 'eventual' }, signal) : null), [id, call, at, wants]);
  if (!may) return null;
  if (!answer) return html`<h3>${title}</h3>${wants ? html`<${Trouble} problem=${problem} />` : html`<button type="button" class="text" title="The audit log records this" onClick=${() => setWants(true)}>Show the answer</button>`}`;
  const { error, result } = answer;
  return html`<h3>${title}</h3><${Outcome} payload=${error ? { error_kind: error.kind, error_message: error.message } : { result }} label=${title} call=${call} isRaw=${true} />`;
}

function Decided({ effect, made, next }) {
  const { position } = made.outcome;
  const title = made.adopted ? adoptTitle(made.adopted) : words.CHOICES.find(({ decision }) => decision === made.decision)?.title || '';
  const box = useRef(/** @type {any} */ (null));
  useEffect(() => box.current?.focus(), []);
  return html`<div class="decided" role="status" tabindex="-1" ref=${box}><header><${Icon} name="check" /><div><b>Decided: ${title[0].toLowerCase() + title.slice(1)}</b>
    <span class="quiet">In the log at <${Link} to=${{ run: effect.run_id, query: { at: words.place(position) } }} class="mono at">${words.place(position)}<//>.</span></div></header>
    ${made.decision === 'not_done' ? html`<p>The next process that has the run may call <code>${words.shorten(effect.tool_name)}</code> again.</p>` : html`<${Answer} id=${effect.run_id} call=${effect.id} kind=${effect.kind} title="The agent gets" isAsked=${true} />`}
    <div class="buttons">${next ? html`<button type="button" class="primary" onClick=${() => change({ run: next.run_id, kind: next.kind, effect: next.id })}>Next: <bdi>${words.shorten(next.tool_name, 28)}</bdi></button>` : null}<${Link} class="button" to=${{ run: effect.run_id, query: {} }}>Open the run<//></div></div>`;
}

export function Decide({ effect, at, isListed, onChanged, next, show }) {
  const hasEnded = show === 'contradicted';
  const key = keyOf(effect);
  const { answer, problem, at: readAt, reload } = useAnswer((signal) => readAll(effect, signal, hasEnded), [key]);
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [typed, keepDraft] = useState(() => drafts.get(key) || { decision: '', why: '', result: '', typed: '', against: '', force: false });
  // The answer that a new one must replace before its reader may choose.
  const [old, setOld] = useState(/** @type {any} */ (null));
  const setDraft = (members) => { drafts.set(key, members); keepDraft(members); };
  const seen = answer?.seen || null;
  const draft = seen ? refit(typed, seen) : typed;
  const isNewer = seen && (effect.revision > seen.revision || (effect.revision === seen.revision && at > readAt));
  const isStale = !!(isNewer && !made && isListed && effect.basis !== seen.basis);
  const hasLeft = !!(seen && !made && !isListed);
  const [isRefused, setRefused] = useState(false);
  const readAgain = () => {
    setRefused(false);
    setDraft({ ...draft, decision: '', typed: '', against: '', force: false });
    setOld(answer);
    reload();
  };
  const shown = seen || effect;
  now.value;
  const gone = answer && !seen && !made;
  return html`<section class="pane" aria-labelledby="pane-title">
    <header class="pane-head"><div><p class="crumb"><${Link} to=${{ run: effect.run_id, query: { at: words.place(effect.position) } }} title="Open the run at this call"><${RunName} id=${effect.run_id} /><//> <span class="mono">${words.place(effect.position)}</span></p>
      <h2 id="pane-title"><code><bdi>${words.shorten(effect.tool_name || effect.kind, 60)}</bdi></code></h2></div>
      <dl class="facts"><div><dt>${show === 'waiting' ? 'Waiting' : 'Began'}</dt><dd>${show === 'waiting' ? words.duration(aged(effect.age_millis, at) ?? 0) : words.ago(aged(effect.age_millis, at))}</dd></div><div><dt>Started</dt><dd>${shown.attempts === 1 ? 'once' : words.count(shown.attempts) + ' times'}</dd></div>
      <div><dt>Key</dt><dd>${effect.idempotency_key || effect.dedupe_key ? html`<bdi title=${effect.idempotency_key || effect.dedupe_key}>${words.shorten(effect.idempotency_key || effect.dedupe_key, 18)}</bdi>` : 'none'}</dd></div></dl></header>
    ${problem ? html`<${Trouble} problem=${problem}><button type="button" onClick=${readAgain}>Read it again</button><//>` : null}
    ${!answer && !problem ? html`<${Loading} lines=${7} />` : null}
    ${gone ? html`<div class="notice amber" role="status"><b>This effect has an end now.</b> It was decided, or its result arrived. <${Link} to=${{ run: effect.run_id, query: {} }}>Open the run<//></div>` : null}
    ${answer ? html`<div class="pane-body">
      <div class="pane-facts"><h3>Asked for</h3>${hidden(shown.arguments) || shown.arguments !== null ? html`<${Members} value=${shown.arguments} label="Arguments" />` : html`<p class="quiet">Its request has no arguments.</p>`}
        <${AskReceiver} effect=${effect} />
        <h3>What the journal knows</h3><${Story} effect=${shown} story=${answer.story} at=${seen ? readAt : at} made=${made} /></div>
      <div class="pane-decision"><${Trouble} problem=${answer.doubt} />
        ${made ? html`<${Decided} effect=${effect} made=${made} next=${next} />` : seen ? html`
          ${isStale && !isRefused ? html`<${Changed} before=${seen} fresh=${effect} isRefused=${false} onRead=${readAgain} />` : null}
          ${draft.isOld ? html`<div class="notice amber" role="alert"><b>The journal knows more now.</b> You chose before this state. Read it, then choose again.</div>` : null}
          ${hasLeft ? html`<div class="notice amber" role="status"><b>This effect has left the list.</b> It was decided, or it changed.<div class="buttons"><button type="button" class="primary" onClick=${readAgain}>Read it again</button></div></div>` : null}
          ${seen.evidence.map((each) => html`<${Late} key=${proofOf(each)} effect=${seen} evidence=${each} isOnly=${seen.evidence.length === 1} />`)}
          ${hasEnded ? html`<${Ended} effect=${seen} />` : null}
          ${!seen.evidence.length ? html`<p class="notice quiet no-evidence"><span>${seen.class === 'retry_safe' ? 'No decision is needed: the next process that has the run repeats the call. You can still decide.' : 'No result has arrived. Only the receiver can tell.'}</span></p>` : null}
          ${hasEnded ? null : html`<${Form} effect=${seen} draft=${draft} setDraft=${setDraft} isStale=${isStale || hasLeft} isReading=${answer === old} onChanged=${onChanged} onDecided=${(done) => { setMade(done); onChanged(); }} onRead=${readAgain} onRefused=${setRefused} at=${readAt} />`}` : null}
      </div></div>` : null}
  </section>`;
}

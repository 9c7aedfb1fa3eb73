// @ts-check
import { useEffect, useMemo, useRef, useState } from './vendor/hooks.js';
import { pages } from './api.js';
import { brief, visible } from './exact.js';
import { listen } from './live.js';
import { aged, Badge, Empty, hidden, html, Lacks, Link, Loading, Meaning, Rows, RunName, Search, Segments, Trouble, useAnswer, useKeys, useThrottle } from './parts.js';
import { change, go, route } from './route.js';
import { freshness, overview, refresh, waiting } from './session.js';
import { Decide, readEffect } from './decide.js';
import { happened, keyOf } from './fold.js';
import * as words from './words.js';

const PAGES = 10;

/** @type {Record<string, { title: string, empty: string, text: string }>} */
const SHOWN = {
  waiting: { title: 'Waiting', empty: 'Nothing waits for a decision', text: 'Every effect has an end in the journal, is running now, or is safe to repeat.' },
  running: { title: 'Running now', empty: 'No such call is running', text: 'A call is running while its process still has the run and wrote to it within 30 s.' },
  contradicted: { title: 'Contradicted', empty: 'No call is contradicted', text: 'A late result that says otherwise than the end of its call appears here.' },
  safe: { title: 'Safe to repeat', empty: 'No call waits to be repeated', text: 'A process that takes over repeats these calls with their keys.' },
};

/** Late results that say that it happened, other late results, then the oldest. */
export function sorted(effects) {
  const rank = ({ evidence }) => (evidence.some(happened) ? 0 : evidence.length ? 1 : 2);
  return effects.slice().sort((a, b) => rank(a) - rank(b) || (b.age_millis ?? 0) - (a.age_millis ?? 0) || (keyOf(a) < keyOf(b) ? -1 : 1));
}

/** The members of an address that name an effect. */
const naming = ({ run_id: run, kind, id }) => ({ run, kind, effect: id });
const NONE = { run: '', kind: '', effect: '' };

/** The effects of a tab. @param {string} show */
const of = (effects, show) => effects.filter((effect) => (show === 'contradicted' || (show === 'safe' ? effect.class === 'retry_safe'
  : effect.class !== 'retry_safe' && (effect.state === 'running') === (show === 'running'))));

/** Adds the effect that the address names, if the pages of the list do not reach it. */
async function withNamed(list, show, signal) {
  const { run, kind = 'tool_call', effect } = route.value.query;
  const named = { run_id: run, kind, id: effect };
  if (!list.more || !effect || list.items.some((each) => keyOf(each) === keyOf(named))) return list;
  const found = await readEffect(named, signal, show === 'contradicted').catch(() => null);
  return found ? { ...list, items: list.items.concat(found) } : list;
}

function Item({ effect, at, isChosen, show }) {
  const { query } = route.value;
  const late = (show === 'contradicted' ? effect.contradicting : effect.evidence).length;
  const shown = hidden(effect.arguments);
  const members = !shown && effect.arguments && typeof effect.arguments === 'object' ? Object.entries(effect.arguments) : [];
  return html`<${Link} class="item" to=${{ view: 'decisions', query: { ...query, ...naming(effect) } }} aria-current=${isChosen ? 'true' : undefined}>
    <span class="item-top"><b><bdi>${words.shorten(effect.tool_name || effect.kind, 30)}</bdi></b><span class="quiet">${words.duration(aged(effect.age_millis, at) ?? 0)}</span></span>
    <${RunName} id=${effect.run_id} most=${36} />
    <span class="item-args">${shown ? html`<i>${shown.toLowerCase()}</i>` : members.length ? members.slice(0, 3).map(([name, value]) => html`<span key=${name}><i>${visible(name)}</i> <bdi>${words.shorten(brief(value), 24)}</bdi></span>`)
      : html`<bdi>${effect.arguments === null ? 'no arguments' : words.shorten(brief(effect.arguments), 40)}</bdi>`}</span>
    <span class="item-tags">${late ? html`<${Badge} tone="violet">${words.plural(late, 'late result')}<//>` : null}${show === 'running' ? html`<${Badge} tone="blue">running<//>`
      : show === 'safe' ? html`<${Badge} tone="green">safe to repeat<//>` : show === 'contradicted' ? html`<${Badge} tone="red">maybe twice<//>` : html`<${Badge} tone="amber">may have happened<//>`}</span><//>`;
}

export function Decisions() {
  const { query } = route.value;
  const show = SHOWN[query.show] ? query.show : 'waiting';
  const [more, setMore] = useState(PAGES);
  const { answer, problem, at, isDone, reload } = useAnswer(async (signal, part) => withNamed(await pages('/v1/effects',
    { pending: show !== 'contradicted', unsafe: show === 'waiting' || show === 'running', contradicted: show === 'contradicted', prefix: query.prefix, tool: query.tool, limit: 1000 }, 'effects', more, signal,
    (items, last) => part({ items: items.slice(), last, more: last.next_cursor })), show, signal), [show, query.prefix, query.tool, more]);
  const soon = useThrottle(() => { reload(); refresh(); }, 700 * Math.ceil((answer?.items.length || 1) / 300));
  useEffect(() => listen(({ type }) => { if (!/turn|checkpoint$/.test(type)) soon(); }), [soon]);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) soon(); }, 10000);
    return () => clearInterval(timer);
  }, [soon]);
  const effects = answer?.items || [];
  const shown = useMemo(() => sorted(of(effects, show)).map((effect) => ({ ...effect, key: keyOf(effect) })), [answer, show]);
  const named = query.run && query.effect;
  const isNamed = (each) => each.run_id === query.run && each.id === query.effect && (!query.kind || each.kind === query.kind);
  const index = named ? shown.findIndex(isNamed) : shown.length ? 0 : -1;
  const chosen = index >= 0 ? shown[index] : null;
  // The pane keeps an effect that left the list, such as one that was just decided.
  const last = useRef(/** @type {any} */ (null));
  if (chosen) last.current = chosen;
  const paned = chosen || (last.current && isNamed(last.current) ? last.current : null);
  const step = (by) => {
    const next = shown[Math.max(0, Math.min(shown.length - 1, index + by))];
    if (next) change(naming(next), true);
  };
  useKeys({ j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1),
    Enter: () => { if (paned) go({ run: paned.run_id, query: {} }); } });
  // The address always names the chosen effect: a new order of the queue must not exchange the pane under its reader.
  useEffect(() => { if (!named && chosen && isDone) change(naming(chosen), true); }, [named, chosen?.key, isDone]);
  useEffect(() => { document.title = (waiting.value ? '(' + waiting.value + ') ' : '') + 'Decisions · Runlog'; });
  const pending = overview.value?.pending;
  const isNarrowed = query.prefix || query.tool;
  const isBehind = freshness.value.word !== 'current';
  const numbers = { contradicted: overview.value?.contradicted, waiting: pending?.reconcile_required.waiting, running: pending?.reconcile_required.running, safe: pending?.retry_safe && pending.retry_safe.waiting + pending.retry_safe.running };
  const tabs = Object.entries(SHOWN).filter(([name]) => name !== 'contradicted' || name === show || numbers.contradicted).map(([name, { title }]) => [name === 'waiting' ? '' : name, title, isNarrowed ? undefined : numbers[/** @type {keyof typeof numbers} */ (name)]]);
  return html`<section class="view decisions">
    <header class="top"><div class="top-title"><h1>Decisions</h1><p class="quiet">Calls that may have happened. <${Link} class="meaning" to=${{ view: 'audit' }}>Decided before<//> · <${Meaning} of="decisions" /></p></div>
      <div class="top-tools"><${Search} value=${query.prefix} set=${(prefix) => change({ prefix, ...NONE }, true)} /><${Segments} label="Show" value=${show === 'waiting' ? '' : show} options=${tabs} onChange=${(name) => change({ show: name, ...NONE })} /></div></header>
    ${problem && !answer ? html`<${Trouble} problem=${problem} />` : null}
    <${Lacks} what="effects" />
    ${query.tool ? html`<p class="narrowed">Only calls of <code>${query.tool}</code> <button type="button" class="text" onClick=${() => change({ tool: '' })}>show all</button></p>` : null}
    ${!answer && !problem ? html`<div class="pad"><${Loading} lines=${6} /></div>`
      : !shown.length && !paned ? html`<${Empty} title=${isNarrowed ? 'Nothing matches' : isBehind ? 'Nothing is here yet' : SHOWN[show].empty}>${isNarrowed ? 'No such effect of these runs or this tool.' : isBehind ? 'The index does not show all of the log: ' + freshness.value.text + '.' : SHOWN[show].text}<//>`
        : html`<div class="split">
          <${Rows} items=${shown} height=${112} label="Effects" current=${index} render=${(effect, nth) => html`<${Item} effect=${effect} at=${at} isChosen=${nth === index} show=${show} />`}
            foot=${!shown.length ? html`<p class="rows-foot">Nothing else is here.</p>` : answer?.more ? html`<p class="rows-foot">Sorted among the first ${words.count(effects.length)}. <button type="button" class="text" onClick=${() => setMore(more + PAGES)}>Load more</button></p>` : null} />
          ${paned ? html`<${Decide} key=${paned.key} effect=${paned} at=${at} isListed=${!isDone || !!chosen} onChanged=${() => { reload(); refresh(); }}
              next=${shown.find(({ key }) => key !== paned.key)} show=${show} />`
            : html`<div class="pane"><${Empty} title=${named ? 'This effect no longer waits here' : 'Choose an effect'}>${named ? html`It was decided, has ended, or is in another list. <${Link} to=${{ run: query.run, query: { sel: query.effect } }}>Open its run<//>.` : 'Its evidence appears here.'}<//></div>`}
        </div>`}
  </section>`;
}

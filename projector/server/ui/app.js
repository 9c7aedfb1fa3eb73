// @ts-check
import { render } from './vendor/preact.js';
import { useEffect, useErrorBoundary, useState } from './vendor/hooks.js';
import { signal } from './signals.js';
import { kept, server, token, useToken } from './api.js';
import { isExact } from './exact.js';
import * as live from './live.js';
import { Dialog, Empty, html, Icon, Link, now, useKeys } from './parts.js';
import { go, route } from './route.js';
import * as session from './session.js';
import * as words from './words.js';
import { Audit } from './audit.js';
import { Decisions } from './decisions.js';
import { Runs } from './runs.js';
import { Run } from './run.js';
import { Partitions } from './partitions.js';
import { Refused } from './refused.js';
import { Tail } from './tail.js';

const THEME = 'runlog.theme';
/** `dark`, `light`, or empty for the system's. */
const theme = signal(kept('localStorage').getItem(THEME) || '');
const setTheme = (name) => {
  theme.value = name;
  if (name) document.documentElement.dataset.theme = name;
  kept('localStorage').setItem(THEME, name);
};
setTheme(theme.value);

const isHelpOpen = signal(false);

const VIEWS = [
  { view: 'decisions', icon: 'decide', title: 'Decisions', key: 'd', Shown: Decisions },
  { view: 'runs', icon: 'runs', title: 'Runs', key: 'r', Shown: Runs },
  { view: 'live', icon: 'live', title: 'Live', key: 'l', Shown: Tail },
  { view: 'partitions', icon: 'partitions', title: 'Partitions', key: 'p', Shown: Partitions },
  { view: 'refused', icon: 'refused', title: 'Refused', key: 'x', Shown: Refused },
  { view: 'audit', icon: 'audit', title: 'Audit', key: 'a', Shown: Audit },
];

const NEWS = { starting: 'connecting', live: 'live', waiting: 'reconnecting', polling: 'asks every 2 s' };

function Rail() {
  const { view } = route.value;
  const fresh = session.freshness.value;
  const { caller, overview } = session;
  const waiting = session.waiting.value;
  const stopped = overview.value?.stopped.length;
  /** @type {Record<string, any>} */
  const numbers = { decisions: waiting && [waiting, 'waiting'], partitions: stopped && [stopped, 'stopped'] };
  const dark = theme.value ? theme.value === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  return html`<nav class="rail" aria-label="Views">
    <${Link} class="brand" to=${{ view: 'decisions' }} aria-label="Runlog, decisions"><svg viewBox="0 0 32 32" aria-hidden="true"><path d="M6 9h13M6 16h19M6 23h8" /><circle cx="22.5" cy="23" r="2.8" /></svg><span>Runlog</span><//>
    <div class="views">${VIEWS.map(({ view: name, icon, title, key }) => html`<${Link} key=${name} class="nav" to=${{ view: name }} title=${title + ' (g ' + key + ')'}
      aria-current=${view === name || (view === 'run' && name === 'runs') ? 'page' : undefined}><${Icon} name=${icon} /><span>${title}</span>${numbers[name]
        ? html`<span class="count" aria-label=${numbers[name].join(' ')}>${words.count(numbers[name][0])}</span>` : null}<//>`)}</div>
    <div class="foot">
      <p class=${'fresh is-' + fresh.word} role="status"><i></i>${fresh.text}</p>
      ${overview.value && html`<p class="quiet">${words.plural(overview.value.partitions.length, 'partition')} · ${NEWS[live.state.value]}</p>`}
      ${caller.value && caller.value.kind !== 'none' && html`<p class="quiet" title=${caller.value.scopes.join(', ')}><bdi>${words.shorten(caller.value.principal || caller.value.kind, 24)}</bdi></p>`}
      <div class="tools">
        <button type="button" class="bare" title=${dark ? 'Light colours' : 'Dark colours'} onClick=${() => setTheme(dark ? 'light' : 'dark')}><${Icon} name="theme" /><span class="out">${dark ? 'Light colours' : 'Dark colours'}</span></button>
        <button type="button" class="bare" title="Token" onClick=${() => { session.asksForToken.value = true; }}><${Icon} name="key" /><span class="out">Token</span></button>
        <button type="button" class="bare" title="Keys (?)" onClick=${() => { isHelpOpen.value = true; }}><${Icon} name="keys" /><span class="out">Keys</span></button>
      </div>
    </div>
  </nav>`;
}

function Banner() {
  const overview = session.overview.value;
  if (!server.value.answers) {
    now.value;
    const millis = Math.max(1000, Date.now() - server.value.since);
    return html`<div class="banner bad" role="status"><b>The server has not answered for ${words.duration(millis)}.</b> What you see is from before. The page asks again every few seconds.</div>`;
  }
  if (!isExact) return html`<div class="banner bad" role="status"><b>This browser rounds numbers.</b> Digits may differ from the journal, so you cannot decide here. Use a newer browser.</div>`;
  if (session.readOnly.value) return html`<div class="banner" role="status"><b>This server accepts no decision and no skip.</b> ${session.readOnly.value}</div>`;
  if (overview?.stopped.length) {
    return html`<div class="banner" role="status"><b>Partition ${overview.stopped.join(', ')} is stopped.</b> Its runs are shown as of the stop, and accept no decision. <${Link} to=${{ view: 'partitions' }}>What to do<//></div>`;
  }
  return null;
}

function TokenDialog() {
  const [text, setText] = useState('');
  const [keep, setKeep] = useState(false);
  const caller = session.caller.value;
  const close = () => { session.asksForToken.value = false; };
  const use = (event) => {
    event.preventDefault();
    useToken(text.trim(), keep);
    close();
  };
  return html`<${Dialog} title="Token" onClose=${close}>
    <form onSubmit=${use}>
      ${session.isUnknown.value ? html`<p>${token.value ? 'This server does not accept your token: it is wrong, was revoked or has expired.' : 'This server asks for a token. “runlog token create” makes one.'}</p>`
        : caller && html`<dl class="facts tall">
        <div><dt>You are</dt><dd><bdi>${caller.principal || 'anybody: this server asks for no token'}</bdi></dd></div>
        <div><dt>Scopes</dt><dd>${caller.scopes.join(', ')}</dd></div>
        <div><dt>Runs</dt><dd><bdi>${caller.runs.map((each) => (each === '*' ? 'all' : each)).join(', ')}</bdi></dd></div>
        ${caller.expires && html`<div><dt>Expires</dt><dd>${words.moment(caller.expires)} UTC</dd></div>`}</dl>`}
      <label class="field"><span>Token or JWT</span><input type="password" autofocus autocomplete="off" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <label class="tick"><input type="checkbox" checked=${keep} onChange=${(event) => setKeep(event.target.checked)} /> Keep it for this tab until the tab is closed</label>
      <p class="quiet small">It is sent in a header only, never in an address. Otherwise a reload forgets it.</p>
      <div class="buttons"><button class="primary" disabled=${!text.trim()}>Use this token</button>
      ${token.value && html`<button type="button" onClick=${() => { useToken('', false); close(); }}>Forget the token</button>`}</div>
    </form><//>`;
}

const KEYS = [
  ...VIEWS.map(({ key, title }) => ['g ' + key, title]), ['/', 'Search'], ['j', 'Next'], ['k', 'Previous'], ['Enter', 'Open'],
  ['[', 'A record earlier'], [']', 'A record later'], ['{', 'A checkpoint or takeover earlier'], ['}', 'A checkpoint or takeover later'],
  ['h', 'The newest record'], ['?', 'This list'], ['Esc', 'Close'],
];
const Help = () => html`<${Dialog} title="Keys" onClose=${() => { isHelpOpen.value = false; }}>
  <dl class="keys">${KEYS.map(([keys, text]) => html`<div key=${keys}><dt>${keys.split(' ').map((key) => html`<kbd key=${key}>${key}</kbd>`)}</dt><dd>${text}</dd></div>`)}</dl><//>`;

function View() {
  const [defect, reset] = useErrorBoundary();
  const { view, run } = route.value;
  if (defect) return html`<${Empty} title="This view has a defect">${String(defect)} <button type="button" class="text" onClick=${reset}>Try again</button><//>`;
  if (session.caller.value && !session.allows('read_meta')) {
    return html`<${Empty} title="Your token may not read">Reading needs the scope <code>read_meta</code>. Use another token.<//>`;
  }
  if (session.isUnknown.value) {
    return html`<${Empty} title="This server asks for a token"><button type="button" class="primary" onClick=${() => { session.asksForToken.value = true; }}>Enter a token</button><//>`;
  }
  const key = token.value;
  if (run) return html`<${Run} id=${run} key=${run + ' ' + key} />`;
  const Shown = VIEWS.find((each) => each.view === view)?.Shown;
  if (Shown) return html`<${Shown} key=${view + ' ' + key} />`;
  return html`<${Empty} title="There is no such view"><${Link} to=${{ view: 'decisions' }}>Decisions<//> and <${Link} to=${{ view: 'runs' }}>runs<//> are here.<//>`;
}

let isChord = false;
function press(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) {
    if (event.key === 'Escape') target.blur();
    return;
  }
  if (isChord) {
    isChord = false;
    const to = VIEWS.find(({ key }) => key === event.key);
    if (to) { event.preventDefault(); go({ view: to.view }); }
    return;
  }
  if (event.key === 'g') { isChord = true; setTimeout(() => { isChord = false; }, 1000); return; }
  // A focused link or button handles Enter itself.
  if (event.key === 'Enter' && target.closest('a, button')) return;
  dispatchEvent(new CustomEvent('runlog-key', { detail: event }));
}

function App() {
  useEffect(() => {
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
  useKeys({
    '?': () => { isHelpOpen.value = true; },
    '/': () => /** @type {HTMLElement | null} */ (document.querySelector('[data-search]'))?.focus(),
  });
  return html`<div class="frame"><${Rail} /><main id="main" tabindex="-1"><${Banner} /><${View} /></main>
    ${isHelpOpen.value && html`<${Help} />`}${session.asksForToken.value && html`<${TokenDialog} />`}</div>`;
}

live.start();
session.start();
render(html`<${App} />`, /** @type {any} */ (document.getElementById('app')));

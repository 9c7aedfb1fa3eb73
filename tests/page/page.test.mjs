// The page in a real browser: each view in dark and light, wide and narrow, by keyboard alone, back and forward; the way of a
// decision from a killed agent to an agent that continues; tokens; many tabs; a server that goes away. A console error, a
// violation of the content security policy or a finding of axe fails the test. Screenshots are kept in target/page.
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';
import { BYTES_MAX, files } from './files.mjs';
import { appendForeign, command, fillJournal, Journal, killedAgent, killedRefund, startServer } from './journal.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SHOTS = process.env.RUNLOG_PAGE_SHOTS || new URL('../../target/page', import.meta.url).pathname;
const WIDE = { width: 1440, height: 860 };
const NARROW = { width: 390, height: 844 };
/** A bound for waits, far above the usual time. */
const WAIT = 30000;

let server;
let journal;
let browser;

before(async () => {
  mkdirSync(SHOTS, { recursive: true });
  server = await startServer();
  assert.ok(server.page, 'the server names the page on its first line');
  journal = new Journal(server.url);
  await fillJournal(journal);
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--font-render-hinting=none'] });
});
after(async () => {
  await browser?.close();
  await server?.end();
});

/** Opens pages of one browser profile, and fails at the end if a page reported anything. `expected`: texts of expected reports. */
class Visit {
  constructor(context, expected) { Object.assign(this, { context, expected, reports: [] }); }

  static async begin({ viewport = WIDE, scheme = 'dark', expected = [], url = server.url } = {}) {
    const context = await browser.newContext({ viewport, colorScheme: scheme, baseURL: url });
    context.setDefaultTimeout(WAIT);
    return new Visit(context, expected);
  }

  async open(path) {
    const page = await this.context.newPage();
    page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) this.reports.push(message.text()); });
    page.on('pageerror', (error) => this.reports.push(String(error.stack)));
    await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error('policy', event.violatedDirective, event.blockedURI)));
    await page.goto(path);
    return page;
  }

  async end() {
    await this.context.close();
    assert.deepEqual(this.reports.filter((report) => !this.expected.some((text) => report.includes(text))), []);
  }
}

/** Fails on findings of axe. */
async function isAccessible(page, name) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => html.slice(0, 160) + ' ' + failureSummary.slice(0, 300)).join(' | ')}`);
  assert.deepEqual(found, [], name);
}

/** Fails if the page shows a name of the API that people do not know. */
async function isInWords(page, name) {
  const text = await page.innerText('body');
  for (const word of ['reconcile_required', 'retry_safe', 'not_done', 'give_up', 'undefined', '[object', 'NaN']) assert.ok(!text.includes(word), `${name} shows ${word}`);
}

const VIEWS = [
  { name: 'decisions', path: '/ui/decisions', ready: '.pane-decision' },
  { name: 'decisions-safe', path: '/ui/decisions?show=safe', ready: '.pane-decision' },
  { name: 'decisions-empty', path: '/ui/decisions?prefix=nothing', ready: '.empty' },
  { name: 'runs', path: '/ui/runs', ready: '.row' },
  { name: 'runs-failed', path: '/ui/runs?status=failed&stuck=1', ready: '.empty' },
  { name: 'run', path: '/ui/runs/research%2Fhome-batteries?scale=time', ready: '.detail .members' },
  { name: 'run-at', path: '/ui/runs/research%2Fhome-batteries', ready: '.detail .members', keys: ['{', '[', '['] },
  { name: 'run-right-to-left', path: '/ui/runs/support%2F%D8%B7%D9%84%D8%A8-%D8%A7%D8%B3%D8%AA%D8%B1%D8%AF%D8%A7%D8%AF-7?kind=turn', ready: '.wf-row' },
  { name: 'run-long-id', path: '/ui/decisions?prefix=x/', ready: '.pane-decision' },
  { name: 'live', path: '/ui/live', ready: '.empty' },
  { name: 'partitions', path: '/ui/partitions', ready: '.row' },
  { name: 'audit-empty', path: '/ui/audit?show=retention', ready: '.empty' },
  { name: 'refused', path: '/ui/refused', ready: '.row' },
  { name: 'refused-empty', path: '/ui/refused?show=unreadable', ready: '.empty' },
  { name: 'concepts', path: '/ui/concepts', ready: '#decisions' },
  { name: 'run-unknown', path: '/ui/runs/no-such-run', ready: '.empty' },
];

for (const { name, path, ready, keys = [] } of VIEWS) {
  test(`${name} is readable in dark and light, wide and narrow`, async () => {
    for (const scheme of ['dark', 'light']) {
      for (const viewport of [WIDE, NARROW]) {
        const visit = await Visit.begin({ scheme, viewport, expected: name === 'run-unknown' ? ['404'] : [] });
        const page = await visit.open(path);
        await page.waitForSelector(ready);
        if (name !== 'concepts') await page.waitForSelector('.fresh.is-current', { state: 'attached' });
        for (const key of keys) await page.keyboard.press(key);
        if (name.startsWith('run-at')) await page.locator('.resume', { hasText: 'takes over here' }).waitFor();
        await page.waitForFunction(() => !document.querySelector('.loading, .resume.old'));
        const title = `${name}-${scheme}-${viewport === WIDE ? 'wide' : 'narrow'}`;
        await page.screenshot({ path: join(SHOTS, title + '.png') });
        await isAccessible(page, title);
        // This document explains the names of the API.
        if (name !== 'concepts') await isInWords(page, title);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 0, `${title} is ${overflow} px too wide`);
        const clipped = await page.evaluate(() => [...document.querySelectorAll('.cell-state, .cell-age')].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent));
        assert.deepEqual(clipped, [], `${title} shows states and ages whole`);
        await visit.end();
      }
    }
  });
}

test('the way of a decision: killed agent, late result, refusal in words, read again, adopt, and the agent continues', async (context) => {
  const run = 'support/refund-8841';
  const { late: first, next: agent } = await killedAgent(journal, run);
  context.after(() => agent.kill());
  const visit = await Visit.begin({ expected: ['409'] });
  const page = await visit.open('/ui/decisions?prefix=support/refund-8841');
  await page.getByText('No result has arrived. Only the receiver can tell.').waitFor();
  assert.ok(await page.getByRole('radio', { name: 'It happened, as the late result says' }).isDisabled(), 'nothing to adopt yet');
  // The old process is alive after all. Its result is refused, and appears as evidence without a reload.
  await first.result('refund-3', { refund: 'RF-20931', status: 'succeeded' });
  await page.getByText('The journal knows more now.').waitFor();
  await page.getByText('A late result arrived at').waitFor();
  await isAccessible(page, 'an effect that changed');
  await page.getByRole('button', { name: 'Read it again' }).click();
  await page.getByText('A late result says that it happened', { exact: true }).waitFor();
  assert.match(await page.locator('.pane-decision .late').innerText(), /RF-20931/);
  // The evidence is above the choices.
  const above = await page.evaluate(() => document.querySelector('.pane-decision .late').getBoundingClientRect().bottom <= document.querySelector('.choices').getBoundingClientRect().top);
  assert.ok(above);
  await page.getByRole('radio', { name: 'It happened, as the late result says' }).check();
  await page.getByLabel('How do you know?').fill('the provider has RF-20931 for order 8841');
  await page.getByLabel('Your name').fill('mara');
  await page.screenshot({ path: join(SHOTS, 'walk-1-adopt.png') });
  // A second result arrives, and the page does not hear of it before the decision is sent.
  await page.route('**/v1/effects?**', (route) => route.abort());
  await first.result('refund-3', { refund: 'RF-20932', status: 'succeeded' }, 'refund-3-again');
  await page.unroute('**/v1/effects?**');
  const [answer] = await Promise.all([page.waitForResponse((response) => response.url().endsWith('/resolution')), page.getByRole('button', { name: 'Adopt the late result' }).click({ force: true })]);
  assert.equal(answer.status(), 409);
  await page.getByText('Not decided: the journal knows more than you saw.').waitFor();
  await page.getByText('Another late result arrived at').first().waitFor();
  await page.screenshot({ path: join(SHOTS, 'walk-2-refused.png') });
  await isAccessible(page, 'a refused decision');
  await isInWords(page, 'a refused decision');
  await page.getByRole('button', { name: 'Read it again' }).first().click();
  await page.getByText('the one to adopt').waitFor();
  assert.equal(await page.locator('.pane-decision .late').count(), 2);
  await page.getByRole('radio', { name: 'It happened, as the late result says' }).check();
  assert.equal(await page.getByLabel('How do you know?').inputValue(), 'the provider has RF-20931 for order 8841', 'the typed text stays');
  await page.getByRole('button', { name: 'Adopt the late result' }).click();
  await page.getByText('Decided: it happened, as the late result says', { exact: true }).waitFor();
  await page.getByText('The agent gets').waitFor();
  await page.screenshot({ path: join(SHOTS, 'walk-3-decided.png') });
  await isAccessible(page, 'a decision that was made');
  // The waiting agent asks for the call before it makes it, and continues with the result.
  assert.deepEqual(await agent.line(), { status: 'completed', result: { refund: 'RF-20932', status: 'succeeded' }, outcome: 'applied' });
  assert.equal(await agent.ended, 0);
  await page.getByRole('link', { name: 'Open the run', exact: true }).click();
  await page.locator('.run-top .badge', { hasText: 'completed' }).waitFor();
  await page.getByRole('button', { name: /^decision/ }).click();
  await page.locator('.detail').getByText('mara').waitFor();
  await page.getByRole('button', { name: /^issue_refund/ }).click();
  await page.getByRole('button', { name: 'Show the answer' }).click();
  await page.locator('.detail').getByText('"RF-20932"').waitFor();
  await page.screenshot({ path: join(SHOTS, 'walk-4-run.png') });
  await visit.end();
});

test('to allow a call again needs the name of its tool, and against evidence its record', async () => {
  const { first } = await killedRefund(journal, 'support/refund-77', { order: '77' });
  await first.result('refund-3', { refund: 'RF-77' });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions?prefix=support/refund-77');
  await page.getByRole('radio', { name: 'It did not happen' }).check();
  const button = page.getByRole('button', { name: 'Allow the call to run again' });
  await page.getByLabel('How do you know?').fill('the provider rolled it back');
  await page.getByLabel('Your name').fill('mara');
  assert.ok(await button.isDisabled());
  await page.getByLabel('Type issue_refund').fill('issue_refund');
  assert.ok(await button.isDisabled(), 'the evidence is not named');
  await page.screenshot({ path: join(SHOTS, 'decision-not-done.png') });
  await isAccessible(page, 'not done');
  await page.getByRole('checkbox', { name: /I decide against the record refund-3-result/ }).check();
  const [sent] = await Promise.all([page.waitForRequest((request) => request.url().endsWith('/resolution')), button.click()]);
  const body = sent.postDataJSON();
  assert.equal(body.evidence, 'refund-3-result');
  assert.ok(body.basis && body.revision >= 2, 'the state that its author saw');
  await page.getByText('Decided: it did not happen', { exact: true }).waitFor();
  const { pending } = await journal.get('/v1/runs/support%2Frefund-77/recovery');
  assert.equal(pending[0].class, 'retry_safe');
  await visit.end();
});

test('a choice about another state is cleared, and its texts stay', async () => {
  const { first } = await killedRefund(journal, 'drafts/refund-1', { order: '1' });
  await killedRefund(journal, 'drafts/refund-2', { order: '2' });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions?prefix=drafts/&run=drafts/refund-1&effect=refund-3');
  const chosen = page.getByRole('radio', { name: 'Nobody can find out' });
  await chosen.check();
  await page.getByLabel('How do you know?').fill('I asked on Monday');
  await page.getByLabel('Your name').fill('mara');
  await page.locator('.item', { hasText: 'drafts/refund-2' }).click();
  await page.waitForURL(/run=drafts%2Frefund-2/);
  await page.waitForSelector('.choices');
  await first.result('refund-3', { masked: 'my own text' });
  await page.locator('.item', { hasText: '1 late result' }).click();
  await page.getByText('You chose before this state.').waitFor();
  assert.match(await page.locator('.pane-decision .late').innerText(), /"masked": "my own text"/, 'content that imitates a mask is shown');
  assert.equal(await page.getByRole('radio', { checked: true }).count(), 0);
  await isAccessible(page, 'a draft about another state');
  await chosen.check();
  assert.equal(await page.getByText('You chose before this state.').count(), 0);
  assert.equal(await page.getByLabel('How do you know?').inputValue(), 'I asked on Monday');
  await page.getByRole('button', { name: 'Count the call as failed' }).click();
  await page.getByText('Decided: nobody can find out', { exact: true }).waitFor();
  await visit.end();
});

test('masked evidence is read when somebody asks for it', async () => {
  const { first } = await killedRefund(journal, 'masked/refund-1', { order: '1' });
  await first.append(first.record('refund-3-result', { type: 'tool_call_completed', request_record_id: 'refund-3', result: { refund: 'RF-77001' } }, { privacy: 'sensitive' }));
  const visit = await Visit.begin();
  let unmasked = 0;
  visit.context.on('request', (request) => { unmasked += /\/recovery|\/calls\/|raw=true/.test(request.url()); });
  const page = await visit.open('/ui/decisions?prefix=masked/');
  await page.locator('.pane-decision').getByText('Masked, since its privacy class is sensitive').waitFor();
  assert.equal(unmasked, 0);
  await page.getByRole('button', { name: 'Show the content' }).click();
  await page.locator('.pane-decision .late').getByText('"RF-77001"').waitFor();
  assert.equal(unmasked, 1);
  await isAccessible(page, 'evidence that was unmasked');
  await visit.end();
});

test('nobody decides in a browser that rounds numbers, and another token clears the forms', async () => {
  await killedRefund(journal, 'rounds/refund-1', { order: '1' });
  const visit = await Visit.begin({ expected: ['401'] });
  const page = await visit.open('/ui/decisions?prefix=rounds/');
  await page.getByRole('radio', { name: 'Nobody can find out' }).check();
  await page.getByLabel('How do you know?').fill('a secret of the first person');
  await page.evaluate(() => localStorage.setItem('runlog.who', 'the first person'));
  await page.getByRole('button', { name: 'Token' }).click();
  await page.getByLabel('Token or JWT').fill('another');
  await page.getByRole('button', { name: 'Use this token' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.getByRole('radio', { name: 'Nobody can find out' }).check();
  assert.equal(await page.getByLabel('How do you know?').inputValue(), '');
  assert.equal(await page.getByLabel('Your name').inputValue(), '');
  await visit.end();
  const old = await Visit.begin();
  await old.context.addInitScript(() => { const { parse } = JSON; JSON.parse = (text, each) => parse(text, each && ((key, value) => each(key, value))); });
  const rounded = await old.open('/ui/decisions?prefix=rounds/');
  await rounded.getByText('This browser rounds numbers.').waitFor();
  assert.ok(await rounded.getByRole('radio', { name: 'Nobody can find out' }).isDisabled());
  await isAccessible(rounded, 'a browser that rounds numbers');
  await old.end();
});

test('a result is recorded digit by digit, and a keyed call says what its key does', async () => {
  await killedRefund(journal, 'support/refund-78', { order: '78' });
  await killedRefund(journal, 'support/keyed-79', { order: '79', key: 'refund-79' });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions?prefix=support/refund-78');
  await page.getByRole('radio', { name: 'It happened, and I know the result' }).check();
  await page.getByLabel('The result, as JSON').fill('RF-1');
  await page.getByText('This is not JSON yet.').waitFor();
  await page.getByLabel('The result, as JSON').fill('{"refund": 12345678901234567.10}');
  await page.getByLabel('How do you know?').fill('I asked');
  await page.getByLabel('Your name').fill('mara');
  const [sent] = await Promise.all([page.waitForRequest((request) => request.url().endsWith('/resolution')), page.getByRole('button', { name: 'Record the result' }).click()]);
  assert.ok(sent.postData().endsWith(',"result":{"refund": 12345678901234567.10}}'));
  await page.getByText('Decided: it happened, and I know the result', { exact: true }).waitFor();
  await page.locator('.decided').getByText('12345678901234567.10').waitFor();
  await page.goto('/ui/decisions?show=safe&prefix=support/keyed-79');
  await page.getByText('A receiver that knows the key does it once.').waitFor();
  await page.getByText('No decision is needed').waitFor();
  await visit.end();
});

test('a log that is busier than the answers does not starve the list', async () => {
  const writer = await journal.claim('busy/run', 'worker-1');
  await writer.request('busy-0', 'count', { nth: 0 });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions?show=running&prefix=busy/');
  await page.waitForSelector('.item');
  await page.locator('.foot', { hasText: 'live' }).waitFor();
  await page.route('**/v1/effects?**', async (route) => { await new Promise((done) => setTimeout(done, 2000)); await route.continue().catch(() => {}); });
  let isOver = false;
  const work = (async () => { for (let nth = 1; !isOver && nth < 100; nth++) { await writer.request(`busy-${nth}`, 'count', { nth }); await page.waitForTimeout(200); } })();
  await page.waitForFunction(() => document.querySelectorAll('.item').length > 1, null, { timeout: 10000 });
  isOver = true;
  await work;
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await visit.end();
});

test('a call whose process is at work is apart, and a decision about it waits', async () => {
  const writer = await journal.claim('live/charge', 'worker-30');
  await writer.request('charge-1', 'charge_card', { amount: 10 });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions?show=running&prefix=live/charge');
  await page.getByText('Its process may still be at work.').waitFor();
  await page.getByRole('radio', { name: 'Nobody can find out' }).check();
  await page.getByLabel('How do you know?').fill('impatient');
  await page.getByLabel('Your name').fill('mara');
  assert.ok(await page.getByRole('button', { name: 'Count the call as failed' }).isDisabled());
  await page.getByRole('checkbox', { name: 'I stopped the process. Decide now.' }).waitFor();
  await isAccessible(page, 'running');
  await writer.result('charge-1', { paid: true });
  await page.getByText('This effect has left the list.').waitFor();
  await page.getByRole('button', { name: 'Read it again' }).click();
  await page.getByText('This effect has an end now.').waitFor();
  await visit.end();
});

test('a result that contradicts the end of its call is shown with both answers', async () => {
  const run = 'late/refund-5';
  const { first } = await killedRefund(journal, run, { order: '5' });
  const { pending: [{ revision, basis }] } = await journal.get(`/v1/runs/${encodeURIComponent(run)}/recovery`);
  await journal.send('POST', `/v1/runs/${encodeURIComponent(run)}/effects/refund-3/resolution`, { decision: 'give_up', revision, basis, who: 'kim', why: 'nobody knew' });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions?prefix=late/');
  await page.getByText('Nothing matches').waitFor();
  await first.result('refund-3', { refund: 'RF-5' });
  await page.getByRole('button', { name: 'Contradicted' }).click();
  await page.getByText('The call ended before, as failed').waitFor();
  assert.match(await page.locator('.pane-decision .late').innerText(), /RF-5/);
  await page.getByText('The agent got').waitFor();
  assert.equal(await page.getByRole('radio').count(), 0, 'nothing is left to decide');
  await page.screenshot({ path: join(SHOTS, 'contradicted.png') });
  await isAccessible(page, 'contradicted');
  await isInWords(page, 'contradicted');
  await visit.end();
});

test('back and forward, and a link that shows another person the same position', async () => {
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions');
  await page.waitForSelector('.item');
  await page.getByRole('link', { name: 'Runs' }).click();
  await page.getByRole('button', { name: 'Completed' }).click();
  await page.waitForURL('**/ui/runs?status=completed');
  await page.getByRole('link', { name: 'research/home-batteries' }).click();
  await page.waitForSelector('.wf-row');
  await page.keyboard.press('{');
  await page.waitForURL(/at=\d+%3A\d+|at=\d+:\d+/);
  const [address, text] = [page.url(), await page.locator('.where').innerText()];
  await page.locator('.resume', { hasText: 'takes over here' }).waitFor();
  await page.goBack();
  await page.waitForURL('**/ui/runs?status=completed');
  assert.equal(await page.getByRole('button', { name: 'Completed' }).getAttribute('aria-pressed'), 'true');
  await page.goBack();
  await page.waitForURL('**/ui/runs');
  await page.goBack();
  await page.waitForSelector('.item');
  await page.goForward();
  await page.waitForSelector('.row');
  const other = await Visit.begin({ scheme: 'light' });
  const shown = await other.open(address);
  await shown.waitForSelector('.wf-row');
  assert.equal(await shown.locator('.where').innerText(), text);
  await other.end();
  await visit.end();
});

test('the keyboard alone suffices', async () => {
  await killedRefund(journal, 'keys/refund-1', { order: '1' });
  await killedRefund(journal, 'keys/refund-2', { order: '2' });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions?prefix=keys/');
  await page.waitForSelector('.choices');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');
  await page.keyboard.press('j');
  await page.waitForURL(/effect=refund-3/);
  await page.waitForSelector('.choices');
  // To the first choice that can be chosen, then down to "Nobody can find out".
  for (let presses = 0; presses < 60; presses++) {
    await page.keyboard.press('Tab');
    if (await page.evaluate(() => document.activeElement.name === 'decision')) break;
  }
  const down = async () => page.evaluate(() => document.activeElement.value);
  for (let presses = 0; presses < 6 && (await down()) !== 'give_up'; presses++) await page.keyboard.press('ArrowDown');
  assert.equal(await down(), 'give_up');
  await page.keyboard.press('Tab');
  await page.keyboard.type('nobody knows');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('kim');
  await page.keyboard.press('Enter');
  await page.getByText('Decided: nobody can find out', { exact: true }).waitFor();
  await page.keyboard.press('g');
  await page.keyboard.press('r');
  await page.waitForSelector('.row');
  await page.keyboard.press('/');
  await page.keyboard.type('research');
  await page.waitForURL('**/ui/runs?prefix=research');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 1);
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.wf-row');
  await page.getByRole('slider').focus();
  await page.keyboard.press('Home');
  await page.getByText('record 1 of 23').waitFor();
  await page.keyboard.press('ArrowRight');
  await page.getByText('record 2 of 23').waitFor();
  assert.match(await page.getByRole('slider').getAttribute('aria-valuetext'), /^record 2 of 23, /);
  await page.keyboard.press('End');
  await page.getByText('the newest record').waitFor();
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  await isAccessible(page, 'keys');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor({ state: 'detached' });
  await visit.end();
});

test('hostile content stays text', async () => {
  const visit = await Visit.begin();
  const page = await visit.open('/ui/runs/' + encodeURIComponent('hostile/<img src=x onerror=alert(1)>'));
  await page.getByRole('button', { name: /^user/ }).click();
  await page.locator('.bubble').waitFor();
  assert.match(await page.locator('.bubble').innerText(), /<img src=x onerror="document\.title='owned'"><script>/);
  await page.goto('/ui/decisions?prefix=hostile/');
  await page.waitForSelector('.pane-decision');
  assert.equal(await page.evaluate(() => document.querySelectorAll('img, script:not([src]), iframe').length), 0);
  assert.ok(!(await page.title()).includes('owned'));
  await visit.end();
});

test('a record of every kind is shown', async () => {
  const examples = new URL('../../schemas/examples/', import.meta.url);
  let applied = 0;
  for (const name of readdirSync(examples)) {
    // These are of a partition, of a writer, or cannot be appended alone.
    if (['genesis', 'run_claim', 'skip', 'retention_horizon', 'batch', 'erasure', 'stored_payload'].includes(name.slice(0, -5))) continue;
    const { writer_id, writer_epoch, journal_seq, writer_seq, ...record } = JSON.parse(readFileSync(new URL(name, examples), 'utf8'));
    const [outcome] = await journal.send('POST', '/v1/runs/kinds%2Fall/records', [{ ...record, run_id: 'kinds/all' }]);
    applied += outcome.outcome === 'applied';
  }
  assert.ok(applied > 30, `${applied} kinds were applied`);
  const visit = await Visit.begin({ viewport: { width: 1440, height: 1800 } });
  const page = await visit.open('/ui/runs/kinds%2Fall');
  await page.waitForSelector('.wf-row.refused');
  const rows = page.locator('.wf-row');
  assert.ok(await rows.count() > 30);
  for (let row = 0; row < await rows.count(); row++) {
    await rows.nth(row).click();
    await page.waitForFunction(() => !document.querySelector('.detail .loading'));
    await isInWords(page, await rows.nth(row).innerText());
    assert.equal(await page.getByText('This view has a defect').count(), 0, await rows.nth(row).innerText());
  }
  await isAccessible(page, 'every kind of record');
  await visit.end();
});

/** A server with tokens: its owner, a token without `resolve`, and a token without content. */
async function guardedServer(context, name) {
  const tokens = join(server.dir, name + '.json');
  const make = async (principal, scopes, runs = '*') => JSON.parse(await command(['token', 'create', '--json', '--tokens', tokens, '--principal', principal, '--runs', runs, ...scopes.flatMap((scope) => ['--scope', scope])])).token;
  const all = await make('admin', ['append', 'read_meta', 'read_content', 'resolve', 'operate']);
  const reader = await make('reader@acme', ['read_meta', 'read_content'], 'support/*');
  const masked = await make('masked@acme', ['read_meta']);
  const guarded = await startServer({ flags: ['--tokens', tokens] });
  context.after(() => guarded.end());
  return { guarded, owner: new Journal(guarded.url, all), all, reader, masked };
}

test('tokens: scopes are named, masked stays masked, and the token is in no address', async (context) => {
  const { guarded, owner, all, reader, masked } = await guardedServer(context, 'tokens');
  const { first } = await killedRefund(owner, 'support/refund-8841');
  await first.result('refund-3', { refund: 'RF-20931' });
  await killedRefund(owner, 'other/refund-1');
  const visit = await Visit.begin({ url: guarded.url, expected: ['401', '403'] });
  const page = await visit.open('/ui');
  const dialog = page.getByRole('dialog', { name: 'Token' });
  const enter = async (token, keep = false) => {
    await dialog.getByLabel('Token or JWT').fill(token);
    if (keep) await dialog.getByLabel('Keep it for this tab until the tab is closed').check();
    await dialog.getByRole('button', { name: 'Use this token' }).click();
  };
  await dialog.waitFor();
  await page.screenshot({ path: join(SHOTS, 'token.png') });
  await isAccessible(page, 'token');
  await enter('rlg_wrong');
  await dialog.getByText('This server does not accept your token').waitFor();
  await enter(reader);
  await page.locator('.pane-decision .late').waitFor();
  assert.equal(await page.locator('.item').count(), 1, 'the runs of the token alone');
  await page.getByText('this needs the scope resolve').waitFor();
  assert.ok(await page.getByRole('radio', { name: 'It happened, as the late result says' }).isDisabled());
  await page.screenshot({ path: join(SHOTS, 'token-without-resolve.png') });
  await isAccessible(page, 'without resolve');
  const status = await page.evaluate(async (token) => (await fetch('/v1/runs/support%2Frefund-8841/effects/refund-3/resolution', { method: 'POST', headers: { 'content-type': 'application/json', authorization: 'Bearer ' + token }, body: '{"decision":"give_up","revision":2,"who":"x","why":"y"}' })).status, reader);
  assert.equal(status, 403, 'the server refuses it, whatever the page does');
  await page.reload();
  await dialog.waitFor();
  await enter(masked, true);
  await page.locator('.pane-decision .late').waitFor();
  assert.ok(!(await page.innerText('body')).includes('RF-20931'), 'content stays masked');
  await page.locator('.pane-decision').getByText(/Masked, since its privacy class is internal/).waitFor();
  await page.screenshot({ path: join(SHOTS, 'token-masked.png') });
  await isAccessible(page, 'masked');
  await page.goto('/ui/runs/support%2Frefund-8841');
  await page.locator('.resume').getByText('Your token lacks the scope').waitFor();
  const addresses = await page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name).join() + location.href + JSON.stringify(localStorage));
  for (const token of [all, reader, masked]) assert.ok(!addresses.includes(token));
  await visit.end();
});

test('the same way with a token without resolve: evidence and words, no decision, and the agent waits for a person who may decide', async (context) => {
  const { guarded, owner, reader } = await guardedServer(context, 'way');
  const run = 'support/refund-8841';
  const { late, next: agent } = await killedAgent(owner, run);
  context.after(() => agent.kill());
  await late.result('refund-3', { refund: 'RF-20931', status: 'succeeded' });
  const visit = await Visit.begin({ url: guarded.url, expected: ['401', '403'] });
  const page = await visit.open('/ui/decisions');
  await page.getByLabel('Token or JWT').fill(reader);
  await page.getByRole('button', { name: 'Use this token' }).click();
  await page.getByText('this needs the scope resolve').waitFor();
  const isLocked = async () => { for (const radio of await page.getByRole('radio').all()) assert.ok(await radio.isDisabled()); };
  await page.locator('.pane-decision .late').getByText('"RF-20931"').waitFor();
  await isLocked();
  // A second result arrives: its reader learns of it as anybody does.
  await late.result('refund-3', { refund: 'RF-20932', status: 'succeeded' }, 'refund-3-again');
  await page.getByText('Another late result arrived at').waitFor();
  await page.getByRole('button', { name: 'Read it again' }).click();
  await page.getByText('the one to adopt').waitFor();
  assert.equal(await page.locator('.pane-decision .late').count(), 2);
  await isLocked();
  const { effects: [effect] } = await owner.get('/v1/effects?pending=true&unsafe=true&consistency=latest');
  const decision = { decision: 'adopt', revision: effect.revision, basis: effect.basis, evidence: 'refund-3-again', who: 'mara', why: 'the provider has RF-20932' };
  const resolution = `/v1/runs/${encodeURIComponent(run)}/effects/refund-3/resolution`;
  await assert.rejects(new Journal(guarded.url, reader).send('POST', resolution, decision), { status: 403, kind: 'forbidden' });
  assert.equal((await owner.get(`/v1/runs/${encodeURIComponent(run)}/recovery?consistency=latest`)).resumable, false, 'nothing was decided');
  await page.screenshot({ path: join(SHOTS, 'walk-5-without-resolve.png') });
  assert.equal((await owner.send('POST', resolution, decision)).outcome, 'applied');
  assert.deepEqual(await agent.line(), { status: 'completed', result: { refund: 'RF-20932', status: 'succeeded' }, outcome: 'applied' });
  await page.getByText('This effect has left the list.').waitFor();
  await page.getByRole('button', { name: 'Read it again' }).click();
  await page.getByText('This effect has an end now.').waitFor();
  await page.getByRole('link', { name: 'Open the run', exact: true }).click();
  await page.locator('.run-top .badge', { hasText: 'completed' }).waitFor();
  await page.getByRole('button', { name: /^decision/ }).click();
  await page.locator('.detail').getByText('mara').waitFor();
  await visit.end();
});

test('twelve tabs share one stream, and the next tab continues after the first is closed', async () => {
  const visit = await Visit.begin();
  let streams = 0;
  const pages = [];
  visit.context.on('request', (request) => { if (new URL(request.url()).pathname === '/v1/tail') streams++; });
  for (let tab = 0; tab < 12; tab++) pages.push(await visit.open('/ui/runs?prefix=tabs/'));
  for (const page of pages) await page.locator('.foot', { hasText: 'live' }).waitFor();
  assert.equal(streams, 1);
  await (await journal.claim('tabs/one', 'worker')).lifecycle('started');
  for (const page of pages) await page.locator('.row', { hasText: 'tabs/one' }).waitFor();
  await pages.shift().close();
  await pages[0].waitForTimeout(1);
  for (let waited = 0; streams < 2 && waited < WAIT; waited += 50) await pages[0].waitForTimeout(50);
  for (const page of pages) await page.locator('.foot', { hasText: 'live' }).waitFor();
  await (await journal.claim('tabs/two', 'worker')).lifecycle('started');
  for (const page of pages) await page.locator('.row', { hasText: 'tabs/two' }).waitFor();
  assert.equal(streams, 2);
  await visit.end();
});

test('a server that goes away is said in words, and the page goes on when it is back', async (context) => {
  let short = await startServer();
  context.after(() => short.end());
  const owner = new Journal(short.url);
  await (await owner.claim('before/one', 'worker')).lifecycle('started');
  const visit = await Visit.begin({ url: short.url, expected: ['ERR_CONNECTION_REFUSED', 'ERR_INCOMPLETE_CHUNKED_ENCODING', 'ERR_CONNECTION_RESET', 'ERR_EMPTY_RESPONSE', 'ERR_SOCKET_NOT_CONNECTED'] });
  const page = await visit.open('/ui/runs');
  await page.locator('.row', { hasText: 'before/one' }).waitFor();
  await short.stop('SIGKILL');
  await page.getByText('The server has not answered for').waitFor();
  assert.equal(await page.locator('.row').count(), 1, 'what was known stays');
  await page.screenshot({ path: join(SHOTS, 'server-away.png') });
  await isAccessible(page, 'away');
  short = await startServer({ dir: short.dir, port: Number(new URL(short.url).port) });
  await (await owner.claim('after/two', 'worker')).lifecycle('started');
  await page.locator('.row', { hasText: 'after/two' }).waitFor();
  await page.getByText('The server has not answered for').waitFor({ state: 'detached' });
  await page.locator('.foot', { hasText: 'live' }).waitFor();
  await visit.end();
});

test('a run of ten thousand records is windowed, and a stopped partition is named', async () => {
  const writer = await journal.claim('long/run', 'worker');
  for (let page = 0; page < 20; page++) {
    const records = [];
    for (let nth = 0; nth < 250; nth++) {
      const id = `c-${page}-${nth}`;
      records.push(writer.record(id, { type: 'tool_call_requested', request_id: id, call_id: id, tool_name: 'step', arguments: { page, nth } }),
        writer.record(id + '-r', { type: 'tool_call_completed', request_record_id: id, result: nth }));
    }
    await writer.append(...records);
  }
  const visit = await Visit.begin();
  const begun = performance.now();
  const page = await visit.open('/ui/runs/long%2Frun');
  await page.waitForSelector('.wf-row');
  const first = performance.now() - begun;
  await page.waitForFunction(() => !document.querySelector('.progress') && /of 10,001/.test(document.querySelector('.where').textContent));
  console.log(`first rows of 10,001 records after ${Math.round(first)} ms, all after ${Math.round(performance.now() - begun)} ms`);
  assert.ok(await page.evaluate(() => document.querySelectorAll('.wf-row').length) < 100);
  await page.getByRole('slider').focus();
  const stepped = performance.now();
  await page.keyboard.press('Home');
  await page.getByText('record 1 of 10,001').waitFor();
  console.log(`a step of the slider over 10,001 records takes ${Math.round(performance.now() - stepped)} ms`);
  await page.keyboard.press('End');
  await page.screenshot({ path: join(SHOTS, 'run-10000.png') });
  // The overview names a stopped partition; this answer is made up.
  await page.route('**/v1/overview', async (route) => {
    const response = await route.fetch();
    route.fulfill({ response, json: { ...(await response.json()), stopped: [3] } });
  });
  await page.getByText('Partition 3 is stopped.').waitFor();
  await visit.end();
});

test('first rows appear soon', async () => {
  for (const [path, ready] of [['/ui/decisions', '.item'], ['/ui/runs', '.row'], ['/ui/runs/research%2Fhome-batteries', '.wf-row']]) {
    const times = [];
    for (let round = 0; round < 5; round++) {
      const visit = await Visit.begin();
      await visit.context.addInitScript((selector) => new MutationObserver((changes, observer) => {
        if (!document.querySelector(selector)) return;
        globalThis.firstRows = performance.now();
        observer.disconnect();
      }).observe(document, { subtree: true, childList: true }), ready);
      const page = await visit.open(path);
      await page.waitForSelector(ready);
      times.push(await page.evaluate(() => globalThis.firstRows));
      await visit.end();
    }
    // Printed, not asserted: it depends on the machine.
    console.log(`${path}: first rows ${Math.round(times.sort((a, b) => a - b)[2])} ms after the navigation began (median of 5, nothing cached)`);
  }
});

/** A server of which a partition stopped at a record of an unknown schema, and of which another has bytes that are no record. */
async function stoppedServer(context, flags = [], token = undefined) {
  const first = await startServer({ flags });
  const one = await new Journal(first.url, token).claim('stops/one', 'worker-1');
  const { position } = await one.lifecycle('started');
  let other;
  for (let nth = 0; !other; nth++) {
    const claim = await new Journal(first.url, token).claim(`reads/run-${nth}`, 'worker-2');
    const outcome = await claim.lifecycle('started');
    if (outcome.position.partition !== position.partition) other = { claim, partition: outcome.position.partition };
  }
  await first.stop();
  const stop = `${position.partition}:${await appendForeign(first.dir, position.partition, 'c301' + 'ab'.repeat(8) + '00')}`;
  const bytes = Buffer.from('<img src=x onerror="document.title=1">\u202e' + 'x'.repeat(40)).toString('hex');
  const unreadable = `${other.partition}:${await appendForeign(first.dir, other.partition, bytes)}`;
  const second = await startServer({ dir: first.dir, flags });
  context.after(() => second.end());
  return { server: second, stop, unreadable, partition: position.partition, other, journal: new Journal(second.url, token) };
}

test('the server sends the files that the budget counts', async () => {
  let bytes = 0;
  for (const [name, content] of files) {
    const response = await fetch(server.url + '/ui/' + (name === 'index.html' ? '' : name));
    assert.equal(await response.text(), content, name);
    bytes += content.length;
  }
  console.log(`${files.size} files, ${bytes} bytes; at most ${BYTES_MAX} compressed`);
});

test('a partition that stopped at an unknown schema is explained, and continues after a skip by keyboard alone', async (context) => {
  const { server: stopped, stop, partition, journal: owner } = await stoppedServer(context);
  const visit = await Visit.begin({ url: stopped.url });
  const page = await visit.open('/ui/runs');
  await page.getByText(`Partition ${partition} is stopped.`).waitFor();
  await page.getByRole('link', { name: 'What to do' }).click();
  await page.waitForURL('**/ui/partitions');
  const finding = page.locator('.findings article', { hasText: `partition ${partition} is stopped at offset` });
  await finding.getByText('start a version that knows the schema').waitFor();
  await page.locator('.row', { hasText: `Partition ${partition}` }).getByText('stopped').waitFor();
  for (const [scheme, viewport] of [['dark', WIDE], ['light', WIDE], ['dark', NARROW], ['light', NARROW]]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(viewport);
    await page.screenshot({ path: join(SHOTS, `partitions-stopped-${scheme}-${viewport === WIDE ? 'wide' : 'narrow'}.png`) });
    await isAccessible(page, 'a stopped partition');
  }
  await page.setViewportSize(WIDE);
  const sent = [];
  visit.context.on('request', (request) => { if (request.url().includes('/v1/skips')) sent.push([new URL(request.url()).search, request.postData()]); });
  for (let presses = 0; presses < 40; presses++) {
    await page.keyboard.press('Tab');
    if (await page.evaluate((text) => document.activeElement.textContent === text, `Skip ${stop} …`)) break;
  }
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: `Skip the record at ${stop}` });
  await dialog.getByText('The partition stopped here.').waitFor();
  await isAccessible(page, 'the dialog of a skip');
  await isInWords(page, 'the dialog of a skip');
  const button = dialog.getByRole('button', { name: 'Void this record for every reader' });
  await dialog.getByLabel('Why?').focus();
  await page.keyboard.type('a client of a test wrote it');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('mara');
  await page.keyboard.press('Tab');
  await page.keyboard.type(stop.slice(0, -1) + '9999');
  assert.ok(await button.isDisabled(), 'another position');
  await dialog.getByText('Still missing: type the position.').waitFor();
  await page.keyboard.press('Control+A');
  await page.keyboard.type(stop);
  await page.screenshot({ path: join(SHOTS, 'skip-stop.png') });
  await page.keyboard.press('Enter');
  await dialog.getByText('The record is void for every reader.').waitFor();
  await page.screenshot({ path: join(SHOTS, 'skip-done.png') });
  await isAccessible(page, 'a skip that was made');
  assert.deepEqual(sent.map(([search]) => search), ['?dry_run=true', '']);
  const { plan, ...body } = JSON.parse(sent[1][1]);
  assert.deepEqual([plan.target, `${plan.position.partition}:${plan.position.offset}`], ['stop', stop]);
  assert.deepEqual(body, { partition, offset: Number(stop.split(':')[1]), who: 'mara', why: 'a client of a test wrote it' });
  await page.keyboard.press('Escape');
  await finding.waitFor({ state: 'detached' });
  await page.locator('.row', { hasText: `Partition ${partition}` }).getByText('shows all of the log').waitFor();
  assert.equal((await (await owner.claim('stops/one', 'worker-9')).lifecycle('completed')).outcome, 'applied');
  await visit.end();
});

test('a skip of a readable record says what is lost, and a plan that changed is read again', async () => {
  const writer = await journal.claim('skips/run-1', 'worker-1');
  await writer.lifecycle('started');
  const { position } = await writer.turn('user', 'to be voided');
  await writer.turn('assistant', 'a later record');
  const place = `${position.partition}:${position.offset}`;
  const visit = await Visit.begin({ expected: ['409'] });
  const page = await visit.open('/ui/partitions');
  let skips = 0;
  visit.context.on('request', (request) => { skips += /\/v1\/skips\?(force|$)/.test(request.url()); });
  await page.getByLabel('Void another record').fill(place);
  await page.getByRole('button', { name: 'Show what a skip does' }).click();
  const dialog = page.getByRole('dialog', { name: `Skip the record at ${place}` });
  await dialog.getByText('This record can be read, and its partition did not stop here.').waitFor();
  await dialog.getByText('1 later record of the run would be refused.').waitFor();
  const button = dialog.getByRole('button', { name: 'Void this record for every reader' });
  const fill = async () => {
    await dialog.getByLabel('Why?').fill('a wrong customer');
    await dialog.getByLabel('Your name').fill('mara');
    await dialog.getByLabel(`Type ${place}`).fill(place);
    assert.ok(await button.isDisabled(), 'its processes may run');
    await dialog.getByLabel('I ended all processes of the run.').check();
  };
  await fill();
  await page.screenshot({ path: join(SHOTS, 'skip-readable.png') });
  await isAccessible(page, 'a skip of a readable record');
  await writer.turn('assistant', 'one more');
  await button.click();
  await dialog.getByText('The journal knows more now.').waitFor();
  await dialog.getByText('2 later records of the run would be refused.').waitFor();
  assert.equal(skips, 1, 'the server refused the plan');
  assert.equal(await dialog.getByLabel(`Type ${place}`).inputValue(), '', 'the position is typed again');
  assert.equal(await dialog.getByLabel('Why?').inputValue(), 'a wrong customer');
  await fill();
  await button.click();
  await dialog.getByText('The record is void for every reader.').waitFor();
  assert.equal(skips, 2);
  await visit.end();
  // The partition is built again: the voided record and the displaced records are gone.
  for (let waited = 0; (await journal.get('/v1/runs/skips%2Frun-1?deadline_ms=30000')).records > 2 && waited < WAIT; waited += 50) await new Promise((done) => setTimeout(done, 50));
  assert.equal((await journal.get('/v1/runs/skips%2Frun-1')).records, 2);
});

test('refused records open in their run, and unreadable bytes are read on a click and stay text', async (context) => {
  const { server: stopped, unreadable, partition } = await stoppedServer(context);
  const visit = await Visit.begin();
  const page = await visit.open('/ui/refused?run=refused%2Flate-1');
  await page.locator('.row', { hasText: 'refused/late-1' }).getByText('another process had taken the run over').waitFor();
  assert.equal(await page.locator('.row').count(), 1, 'the records of this run alone');
  await page.getByRole('button', { name: 'show all' }).click();
  await page.waitForURL('**/ui/refused');
  await page.goBack();
  await page.waitForURL(/run=refused/);
  await page.locator('.row').getByRole('link').click();
  await page.locator('.detail', { hasText: 'A refused record' }).getByText('It is in the log and has no effect').waitFor();
  await visit.end();
  const other = await Visit.begin({ url: stopped.url });
  const list = await other.open('/ui/refused?show=unreadable');
  await list.getByText(`This list may lack records of partition ${partition}`).waitFor();
  let reads = 0;
  other.context.on('request', (request) => { reads += request.url().includes('/v1/dead-letters/'); });
  await list.getByRole('link', { name: unreadable }).click();
  await list.waitForURL(/at=/);
  const dialog = list.getByRole('dialog', { name: `Unreadable bytes at ${unreadable}` });
  await dialog.getByRole('button', { name: 'Show the bytes' }).waitFor();
  assert.equal(reads, 0);
  await dialog.getByRole('button', { name: 'Show the bytes' }).click();
  await dialog.getByText('neither Avro single-object encoding nor Confluent framing').waitFor();
  assert.match(await dialog.locator('.hex').innerText(), /^0000 {2}3c 69 6d 67 .* {2}<img src=x onerr$/m);
  assert.equal(await list.evaluate(() => document.querySelectorAll('img').length), 0);
  for (const [scheme, viewport] of [['dark', WIDE], ['light', NARROW]]) {
    await list.emulateMedia({ colorScheme: scheme });
    await list.setViewportSize(viewport);
    await list.screenshot({ path: join(SHOTS, `unreadable-${scheme}.png`) });
    await isAccessible(list, 'unreadable bytes');
  }
  await list.keyboard.press('Escape');
  await list.waitForURL('**/ui/refused?show=unreadable');
  await list.goBack();
  await dialog.getByRole('button', { name: `Skip ${unreadable} …` }).click();
  const skip = list.getByRole('dialog', { name: `Skip the record at ${unreadable}` });
  await skip.getByText('These bytes cannot be read.').waitFor();
  await skip.getByLabel('Why?').fill('a test wrote them');
  await skip.getByLabel('Your name').fill('mara');
  await skip.getByLabel(`Type ${unreadable}`).fill(unreadable);
  await skip.getByRole('button', { name: 'Void this record for every reader' }).click();
  await skip.getByText('The record is void for every reader.').waitFor();
  await skip.getByRole('button', { name: 'Close' }).last().click();
  await list.keyboard.press('Escape');
  await list.getByText('Every record can be read').waitFor();
  await other.end();
});

test('a token without operate sees partitions and skips nothing', async (context) => {
  const tokens = join(server.dir, 'operators.json');
  const make = async (principal, ...scopes) => JSON.parse(await command(['token', 'create', '--json', '--tokens', tokens, '--principal', principal, '--runs', '*', ...scopes.flatMap((scope) => ['--scope', scope])])).token;
  const all = await make('admin', 'append', 'read_meta', 'read_content', 'resolve', 'operate');
  const reader = await make('reader@acme', 'read_meta');
  const auditor = await make('auditor@acme', 'read_meta', 'audit');
  const { server: stopped, stop, unreadable, partition } = await stoppedServer(context, ['--tokens', tokens], all);
  const visit = await Visit.begin({ url: stopped.url, expected: ['401', '403'] });
  const page = await visit.open('/ui/partitions');
  const enter = async (token) => {
    await page.getByRole('dialog', { name: 'Token' }).getByLabel('Token or JWT').fill(token);
    await page.getByRole('button', { name: 'Use this token' }).click();
  };
  await enter(reader);
  await page.locator('.row', { hasText: `Partition ${partition}` }).getByText('stopped').waitFor();
  await page.getByText('Your token may not read why a partition stopped, and what to do').waitFor();
  await page.screenshot({ path: join(SHOTS, 'partitions-without-operate.png') });
  await isAccessible(page, 'partitions without operate');
  await page.getByRole('link', { name: 'Refused' }).click();
  await page.getByRole('button', { name: 'Unreadable bytes' }).click();
  await page.getByText('Your token may not list unreadable bytes').waitFor();
  await page.goto('/ui/partitions');
  await enter(auditor);
  await page.getByText('Your token may not skip records: this needs the scope operate').waitFor();
  assert.ok(await page.getByRole('button', { name: `Skip ${stop} …` }).isDisabled());
  await page.goto('/ui/refused?show=unreadable&at=' + unreadable);
  await enter(auditor);
  const dialog = page.getByRole('dialog', { name: `Unreadable bytes at ${unreadable}` });
  await dialog.getByText('Your token may not read these bytes: this needs the scope read_content').waitFor();
  assert.ok(await dialog.getByRole('button', { name: 'Show the bytes' }).isDisabled());
  await isAccessible(page, 'unreadable bytes without a scope');
  await visit.end();
});

test('the live tail shows records as they arrive, filters, pauses, keeps a bounded number, and names a gap', async () => {
  const visit = await Visit.begin();
  const first = await visit.open('/ui/runs');
  await first.locator('.foot', { hasText: 'live' }).waitFor();
  const page = await visit.open('/ui/live?prefix=tail/');
  await page.locator('.foot', { hasText: 'live' }).waitFor();
  await page.getByText('Waiting for a record').waitFor();
  const writer = await journal.claim('tail/one', 'worker');
  await writer.turn('user', 'content that does not pass between tabs');
  await (await journal.claim('other/one', 'worker')).turn('user', 'x');
  await page.locator('.row', { hasText: 'tail/one' }).nth(1).waitFor();
  assert.equal(await page.locator('.row').count(), 2);
  assert.ok(!(await page.innerText('body')).includes('content that does not pass'));
  for (const [scheme, viewport] of [['dark', WIDE], ['light', NARROW]]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(viewport);
    await page.screenshot({ path: join(SHOTS, `live-rows-${scheme}.png`) });
    await isAccessible(page, 'live');
  }
  await page.setViewportSize(WIDE);
  await page.getByRole('button', { name: 'Pause' }).click();
  await writer.turn('user', 'y');
  await page.getByRole('button', { name: 'Continue 1 newer' }).waitFor();
  assert.equal(await page.locator('.row').count(), 2);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 3);
  // The tab with the stream is closed: the next stream begins at its own end.
  await first.close();
  await page.getByText('Records may be missing here').waitFor();
  for (let nth = 0; nth < 3; nth++) await writer.append(...Array.from({ length: 250 }, (_, at) => writer.record(`t-${nth}-${at}`, { type: 'conversation_turn', message_id: `t-${nth}-${at}`, kind: 'user', content: 'z' })));
  await page.waitForFunction(() => document.querySelector('.rows').getAttribute('aria-rowcount') === '501');
  await page.getByRole('button', { name: 'Takeovers' }).click();
  await page.waitForURL(/kind=claim/);
  await page.getByText('Waiting for a record').waitFor();
  await journal.claim('tail/one', 'worker-b');
  await page.locator('.row', { hasText: 'takeover' }).waitFor();
  await page.locator('main').focus();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/ui\/runs\/tail%2Fone\?at=/);
  await visit.end();
});

test('the audit lists decisions with their authors, the newest first, and retention horizons', async () => {
  for (const nth of [1, 2]) {
    await killedRefund(journal, `audit/refund-${nth}`, { order: String(nth) });
    await journal.send('POST', `/v1/runs/audit%2Frefund-${nth}/effects/refund-3/resolution`, { decision: nth === 1 ? 'give_up' : 'not_done', revision: 1, who: `mara ${nth}`, why: `<b>asked</b> the provider ${nth}` });
  }
  const visit = await Visit.begin();
  const page = await visit.open('/ui/audit');
  const rows = page.locator('.row', { hasText: 'audit/refund-' });
  await rows.nth(0).getByText('mara 2').waitFor();
  await rows.nth(1).getByText('mara 1').waitFor();
  await rows.nth(1).getByText('nobody can find out; the call counts as failed').waitFor();
  await rows.nth(1).getByText('<b>asked</b> the provider 1').waitFor();
  await rows.nth(1).getByText('issue_refund', { exact: true }).waitFor();
  // The time answers who decided yesterday: no width may cut it.
  assert.ok(await rows.nth(1).locator('[role=cell]').first().evaluate((cell) => cell.scrollWidth <= cell.clientWidth));
  for (const [scheme, viewport] of [['dark', WIDE], ['light', WIDE], ['dark', NARROW], ['light', NARROW]]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(viewport);
    await page.screenshot({ path: join(SHOTS, `audit-${scheme}-${viewport === WIDE ? 'wide' : 'narrow'}.png`) });
    await isAccessible(page, 'audit');
    await isInWords(page, 'audit');
  }
  await page.setViewportSize(WIDE);
  await rows.nth(0).getByRole('link').click();
  await page.waitForURL(/\/ui\/runs\/audit%2Frefund-2\?at=/);
  await page.locator('.detail').getByText('mara 2').waitFor();
  // The newest decision is on the second page.
  await page.route('**/v1/events?**', async (route) => {
    const url = new URL(route.request().url());
    const isSecond = url.searchParams.has('cursor');
    url.searchParams.delete('cursor');
    const response = await route.fetch({ url: url.href });
    const answer = await response.json();
    const at = answer.events.findIndex((each) => each.run_id === 'audit/refund-2');
    route.fulfill({ response, json: { ...answer, events: answer.events.filter((_, nth) => (nth === at) === isSecond), next_cursor: isSecond ? null : '0:00' } });
  });
  await page.goto('/ui/audit');
  await page.locator('.row').nth(0).getByText('mara 2').waitFor();
  await visit.end();
});

test('what a view means is explained in the concepts, without a script', async () => {
  const visit = await Visit.begin();
  const page = await visit.open('/ui/decisions?prefix=nothing');
  const opened = visit.context.waitForEvent('page');
  await page.getByRole('link', { name: 'What does this mean?' }).click();
  const concepts = await opened;
  await concepts.waitForURL('**/ui/concepts#decisions');
  await concepts.getByRole('heading', { name: 'Decisions' }).waitFor();
  assert.equal(await concepts.evaluate(() => document.scripts.length), 0);
  for (const view of ['runs', 'live', 'partitions', 'refused', 'refused?show=unreadable', 'audit']) {
    await page.goto('/ui/' + view);
    const link = await page.getByRole('link', { name: 'What does this mean?' }).getAttribute('href');
    assert.equal(await concepts.evaluate((id) => document.querySelectorAll(id).length, link.slice('/ui/concepts'.length)), 1, link);
  }
  await visit.end();
});

test('the indices are verified on a click', async () => {
  const visit = await Visit.begin();
  const page = await visit.open('/ui/partitions');
  await page.getByRole('button', { name: 'Verify the indices' }).click();
  await page.getByText('The indices are equal to a new reading of the log').waitFor();
  await page.route('**/v1/verify', (route) => route.fulfill({ json: { equal: false, records: 5, seconds: 0.1, partitions: [{ partition: 2, offset: 5, indices: [{ name: 'runs', rows: 1, live_digest: 'sha256:1', rebuilt_digest: 'sha256:2' }, { name: 'records', rows: 1, live_digest: 'sha256:3', rebuilt_digest: 'sha256:3' }] }] } }));
  await page.getByRole('button', { name: 'Verify the indices' }).click();
  await page.getByText('The indices differ from the log: runs of partition 2.').waitFor();
  await isAccessible(page, 'verified');
  await visit.end();
});

test('a checkpoint shows the end of its conversation on a click', async () => {
  const writer = await journal.claim('talks/one', 'worker');
  await writer.turn('user', 'hello');
  await writer.checkpoint(Array.from({ length: 120 }, (_, nth) => ({ role: nth % 2 ? 'assistant' : 'user', content: nth % 2 ? `answer ${nth}` : [{ type: 'text', text: `<b>question ${nth}</b>` }] })));
  const visit = await Visit.begin();
  const page = await visit.open('/ui/runs/talks%2Fone');
  let reads = 0;
  visit.context.on('request', (request) => { reads += request.url().includes('/checkpoints/'); });
  await page.getByRole('button', { name: /^checkpoint 1 covers/ }).click();
  await page.getByRole('button', { name: 'Show the conversation' }).waitFor();
  assert.equal(reads, 0);
  await page.getByRole('button', { name: 'Show the conversation' }).click();
  await page.getByText('The conversation, the last 100 of 120 messages').waitFor();
  assert.equal(await page.locator('.bubble').count(), 100);
  assert.match(await page.locator('.bubble').first().innerText(), /^user .*"<b>question 20<\/b>"/);
  assert.equal(await page.locator('.bubble').last().innerText(), 'assistant answer 119');
  await page.screenshot({ path: join(SHOTS, 'conversation.png') });
  await isAccessible(page, 'conversation');
  await visit.end();
});

test('two checkpoints are compared on a click: the messages and the state that only one of them has', async () => {
  const writer = await journal.claim('talks/two', 'worker');
  const messages = ['first', 'second', 'third', 'fourth'].map((content) => ({ role: 'user', content }));
  await writer.turn('user', 'hello');
  await writer.checkpoint(messages);
  await writer.turn('user', 'more');
  // The agent replaced the middle of its messages by a summary.
  await writer.checkpoint([messages[0], { role: 'assistant', content: 'a <b>summary</b>' }, messages[3]]);
  const visit = await Visit.begin();
  const page = await visit.open('/ui/runs/talks%2Ftwo');
  const detail = page.locator('.detail');
  let reads = 0;
  visit.context.on('request', (request) => { reads += request.url().includes('/checkpoints/'); });
  await page.getByRole('button', { name: /^checkpoint 2 covers/ }).click();
  const choice = detail.getByLabel('Compare with');
  await choice.waitFor();
  assert.deepEqual(await choice.locator('option').allInnerTexts(), ['…', 'checkpoint 1']);
  assert.equal(reads, 0);
  await choice.selectOption('checkpoint 1');
  await detail.getByText('Only in checkpoint 2: 1 message', { exact: true }).waitFor();
  await detail.getByText('Only in checkpoint 1: 2 messages', { exact: true }).waitFor();
  assert.deepEqual(await detail.locator('.bubble').allInnerTexts(), ['assistant a <b>summary</b>', 'user second', 'user third']);
  assert.deepEqual(await detail.getByLabel('State').allInnerTexts(), ['step\n2', 'step\n1']);
  await page.screenshot({ path: join(SHOTS, 'compare.png') });
  await isAccessible(page, 'compare');
  await detail.getByRole('button', { name: 'Show the conversation' }).click();
  await detail.getByText('The conversation, the last 3 of 3 messages').waitFor();
  assert.equal(await choice.inputValue(), '');
  await visit.end();
});

test('what a person looks for first is one click away: the reason of a stuck run, its checkpoint, a position, earlier decisions', async () => {
  await killedRefund(journal, 'first/refund-1');
  const visit = await Visit.begin();
  const page = await visit.open('/ui/runs?prefix=first/');
  await page.getByRole('link', { name: 'first/refund-1' }).click();
  await page.locator('.run-top .badge', { hasText: 'needs a decision' }).waitFor();
  await page.locator('.resume').getByRole('button', { name: 'checkpoint 1' }).click();
  await page.locator('.detail h2', { hasText: 'checkpoint 1' }).waitFor();
  assert.ok(await page.locator('.where').getByText('the newest record').isVisible(), 'to read a record does not move the position');
  await page.locator('.detail').getByRole('button', { name: /^\d+:\d+$/ }).click();
  await page.locator('.resume:not(.old)', { hasText: 'takes over here' }).getByText('It can continue at once').waitFor();
  await page.locator('.detail h2', { hasText: 'checkpoint 1' }).waitFor();
  await page.locator('.resume').getByText('Starts at checkpoint 1').waitFor();
  assert.ok(await page.locator('.run-top .badge', { hasText: 'needs a decision' }).isVisible(), 'the badge is about the newest state');
  await page.goto('/ui/decisions?prefix=first/');
  await page.getByRole('link', { name: 'Decided before' }).click();
  await page.waitForURL('**/ui/audit');
  // A repeat of a call is a moment: it has no duration of its own.
  const { second } = await killedRefund(journal, 'first/refund-2', { key: 'first-2' });
  await second.append(second.record('refund-3-again', { type: 'tool_call_attempt', request_record_id: 'refund-3', attempt: 2, reason: 'the first process ended' }));
  await page.goto('/ui/runs/first%2Frefund-2');
  const again = page.locator('.wf-row', { hasText: 'begins again' });
  await again.waitFor();
  assert.equal(await again.locator('.length').count(), 0);
  // A run is idle by the log's clock: no record of these runs is an hour old.
  await page.goto('/ui/runs?prefix=first/');
  await page.getByRole('link', { name: 'first/refund-1' }).waitFor();
  const [asked] = await Promise.all([page.waitForRequest((request) => request.url().includes('/v1/runs?') && request.url().includes('idle=1h')), page.getByLabel('Last record').selectOption('No record for an hour')]);
  assert.ok(!asked.url().includes('since='));
  await page.locator('.empty', { hasText: 'No run matches' }).waitFor();
  await visit.end();
});

test('a call whose result is in the content store has ended, and its content is read when somebody asks for it', async () => {
  const writer = await journal.claim('stored/one', 'worker');
  await writer.request('read-1', 'read_file', { path: 'a.txt' });
  await writer.result('read-1', 'x'.repeat(300000));
  await writer.request('write-2', 'write_file', { text: 'y'.repeat(300000) });
  await writer.result('write-2', { written: true });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/runs/stored%2Fone');
  await page.locator('.wf-row', { hasText: 'read_file' }).locator('.bar.completed').waitFor();
  await page.locator('.wf-row', { hasText: 'write_file' }).locator('.bar.completed').waitFor();
  assert.equal(await page.getByText('no result').count(), 0);
  await page.getByRole('button', { name: /^read_file/ }).click();
  await page.locator('.detail').getByText('In the content store').waitFor();
  await page.getByRole('button', { name: 'Unmasked' }).click();
  await page.locator('.detail').getByText('Show all 300,000 characters').waitFor();
  await page.getByRole('button', { name: 'Unmasked' }).click();
  await page.getByRole('button', { name: /^write_file/ }).click();
  await page.locator('.detail').getByText('In the content store').waitFor();
  await page.locator('.detail').getByText('"written"').waitFor();
  await isAccessible(page, 'stored content');
  await isInWords(page, 'stored content');
  await visit.end();
});

test('the run of a stopped partition is shown as of the stop, and an empty queue does not promise that nothing waits', async (context) => {
  const { server: stopped, partition } = await stoppedServer(context);
  const visit = await Visit.begin({ url: stopped.url });
  const page = await visit.open('/ui/runs/stops%2Fone');
  await page.getByText('the newest record').waitFor();
  await page.locator('.resume').getByText('It can continue at once').waitFor();
  await page.keyboard.press('{');
  await page.locator('.resume:not(.old)', { hasText: 'takes over here' }).getByText('It can continue at once').waitFor();
  await page.screenshot({ path: join(SHOTS, 'run-stopped.png') });
  await isAccessible(page, 'the run of a stopped partition');
  await page.goto('/ui/decisions');
  await page.getByText(`The index does not show all of the log: partition ${partition} is stopped.`).waitFor();
  await page.getByText(`This list may lack effects of partition ${partition}`).waitFor();
  await visit.end();
});

test('a run in doubt is shown, with the command that frees it', async () => {
  const visit = await Visit.begin({ expected: ['409'] });
  // No local journal can lose its home: these answers are made up.
  await visit.context.route(/\/v1\/runs\/research%2Fhome-batteries(\?|$|\/recovery\?(?!.*as_of))/, (route) => route.fulfill({ status: 409, json: { title: 'in doubt', status: 409, kind: 'reconcile_required', reason: 'doubt', detail: 'the home was lost' } }));
  await visit.context.route(/\/v1\/runs\?.*in_doubt=true/, async (route) => route.continue({ url: route.request().url().replace('in_doubt=true&', '') }));
  const page = await visit.open('/ui/runs/research%2Fhome-batteries');
  await page.getByText('This run is in doubt').first().waitFor();
  await page.locator('.wf-row').first().waitFor();
  await page.locator('.resume', { hasText: 'takes over here' }).getByText('The run has ended').waitFor();
  await isAccessible(page, 'a run in doubt');
  await visit.end();
});

test('a link into a very long run shows its position, and earlier and newer records can be reached', async () => {
  const writer = await journal.claim('long/past', 'worker');
  let target;
  for (let page = 0; page < 26; page++) {
    const { position } = await writer.append(...Array.from({ length: 500 }, (_, nth) => writer.record(`p-${page}-${nth}`, { type: 'conversation_turn', message_id: `p-${page}-${nth}`, kind: 'user', content: 'x' })));
    if (page === 0) target = `${position.partition}:${position.offset}`;
  }
  // The run does not exist as of the position before its first record.
  const visit = await Visit.begin({ expected: ['404'] });
  const page = await visit.open('/ui/runs/long%2Fpast?at=' + target);
  await page.getByText('record 501 of 501 loaded').waitFor();
  await page.locator('.resume', { hasText: 'takes over here' }).getByText('501 records').waitFor();
  await page.getByRole('button', { name: 'Go to the newest' }).click();
  await page.getByText('record 12,000 of 12,000 loaded').waitFor();
  await page.getByText('the newest record').waitFor();
  await page.getByText('These are 12,000 of 13,001 records.').waitFor();
  await page.getByRole('button', { name: 'Show earlier records' }).click();
  await page.getByText('record 1,002 of 1,002 loaded').waitFor();
  await page.getByText('the newest record').waitFor({ state: 'detached' });
  await isAccessible(page, 'earlier records');
  // The next records are read at the end of the loaded records.
  await page.keyboard.press(']');
  await page.getByText('record 1,002 of 2,002 loaded').waitFor();
  await page.keyboard.press('h');
  await page.getByText('record 12,000 of 12,000 loaded').waitFor();
  await page.goto(`/ui/runs/long%2Fpast?at=${target.split(':')[0]}:0`);
  await page.getByText('record 1 of 200 loaded').waitFor();
  await visit.end();
});

test('a step passes a batch, whose records have one position', async () => {
  const turn = (id) => ({ run_id: 'batch/one', record_id: id, agent_id: 'a', payload: { type: 'conversation_turn', message_id: id, kind: 'user', content: id } });
  const post = (record) => journal.send('POST', '/v1/runs/batch%2Fone/records', [record]);
  await post(turn('first'));
  await post({ run_id: 'batch/one', record_id: 'all', agent_id: 'a', payload: { type: 'batch', records: ['b-1', 'b-2', 'b-3'].map(turn) } });
  await post(turn('last'));
  const visit = await Visit.begin();
  const page = await visit.open('/ui/runs/batch%2Fone');
  await page.getByText('record 5 of 5').waitFor();
  for (const at of [4, 1]) {
    await page.keyboard.press('[');
    await page.getByText(`record ${at} of 5`).waitFor();
  }
  await page.getByRole('slider').focus();
  for (const [key, at] of [['ArrowRight', 4], ['ArrowLeft', 1]]) {
    await page.keyboard.press(key);
    await page.getByText(`record ${at} of 5`).waitFor();
  }
  await visit.end();
});

test('a late result appears on the open page of its run', async () => {
  const { first } = await killedRefund(journal, 'open/refund-1', { order: '1' });
  const visit = await Visit.begin();
  const page = await visit.open('/ui/runs/open%2Frefund-1');
  await page.getByText('the newest record').waitFor();
  await page.locator('.foot', { hasText: 'live' }).waitFor();
  assert.equal(await page.locator('.wf-row.refused').count(), 0);
  await first.result('refund-3', { refund: 'RF-1' });
  await page.locator('.wf-row.refused').waitFor();
  await visit.end();
});

test('a server on a copy of the journal says so, and a decision that it refuses had no effect', async () => {
  await killedRefund(journal, 'mirror/refund-1', { order: '1' });
  const visit = await Visit.begin({ expected: ['503'] });
  // No local journal is a copy: these answers are made up.
  const page = await visit.open('/ui/decisions?prefix=mirror/');
  await page.getByRole('radio', { name: 'Nobody can find out' }).check();
  await page.getByLabel('How do you know?').fill('nobody knows');
  await page.getByLabel('Your name').fill('mara');
  await page.route('**/resolution', (route) => route.fulfill({ status: 503, json: { title: 'unavailable', status: 503, kind: 'unavailable', reason: 'mirror', detail: 'a decision is refused', home: 'kafka:1' } }));
  await page.getByRole('button', { name: 'Count the call as failed' }).click();
  await page.getByText('This server does not read the journal’s home.').waitFor();
  assert.equal(await page.getByText('may have been recorded').count(), 0);
  await isAccessible(page, 'a refusal of a copy');
  await visit.context.route('**/v1/journal', async (route) => {
    const response = await route.fetch();
    route.fulfill({ response, json: { ...(await response.json()), role: 'mirror', home: { log: 'kafka:1', epoch: 1 } } });
  });
  await page.reload();
  await page.locator('.banner', { hasText: 'This server accepts no decision and no skip. It does not read the journal’s home. The home is the log kafka:1.' }).waitFor();
  assert.ok(await page.getByRole('radio', { name: 'Nobody can find out' }).isDisabled());
  await isAccessible(page, 'a copy of the journal');
  await visit.end();
});

test('the keys open the marked row, although news moved it', async () => {
  for (const name of ['a', 'b']) await (await journal.claim(`cursor/${name}`, 'worker')).lifecycle('started');
  const visit = await Visit.begin();
  const page = await visit.open('/ui/runs?prefix=cursor/');
  await page.locator('.row').nth(1).waitFor();
  await page.keyboard.press('j');
  await page.locator('.row.current', { hasText: 'cursor/b' }).waitFor();
  await (await journal.claim('cursor/a', 'worker-2')).turn('user', 'news');
  await page.locator('.row', { hasText: 'cursor/a' }).first().and(page.locator('[aria-rowindex="2"]')).waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL('**/ui/runs/cursor%2Fb');
  await visit.end();
});

test('an effect that the list does not reach is read by its run, and an effect of another kind has no answer', async () => {
  await killedRefund(journal, 'far/refund-1', { order: '1' });
  const visit = await Visit.begin();
  await visit.context.route(/\/v1\/effects\?.*unsafe=true/, (route) => route.fulfill({ json: { effects: [], next_cursor: '0:00', unavailable_partitions: [] } }));
  const page = await visit.open('/ui/decisions?run=far/refund-1&kind=tool_call&effect=refund-3');
  await page.locator('.pane-decision').getByText('No result has arrived.').waitFor();
  assert.equal(await page.getByText('This effect no longer waits here').count(), 0);
  await visit.context.unrouteAll();
  const { record_id, run_id, journal_seq, writer_id, writer_epoch, ...record } = JSON.parse(readFileSync(new URL('../../schemas/examples/effect_intent.json', import.meta.url), 'utf8'));
  const [outcome] = await journal.send('POST', '/v1/runs/far%2Fother/records', [{ ...record, record_id: 'intent-1', run_id: 'far/other' }]);
  assert.equal(outcome.outcome, 'applied');
  await page.goto('/ui/decisions?show=safe&prefix=far/other');
  await page.getByRole('radio', { name: 'Nobody can find out' }).check();
  await page.getByLabel('How do you know?').fill('nobody knows');
  await page.getByLabel('Your name').fill('mara');
  await page.getByRole('button', { name: 'Count the call as failed' }).click();
  await page.getByText('Decided: nobody can find out', { exact: true }).waitFor();
  assert.equal(await page.getByText('The agent gets').count(), 0);
  await visit.end();
});

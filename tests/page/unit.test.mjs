// The page's pure functions.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { BYTES_MAX, files } from './files.mjs';

const ui = new URL('../../projector/server/ui/', import.meta.url);
const { parse, write, brief, visible, isExact, Exact } = await import(new URL('exact.js', ui));
const { parser } = await import(new URL('sse.js', ui));
const { before, entry, fold, isBeyond, isNewest, leave, spanOf, withRefused, timeScale, claims, changes, differ, hiding, marker, keyOf, proofOf, happened, ended, find, refit, body, isTyped, dump } = await import(new URL('fold.js', ui));
const { callOf, decisionOf } = await import(new URL('audit.js', ui));
const { advised, stateOf } = await import(new URL('partitions.js', ui));
const words = await import(new URL('words.js', ui));
const route = await import(new URL('route.js', ui));
const { readRecords } = await import(new URL('run.js', ui));
const session = await import(new URL('session.js', ui));
const { search } = await import(new URL('api.js', ui));

test('numbers keep the digits that the server sent', () => {
  const hasSource = JSON.parse('1.0', (key, value, context) => Boolean(context?.source));
  const value = parse('{"amount": 129.50, "id": 12345678901234567890, "count": 3, "text": "1.0"}');
  assert.equal(value.count, 3);
  assert.equal(value.text, '1.0');
  // Node before 21 does not tell a reviver the text of a number; every browser of the last years does.
  assert.equal(isExact, hasSource);
  if (!hasSource) return;
  assert.ok(value.amount instanceof Exact);
  assert.equal(write(value), '{\n  "amount": 129.50,\n  "id": 12345678901234567890,\n  "count": 3,\n  "text": "1.0"\n}');
  assert.equal(brief(value), 'amount 129.50, id 12345678901234567890, count 3, text "1.0"');
});

test('an event stream is read the same in whatever pieces it arrives', () => {
  const text = ': keep-alive\n\nid: 7\ndata: {"a":\ndata: 1}\n\r\nevent: error\r\ndata: x\r\n\r\ndata: last\n\n';
  const whole = parser()(text);
  assert.deepEqual(whole, [{ id: '7', event: 'message', data: '{"a":\n1}' }, { id: null, event: 'error', data: 'x' }, { id: null, event: 'message', data: 'last' }]);
  for (let size = 1; size < text.length; size++) {
    const take = parser();
    const messages = [];
    for (let at = 0; at < text.length; at += size) messages.push(...take(text.slice(at, at + size)));
    assert.deepEqual(messages, whole, `pieces of ${size}`);
  }
});

/** A line, with the facts that a server tells although the payload may be hidden. */
const line = (offset, type, payload, more = {}) => ({ record_id: `r${offset}`, payload_type: type, payload, position: { partition: 0, offset, index: 0 },
  status: payload.decision, tool_name: payload.tool_name, answers: payload.request_record_id, journal_seq: offset, epoch: 1, timestamp: new Date(offset * 1000).toISOString(), cursor: String(offset), ...more });
const entries = (lines) => lines.map((each, index) => entry(each, index, true));
const story = entries([
  line(1, 'run_claim', { claimed_by: 'a' }),
  line(2, 'tool_call_requested', { tool_name: 'pay', arguments: { amount: 3 } }),
  line(3, 'tool_call_completed', { request_record_id: 'r2', result: 'ok' }),
  line(4, 'tool_call_requested', { tool_name: 'mail', arguments: null }),
  line(5, 'run_claim', { claimed_by: 'b' }, { epoch: 2 }),
  line(6, 'effect_resolution', { request_record_id: 'r4', decision: 'give_up', who: 'jo', why: 'lost' }, { epoch: 0 }),
]);

test('a call and its end are one row, as of a position', () => {
  const rows = fold(story);
  assert.deepEqual(rows.map(({ kind, name, status }) => [kind, name, status]), [['claim', 'first process', ''], ['call', 'pay', 'completed'], ['call', 'mail', 'failed'], ['claim', 'takeover 1', ''], ['decision', 'decision', '']]);
  assert.equal(rows[1].last.offset, 3);
  assert.equal(rows[2].note, 'decided');
  const before = fold(story, 1);
  assert.equal(before[1].status, 'pending', 'its end is later');
  assert.equal(before[2].status, 'failed', 'the whole call is later');
});

test('content that is masked or deleted is not taken for a text', () => {
  const [masked] = fold(entries([line(1, 'tool_call_requested', { masked: 'secret' })]));
  assert.deepEqual([masked.name, masked.text], ['call', 'masked']);
  const [argument] = fold(entries([line(1, 'tool_call_requested', { tool_name: 'pay', arguments: { masked: 'sensitive' } })]));
  assert.equal(argument.text, 'masked');
  assert.equal(fold(entries([line(1, 'conversation_turn', { dropped: { partition: 0, offset: 9 } })]))[0].text, 'deleted');
});

test('a call has its end although the payload of the end is stored elsewhere, encrypted or deleted', () => {
  const stored = { type: 'stored_payload', sha256: 'ab', bytes: 300000 };
  for (const hidden of [stored, { type: 'encrypted', key_id: 'k' }, { dropped: { partition: 0, offset: 9 } }, { unreadable: 'too deep' }]) {
    const lines = [line(1, 'tool_call_requested', hidden, { tool_name: 'read' }), line(2, 'tool_call_attempt', hidden, { answers: 'r1' }), line(3, 'tool_call_completed', hidden, { answers: 'r1' }),
      line(4, 'tool_call_requested', hidden), line(5, 'tool_call_failed', hidden, { answers: 'r4' }),
      line(6, 'tool_call_requested', hidden), line(7, 'effect_resolution', hidden, { answers: 'r6', status: 'not_done' }),
      line(8, 'tool_call_requested', hidden), line(9, 'effect_resolution', hidden, { answers: 'r8', status: 'done' })];
    const rows = fold(entries(lines));
    assert.deepEqual(rows.filter(({ kind }) => kind === 'call').map(({ name, status }) => [name, status]), [['read', 'completed'], ['begins again', ''], ['call', 'failed'], ['call', 'pending'], ['call', 'completed']]);
    assert.ok(!JSON.stringify(rows.map(({ name, text }) => [name, text])).includes('undefined'));
  }
  assert.equal(fold(entries([line(1, 'loop_checkpoint', stored)]))[0].text, 'in the content store');
  const imitation = { type: 'stored_payload' };
  assert.equal(fold(entries([line(1, 'conversation_turn', { content: imitation })]))[0].text, 'type "stored_payload"', 'content that imitates a claim check is shown');
});

test('the audit names the call and the decision of a record whose payload is deleted', () => {
  for (const hidden of [{ dropped: { partition: 0, offset: 9 } }, { type: 'encrypted', key_id: 'k' }, { masked: 'secret' }]) {
    const decided = line(2, 'effect_resolution', hidden, { answers: 'refund-1', status: 'not_done' });
    assert.deepEqual([callOf(decided), decisionOf(decided)], ['refund-1', 'it did not happen; the call may run again']);
  }
  const dropped = line(2, 'effect_resolution', { dropped: { partition: 0, offset: 9 } });
  assert.deepEqual([callOf(dropped), decisionOf(dropped)], ['Deleted by retention', 'Deleted by retention'], 'a line without facts');
  assert.deepEqual([callOf({}), decisionOf({})], ['not found', 'not found']);
  assert.equal(decisionOf({ status: 'later\u202e' }), 'later\\u202e');
});

test('an adopted end has its own status, since it may be a failure', () => {
  const [call] = fold(entries([line(1, 'tool_call_requested', {}), line(2, 'effect_resolution', { request_record_id: 'r1', decision: 'adopt' })]));
  assert.deepEqual([call.status, call.note], ['decided', 'decided']);
});

test('a step back leaves the records of a batch, which have one position', () => {
  const batch = entries([1, 5, 5, 5, 9].map((offset) => line(offset, 'conversation_turn', {})));
  assert.deepEqual([leave(batch, 4, 3), leave(batch, 3, 2), leave(batch, 3, 0), leave(batch, 0, 1)], [3, 0, 0, 1]);
  assert.equal(leave(batch.slice(1), 2, 1), 0, 'the run begins with the batch');
});

test('a position outside of the loaded records is read', () => {
  const part = entries([line(100, 'conversation_turn', {}), line(200, 'conversation_turn', {})]);
  const beyond = (hasEarlier, reachesEnd) => [50, 150, 250, NaN].map((asked) => isBeyond(part, asked, hasEarlier, reachesEnd));
  assert.deepEqual(beyond(false, true), [false, false, false, false]);
  assert.deepEqual(beyond(true, true), [true, false, false, false]);
  assert.deepEqual(beyond(true, false), [true, false, true, true]);
});

test('the newest record is the newest of the run, not of the loaded records', () => {
  assert.equal(isNewest(NaN, true, true, true), true);
  assert.equal(isNewest(NaN, true, false, true), false, 'more records arrived than were read');
  assert.equal(isNewest(NaN, true, false, false), true, 'the rest is being read');
  assert.deepEqual([[7, true, true], [7, true, false], [7, false, true]].map(([asked, isLast, reachesEnd]) => isNewest(asked, isLast, reachesEnd, true)), [true, false, false]);
});

test('the length of a run is unknown unless all of its records are loaded', () => {
  assert.equal(spanOf(story, false, true), 5000);
  assert.deepEqual([spanOf(story, true, true), spanOf(story, false, false)], [null, null]);
});

test('a run that is followed is read to its end', async (context) => {
  let length = 0;
  const requests = [];
  context.mock.method(globalThis, 'fetch', async (address) => {
    const { pathname, searchParams: query } = new URL(address, 'http://localhost');
    requests.push(pathname);
    if (!pathname.endsWith('/records')) return Response.json({ records: length, position: { partition: 0, offset: length } });
    if (query.get('as_of') === '0:0@') return Response.json({ kind: 'not_found' }, { status: 404 });
    const isBackwards = query.get('order') === 'desc';
    const count = Math.min(Number(query.get('limit')), 1000);
    const from = Number(query.get('cursor') ?? (isBackwards ? length + 1 : 0));
    const to = isBackwards ? Math.max(0, from - 1 - count) : Math.min(length, from + count);
    const offsets = isBackwards ? Array.from({ length: from - 1 - to }, (_, nth) => from - 1 - nth) : Array.from({ length: to - from }, (_, nth) => from + 1 + nth);
    return Response.json({ records: offsets.map((offset) => line(offset, 'conversation_turn', {})), next_cursor: (isBackwards ? to > 0 : to < length) ? String(isBackwards ? to + 1 : to) : null });
  });
  const read = (known, upTo = '') => readRecords('a', upTo, known, undefined, () => {});
  const ends = ({ entries: all, reachesEnd, hasEarlier }) => [all.length, all[0].offset, all.at(-1).offset, all.at(-1).index, reachesEnd, hasEarlier];
  length = 500;
  const first = await read(null);
  assert.deepEqual(ends(first), [500, 1, 500, 499, true, false]);
  length = 3000;
  requests.length = 0;
  assert.deepEqual(ends(await read(first)), [3000, 1, 3000, 2999, true, false]);
  assert.equal(requests.length, 4, 'the run and three pages');
  assert.deepEqual(ends(await read({ ...first, upTo: '0:2' }, '0:2')), [3000, 1, 3000, 2999, true, false], 'opened by a link');
  assert.deepEqual(ends(await read({ ...first, upTo: '0:3', reachesEnd: false }, '0:3')), [1500, 1, 1500, 1499, false, false], 'a page after the records around an older position');
  assert.deepEqual(ends(await read({ ...first, reachesEnd: false })), [3000, 1, 3000, 2999, true, false], 'the first reading met its bound');
  length = 100000;
  requests.length = 0;
  assert.deepEqual(ends(await read(first)), [12000, 88001, 100000, 11999, true, true]);
  assert.deepEqual(ends(await read(null, '0:0')), [200, 1, 200, 199, false, false], 'before the first record');
  assert.ok(requests.length < 40, `${requests.length} requests`);
});

test('a request may have had an effect unless the server says why it had none', () => {
  assert.deepEqual(['away', 'unavailable', 'stale', 'internal', 'conflict', 'forbidden'].map((kind) => words.mayBeDone({ kind })), [true, true, true, true, false, false]);
  for (const reason of ['mirror', 'not_here']) {
    const problem = { kind: 'unavailable', reason };
    assert.equal(words.mayBeDone(problem), false, reason);
    assert.match(words.problem(problem).join(), /Nothing happened/);
    assert.doesNotMatch(words.problem(problem).join(), /asks again/);
  }
});

test('a server that accepts no decision says why, and no sentence contradicts another', () => {
  const home = { log: 'kafka:h', epoch: 2 };
  const of = (role, own) => words.readOnly({ role, log_id: own, home });
  assert.deepEqual([of('home', 'kafka:h'), of('unknown'), of('a later role', 'kafka:x')], ['', '', '']);
  assert.match(of('mirror', 'kafka:m'), /does not read the journal’s home\. The home is the log kafka:h\.$/);
  assert.match(words.readOnly({ role: 'mirror', log_id: 'kafka:m' }), /the log unknown\.$/);
  for (const own of ['kafka:h', 'kafka:r']) assert.match(of('contested', own), /Two logs claim to be the journal’s home: .*doctor/);
  assert.match(of('mirror', 'kafka:h'), /must be restarted/, 'it read the home before it knew that it was the home');
});

test('the page notices that its server became the home, or lost it', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  let role = 'mirror';
  context.mock.method(globalThis, 'fetch', async (path) => Response.json({
    '/v1/whoami': { scopes: ['read_meta'] }, '/v1/journal': { role, log_id: 'kafka:a', home: { log: role === 'home' ? 'kafka:a' : 'kafka:b', epoch: 1 } }, '/v1/overview': { partitions: [], stopped: [], lag: 0 },
  }[path]));
  globalThis.document = { addEventListener() {}, hidden: false };
  context.after(() => { delete globalThis.document; });
  session.start();
  const seen = [];
  for (role of ['mirror', 'home', 'contested', 'home']) {
    context.mock.timers.tick(20000);
    // Timers are made up, answers are not.
    for (let turns = 0; turns < 20; turns++) await new Promise((done) => { setImmediate(done); });
    seen.push(session.readOnly.value.slice(0, 8));
  }
  assert.deepEqual(seen, ['It does ', '', 'Two logs', '']);
});

test('a refused record stands at its place in the log', () => {
  const rows = withRefused(fold(story), [{ record_id: 'late', position: { partition: 0, offset: 5.5 }, reason: 'fenced' }], story);
  assert.deepEqual(rows.map(({ kind }) => kind), ['claim', 'call', 'call', 'claim', 'refused', 'decision']);
  assert.equal(rows[4].first.index, 4);
  const elsewhere = withRefused(fold(story), [{ record_id: 'stray', position: { partition: 3, offset: 2 }, reason: 'wrong_partition' }], story);
  assert.deepEqual([elsewhere.at(-1).kind, words.place(elsewhere.at(-1).first)], ['refused', '3:2'], 'offsets of partitions are not compared');
  assert.deepEqual([0, 3, 99].map((offset) => before(story, { partition: 0, offset })), [0, 2, 5]);
});

test('a long gap is cut, and the order of times stays', () => {
  const times = [0, 800, 1500, 2600, 3000, 1443000, 1444000];
  const { at, cuts } = timeScale(times);
  assert.deepEqual(cuts.map(({ length }) => length), [1440000]);
  const places = times.map(at);
  assert.deepEqual(places, places.slice().sort((a, b) => a - b));
  assert.ok(Math.abs(places[0]) < 1e-9 && Math.abs(places[6] - 1) < 1e-9);
  assert.ok(places[5] - places[4] < 0.06, 'the gap is narrow');
  assert.deepEqual(timeScale([0, 1000, 2000, 3000]).cuts, [], 'equal gaps stay');
  assert.equal(timeScale([5]).at(5), 0);
  assert.equal(timeScale([5, 5]).at(5), 0);
});

test('the bands of a run are its claims', () => {
  assert.deepEqual(claims(story).map(({ epoch, by, from, to }) => [epoch, by, from, to]), [[1, 'a', 0, 3], [2, 'b', 4, 5]]);
});

test('a refused decision names what is new', () => {
  const late = { record_id: 'x', content_hash: 'h', status: 'completed', logged_at: '2026-11-29T14:03:22Z' };
  const before = { evidence: [], attempts: 1, class: 'reconcile_required', revision: 1 };
  assert.deepEqual(changes(before, { ...before, evidence: [late], revision: 2 }), ['A late result arrived at 14:03:22 UTC. It says that the call happened.']);
  assert.deepEqual(changes({ ...before, evidence: [late] }, { ...before, evidence: [late, { ...late, content_hash: 'i', status: 'failed' }] }), ['Another late result arrived at 14:03:22 UTC. It says that the call failed.']);
  assert.deepEqual(changes(before, { ...before, attempts: 2 }), ['The call began again: attempt 2.']);
  assert.deepEqual(changes(before, null), ['The call has an end now: somebody decided, or its result arrived.']);
  assert.equal(changes(before, { ...before, revision: 2 }).length, 1);
});

test('an address keeps the run, the position and the filters', () => {
  for (const to of [{ view: 'runs', run: null, query: { prefix: 'a/b', status: 'open' } }, { view: 'run', run: 'a/b c%2F?ü', query: { at: '2:17' } }, { view: 'decisions', run: null, query: { run: 'x&y', effect: '1' } }]) {
    const [path, search] = route.write(to).split('?');
    assert.deepEqual(route.read(path, search || ''), to);
  }
  assert.equal(route.read('/ui', '').view, 'decisions');
  assert.equal(route.read('/ui/runs/%E0%A4%A', '').view, 'runs', 'a malformed id opens the list');
  assert.equal(route.write({ view: 'runs', query: { prefix: '', at: undefined } }), '/ui/runs');
});

test('ages, counts and long ids are short', () => {
  assert.deepEqual([0, 12, 950, 4200, 59940, 59960, 3540000, 7.2e6, 1e9].map(words.duration), ['0 ms', '12 ms', '950 ms', '4.2 s', '60 s', '1 min', '59 min', '2.0 h', '12 days']);
  assert.equal(words.ago(null), 'unknown');
  assert.match(words.problem({ kind: 'reconcile_required', reason: 'doubt' }).join(), /in doubt.*runlog home accept/);
  assert.equal(words.plural(1, 'late result'), '1 late result');
  assert.equal(words.plural(1200, 'run'), '1,200 runs');
  assert.equal([...words.shorten('ä'.repeat(100), 20)].length, 20);
});

test('every decision says what follows', () => {
  assert.deepEqual(words.CHOICES.map(({ decision }) => decision).sort(), ['adopt', 'done', 'give_up', 'not_done']);
  for (const choice of words.CHOICES) {
    assert.ok(choice.title && choice.follows.endsWith('.') && choice.action, choice.decision);
    assert.ok(!/[a-z]_[a-z]/.test(choice.title + choice.follows + choice.action), choice.decision);
  }

});

test('only the exact forms of the server hide content', () => {
  assert.deepEqual([{ masked: 'secret' }, { dropped: { partition: 0, offset: 3, index: 0 } }, { unreadable: 'deep' }].map(hiding), ['masked', 'dropped', 'unreadable']);
  for (const content of [{ masked: 'my own text' }, { masked: {} }, { dropped: 'all goods' }, { dropped: {} }, { unreadable: { iban: 'x' } }, { masked: 'secret', more: 1 }, { constructor: 'x' }, { toString: 1 }, {}, [], ['secret'], 'masked', null, 3]) {
    assert.equal(hiding(content), '', JSON.stringify(content));
  }
});

test('a marker is the only member of its result and names the call that it ends', () => {
  const mark = { call: 'pay-1', reason: 'too_large', message: 'long' };
  assert.equal(marker({ 'runlog.result_not_recorded': mark }, 'pay-1'), mark);
  assert.equal(marker({ 'runlog.result_not_recorded': mark }, 'pay-2'), null, 'another call');
  assert.equal(marker({ 'runlog.result_not_recorded': mark, refund: 'RF-1' }, 'pay-1'), null, 'another member');
  for (const result of [null, 'text', { 'runlog.result_not_recorded': 'pay-1' }, { 'runlog.result_not_recorded': null }]) assert.equal(marker(result, 'pay-1'), null);
  assert.equal(marker({ 'runlog.result_not_recorded': {} }, undefined), null, 'no call is known');
});

test('a draft about another state keeps its texts, and loses its choice', () => {
  const draft = { decision: 'not_done', typed: 'pay', against: 'x', force: true, why: 'I asked', result: '1', who: 'jo', basis: 'b1', revision: 1 };
  assert.equal(refit(draft, { basis: 'b1', revision: 1 }), draft);
  for (const state of [{ basis: 'b2', revision: 1 }, { basis: 'b1', revision: 2 }]) {
    assert.deepEqual(refit(draft, state), { decision: '', typed: '', against: '', force: false, isOld: true, why: 'I asked', result: '1', who: 'jo', ...state });
  }
  const twice = refit(refit(draft, { basis: 'b2', revision: 2 }), { basis: 'b3', revision: 3 });
  assert.ok(twice.isOld, 'the notice stays until somebody chooses');
  assert.equal(refit({ decision: '', why: '' }, { basis: 'b1', revision: 1 }).isOld, false, 'a first look is no news');
});

test('evidence with the same id and other content is other evidence', () => {
  assert.notEqual(proofOf({ record_id: 'x', content_hash: 'h' }), proofOf({ record_id: 'x', content_hash: 'i' }));
});

test('an effect has an end only if the whole list lacks it', () => {
  const effect = { run_id: 'a', kind: 'tool_call', id: '1' };
  assert.equal(find({ items: [{ ...effect, run_id: 'ab' }], more: null }, effect), null);
  assert.throws(() => find({ items: [], more: 'cursor' }, effect), /cannot be found among the first 0/);
  assert.equal(find({ items: [effect], more: 'cursor' }, effect).isTwin, false);
  assert.throws(() => find({ items: [], more: null, last: { unavailable_partitions: [3] } }, effect), { kind: 'unlisted' });
  assert.equal(find({ items: [], more: null, last: { unavailable_partitions: [] } }, effect), null);
});

test('an effect of another kind with the same id is another effect', () => {
  const effect = { run_id: 'a', kind: 'tool_call', id: '1' };
  const other = { ...effect, kind: 'effect', tool_name: 'other' };
  assert.notEqual(keyOf(effect), keyOf(other));
  assert.notEqual(keyOf({ ...effect, run_id: 'a\n1', id: '2' }), keyOf({ ...effect, run_id: 'a', id: '1\n2' }));
  assert.equal(find({ items: [other], more: null }, effect), null);
  const found = find({ items: [other, effect], more: null }, effect);
  assert.deepEqual([found.kind, found.isTwin], ['tool_call', true]);
});

test('three statuses say that an effect happened, and others have neutral words', () => {
  assert.deepEqual(['completed', 'deduped', 'result_rewritten', 'failed', 'timed_out', 'cancelled'].map((status) => [happened({ status }), ended({ status })]),
    [[true, 'happened'], [true, 'happened'], [true, 'happened'], [false, 'failed'], [false, 'ended as timed out'], [false, 'ended as cancelled']]);
});

test('a decision names its evidence, and is forced only while the call runs', () => {
  const late = { record_id: 'late', content_hash: 'h', status: 'deduped', adoptable: true };
  const effect = { revision: 2, basis: 'b', evidence: [late] };
  const draft = { decision: 'not_done', why: ' w ', force: true };
  assert.deepEqual(body(draft, ' jo ', effect, true), { decision: 'not_done', revision: 2, basis: 'b', evidence: 'late', who: 'jo', why: 'w', force: true });
  assert.equal(body(draft, 'jo', effect, false).force, undefined);
  assert.equal(body({ ...draft, decision: 'give_up' }, 'jo', effect, false).evidence, undefined);
  assert.equal(body(draft, 'jo', { ...effect, evidence: [{ ...late, status: 'failed' }] }, false).evidence, undefined);
  assert.equal(body({ ...draft, decision: 'adopt' }, 'jo', { ...effect, evidence: [{ ...late, status: 'failed' }] }, false).evidence, 'late');
});

test('a text cannot look like members, and characters that nobody sees are escapes', () => {
  assert.equal(brief({ amount: '1, to alice' }), 'amount "1, to alice"');
  assert.equal(brief({ 'amount 1, to': 'x' }), '"amount 1, to" "x"');
  assert.equal(brief({ a: { b: 1 }, c: ['x', 2] }), 'a {b 1}, c ["x", 2]');
  assert.equal(brief('two\nlines'), 'two\nlines');
  assert.equal(brief('a\u202eb'), 'a\\u202eb');
  assert.equal(visible('\u200b\u0000\u2066\ufeff\u{e0041}ä😀'), '\\u200b\\u0000\\u2066\\ufeff\\udb40\\udc41ä😀');
  const hostile = { 'a\u202e': 'x\u200by' };
  assert.ok(write(hostile).includes('\\u202e') && write(hostile).includes('\\u200b'));
  assert.deepEqual(JSON.parse(write(hostile)), hostile, 'the escapes are JSON');
  assert.equal(words.shorten('pay\u202e'), 'pay\\u202e');
});

test('the name of a tool is typed as it is shown', () => {
  assert.ok(isTyped(' pay ', 'pay'));
  assert.ok(isTyped('pay out', ' pay  out '), 'a browser shows one blank');
  assert.ok(isTyped('pay\\u202e', 'pay\u202e'));
  assert.ok(!isTyped('', 'pay') && !isTyped('payout', 'pay out'));
});

test('a stream with an endless line ends', () => {
  const take = parser();
  const piece = 'x'.repeat(1 << 20);
  for (let pieces = 0; pieces < 4; pieces++) take(piece);
  assert.throws(() => take(piece), { kind: 'usage' });
  const many = parser();
  assert.throws(() => { for (let pieces = 0; pieces < 5; pieces++) many('data: ' + piece + '\n'); }, { kind: 'usage' });
});

test('a long record is read again when it is chosen', () => {
  assert.equal(entry(line(1, 'conversation_turn', { content: 'x'.repeat(30000) }), 0, true).line, null);
  assert.ok(entry(line(1, 'conversation_turn', { content: 'x' }), 0, true).line);
});

test('all files together are small enough', () => {
  const bytes = gzipSync([...files.values()].join(''), { level: 9 }).length;
  console.log(`the page has ${bytes} bytes compressed, ${BYTES_MAX} at most`);
  assert.ok(bytes <= BYTES_MAX, `${bytes} bytes`);
});

test('two checkpoints differ between their common beginning and end, and in members of the state', () => {
  const of = (nth, texts, state) => ({ checkpoint_seq: nth, messages: texts.split(''), state });
  assert.deepEqual(differ([of(1, 'abcd', { step: 1, same: [1] }), of(2, 'axd', { step: 2, same: [1], more: null })]),
    [{ nth: 1, messages: ['b', 'c'], state: { step: 1 } }, { nth: 2, messages: ['x'], state: { step: 2 } }]);
  assert.deepEqual(differ([of(1, 'aa', 1), of(2, 'aaa', 'text')]).map(({ messages, state }) => [messages, state]), [[[], { state: 1 }], [['a'], { state: 'text' }]]);
  assert.deepEqual(differ([of(1, 'a', null), of(2, 'a', null)]).map(({ messages, state }) => [messages, state]), [[[], {}], [[], {}]]);
  assert.deepEqual(differ([of(1, 'a', { n: parse('1.0') }), of(2, 'b', { n: parse('1.0') })])[0].state, {});
});

test('bytes are shown by place, digits and printable characters', () => {
  assert.equal(dump(''), '');
  const hex = Buffer.from('no record <b>\u202e').toString('hex');
  const first = '6e 6f 20 72 65 63 6f 72 64 20 3c 62 3e e2 80 ae';
  assert.equal(dump(hex), '0000  ' + first + '  no record <b>...');
  assert.equal(dump(hex + '0a41'), dump(hex) + '\n0010  0a 41' + ' '.repeat(42) + '  .A');
});

test("a position of the page's address is this server's own, and a cursor keeps its log", () => {
  assert.equal(search({ as_of: '3:17', limit: 8, cursor: '0a@local:f', raw: false }), '?as_of=3%3A17%40&limit=8&cursor=0a%40local%3Af');
});

test('a skip is offered only where the server advises one', () => {
  assert.equal(advised({ fix: 'start a version that knows the schema, or void the record: runlog dead-letter skip 2:17 --who … --why …' }), '2:17');
  assert.equal(advised({ fix: 'the log no longer has the next record: restore the topic from a copy' }), null);
  assert.equal(advised({ fix: 'see `runlog dead-letter list`; find out which client writes them' }), null);
  assert.equal(advised({}), null);
});

test('a partition without an end of the log is not called current', () => {
  assert.deepEqual([{ state: 'stopped', lag: 0 }, { state: 'running', lag: null }, { state: 'running', lag: 3 }, { state: 'running', lag: 0 }].map((each) => stateOf(each)[1]),
    ['stopped', 'the log does not answer', 'behind by 3', 'shows all of the log']);
});

// A server of its own for the tests of the page, and the agents and operators that write to it over HTTP.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';

const BINARY = process.env.RUNLOG_BIN;

/** Starts `runlog serve --local`. Returns its address and a function that ends it. */
export async function startServer({ flags = [], dir = mkdtempSync(join(tmpdir(), 'runlog-page-')), port = 0 } = {}) {
  if (!BINARY) throw new Error('RUNLOG_BIN names the command to test');
  const child = spawn(BINARY, ['serve', '--local', '--data', dir, '--listen', `127.0.0.1:${port}`, '--partitions', '4', ...flags], { stdio: ['ignore', 'pipe', 'pipe'] });
  let errors = '';
  child.stderr.on('data', (piece) => { errors = (errors + piece).slice(-4000); });
  const first = await new Promise((done, fail) => {
    createInterface({ input: child.stdout }).once('line', (line) => done(JSON.parse(line)));
    child.once('exit', (code) => fail(new Error(`the server ended with ${code}: ${errors}`)));
  });
  const stop = async (signal = 'SIGTERM') => {
    if (child.exitCode === null && child.signalCode === null) {
      const ended = new Promise((done) => child.once('exit', done));
      child.kill(signal);
      await ended;
    }
  };
  return { url: first.listening, page: first.ui, dir, child, stop, end: async () => { await stop(); rmSync(dir, { recursive: true, force: true }); } };
}

/** Runs the command and returns its output. */
export function command(args, { program = BINARY, env = process.env } = {}) {
  return new Promise((done, fail) => {
    const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    let out = '';
    child.stdout.on('data', (piece) => { out += piece; });
    child.once('exit', (code) => (code === 0 ? done(out) : fail(new Error(`${program} ${args[0]} ended with ${code}`))));
  });
}

/** Appends bytes to a partition of a server that does not run, as a foreign client would. Returns the offset. */
export async function appendForeign(dir, partition, hex) {
  const program = process.env.RUNLOG_TEST_PROCESS || new URL('../../target/debug/test_process', import.meta.url).pathname;
  const env = { ...process.env, LD_LIBRARY_PATH: dirname(BINARY) };
  return Number(await command(['local-appender', dir, String(partition), hex], { program, env }));
}

/** A client of the journal. */
export class Journal {
  constructor(url, token) { this.url = url; this.token = token; }

  async send(method, path, body) {
    const headers = { ...(this.token ? { authorization: `Bearer ${this.token}` } : {}), ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const response = await fetch(this.url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const answer = await response.json();
    if (!response.ok) throw Object.assign(new Error(`${method} ${path}: ${answer.detail}`), answer);
    return answer;
  }

  get(path) { return this.send('GET', path); }

  /** Claims a run, and returns its writer. */
  async claim(run, by) {
    const claim = await this.send('POST', `/v1/runs/${encodeURIComponent(run)}/claims`, { record_id: randomUUID(), claimed_by: by });
    return new Writer(this, run, claim);
  }
}

/** A process that has a run. */
export class Writer {
  constructor(journal, run, { writer_id, epoch }) { Object.assign(this, { journal, run, writer_id, epoch, agent: 'support-agent', checkpoints: 0 }); }

  record(id, payload, more = {}) {
    return { run_id: this.run, record_id: id, agent_id: this.agent, writer_id: this.writer_id, writer_epoch: this.epoch, ...more, payload };
  }

  async append(...records) {
    const outcomes = await this.journal.send('POST', `/v1/runs/${encodeURIComponent(this.run)}/records`, records);
    return outcomes[outcomes.length - 1];
  }

  turn(kind, content) { return this.append(this.record(randomUUID(), { type: 'conversation_turn', message_id: randomUUID(), kind, content })); }

  request(id, tool, args, key) {
    const more = key ? { idempotency_key: key } : {};
    return this.append(this.record(id, { type: 'tool_call_requested', request_id: 'response-' + id, call_id: id, tool_name: tool, arguments: args }, more));
  }

  result(id, result, record = id + '-result') { return this.append(this.record(record, { type: 'tool_call_completed', request_record_id: id, result })); }

  failure(id, kind, message) { return this.append(this.record(id + '-failure', { type: 'tool_call_failed', request_record_id: id, error_kind: kind, error_message: message })); }

  async checkpoint(messages) {
    const run = await this.journal.get(`/v1/runs/${encodeURIComponent(this.run)}`);
    return this.append(this.record(randomUUID(), { type: 'loop_checkpoint', checkpoint_id: `checkpoint-${run.next_checkpoint_seq}`, checkpoint_seq: run.next_checkpoint_seq,
      covers_journal_seq: run.next_journal_seq - 1, schema_version: 1, messages, state: { step: run.next_checkpoint_seq } }));
  }

  lifecycle(status, reason) { return this.append(this.record(randomUUID(), { type: 'run_lifecycle', status, reason })); }
}

/** Starts agent.mjs. `line` returns the next line that it prints, `kill` ends it with SIGKILL. */
export function startAgent({ url, token }, run, by) {
  const child = spawn(process.execPath, [fileURLToPath(new URL('agent.mjs', import.meta.url)), url, run, by],
    { env: { ...process.env, RUNLOG_TOKEN: token ?? '' }, stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((done) => child.once('exit', (code, signal) => done(signal ?? code)));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async () => {
    const { done, value } = await lines.next();
    if (done) throw new Error(`the agent ended with ${await ended}`);
    return JSON.parse(value);
  };
  return { line, ended, kill: () => { child.kill('SIGKILL'); return ended; } };
}

/** An agent that is killed in the middle of `issue_refund`, and the next agent of its run. `late` is the writer of the killed process. */
export async function killedAgent(journal, run) {
  const agent = startAgent(journal, run, 'worker-3, pid 20117');
  const late = new Writer(journal, run, await agent.line());
  const signal = await agent.kill();
  if (signal !== 'SIGKILL') throw new Error(`the agent ended with ${signal} before it was killed`);
  const next = startAgent(journal, run, 'worker-7, pid 311');
  await next.line();
  return { late, next };
}

const pause = (millis) => new Promise((done) => setTimeout(done, millis));

/** A refund whose process dies in the middle of the call, and a second process that takes the run over. Returns both. */
export async function killedRefund(journal, run, { key, order = '8841' } = {}) {
  const first = await journal.claim(run, 'worker-3, pid 20117');
  await first.lifecycle('started', 'a customer wrote');
  await first.turn('user', `Order ${order} arrived broken. I want my money back.`);
  await first.turn('assistant', 'I am sorry about that. Let me look at the order.');
  await first.request('get_order-1', 'get_order', { order });
  await first.result('get_order-1', { order, total: 129.5, currency: 'EUR', delivered: '2026-11-24' });
  await first.request('check_policy-2', 'check_refund_policy', { order, reason: 'broken on arrival' });
  await first.result('check_policy-2', { refundable: true });
  await first.checkpoint([{ role: 'user', content: `Order ${order} arrived broken.` }]);
  await first.turn('assistant', 'You are covered. I am refunding 129.50 EUR to your card.');
  await first.request('refund-3', 'issue_refund', { order, amount: 129.5, currency: 'EUR', reason: 'broken on arrival' }, key);
  const second = await journal.claim(run, 'worker-7, pid 311');
  return { first, second };
}

/** Runs of several kinds, so that every view shows something. */
export async function fillJournal(journal) {
  const research = await journal.claim('research/home-batteries', 'worker-2, pid 51');
  await research.lifecycle('started', 'asked by jo');
  await research.turn('user', 'Summarise the home battery market in Germany.');
  for (const [nth, topic] of ['installed capacity', 'subsidies by state', 'grid fees for storage'].entries()) {
    await research.turn('assistant', `Looking into ${topic}.`);
    await research.request(`search-${nth}`, 'web_search', { query: `home battery germany ${topic}`, limit: 5 });
    await pause(30);
    await research.result(`search-${nth}`, { hits: 5, first: `https://energy.example/${nth}` });
    await research.request(`page-${nth}`, 'fetch_page', { url: `https://energy.example/${nth}` });
    await pause(60 + nth * 40);
    if (nth === 2) await research.failure(`page-${nth}`, 'timeout', 'no answer after 30 s');
    else await research.result(`page-${nth}`, `Prices fell by ${nth + 11} percent.`);
    await research.checkpoint([{ role: 'assistant', content: topic }]);
  }
  await research.turn('assistant', 'The market grew by a third. Here is the summary.');
  await research.lifecycle('completed', 'summary written');
  const failed = await journal.claim('support/address-change-90', 'worker-1, pid 12');
  await failed.lifecycle('started', 'a customer wrote');
  await failed.request('validate-1', 'validate_address', { street: 'Hauptstraße 5', city: 'Köln' });
  await failed.failure('validate-1', 'unavailable', 'the address service does not answer');
  await failed.lifecycle('failed', 'address service');
  const arabic = await journal.claim('support/طلب-استرداد-7', 'worker-4');
  await arabic.turn('user', 'أريد استرداد مبلغ الطلب من فضلك');
  await arabic.lifecycle('completed', 'answered');
  const keyed = await journal.claim('mail/newsletter-12', 'worker-8, pid 90');
  keyed.agent = 'mail-agent';
  await keyed.request('send-1', 'send_mail', { to: 'list@example.org', subject: 'December' }, 'newsletter-12-send');
  await journal.claim('mail/newsletter-12', 'worker-9, pid 91');
  const hostile = await journal.claim('hostile/<img src=x onerror=alert(1)>', 'worker-6');
  await hostile.turn('user', '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script> javascript:alert(1)');
  await hostile.request('call-<b>1</b>', 'lookup_"><script>', { 'na"me': '</pre><script>alert(1)</script>', number: 12345678901234567890n.toString() });
  await journal.claim('hostile/<img src=x onerror=alert(1)>', 'worker-6b');
  const long = await journal.claim('x/' + 'very-long-segment-'.repeat(12) + 'end', 'worker-5, ' + 'host-'.repeat(30));
  await long.request('transfer-1', 'create_transfer', { seller: 'S-2207', amount: 873, currency: 'EUR', note: 'n'.repeat(600) });
  await journal.claim(long.run, 'worker-5b');
  const late = await journal.claim('refused/late-1', 'worker-13');
  await late.request('pay-1', 'pay', { amount: 5 });
  await journal.claim('refused/late-1', 'worker-14');
  await late.result('pay-1', { paid: true });
  const hotel = await journal.claim('trip/ny-4410', 'worker-11, pid 7');
  hotel.agent = 'travel-agent';
  await hotel.turn('user', 'Book two nights in New York.');
  await hotel.request('hotel-1', 'book_hotel', { hotel: 'H-77', from: '2026-12-04', nights: 2 });
  await journal.claim('trip/ny-4410', 'worker-12, pid 8');
}

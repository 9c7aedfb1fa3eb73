// The memory of a page that is left open while a journal is busy. RUNLOG_PAGE_MINUTES is the duration (60).
// Fails if the JavaScript heap of a view grows by more than GROWTH_MAX between the first tenth of the run and its end.
import { randomUUID } from 'node:crypto';
import { launch } from './browser.mjs';
import { Journal, killedRefund, startServer } from './journal.mjs';

const minutes = Number(process.env.RUNLOG_PAGE_MINUTES || 60);
if (!(minutes > 0)) throw new Error(`RUNLOG_PAGE_MINUTES is ${process.env.RUNLOG_PAGE_MINUTES}: a number of minutes above 0 is needed`);

/** Most bytes by which the heap of a view may grow, after a garbage collection: some 50 for each record of ten minutes. */
const GROWTH_MAX = 4 << 20;
/** Most DOM nodes by which a view may grow: less than one for each new run. */
const NODES_MAX = 5000;
/** Agents that work at the same time. */
const AGENTS = 8;
const SAMPLES = 10;

const server = await startServer();
const journal = new Journal(server.url);
let records = 0;
let isBusy = true;

/** One run of an agent. The process of every tenth run ends in the middle of a call, and an operator decides the call. */
async function work(nth) {
  const run = `load/${randomUUID()}`;
  const writer = await journal.claim(run, `worker-${nth % AGENTS}`);
  await writer.turn('user', 'Order arrived broken. '.repeat(20));
  for (const step of ['a', 'b', 'c']) {
    await writer.request(step, 'get_order', { order: randomUUID(), note: 'n'.repeat(500) });
    await writer.result(step, { total: 129.5, note: 'r'.repeat(500) });
  }
  await writer.checkpoint([{ role: 'user', content: 'Order arrived broken. '.repeat(20) }]);
  records += 9;
  if (nth % 10 === 0) {
    await writer.request('refund', 'issue_refund', { amount: 129.5 });
    const next = await journal.claim(run, `worker-${nth % AGENTS}b`);
    const late = await writer.result('refund', { refund: 'R-1' });
    if (late.outcome !== 'refused') throw new Error(`a result of a process that lost its run is ${late.outcome}`);
    const { pending: [{ basis }] } = await journal.get(`/v1/runs/${encodeURIComponent(run)}/recovery?consistency=latest`);
    await journal.send('POST', `/v1/runs/${encodeURIComponent(run)}/effects/refund/resolution`, { decision: 'adopt', basis, evidence: 'refund-result', who: 'jo', why: 'the bank has it' });
    await next.lifecycle('completed', 'refunded');
    records += 5;
  } else {
    await writer.lifecycle(nth % 7 === 0 ? 'failed' : 'completed', 'answered');
    records += 1;
  }
}

const { second: example } = await killedRefund(journal, 'support/refund-8841');
let started = 0;
const agents = Array.from({ length: AGENTS }, async () => { while (isBusy) await work(started++); });

const browser = await launch();

/** Opens a view in a browser profile of its own: pages of one profile can share a heap, and share one stream. */
async function open(view) {
  const page = await (await browser.newContext()).newPage();
  const errors = [];
  page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.goto(server.page + view);
  const devtools = await page.context().newCDPSession(page);
  const measure = async () => {
    // Twice: the first collection runs the finalizers, whose objects the second frees.
    await devtools.send('HeapProfiler.collectGarbage');
    await devtools.send('HeapProfiler.collectGarbage');
    const { usedSize } = await devtools.send('Runtime.getHeapUsage');
    const { nodes, jsEventListeners } = await devtools.send('Memory.getDOMCounters');
    return { bytes: usedSize, nodes, listeners: jsEventListeners };
  };
  return { view, page, errors, measure, samples: [] };
}

const failures = [];
try {
  const views = [];
  for (const view of ['/live', '/runs', '/decisions', '/refused', `/runs/${encodeURIComponent(example.run)}`]) views.push(await open(view));
  for (let sample = 0; sample <= SAMPLES; sample += 1) {
    // The run is as long as its user asked for; no claim depends on the time.
    await Promise.race([...agents, new Promise((done) => setTimeout(done, minutes * 60_000 / (SAMPLES + 1)))]);
    for (const { view, measure, samples } of views) {
      samples.push(await measure());
      const { bytes, nodes, listeners } = samples.at(-1);
      console.log(`${sample}/${SAMPLES} ${view}: ${(bytes / 1024).toFixed(0)} KiB, ${nodes} nodes, ${listeners} listeners after ${records} records`);
    }
  }
  isBusy = false;
  await Promise.all(agents);
  for (const { view, errors, samples } of views) {
    const [first, last] = [samples[1], samples.at(-1)];
    const [bytes, nodes] = [last.bytes - first.bytes, last.nodes - first.nodes];
    console.log(`${view}: ${(bytes / 1024).toFixed(0)} KiB and ${nodes} nodes more than after the first tenth`);
    if (bytes > GROWTH_MAX) failures.push(`${view} grew by ${bytes} bytes of JavaScript heap: at most ${GROWTH_MAX} are accepted`);
    if (nodes > NODES_MAX) failures.push(`${view} grew by ${nodes} DOM nodes: at most ${NODES_MAX} are accepted`);
    if (errors.length) failures.push(`${view} reported errors: ${errors.slice(0, 3).join('; ')}`);
  }
} finally {
  isBusy = false;
  await browser.close();
  await server.end();
}
for (const failure of failures) console.error(failure);
process.exitCode = failures.length ? 1 : 0;

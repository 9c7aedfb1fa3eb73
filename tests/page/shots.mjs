// The screenshots in the documents: of `runlog demo --serve`, and of an agent that is killed in the middle of a call on its server.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { launch } from './browser.mjs';
import { Journal, killedAgent } from './journal.mjs';
import { small } from './png.mjs';

const BYTES_MAX = 150_000;
const docs = new URL('../../docs/', import.meta.url).pathname;
const dir = mkdtempSync(join(tmpdir(), 'runlog-shots-'));
const demo = spawn(process.env.RUNLOG_BIN, ['demo', '--serve', '--listen', '127.0.0.1:0', '--agents', '60', '--seed', '42', '--data', dir], { stdio: ['ignore', 'pipe', 'inherit'] });
const ended = new Promise((done) => demo.once('exit', done));
const browser = await launch();
try {
  let url;
  for await (const line of createInterface({ input: demo.stdout })) {
    url = /^Serving (http:\S+)/.exec(line)?.[1];
    if (url) break;
  }
  if (!url) throw new Error(`the demo ended with ${await ended}`);
  demo.stdout.resume();
  const journal = new Journal(url);
  const { late, next } = await killedAgent(journal, 'support/refund-8841');
  await late.result('refund-3', { refund: 'RF-20931', status: 'succeeded' });
  // A run of the demo whose process was killed, at the record with which another process took it over.
  const { events: [{ run_id: run }] } = await journal.get('/v1/events?family=effect_resolution&consistency=latest');
  const { records } = await journal.get(`/v1/runs/${encodeURIComponent(run)}/records?limit=200`);
  const { position } = records.find(({ payload_type: type, epoch }) => type === 'run_claim' && epoch === 2);
  const page = await (await browser.newContext({ viewport: { width: 1360, height: 800 }, colorScheme: 'dark', baseURL: url })).newPage();
  const shoot = async (name) => {
    await page.waitForSelector('.fresh.is-current');
    await page.waitForFunction(() => !document.querySelector('.loading, .resume.old'));
    await page.mouse.move(0, 0);
    const image = small(await page.screenshot());
    if (image.length > BYTES_MAX) throw new Error(`docs/${name} would have ${image.length} bytes: at most ${BYTES_MAX} are accepted`);
    writeFileSync(join(docs, name), image);
    console.log(`docs/${name}: ${image.length} bytes`);
  };
  await page.goto('/ui/decisions?run=support%2Frefund-8841&kind=tool_call&effect=refund-3');
  await page.getByRole('radio', { name: 'It happened, as the late result says' }).check();
  await shoot('page.png');
  await page.goto(`/ui/runs/${encodeURIComponent(run)}?at=${position.partition}:${position.offset}`);
  await page.locator('.resume', { hasText: 'may have happened' }).waitFor();
  await shoot('page-run.png');
  await page.setViewportSize({ width: 1360, height: 420 });
  await page.goto('/ui/audit');
  await page.locator('.row', { hasText: 'book_flight' }).first().waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll('[role=cell]')].every(({ textContent }) => textContent !== '…'));
  await shoot('page-audit.png');
  await next.kill();
} finally {
  await browser.close();
  demo.kill('SIGINT');
  await ended;
  rmSync(dir, { recursive: true, force: true });
}
process.exit(0);

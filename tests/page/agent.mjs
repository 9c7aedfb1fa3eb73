// An agent in a process of its own: node agent.mjs SERVER RUN NAME. RUNLOG_TOKEN is its token.
// It prints its writer as JSON, and calls `issue_refund`, which never answers. In a run that already has the call, it waits until the
// journal permits new calls, prints the recorded result and completes the run.
import { Journal } from './journal.mjs';

const [server, run, name] = process.argv.slice(2);
const journal = new Journal(server, process.env.RUNLOG_TOKEN);
const path = `/v1/runs/${encodeURIComponent(run)}`;
const say = (facts) => console.log(JSON.stringify(facts));

const writer = await journal.claim(run, name);
const recover = () => journal.get(`${path}/recovery?consistency=latest`);
const find = ({ completed, pending }) => [...completed, ...pending].find(({ id }) => id === 'refund-3');
let recovery = await recover();
if (!find(recovery)) {
  await writer.lifecycle('started', 'a customer wrote');
  await writer.turn('user', 'Order 8841 arrived broken. I want my money back.');
  await writer.turn('assistant', 'I am refunding 129.50 EUR to your card.');
  await writer.request('refund-3', 'issue_refund', { order: '8841', amount: 129.5, currency: 'EUR' });
  say({ writer_id: writer.writer_id, epoch: writer.epoch });
  await new Promise((done) => process.stdin.once('close', done).resume());
  process.exit(1);
}
say({ writer_id: writer.writer_id, epoch: writer.epoch });
const { body } = await fetch(`${server}${path}/tail`, { headers: journal.token ? { authorization: `Bearer ${journal.token}` } : {} });
// Each piece has news of the run, or nothing that changes the recovery.
for await (const piece of body) {
  if (piece.length) recovery = await recover();
  if (recovery.resumable) break;
}
const { status, result } = await journal.get(`${path}/lookup?tool=issue_refund&fingerprint=${find(recovery).fingerprint}`);
await writer.turn('assistant', `Your refund is ${result.refund}.`);
const { outcome } = await writer.lifecycle('completed', 'refunded');
say({ status, result, outcome });
process.exit(0);

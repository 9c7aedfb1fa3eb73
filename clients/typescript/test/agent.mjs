// An agent in a process of its own: `agent.mjs URL RUN LEDGER MODE`. Each effect is a line in LEDGER.
//
// MODE: `die` kills the process in the middle of the booking, `die-paying` in the middle of the payment. `hold` prints `paying` and
// waits for a line on stdin. Any other mode does all steps.
import { appendFileSync } from "node:fs";
import { once } from "node:events";
import { connect, RunlogError, tool } from "../dist/index.js";

const [url, runId, ledger, mode] = process.argv.slice(2);
const note = (what) => appendFileSync(ledger, `${what}\n`);
const die = () => process.kill(process.pid, "SIGKILL");

const find = tool("find", {}, () => {
  note("find");
  return { flight: "HAT136" };
});
const book = tool("book", { key: ({ order }) => `order-${order}` }, async (_, call) => {
  note(`book ${call.idempotencyKey} ${call.attempt}`);
  if (mode === "die") die();
  return { booking: "B-1009" };
});
const pay = tool("pay", {}, async () => {
  note("pay");
  if (mode === "die-paying") die();
  if (mode === "hold") {
    console.log("paying");
    await once(process.stdin, "data");
  }
  return "paid";
});

try {
  const run = await connect(url, { agent: "tester" }).open(runId);
  console.log(await find(run, { to: "LHR" }));
  await run.checkpoint([{ role: "tool", content: "HAT136" }], { step: "found" });
  console.log(await book(run, { order: 7 }));
  console.log(await pay(run, { sum: 180 }));
  await run.end();
  console.log("done");
} catch (error) {
  if (!(error instanceof RunlogError)) throw error;
  console.log(error.name, error.happened, error.action);
}
process.exit();

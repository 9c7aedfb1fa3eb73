// agent.mjs RUN_ID: an agent with 12 steps, each with one effect. Environment: SERVER, DIR, GATE, SEED,
// CHAOS (0..1), CLIENT (another client to test, such as a mutant).
import { appendFileSync } from "node:fs";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { append, effects } from "./ledger.mjs";
import { random } from "./random.mjs";

const run = process.argv[2];
const { SERVER: server, DIR: dir, GATE: gate = "one", SEED: seed = "0", CHAOS: chaos = "0" } = process.env;
const { Run, Stopped, NotDone, Unsure, CallFailed } = await import(process.env.CLIENT ?? "./client.mjs");
const roll = random(seed);
const chance = (p) => roll() < p * Number(chaos);
const log = (text) => appendFileSync(`${dir}/story.log`, `${new Date().toISOString().slice(11)} agent ${process.pid}: ${text}\n`);
const die = (where, p = 0.025) => {
  if (!chance(p)) return;
  log(`kills itself ${where}`);
  process.kill(process.pid, "SIGKILL");
};
const slow = async (where, p = 0.12) => {
  if (!chance(p)) return;
  const ms = Math.floor(2500 * roll() ** 2);
  log(`sleeps ${ms} ms ${where}`);
  await sleep(ms);
};

/** The calls: every third has a key, 8 is the call of 7 on purpose, 5 always fails. */
export const callOf = (step) => ({
  tool: "pay",
  args: step === 5 ? { refused: true } : { item: step === 8 ? 7 : step },
  occurrence: step === 8 ? 2 : 1,
  key: step % 3 === 0 ? `${run}-step-${step}` : undefined,
});

/** One line for each time that the effect reached the bank. The bank knows keys: the first line of a key counts. */
function effect(step) {
  return async ({ key, attempt, record }) => {
    log(`EFFECT step ${step} record ${record}`);
    await slow("between the gate and the effect");
    die("before the effect");
    if (step === 5) throw Object.assign(new Error("no such account"), { kind: "refused" });
    if (chance(0.12)) throw new NotDone("connection refused");
    const unsure = chance(0.06);
    if (unsure && roll() < 0.5) throw new Unsure("timeout, and it did not happen");
    const line = { run, step, key, attempt, pid: process.pid, receipt: randomUUID() };
    append(dir, line);
    die("after the effect", 0.04);
    if (unsure) throw new Unsure("timeout, but it happened");
    let { receipt } = line;
    if (key) receipt = effects(dir).find((other) => other.key === key).receipt;
    await slow("between the effect and its result");
    return { step, receipt };
  };
}

try {
  log(`starts, gate ${gate}`);
  const client = new Run({ server, run, agent: "attacked", gate, lookFirst: roll() < 0.6, log });
  const { ended, status, checkpoint } = await client.open(`process ${process.pid}`);
  if (ended) {
    log(`the run is ${status}`);
    process.exit(0);
  }
  const messages = checkpoint?.messages ?? [];
  const first = (checkpoint?.state?.step ?? 0) + 1;
  if (messages.length !== first - 1) throw new Error(`VIOLATION checkpoint has ${messages.length} messages at step ${first}`);
  for (let step = first; step <= 12; step++) {
    let content;
    try {
      const { receipt } = await client.call(step, callOf(step), effect(step));
      content = receipt;
    } catch (error) {
      if (!(error instanceof CallFailed)) throw error;
      content = `failed: ${error.message}`;
    }
    messages.push({ role: "tool", content });
    die("after a step");
    await slow("after a step", 0.05);
    if (step % 2 === 0) await client.checkpoint(messages, { step });
  }
  await client.end();
  log("ended the run");
  process.exit(0);
} catch (error) {
  log(`stops: ${error instanceof Stopped ? error.message : error.stack}`);
  process.exit(error instanceof Stopped ? 3 : 1);
}

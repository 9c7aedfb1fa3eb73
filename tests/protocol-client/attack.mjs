// attack.mjs SEED: agents of one run through a hostile proxy, killed at random moments, with a truthful operator.
// Environment: RUNLOG (the server's URL), HASTY=1 (an operator who does not wait), TRACE=1 prints the story also of a run without violation.
import { spawn } from "node:child_process";
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { effects } from "./ledger.mjs";
import { random } from "./random.mjs";
import { startProxy } from "./proxy.mjs";

// The operator does not kill the processes that may have started a call before saying not_done. That is no truth, and is seen.
const HASTY = process.env.HASTY;
const STEPS = 12, ALWAYS_FAILS = 5, END_AFTER = 600_000, CALM_AFTER = 45_000;
const seed = process.argv[2] ?? "1";
const server = process.env.RUNLOG ?? "http://127.0.0.1:7391";
const roll = random(`attack ${seed}`);
const run = `attack-${seed}-${Date.now()}`;
const dir = mkdtempSync(join(tmpdir(), "attack-"));
mkdirSync(dir, { recursive: true });
const begin = Date.now();
const log = (text) => appendFileSync(`${dir}/story.log`, `${new Date().toISOString().slice(11)} ${text}\n`);
const story = () => (existsSync(`${dir}/story.log`) ? readFileSync(`${dir}/story.log`, "utf8") : "");
const lines = () => effects(dir);
const violations = [];
const violation = (text) => { violations.push(text); log(`VIOLATION ${text}`); };
const stepOf = (id) => Number(/^step-(\d+)/.exec(id)[1]);
const hasKey = (step) => step % 3 === 0;
const argsOf = (step) => (step === ALWAYS_FAILS ? { refused: true } : { item: step === 8 ? 7 : step });

const crowd = [0.01, 0.025, 0.08][Math.floor(roll() * 3)]; // how often a second agent comes
const weather = [0, 0.1, 0.25, 0.4, 0.6][Math.floor(roll() * 5)];
const proxy = await startProxy({ target: server, seed, faults: weather, log: (text) => log(`proxy: ${text}`) });
log(`seed ${seed} run ${run} faults ${weather} crowd ${crowd}`);

async function direct(path, base = server) {
  for (let i = 0; ; i++) {
    try {
      const response = await fetch(`${base}/v1/runs/${run}${path}`, { signal: AbortSignal.timeout(10000) });
      if (response.status === 200 || response.status === 404) return { status_code: response.status, ...(await response.json()) };
      throw new Error(`status ${response.status}`);
    } catch (error) {
      if (i > 20) throw error;
      await sleep(300);
    }
  }
}

// ---- agents

const agents = [];
let spawned = 0;
function start() {
  const calm = Date.now() - begin > CALM_AFTER;
  const env = { ...process.env, SERVER: proxy.url, DIR: dir, GATE: roll() < 0.5 ? "one" : "two",
                SEED: `${seed}/${++spawned}`, CHAOS: calm ? "0" : "1" };
  const child = spawn(process.execPath, [new URL("agent.mjs", import.meta.url).pathname, run], { env, stdio: "inherit" });
  const dies = calm || roll() < 0.15 ? Infinity : 1000 - 6000 * Math.log(roll() || 0.5);
  const agent = { child, pid: child.pid, alive: true, born: Date.now(), dies };
  child.on("exit", (code, signal) => {
    agent.alive = false;
    if (code === 1) violation(`agent ${agent.pid} failed`);
    log(`agent ${agent.pid} exits ${code ?? signal}`);
  });
  agents.push(agent);
}
const living = () => agents.filter((agent) => agent.alive);
async function kill(agent, why) {
  log(`kills agent ${agent.pid}: ${why}`);
  agent.child.kill("SIGKILL");
  while (agent.alive) await sleep(10);
}

// ---- the operator, who never says what is not true

const send = async (id, decision) => {
  const base = roll() < 0.7 ? proxy.url : server;
  let told = "no answer";
  try {
    const response = await fetch(`${base}/v1/runs/${run}/effects/${id}/resolution`, {
      method: "POST", headers: { "Content-Type": "application/json" }, signal: AbortSignal.timeout(2000),
      body: JSON.stringify({ who: "the operator", why: "looked at effects.log", ...decision }),
    });
    told = `${response.status} ${(await response.text()).slice(0, 300)}`;
  } catch (error) {
    told = error.message;
  }
  log(`operator: ${id} ${JSON.stringify(decision)}: ${told}`);
};

async function operate() {
  const recovery = await direct("/recovery");
  if (recovery.status_code !== 200) return;
  for (const { id, class: kind, revision, evidence } of recovery.pending) {
    if (kind !== "reconcile_required") continue;
    const step = stepOf(id);
    const line = lines().find((l) => l.step === step);
    const adoptable = evidence.find((e) => e.adoptable);
    if (line) {
      const same = adoptable?.payload?.result?.receipt === line.receipt;
      if (same && roll() < 0.7) await send(id, { decision: "adopt", revision, evidence: adoptable.record_id });
      else await send(id, { decision: "done", revision, result: { step, receipt: line.receipt } });
      continue;
    }
    // It did not happen so far. It will not, if every process that may have started it is dead.
    const starters = living().filter(({ pid }) => story().includes(`agent ${pid}: asks to start ${id}`));
    const holder = [...story().matchAll(/agent (\d+): claimed (\S+) epoch/g)].find((m) => m[2] === recovery.writer_id)?.[1];
    let wait = false;
    if (HASTY) starters.length = 0;
    for (const agent of starters) {
      if (String(agent.pid) === holder && Date.now() - begin < CALM_AFTER && roll() < 0.9) wait = true;
      else await kill(agent, `the operator decides about ${id}`);
    }
    if (wait) continue;
    const late = lines().find((l) => l.step === step);
    if (late) continue;
    if (adoptable && adoptable.payload?.type === "tool_call_failed" && roll() < 0.7) {
      await send(id, { decision: "adopt", revision, evidence: adoptable.record_id });
    } else if (roll() < 0.03) {
      log(`gives up step ${step}`);
      await send(id, { decision: "give_up", revision });
    } else {
      await send(id, { decision: "not_done", revision, force: (!HASTY && roll() < 0.3) || undefined });
    }
  }
}

// ---- the attack

let ended = false;
while (!ended && Date.now() - begin < END_AFTER) {
  const calm = Date.now() - begin > CALM_AFTER;
  if (calm) proxy.faults = Math.min(proxy.faults, 0.05);
  const alive = living();
  if (!alive.length) {
    if (roll() < 0.5) await sleep(800 * roll());
    start();
  } else if (!calm && alive.length < 3 && roll() < crowd) {
    log("a second agent while one is alive");
    start();
  }
  for (const agent of alive) {
    if (!agent.alive) continue;
    if (Date.now() - agent.born > agent.dies) await kill(agent, "its time has come");
    else if (!calm && roll() < 0.01) {
      const ms = Math.floor(4000 * roll());
      log(`stops agent ${agent.pid} for ${ms} ms`);
      agent.child.kill("SIGSTOP");
      sleep(ms).then(() => agent.alive && agent.child.kill("SIGCONT"));
    }
  }
  if (roll() < 0.5) await operate();
  await sleep(150);
  const { status, status_code } = await direct("");
  ended = status_code === 200 && status !== "open";
}
if (!ended) violation("the run did not end");
const endedAfter = Date.now() - begin;

// Sometimes starts one more agent on the ended run; the other agents continue for a while.
if (roll() < 0.5) start();
const patience = Date.now() + 15000;
while ((proxy.late || living().length) && Date.now() < patience) await sleep(100);
for (const agent of living()) await kill(agent, "the end");
while (proxy.late) await sleep(100);

// ---- the check

const all = lines();
const starts = [...story().matchAll(/EFFECT step (\d+) record (\S+)/g)].map((m) => m[2]);
for (const record of new Set(starts)) {
  const times = starts.filter((other) => other === record).length;
  if (times > 1) violation(`the effect of ${record} was started ${times} times`);
}
for (let step = 1; step <= STEPS; step++) {
  const of = all.filter((line) => line.step === step);
  const query = new URLSearchParams({ tool: "pay", args: JSON.stringify(argsOf(step)), occurrence: step === 8 ? 2 : 1 });
  const answer = await direct(`/lookup?${query}`);
  const told = `step ${step}: ${of.length} lines, ${answer.status} ${JSON.stringify(answer.result ?? answer.error)}`;
  log(`checks ${told}`);
  const gaveUp = answer.status === "failed" && story().includes(`gives up step ${step}\n`);
  if (step === ALWAYS_FAILS) {
    if (of.length || answer.status !== "failed") violation(told);
  } else if (hasKey(step)) {
    if (answer.status !== "completed" || !of.length || answer.result.receipt !== of[0].receipt) violation(told);
  } else if (of.length > 1) violation(`run twice: ${told}`);
  else if (of.length === 1 ? answer.status !== "completed" || answer.result.receipt !== of[0].receipt : !gaveUp) violation(told);
}
if (story().includes("VIOLATION checkpoint")) violation("an agent found a wrong checkpoint");

const end = await direct("/checkpoints/latest");
if (!end.messages || end.messages.length !== STEPS) violation(`the last checkpoint has ${end.messages?.length} messages`);
const kindOf = (id) => /^(end|checkpoint)|(result|not-done)$/.exec(id)?.[0].replace(/-\d+$/, "") ?? (/attempt/.test(id) ? "attempt" : "intent");
const told = / agent \d+: (step-\S+|checkpoint-\d+|end): (repeat.*|refused.*|reconcile_required|invalid|conflict|own not_done: \w+)/g;
for (const [, id, outcome] of story().matchAll(told)) {
  const what = `${kindOf(id)} ${outcome.trim()}`;
  proxy.counts[what] = (proxy.counts[what] ?? 0) + 1;
}
for (const [, decision, force] of story().matchAll(/operator: \S+ \{"decision":"(\w+)".*?(,"force":true)?\}: 200/g)) {
  const what = `${decision}${force ? " forced" : ""}`;
  proxy.counts[what] = (proxy.counts[what] ?? 0) + 1;
}
const counts = { agents: agents.length, starts: starts.length, lines: all.length, ...proxy.counts };
const seconds = Math.round(endedAfter / 1000);
console.log(`seed ${seed} faults ${weather} ${violations.length ? "VIOLATION" : "ok"} in ${seconds} s ${JSON.stringify(counts)}`);
for (const text of violations) console.log(`seed ${seed}: ${text}`);
if (violations.length || process.env.TRACE) console.log(story());
if (!violations.length) rmSync(dir, { recursive: true });
else console.log(`kept ${dir}`);
proxy.close();
process.exit(violations.length ? 1 : 0);

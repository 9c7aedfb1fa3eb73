// Agents that are killed in the middle of a call, and their successors.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Active, Conflict, ReconcileRequired } from "../dist/index.js";
import { connectTo, defer, newRun, serve } from "./server.mjs";

const { url, folder } = await serve();
const rl = connectTo(url);

function start(run, mode) {
  const ledger = join(folder, `${run}.ledger`);
  const child = spawn(process.execPath, [new URL("agent.mjs", import.meta.url).pathname, url, run, ledger, mode], { stdio: ["pipe", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (text) => (output += text));
  const end = once(child, "close").then(([code, signal]) => ({ output: output.trim().split("\n"), code, signal }));
  return { child, end, effects: () => readFileSync(ledger, "utf8").trim().split("\n") };
}

test("a_successor_repeats_a_call_with_a_key_and_answers_the_others_from_the_journal", async () => {
  const run = newRun();
  const killed = start(run, "die");
  assert.equal((await killed.end).signal, "SIGKILL");
  const next = start(run, "");
  assert.equal((await next.end).output.at(-1), "done");
  assert.deepEqual(next.effects(), ["find", "book order-7 1", "book order-7 2", "pay"]);
  const third = start(run, "");
  assert.equal((await third.end).output.at(-1), "done");
  assert.equal(third.effects().length, 4);
});

test("a_successor_runs_nothing_on_top_of_a_call_that_may_have_happened", async () => {
  const run = newRun();
  const killed = start(run, "die-paying");
  await killed.end;
  const next = start(run, "");
  assert.equal((await next.end).output.at(-1), "ReconcileRequired nothing operator");
  let decided = 0;
  for await (const effect of rl.undecided()) {
    if (effect.run_id !== run) continue;
    assert.equal(effect.tool_name, "pay");
    await rl.decide(effect, "not_done", { who: "jo", why: "the bank has no payment", force: true });
    decided++;
  }
  assert.equal(decided, 1);
  const last = start(run, "");
  assert.equal((await last.end).output.at(-1), "done");
  assert.deepEqual(last.effects(), ["find", "book order-7 1", "pay", "pay"]);
});

test("of_two_processes_on_a_run_the_last_continues_and_the_result_of_the_first_is_evidence", async () => {
  const id = newRun();
  const first = start(id, "hold");
  while (!/paying/.test(String(await once(first.child.stdout, "data"))));
  await assert.rejects(rl.open(id, { unlessActiveMs: 60_000 }), Active);
  const run = await rl.open(id, { fromStart: true });
  first.child.stdin.write("go\n");
  assert.deepEqual((await first.end).output.at(-1), "Fenced evidence stop");
  const effects = [];
  for await (const effect of rl.undecided(id)) effects.push(effect);
  assert.equal(effects.length, 1);
  const [waiting] = effects;
  assert.equal(waiting.against, waiting.evidence[0].record_id);
  await assert.rejects(rl.decide(waiting, "not_done", { who: "jo", why: "?" }), /is evidence that it happened/);
  await rl.decide(waiting, "adopt", { who: "jo", why: "the process says so" });
  assert.equal(await run.tool("pay", { sum: 180 }, {}, () => assert.fail("paid twice")), "paid");
});

test("a_not_done_whose_answer_was_lost_is_made_once_beside_a_later_result_of_another", async () => {
  const id = newRun();
  const first = start(id, "hold");
  while (!/paying/.test(String(await once(first.child.stdout, "data"))));
  await rl.open(id, { fromStart: true });
  first.child.stdin.write("go\n");
  await first.end;
  const undecided = async () => {
    for await (const effect of rl.undecided(id)) return effect;
  };
  const waiting = await undecided();
  const payload = { type: "tool_call_completed", request_record_id: waiting.id, result: "of another" };
  const record = { run_id: id, record_id: "other", writer_id: "nobody", writer_epoch: 0, payload };
  const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(record) };
  assert.equal((await (await fetch(`${url}/v1/runs/${id}/records`, sent)).json()).reason, "fenced");
  const effect = await undecided();
  // A result of the call's own process wins. The server records the piece that the judge reads at version 2: the other's.
  assert.deepEqual([effect.evidence.length, effect.against], [2, waiting.against]);
  let lost = 0;
  const losing = connectTo(url, { fetch: async (path, init) => {
    const answer = await fetch(path, init);
    if (String(path).includes("/resolution") && !lost++) throw new TypeError("fetch failed");
    return answer;
  } });
  const deciding = { who: "jo", why: "no payment", against: effect.against, force: true };
  await losing.decide(effect, "not_done", deciding);
  assert.equal(lost, 2);
  await assert.rejects(losing.decide(effect, "not_done", { ...deciding, who: "jim" }), Conflict);
});

/** The position of a run's last record. */
const lastOf = async (id) => (await (await fetch(`${url}/v1/runs/${id}/recovery`)).json()).position;
/** Voids a record. */
async function skip({ partition, offset }) {
  const body = JSON.stringify({ partition, offset, who: "jo", why: "poison" });
  const { status } = await fetch(`${url}/v1/skips?force=true`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  assert.equal(status, 200);
}

for (const resumes of [false, true]) test(`a_call_that_was_answered_and_is_pending_again_answers_no_other_call${resumes ? "_of_a_successor" : ""}`, async () => {
  const id = newRun();
  let run = await rl.open(id);
  assert.equal(await run.tool("pay", { invoice: 7 }, {}, () => "first"), "first");
  await skip(await lastOf(id));
  if (resumes) {
    await assert.rejects(run.checkpoint([]), Conflict);
    await run.checkpoint([]);
    run = await rl.open(id);
    assert.deepEqual(run.recovery.messages, []);
  } else {
    // After a call that may have happened, the next one reads what is pending in the journal.
    const breaks = () => Promise.reject(new Error("the connection broke"));
    await assert.rejects(run.tool("find", { to: "LHR" }, {}, breaks), ReconcileRequired);
  }
  await assert.rejects(run.tool("pay", { invoice: 7 }, {}, () => assert.fail("paid")), ReconcileRequired);
  for await (const effect of rl.undecided(id)) await rl.decide(effect, "done", { result: "first", who: "jo", why: "asked", force: true });
  assert.equal(await run.tool("pay", { invoice: 7 }, {}, () => "second"), "second");
});

test("a_unique_call_that_is_made_again_takes_no_other_call", async () => {
  const id = newRun();
  let ran = 0;
  const pay = () => ran++;
  for (let round = 0; round < 2; round++) {
    const run = await rl.open(id, { fromStart: true });
    const made = [];
    for (const unique of [true, true, false]) made.push(await run.tool("pay", {}, { unique }, pay));
    assert.deepEqual([made, ran], [[0, 0, 1], 2]);
  }
});

test("equal_calls_whose_callers_left_answer_in_the_order_of_the_log", async () => {
  const id = newRun();
  const run = await rl.open(id);
  const [effects, callers] = [[], []];
  for (let n = 0; n < 3; n++) {
    const [begun, effect, stop] = [defer(), defer(), new AbortController()];
    const left = run.tool("pay", { invoice: 7 }, { signal: stop.signal }, () => (begun.resolve(), effect.promise));
    await begun.promise;
    effects.push(effect);
    callers.push(() => (stop.abort(new Error("enough")), assert.rejects(left, /enough/)));
  }
  await Promise.all(callers.map((leave) => leave()));
  for (const at of [1, 2, 0]) {
    effects[at].reject(new Error("the connection broke"));
    await new Promise(setImmediate);
  }
  const results = ["first", "second", "third"];
  const undecided = [];
  for await (const effect of rl.undecided(id)) undecided.push(effect);
  for (const [at, effect] of undecided.entries()) await rl.decide(effect, "done", { result: results[at], who: "jo", why: "asked", force: true });
  for (const result of results) assert.equal(await run.tool("pay", { invoice: 7 }, {}, () => assert.fail("paid")), result);
});

for (const key of [undefined, "invoice-7"]) test(`a_covered_call_whose_end_is_voided_later_is_pending_for_a_process_that_begins_at_the_start${key ? "_with_its_key" : ""}`, async () => {
  const id = newRun();
  let run = await rl.open(id);
  await run.turn("user", "pay");
  assert.equal(await run.tool("pay", { invoice: 7 }, { key }, () => "first"), "first");
  const result = await lastOf(id);
  await run.checkpoint([]);
  run = await rl.open(id);
  await skip(result);
  if (key) assert.equal(await run.tool("pay", { invoice: 7 }, { key }, ({ attempt }) => attempt), 2);
  else await assert.rejects(run.tool("pay", { invoice: 7 }, {}, () => assert.fail("paid")), ReconcileRequired);
});

test("a_call_with_a_key_whose_end_is_voided_runs_again_with_its_key", async () => {
  const id = newRun();
  const run = await rl.open(id);
  const pay = (effect) => run.tool("pay", { invoice: 7 }, { key: "invoice-7" }, effect);
  assert.equal(await pay(() => "first"), "first");
  await skip(await lastOf(id));
  await assert.rejects(pay(() => assert.fail("paid")), /answer was not found/);
  assert.equal(await pay(({ attempt }) => attempt), 2);
});

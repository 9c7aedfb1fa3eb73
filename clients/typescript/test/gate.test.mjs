import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Conflict, Diverged, Failed, Invalid, ReconcileRequired, Redaction, ResultNotRecorded, RunlogError, tool, Unknown, Usage,
} from "../dist/index.js";
import { connectTo, defer, newRun, serve } from "./server.mjs";

const { url } = await serve("--write-schema", "3");
const rl = connectTo(url);

/** An effect that counts its runs. */
function counted(result = "ok") {
  const effect = async (call) => {
    effect.calls.push(call);
    return typeof result === "function" ? result(call) : result;
  };
  effect.calls = [];
  return effect;
}

test("a_recorded_call_is_answered_by_the_journal_with_every_digit", async () => {
  const run = newRun();
  const order = { id: 1234567890123456789n, sum: 1e20, items: [{ price: 0.1 }], when: new Date("2026-11-30T12:00:00Z") };
  const effect = counted({ booking: 9007199254740993n, price: 1e21 });
  const first = await (await rl.open(run)).call("book", order, {}, effect);
  assert.equal(first.recorded, false);
  const second = await (await rl.open(run)).call("book", order, {}, effect);
  assert.deepEqual({ ...second, recorded: false }, first);
  assert.equal(second.recorded, true);
  assert.equal(effect.calls.length, 1);
  const found = await rl.lookup(run, "book", { ...order, id: 1234567890123456789n });
  assert.equal(found.status, "completed");
  assert.equal((await rl.lookup(run, "book", { ...order, id: 1234567890123456788n })).status, "unknown");
});

test("the_same_call_twice_is_two_calls_and_a_later_process_gets_both_answers_in_order", async () => {
  const id = newRun();
  let n = 0;
  const effect = counted(() => ++n);
  const pay = async (run) => run.tool("pay", { to: "jo" }, {}, effect);
  const run = await rl.open(id);
  assert.deepEqual([await pay(run), await pay(run)], [1, 2]);
  const again = await rl.open(id);
  assert.deepEqual([await pay(again), await pay(again), await pay(again)], [1, 2, 3]);
  const unique = await rl.open(newRun());
  const once = () => unique.tool("pay", { id: 7 }, { unique: true }, effect);
  assert.deepEqual([await once(), await once()], [4, 4]);
});

test("calls_that_begin_together_keep_their_order", async () => {
  const id = newRun();
  const pay = (run, effect) => Promise.all([0, 1, 2, 3].map((n) => run.tool("pay", {}, {}, () => effect(n))));
  assert.deepEqual(await pay(await rl.open(id), (n) => n), [0, 1, 2, 3]);
  assert.deepEqual(await pay(await rl.open(id), () => assert.fail("ran again")), [0, 1, 2, 3]);
});

test("arguments_without_json_are_refused_with_their_place_and_nothing_runs", async () => {
  const run = await rl.open(newRun());
  const effect = counted();
  const cyclic = {};
  cyclic.self = cyclic;
  for (const [args, place] of [
    [{ to: [1, 2, { when: new Date(NaN) }] }, "$.to[2].when"],
    [{ to: [1, 2, { when: Symbol("x") }] }, "$.to[2].when"],
    [{ price: NaN }, "$.price"],
    [{ n: [2n ** 1024n] }, "$.n[0]"],
    [{ "a b": new (class Cart {})() }, '$["a b"]'],
    [[undefined], "$[0]"],
    [{ text: "\ud800" }, "$.text"],
    [new Map([[1, "a"], ["1", "b"]]), "two keys are the same text"],
    [cyclic, "nests deeper"],
  ]) {
    const refused = (error) => error instanceof Invalid && error.message.includes(place) && error.happened === "nothing";
    await assert.rejects(run.tool("book", args, {}, effect), refused, place);
  }
  await assert.rejects(run.tool("book", {}, { key: "" }, effect), Usage);
  await assert.rejects(run.tool("book", {}, {}, undefined), Usage);
  await assert.rejects(run.tool("book", {}, { retry: { attempts: 2 } }, effect), Usage);
  assert.equal(effect.calls.length, 0);
  assert.equal((await rl.recover(run.id)).pending.length, 0);
});

test("an_effect_that_may_have_happened_stays_pending_until_a_person_decides", async () => {
  const id = newRun();
  const run = await rl.open(id);
  const lost = () => { throw new TypeError("fetch failed"); };
  await assert.rejects(run.tool("pay", { sum: 1 }, {}, lost), (error) =>
    error instanceof ReconcileRequired && error.happened === "unrecorded" && error.action === "operator");
  const effect = counted();
  await assert.rejects(run.tool("mail", {}, {}, effect), ReconcileRequired);
  const next = await rl.open(id);
  await assert.rejects(next.tool("pay", { sum: 1 }, {}, effect), (error) => error instanceof ReconcileRequired && error.happened === "nothing");
  assert.equal(next.pending[0].class, "reconcile_required");
  assert.equal(effect.calls.length, 0);
  const [waiting] = await collect(rl.undecided(id));
  assert.deepEqual(waiting.arguments, { sum: 1 });
  await rl.decide(waiting, "done", { who: "jo", why: "the bank has it", result: { receipt: 12345678901234567890n } });
  await assert.rejects(rl.decide(waiting, "give_up", { who: "jo", why: "late" }), Conflict);
  assert.deepEqual(await next.tool("pay", { sum: 1 }, {}, effect), { receipt: 12345678901234567890n });
  assert.equal(await next.tool("mail", {}, {}, effect), "ok");
});

async function collect(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

test("a_failure_that_did_not_happen_is_recorded_and_thrown_again", async () => {
  const id = newRun();
  class NoSeat extends Error {}
  const failing = counted(() => { throw new NoSeat("sold out"); });
  const options = { failedOn: NoSeat, unknownOn: (error) => error instanceof Unknown };
  const isFailed = (recorded) => (error) => error instanceof Failed && error.text === "sold out" && error.recorded === recorded;
  await assert.rejects((await rl.open(id)).tool("book", {}, options, failing), isFailed(false));
  await assert.rejects((await rl.open(id)).tool("book", {}, options, failing), isFailed(true));
  assert.equal(failing.calls.length, 1);
});

test("a_call_that_is_safe_to_repeat_runs_again_and_each_attempt_is_recorded_before_it", async () => {
  const run = await rl.open(newRun());
  const flaky = counted((call) => { if (call.attempt < 3) throw new Error("timeout"); return call.attempt; });
  const options = { key: "order-7", retry: { attempts: 3, pauseMs: () => 0 } };
  assert.equal(await run.tool("pay", {}, options, flaky), 3);
  assert.deepEqual(flaky.calls.map((call) => [call.id === flaky.calls[0].id, call.attempt, call.idempotencyKey]),
    [1, 2, 3].map((attempt) => [true, attempt, "order-7"]));
  assert.equal(await run.tool("pay", {}, { key: "order-7" }, flaky), 3);
  await assert.rejects(run.tool("pay", { other: 1 }, { key: "order-7" }, flaky), (error) => error instanceof Conflict && error.action === "fix_the_input");
  const reading = counted((call) => { if (call.attempt === 1) throw new Error("timeout"); return "read"; });
  await assert.rejects(run.tool("read", {}, { repeatable: true }, reading), (error) => error.happened === "unrecorded" && error.action === "retry");
  assert.equal(await run.tool("read", {}, { repeatable: true }, reading), "read");
});

test("a_result_that_cannot_be_recorded_is_returned_and_ends_its_call", async () => {
  const id = newRun();
  const effect = counted({ socket: new (class Socket {})() });
  assert.ok((await (await rl.open(id)).tool("connect", {}, {}, effect)).socket);
  await assert.rejects((await rl.open(id)).tool("connect", {}, {}, effect), (error) =>
    error instanceof ResultNotRecorded && error.marker.reason === "no_json" && error.marker.message.includes("$.socket"));
  assert.equal(effect.calls.length, 1);
  assert.deepEqual(await collect(rl.undecided(id)), []);
});

test("a_result_or_an_error_of_any_class_ends_its_call_and_the_handle_goes_on", async () => {
  const throwing = () => { throw new Error("a getter"); };
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const odd = [
    new (class { static name() {} })(), new (class { static name = Symbol("x"); })(), Object.defineProperty({}, "constructor", { get: throwing }),
    Object.defineProperty(new (class {})(), "constructor", { get: throwing }), { deep: revoked.proxy }, { toJSON: () => { throw Object.create(null); } },
  ];
  const warned = connectTo(url, { warn: throwing, redaction: new Redaction("odd").texts((text) => (text === "odd" ? 7 : text)) });
  const run = await warned.open(newRun());
  const later = [];
  for (const [n, result] of [...odd, "odd"].entries()) {
    assert.equal(await run.tool("make", { n }, {}, () => result), result);
    later.push(n);
  }
  const failed = Object.assign(new Failed("k", "t"), { text: Object.create(null) });
  await assert.rejects(run.tool("fail", {}, {}, () => { throw failed; }), Failed);
  for (const error of [Object.create(null), Object.defineProperty(new Error("x"), "message", { get: throwing }), revoked.proxy]) {
    await assert.rejects(run.tool("lose", {}, { key: `${later.push(0)}` }, () => { throw error; }), (found) => found instanceof RunlogError && found.happened === "unrecorded");
  }
  const next = await rl.open(run.id);
  // The third result is a plain object for JSON.
  assert.deepEqual(await next.tool("make", { n: 2 }, {}, () => assert.fail("ran again")), {});
  for (const n of [0, 1, 3, 4, 5, 6]) await assert.rejects(next.tool("make", { n }, {}, () => assert.fail("ran again")), ResultNotRecorded, `${n}`);
});

test("limits_of_time_that_no_timer_keeps_and_answers_that_are_promises_are_refused", async () => {
  assert.throws(() => connectTo(url, { deadlineMs: 2 ** 31 }), Usage);
  assert.throws(() => connectTo(url, { readBackMs: Infinity }), Usage);
  const run = await rl.open(newRun());
  for (const [n, pause] of [Infinity, NaN, -1, Promise.resolve(1), "1"].entries()) {
    const flaky = counted(() => { throw new Error("timeout"); });
    await assert.rejects(run.tool("pay", { n }, { key: `k${n}`, retry: { attempts: 3, pauseMs: () => pause } }, flaky), RunlogError);
    assert.equal(flaky.calls.length, 1);
  }
  const lost = () => { throw new TypeError("fetch failed"); };
  for (const answer of [true, false]) {
    const key = `async-${answer}`;
    await assert.rejects(run.tool("pay", {}, { key, failedOn: async () => answer }, lost), (error) => error.happened === "unrecorded");
  }
});

test("a_caller_that_stops_waiting_before_the_effect_leaves_a_call_that_never_started", async () => {
  const id = newRun();
  const stop = new AbortController();
  // The answer to the intent arrives after the caller has left.
  const slow = connectTo(url, { fetch: async (path, init) => {
    const answer = await fetch(path, init);
    if (init.body?.includes("tool_call_requested")) stop.abort(new Error("enough"));
    return answer;
  } });
  const effect = counted();
  const run = await slow.open(id);
  await assert.rejects(run.tool("pay", {}, { signal: stop.signal }, effect), /enough/);
  assert.equal(effect.calls.length, 0);
  await run.reopen();
  await assert.rejects(run.end("completed", "", { signal: stop.signal }), /enough/);
  assert.equal((await rl.recover(id)).pending[0].class, "retry_safe");
  assert.equal(await run.tool("pay", {}, {}, effect), "ok");
  assert.equal(effect.calls[0].attempt, 2);
});

test("a_caller_that_stops_waiting_during_the_effect_finds_its_result_in_the_journal", async () => {
  const run = await rl.open(newRun());
  const stop = new AbortController();
  const [begun, finish] = [defer(), defer()];
  const effect = async (call) => {
    begun.resolve(call);
    return finish.promise;
  };
  const call = run.tool("pay", {}, { key: "k", signal: stop.signal }, effect);
  const { signal } = await begun.promise;
  stop.abort(new Error("enough"));
  await assert.rejects(call, /enough/);
  assert.equal(signal.aborted, true);
  // It still runs: another call with its key must not overlap with it.
  await assert.rejects(run.tool("pay", {}, { key: "k" }, counted()), (error) => error instanceof RunlogError && /is running/.test(error.message));
  finish.resolve("paid");
  let answer;
  do answer = await run.call("pay", {}, { key: "k" }, () => assert.fail("ran again")).catch((error) => assert.match(error.message, /is running/));
  while (!answer);
  assert.equal(answer.result, "paid");
});

test("a_new_call_before_the_recorded_calls_is_refused", async () => {
  const id = newRun();
  const effect = counted();
  await (await rl.open(id)).tool("pay", { sum: 1 }, {}, effect);
  const run = await rl.open(id);
  await assert.rejects(run.tool("pay", { sum: 2 }, {}, effect), (error) => error instanceof Diverged && error.calls.length === 1 && /"sum":1/.test(error.message));
  assert.equal(effect.calls.length, 1);
  await run.tool("pay", { sum: 1 }, {}, effect);
  await run.tool("pay", { sum: 2 }, {}, effect);
  assert.equal(effect.calls.length, 2);
  const loose = await rl.open(id, { onDivergence: "allow" });
  await loose.tool("pay", { sum: 3 }, {}, effect);
});

test("a_new_call_in_a_step_or_after_calls_that_overlapped_is_refused_and_beside_another_call_warned_of", async () => {
  const id = newRun();
  const effect = counted();
  const [pay, log] = [(run, sum) => run.tool("pay", { sum }, {}, effect), (run, key, then) => run.tool("log", {}, { key }, () => then)];
  const first = await rl.open(id);
  for (const sum of [1, 2]) await pay(first, sum);
  const warnings = [];
  const run = await connectTo(url, { warn: (text) => warnings.push(text) }).open(id);
  await Promise.all([log(run, "a"), log(run, "b")]);
  await assert.rejects(pay(run, 3), Diverged);
  await assert.rejects(run.step(() => pay(run, 3)), Diverged);
  assert.deepEqual([effect.calls.length, warnings.length], [2, 0]);
  // Two loops, each in a step of its own, may begin their calls in any order.
  await Promise.all([run.step(() => pay(run, 4)), run.step(() => pay(run, 1))]);
  const held = defer();
  const beside = log(run, "c", held.promise);
  await pay(run, 3);
  held.resolve();
  await beside;
  assert.deepEqual([effect.calls.length, warnings.length], [4, 1]);
  // The effect of a call runs on whose caller left: it is no call of a loop.
  const [begun, finish, stop] = [defer(), defer(), new AbortController()];
  const left = run.tool("slow", {}, { key: "s", signal: stop.signal }, () => (begun.resolve(), finish.promise));
  await begun.promise;
  stop.abort();
  await assert.rejects(left);
  await assert.rejects(pay(run, 5), Diverged);
  finish.resolve();
});

test("a_new_unique_call_is_refused_also_beside_other_calls_unless_these_ask_for_the_recorded_ones", async () => {
  const id = newRun();
  const effect = counted();
  const unique = (run, ...ids) => Promise.all(ids.map((of) => run.tool("pay", { id: of }, { unique: true }, effect)));
  await unique(await rl.open(id), "a", "b");
  const run = await rl.open(id);
  await assert.rejects(unique(run, "x"), Diverged);
  const both = await Promise.allSettled(["y", "z"].map((of) => unique(run, of)));
  assert.ok(both.every(({ reason }) => reason instanceof Diverged));
  assert.equal(effect.calls.length, 2);
  await unique(run, "new", "b", "a");
  assert.equal(effect.calls.length, 3);
});

test("a_checkpoint_writes_new_messages_alone_and_covers_the_calls_before_it", async () => {
  const id = newRun();
  const effect = counted();
  const run = await rl.open(id);
  const messages = [{ role: "user", content: "x".repeat(2000) }];
  for (let n = 0; n < 3; n++) {
    await run.tool("pay", {}, {}, effect);
    messages.push({ role: "tool", content: n, id: 12345678901234567n });
    await run.checkpoint(messages, { step: n });
  }
  const lines = await (await fetch(`${url}/v1/runs/${id}/records?whole=true`)).json();
  const written = lines.records.map((line) => line.record.payload).filter((payload) => payload.type === "loop_checkpoint");
  assert.deepEqual(written.map((payload) => payload.messages.length), [2, 1, 1]);
  const next = await rl.open(id);
  assert.deepEqual(next.recovery.messages, messages);
  assert.deepEqual(next.recovery.state, { step: 2 });
  // It resumes at the checkpoint, so the same call is new. A program from the start gets the recorded answers.
  await next.tool("pay", {}, {}, effect);
  assert.equal(effect.calls.length, 4);
  messages[1] = { role: "tool", content: "compacted" };
  await next.checkpoint(messages);
  assert.deepEqual((await rl.open(id)).recovery.messages, messages);
  const start = await rl.open(id, { fromStart: true });
  for (let n = 0; n < 4; n++) await start.tool("pay", {}, {}, effect);
  assert.equal(effect.calls.length, 4);
});

test("an_ended_run_answers_recorded_calls_and_accepts_nothing_new", async () => {
  const id = newRun();
  const effect = counted();
  const run = await rl.open(id);
  await run.tool("pay", {}, {}, effect);
  await run.checkpoint([{ n: 1 }], { s: 1 });
  await run.end("completed", "done");
  await run.checkpoint([{ n: 1 }], { s: 1 });
  const ended = await rl.open(id);
  assert.equal(ended.epoch, 0);
  assert.equal(await ended.tool("pay", {}, {}, effect), "ok");
  await ended.end("completed", "done");
  for (const operation of [() => ended.tool("mail", {}, {}, effect), () => ended.checkpoint([{ n: 2 }]), () => ended.end("failed")]) {
    await assert.rejects(operation, (error) => error instanceof Conflict && error.action === "fix_the_input");
  }
  assert.equal(effect.calls.length, 1);
});

test("redacted_content_never_leaves_the_process_and_its_call_is_found", async () => {
  const id = newRun();
  const redaction = new Redaction("cards").pointer("pay", "/card").texts((text) => text.replace(/secret/g, "*"));
  const sent = [];
  const hidden = connectTo(url, { redaction, fetch: (path, init) => { sent.push(init.body ?? ""); return fetch(path, init); } });
  const effect = counted({ note: "secret 1" });
  const pay = async () => (await hidden.open(id)).tool("pay", { card: "4111", sum: 1 }, {}, effect);
  assert.deepEqual(await pay(), { note: "secret 1" });
  assert.deepEqual(await pay(), { note: "* 1" });
  await (await hidden.open(id)).checkpoint(["a secret"], null);
  assert.equal(effect.calls.length, 1);
  assert.ok(!/4111|secret/.test(sent.join()));
});

test("a_tool_is_a_function_whose_calls_go_through_the_gate", async () => {
  const run = await rl.open(newRun());
  let ran = 0;
  const book = tool("book", { key: ({ city }) => `trip-${city}` }, async ({ city }, call) => `${city} ${call.idempotencyKey} ${++ran}`);
  assert.equal(await book(run, { city: "LHR" }), "LHR trip-LHR 1");
  assert.equal(await book(run, { city: "LHR" }), "LHR trip-LHR 1");
});

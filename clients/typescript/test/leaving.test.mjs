// Callers that stop waiting. What their calls did must be found by the same call.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ReconcileRequired, Unavailable } from "../dist/index.js";
import { connectTo, defer, newRun, serve } from "./server.mjs";

const { url } = await serve("--write-schema", "3");
const rl = connectTo(url);

/** A call without a key that its caller leaves while the effect runs. */
async function leave(run, options = {}) {
  const [begun, finish, stop] = [defer(), defer(), new AbortController()];
  const left = run.tool("pay", { sum: 1 }, { ...options, signal: stop.signal }, () => {
    begun.resolve();
    return finish.promise;
  });
  await begun.promise;
  stop.abort(new Error("enough"));
  await assert.rejects(left, /enough/);
  return finish;
}
const again = (run, effect = () => assert.fail("ran again")) => run.call("pay", { sum: 1 }, {}, effect);
const requests = async (run) => {
  const { records } = await (await fetch(`${url}/v1/runs/${run.id}/records?whole=true`)).json();
  return records.filter((line) => line.payload_type === "tool_call_requested").length;
};

test("a_call_that_is_made_again_after_its_caller_left_gets_the_answer_of_the_running_effect", async () => {
  const run = await rl.open(newRun());
  const finish = await leave(run);
  const [second, third] = [again(run), again(run, () => "another")];
  // Meanwhile both calls could begin.
  await Promise.all([rl.recover(run.id), Promise.race([second, rl.recover(run.id)])]);
  finish.resolve("paid");
  const { result, recorded } = await second;
  assert.deepEqual({ result, recorded }, { result: "paid", recorded: true });
  // The result answers one call. Two calls that are made together stay two calls.
  assert.equal((await third).result, "another");
  const later = await rl.open(run.id);
  assert.deepEqual([(await again(later)).result, (await again(later)).result], ["paid", "another"]);
});

test("a_result_that_its_caller_did_not_wait_for_answers_the_next_same_call_and_the_checkpoint_lists_it", async () => {
  const run = await rl.open(newRun());
  const finish = await leave(run);
  finish.resolve("paid");
  while ((await rl.recover(run.id)).completed.length === 0);
  await run.checkpoint([{ n: 1 }]);
  const next = await rl.open(run.id);
  assert.equal(next.recovery.messages.length, 1);
  assert.equal((await again(next)).result, "paid");
});

test("an_effect_that_failed_after_its_caller_left_stops_the_same_call_until_it_is_decided", async () => {
  const run = await rl.open(newRun());
  const finish = await leave(run);
  const second = again(run);
  finish.reject(new TypeError("fetch failed"));
  await assert.rejects(second, ReconcileRequired);
  assert.equal(await requests(run), 1);
});

test("no_new_effect_starts_beside_one_whose_caller_left_until_it_has_ended", async () => {
  const run = await rl.open(newRun());
  const finish = await leave(run);
  const mail = () => run.tool("mail", {}, {}, () => "sent");
  await assert.rejects(mail(), (error) => error instanceof Unavailable && error.action === "retry" && error.happened === "nothing");
  const impatient = await connectTo(url, { deadlineMs: 300 }).open(newRun());
  const other = await leave(impatient);
  await assert.rejects(again(impatient), (error) => error instanceof Unavailable && /is running/.test(error.message));
  for (const each of [finish, other]) each.resolve("paid");
  await again(run);
  assert.equal(await mail(), "sent");
});

test("a_call_that_is_made_again_before_its_intent_was_answered_runs_once_in_all_processes", async () => {
  const stop = new AbortController();
  const id = newRun();
  let run;
  let second;
  const slow = connectTo(url, { fetch: async (path, init) => {
    const answer = await fetch(path, init);
    if (path.includes("/v1/journal")) {
      const journal = await answer.json();
      // The intent is read back in a request of its own.
      return Response.json({ ...journal, features: journal.features.filter((feature) => feature !== "read_back") });
    }
    // The listener of this program runs before that of the client.
    if (init.body?.includes("tool_call_requested") && !stop.signal.aborted) stop.abort(new Error("enough"));
    return answer;
  } });
  run = await slow.open(id);
  let ran = 0;
  stop.signal.addEventListener("abort", () => { second = again(run, () => ++ran); });
  await assert.rejects(run.tool("pay", { sum: 1 }, { signal: stop.signal }, () => ++ran), /enough/);
  assert.equal((await second).result, 1);
  assert.equal((await again(await rl.open(id))).result, 1);
  assert.equal(await requests(run), 1);
});

test("a_recorded_answer_whose_caller_left_answers_the_call_that_is_made_again_at_once", async () => {
  const id = newRun();
  await again(await rl.open(id), () => "paid");
  const stop = new AbortController();
  const slow = connectTo(url, { fetch: async (path, init) => {
    const answer = await fetch(path, init);
    if (path.includes("/calls/") && !stop.signal.aborted) stop.abort(new Error("enough"));
    return answer;
  } });
  const run = await slow.open(id);
  await assert.rejects(run.tool("pay", { sum: 1 }, { signal: stop.signal }, () => assert.fail("ran again")), /enough/);
  assert.equal((await again(run)).result, "paid");
});

const resolutions = async (run) => {
  const { records } = await (await fetch(`${url}/v1/runs/${run.id}/records?whole=true`)).json();
  return records.filter((line) => line.payload_type === "effect_resolution");
};
const attempts = async (run) => (await rl.recover(run.id)).pending.map((call) => [call.class, call.attempts]);
const lost = () => { throw new TypeError("fetch failed"); };

for (const [name, options] of [["with_a_key", { key: "k" }], ["that_is_repeatable", { repeatable: true }]]) {
  test(`an_interrupted_repeat_of_a_call_${name}_does_not_say_that_its_earlier_attempts_did_not_happen`, async () => {
    for (const hasAnswer of [true, false]) {
      const stop = new AbortController();
      const slow = connectTo(url, { deadlineMs: 2000, fetch: async (path, init) => {
        const answer = await fetch(path, init);
        if (!init.body?.includes("tool_call_attempt") || stop.signal.aborted) return answer;
        stop.abort(new Error("enough"));
        return hasAnswer ? answer : Response.json({ kind: "internal", title: "broken", status: 500 }, { status: 500 });
      } });
      const run = await slow.open(newRun());
      const pay = (effect, signal) => run.tool("pay", { sum: 1 }, { ...options, signal }, effect);
      await assert.rejects(pay(lost), Unavailable);
      await assert.rejects(pay(() => assert.fail("started"), stop.signal), /enough/);
      await run.reopen();
      assert.deepEqual(await resolutions(run), []);
      assert.deepEqual(await attempts(run), [["retry_safe", 2]]);
      assert.equal(await pay(() => "paid"), "paid");
    }
  });

  test(`a_retry_of_a_call_${name}_that_was_left_before_it_began_does_not_say_that_the_first_attempt_did_not_happen`, async () => {
    const stop = new AbortController();
    const slow = connectTo(url, { fetch: async (path, init) => {
      const answer = await fetch(path, init);
      if (init.body?.includes("tool_call_attempt")) stop.abort(new Error("enough"));
      return answer;
    } });
    const run = await slow.open(newRun());
    const calling = { ...options, signal: stop.signal, retry: { attempts: 2, pauseMs: () => 0 } };
    await assert.rejects(run.tool("pay", { sum: 1 }, calling, lost), /enough/);
    const pay = () => run.tool("pay", { sum: 1 }, options, () => "paid");
    const isRunning = (error) => (error instanceof Unavailable ? undefined : Promise.reject(error));
    let paid;
    while (!paid) paid = await pay().catch(isRunning);
    assert.deepEqual(await resolutions(run), []);
  });
}

test("a_repeat_that_an_operator_allowed_and_that_never_began_is_withdrawn", async () => {
  const stop = new AbortController();
  const slow = connectTo(url, { fetch: async (path, init) => {
    const answer = await fetch(path, init);
    if (init.body?.includes("tool_call_attempt")) stop.abort(new Error("enough"));
    return answer;
  } });
  const run = await slow.open(newRun());
  await assert.rejects(run.tool("pay", { sum: 1 }, {}, lost), ReconcileRequired);
  for await (const effect of rl.undecided(run.id)) await rl.decide(effect, "not_done", { who: "jo", why: "no payment", force: true });
  await assert.rejects(run.tool("pay", { sum: 1 }, { signal: stop.signal }, () => assert.fail("started")), /enough/);
  await run.reopen();
  assert.equal((await resolutions(run)).length, 2);
  assert.equal((await again(run, () => "paid")).result, "paid");
});

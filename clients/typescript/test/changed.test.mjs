// Calls that change between their record and their effect: the record then permits no effect.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Fenced, ReconcileRequired, Stale, Unavailable } from "../dist/index.js";
import { connectTo, defer, newRun, serve } from "./server.mjs";

const { url } = await serve("--write-schema", "3");
const rl = connectTo(url);
const DECIDED = { who: "jo", why: "asked the bank", force: true };
const never = () => assert.fail("the effect ran");
const lost = () => { throw new TypeError("fetch failed"); };

/** Connects so that `change` runs once, after the first record of a type was appended and before the client has its answer. With
 * `readsBack` that answer is lost and the record is sent again, so that the second answer is the read-back. Otherwise the client reads
 * back in a request of its own. */
function changing(type, change, readsBack) {
  let isDue = true;
  return connectTo(url, { fetch: async (path, init) => {
    const answer = await fetch(path, init);
    if (path.includes("/v1/journal") && !readsBack) {
      const journal = await answer.json();
      return Response.json({ ...journal, features: journal.features.filter((feature) => feature !== "read_back") });
    }
    if (!isDue || !init.body?.includes(type)) return answer;
    isDue = false;
    await change();
    return readsBack ? lost() : answer;
  } });
}

const decide = async (id, decision, result) => {
  for await (const effect of rl.undecided(id)) await rl.decide(effect, decision, { ...DECIDED, result });
};
const resolutions = async (id) => {
  const { records } = await (await fetch(`${url}/v1/runs/${id}/records`)).json();
  return records.filter((line) => line.payload_type === "effect_resolution").length;
};

for (const readsBack of [true, false]) {
  const how = readsBack ? "in_the_same_request" : "in_a_request_of_its_own";

  test(`a_repeat_does_not_run_if_the_first_result_arrives_before_its_read_back_${how}`, async () => {
    const [id, begun, finish] = [newRun(), defer(), defer()];
    const first = (await rl.open(id)).tool("pay", { sum: 1 }, {}, () => (begun.resolve(), finish.promise));
    await begun.promise;
    const arrive = async () => {
      finish.resolve("paid");
      await assert.rejects(first, Fenced);
    };
    const run = await changing("tool_call_attempt", arrive, readsBack).open(id);
    await decide(id, "not_done");
    const isRefused = (happened) => (error) => error instanceof ReconcileRequired && error.evidence.length === 1 && error.happened === happened;
    await assert.rejects(run.tool("pay", { sum: 1 }, {}, never), isRefused("unknown"));
    await assert.rejects(run.tool("pay", { sum: 1 }, {}, never), isRefused("nothing"));
    await run.reopen();
    assert.equal(await resolutions(id), 1, "only the operator has decided");
    const [pending] = (await rl.recover(id)).pending;
    assert.deepEqual([pending.class, pending.attempts], ["reconcile_required", 2]);
  });

  for (const [decision, answer] of [["done", "by hand"], ["not_done", "paid"]]) {
    test(`an_effect_does_not_run_if_its_call_was_decided_as_${decision}_before_its_read_back_${how}`, async () => {
      const id = newRun();
      const run = await changing("tool_call_requested", () => decide(id, decision, decision === "done" ? answer : undefined), readsBack).open(id);
      await assert.rejects(run.tool("pay", { sum: 1 }, {}, never), (error) => error instanceof Stale && error.action === "retry");
      // The call that is made again is another attempt, or gets the decision's result.
      assert.equal(await run.tool("pay", { sum: 1 }, {}, decision === "done" ? never : () => answer), answer);
      assert.equal(await resolutions(id), 1);
    });
  }
}

for (const [name, options] of [["with_a_key", { key: "k" }], ["that_is_repeatable", { repeatable: true }]]) {
  for (const isAttemptLost of [true, false]) {
    const before = isAttemptLost ? "while_its_second_attempt_had_no_answer" : "after_its_effect_was_lost";
    test(`a_call_${name}_that_was_decided_${before}_gets_the_decision`, async () => {
      const id = newRun();
      let isDue = isAttemptLost;
      const slow = connectTo(url, { deadlineMs: 2000, fetch: async (path, init) => {
        const answer = await fetch(path, init);
        if (!isDue || !init.body?.includes("tool_call_attempt")) return answer;
        isDue = false;
        return Response.json({ kind: "internal", title: "broken", status: 500 }, { status: 500 });
      } });
      const run = await slow.open(id);
      const pay = (effect) => run.tool("pay", { sum: 1 }, options, effect);
      await assert.rejects(pay(lost), Unavailable);
      if (isAttemptLost) await assert.rejects(pay(never));
      const [{ id: call, basis, revision }] = (await rl.recover(id)).pending;
      const body = JSON.stringify({ decision: "done", result: "by hand", basis, revision, ...DECIDED });
      const headers = { "content-type": "application/json" };
      const decided = await fetch(`${url}/v1/runs/${id}/effects/${call}/resolution`, { method: "POST", headers, body });
      assert.equal(decided.status, 200, await decided.text());
      assert.equal(await pay(never), "by hand");
      assert.equal(await resolutions(id), 1);
    });
  }
}

for (const [name, options] of [["with_a_key", { key: "k" }], ["that_is_repeatable", { repeatable: true }]]) {
  test(`a_late_attempt_of_a_call_${name}_whose_run_has_ended_is_no_not_done`, async () => {
    const id = newRun();
    let isBroken = false;
    const slow = connectTo(url, { deadlineMs: 2000, fetch: async (path, init) => {
      const answer = await fetch(path, init);
      if (!isBroken || !init.body?.includes("tool_call_attempt")) return answer;
      return Response.json({ kind: "internal", title: "broken", status: 500 }, { status: 500 });
    } });
    const run = await slow.open(id);
    const pay = (effect) => run.tool("pay", { sum: 1 }, options, effect);
    await assert.rejects(pay(lost), Unavailable);
    isBroken = true;
    await assert.rejects(pay(never));
    isBroken = false;
    await run.end("cancelled");
    assert.equal(await resolutions(id), 0);
  });
}

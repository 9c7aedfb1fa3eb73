// A process that lost its run, or was paused, between the intent and the effect.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Fenced, Stale } from "../dist/index.js";
import { connectTo, newRun, serve } from "./server.mjs";

const { url } = await serve();
const rl = connectTo(url);

/** A connection that does something before or after the requests of a kind. */
function watched({ before = {}, after = {}, without = [] }) {
  const kindOf = (path, init) => (init.body?.includes("tool_call_requested") ? "intent" : path.includes("/outcome") ? "readBack" : "other");
  return connectTo(url, { fetch: async (path, init) => {
    const kind = kindOf(path, init);
    await before[kind]?.();
    const answer = await fetch(path, init);
    if (path.includes("/v1/journal")) {
      const journal = await answer.json();
      return Response.json({ ...journal, features: journal.features.filter((feature) => !without.includes(feature)) });
    }
    await after[kind]?.();
    return answer;
  } });
}

const never = () => assert.fail("the effect ran");

test("an_effect_does_not_run_if_the_run_was_taken_over_before_its_intent", async () => {
  const id = newRun();
  const run = await watched({ before: { intent: () => rl.open(id) } }).open(id);
  await assert.rejects(run.tool("pay", {}, {}, never), (error) => error instanceof Fenced && error.action === "stop");
  await assert.rejects(run.tool("mail", {}, {}, never), Fenced);
  await assert.rejects(run.reopen(), Fenced);
});

test("an_effect_does_not_run_if_the_run_was_taken_over_between_its_intent_and_the_read_back", async () => {
  const id = newRun();
  const run = await watched({ without: ["read_back"], before: { readBack: () => rl.open(id) } }).open(id);
  await assert.rejects(run.tool("pay", {}, {}, never), (error) => error instanceof Fenced && error.happened === "unknown");
  // For the new process the call may have happened.
  assert.equal((await rl.recover(id)).pending[0].class, "reconcile_required");
});

test("an_effect_does_not_run_after_a_pause_of_its_process", async (t) => {
  const { now } = Date;
  t.after(() => { Date.now = now; });
  const pause = (ms) => () => { Date.now = () => now() + ms; };
  const late = await watched({ after: { intent: pause(21_000) } }).open(newRun());
  await assert.rejects(late.tool("pay", {}, {}, never), (error) => error instanceof Stale && error.action === "reopen");
  Date.now = now;
  // After a shorter pause the gate reads back once more, and finds that the run was taken over.
  const id = newRun();
  let readBacks = 0;
  const run = await watched({
    without: ["read_back"],
    before: { readBack: () => (++readBacks === 2 ? rl.open(id) : undefined) },
    after: { readBack: () => (readBacks === 1 ? pause(6_000)() : undefined) },
  }).open(id);
  await assert.rejects(run.tool("pay", {}, {}, never), Fenced);
  assert.equal(readBacks, 2);
});

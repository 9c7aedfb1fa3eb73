// The OpenAI Agents SDK, with its own runner and its own scripted model.
import { Agent, run as runAgent, setTracingDisabled, tool } from "@openai/agents";
import { assistantMessage, functionCall, ScriptedModel } from "@openai/agents/testing";
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { Failed, journalError, ReconcileRequired } from "../dist/index.js";
import { recorded, RunlogSession } from "../dist/openai-agents.js";
import { connectTo, newRun, serve } from "./server.mjs";

setTracingDisabled(true);
const { url } = await serve("--write-schema", "3");
const rl = connectTo(url);

const asks = (callId, city) => [functionCall("book", { city }, { callId })];
const done = [assistantMessage("done")];
const parameters = z.object({ city: z.string() });

/** One turn of an agent with a tool that books. */
function turn(run, execute, responses, { input = "a flight", session, ...options } = {}) {
  const book = tool(recorded(run, { name: "book", description: "books", parameters, execute }, options));
  const agent = new Agent({ name: "tester", model: new ScriptedModel(responses), tools: [book] });
  return runAgent(agent, input, { session });
}
const outputs = (items) => items.filter((item) => item.type === "function_call_result").map((item) => item.output.text ?? item.output);

test("a_turn_that_died_after_its_tool_gets_the_result_from_the_journal_and_a_later_turn_calls_it_again", async () => {
  const id = newRun();
  let booked = 0;
  const book = async ({ city }, _, { runlog }) => `B-${city}-${++booked} ${runlog.attempt}`;
  const run = await rl.open(id);
  const session = new RunlogSession(run);
  await assert.rejects(turn(run, book, [asks("call_0", "LHR"), { type: "error", error: new Error("died") }], { session }), /died/);
  assert.equal(booked, 1);
  const next = await rl.open(id);
  const { history } = await turn(next, book, [asks("call_0", "LHR"), done], { session: new RunlogSession(next) });
  assert.ok(outputs(history).includes("B-LHR-1 1"));
  assert.equal(booked, 1);
  // The model server begins its ids anew in each answer.
  await turn(next, book, [asks("call_0", "LHR"), done], { session: new RunlogSession(next) });
  assert.deepEqual([booked, outputs(await new RunlogSession(await rl.open(id)).getItems()).at(-1)], [2, "B-LHR-2 1"]);
});

test("an_error_of_the_gate_reaches_the_program_and_the_model_reads_that_a_tool_did_nothing", async () => {
  const lost = async () => { throw new TypeError("fetch failed"); };
  const error = await turn(await rl.open(newRun()), lost, [asks("a", "LHR"), done]).catch((thrown) => thrown);
  assert.ok(journalError(error) instanceof ReconcileRequired, String(error));
  const full = async () => { throw new Failed("full", "no seat"); };
  const refused = await turn(await rl.open(newRun()), full, [asks("a", "LHR"), [functionCall("book", { town: 1 }, { callId: "b" })], done]);
  const [first, second] = outputs(refused.history);
  assert.equal(first, "The tool did nothing: full: no seat");
  assert.match(second, /^The tool did nothing: /);
});

test("a_call_with_a_key_runs_again_under_it", async () => {
  const keys = [];
  const run = await rl.open(newRun());
  const lost = async (_, __, { runlog }) => {
    keys.push(runlog.idempotencyKey);
    if (keys.length === 1) throw new TypeError("fetch failed");
    return "booked";
  };
  const key = ({ city }) => `trip-${city}`;
  await assert.rejects(turn(run, lost, [asks("a", "LHR"), done], { key }));
  await turn(run, lost, [asks("b", "LHR"), done], { key });
  assert.deepEqual(keys, ["trip-LHR", "trip-LHR"]);
  assert.throws(() => recorded(run, { execute: async () => 1, name: "" }), /needs a name/);
});

test("all_sessions_of_a_handle_have_its_items", async () => {
  const id = newRun();
  const run = await rl.open(id);
  const [one, two] = [new RunlogSession(run), new RunlogSession(run)];
  const items = ["a", "b", "c"].map((content) => ({ type: "message", role: "user", content }));
  await Promise.all([one.addItems(items.slice(0, 1)), two.addItems(items.slice(1))]);
  assert.deepEqual(await two.getItems(), items);
  assert.deepEqual(await one.getItems(2), items.slice(1));
  assert.deepEqual([await one.popItem(), await two.getItems(0), await one.getSessionId()], [items[2], [], id]);
  await two.clearSession();
  assert.deepEqual([await one.getItems(), await one.popItem()], [[], undefined]);
  await one.addItems(items.slice(0, 2));
  assert.deepEqual(await new RunlogSession(await rl.open(id)).getItems(), items.slice(0, 2));
});

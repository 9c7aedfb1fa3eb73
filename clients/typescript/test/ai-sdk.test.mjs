// The tools of the AI SDK, with its own loop and its own mock of a model.
import { generateText, stepCountIs, tool, wrapLanguageModel } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { gated, recordedModel, stopped, throwIfStopped } from "../dist/ai-sdk.js";
import { ReconcileRequired } from "../dist/index.js";
import { connectTo, newRun, serve } from "./server.mjs";

const { url } = await serve();
const rl = connectTo(url);

/** A model that asks for one call, then says its result. It counts its answers. */
function mock(die = () => {}) {
  let ids = 0;
  return new MockLanguageModelV3({
    doGenerate: async ({ prompt }) => {
      const result = prompt.at(-1).role === "tool" && prompt.at(-1).content[0].output;
      if (result) die();
      const content = result
        ? [{ type: "text", text: `done: ${JSON.stringify(result.value)}` }]
        : [{ type: "tool-call", toolCallId: `call-${process.pid}-${Math.random()}-${++ids}`, toolName: "book", input: '{"city":"LHR"}' }];
      const finishReason = { unified: result ? "stop" : "tool-calls", raw: undefined };
      return { content, finishReason, usage: { inputTokens: { total: 1 }, outputTokens: { total: 1 } }, warnings: [] };
    },
  });
}

async function loop(run, model, execute) {
  const book = tool({ description: "books", inputSchema: z.object({ city: z.string() }), execute });
  const tools = gated({ book }, run);
  const recorded = wrapLanguageModel({ model, middleware: recordedModel(run) });
  const { text } = await generateText({ model: recorded, tools, prompt: "a flight", maxRetries: 0, stopWhen: [stepCountIs(5), stopped(tools)] });
  throwIfStopped(tools);
  return text;
}

test("a_loop_that_died_after_its_tool_gets_the_models_answer_and_the_result_from_the_journal", async () => {
  const id = newRun();
  let booked = 0;
  const execute = async ({ city }) => ({ booking: `B-${city}-${++booked}` });
  const dying = mock(() => { throw new Error("died"); });
  await assert.rejects(loop(await rl.open(id), dying, execute), /died/);
  assert.equal(booked, 1);
  const next = mock();
  assert.equal(await loop(await rl.open(id), next, execute), 'done: {"booking":"B-LHR-1"}');
  assert.equal(next.doGenerateCalls.length, 1);
  assert.equal(await loop(await rl.open(id), mock(() => assert.fail("asked again")), execute), 'done: {"booking":"B-LHR-1"}');
  assert.equal(booked, 1);
});

test("a_call_that_may_have_happened_ends_the_loop_before_the_model_can_repeat_it", async () => {
  const id = newRun();
  const model = mock();
  const lost = async () => { throw new TypeError("fetch failed"); };
  await assert.rejects(loop(await rl.open(id), model, lost), ReconcileRequired);
  assert.equal(model.doGenerateCalls.length, 1);
  await assert.rejects(loop(await rl.open(id), model, async () => assert.fail("ran again")), ReconcileRequired);
});

// The tools of the AI SDK, with its own loop and its own mock of a model.
import { generateText, stepCountIs, tool, wrapLanguageModel } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { gated, recordedModel, stopped, throwIfStopped } from "../dist/ai-sdk.js";
import { Conflict, Diverged, ReconcileRequired, Redaction, Usage } from "../dist/index.js";
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

/** A model that answers each question with a new text. */
function counting(modelId, process = modelId) {
  let n = 0;
  return new MockLanguageModelV3({ modelId, doGenerate: async () => ({
    content: [{ type: "text", text: `${process} ${++n}` }, { type: "file", mediaType: "image/png", data: new Uint8Array([137, 80]) }],
    finishReason: { unified: "stop", raw: undefined }, usage: { inputTokens: { total: 1 }, outputTokens: { total: 1 } }, warnings: [],
  }) });
}
const asking = (run, model) => {
  const recorded = wrapLanguageModel({ model, middleware: recordedModel(run) });
  return async (options = {}) => {
    const { text, files } = await generateText({ model: recorded, prompt: "may we pay?", ...options });
    assert.deepEqual([...files[0].uint8Array], [137, 80]);
    return text;
  };
};

test("a_recorded_answer_answers_the_same_question_of_the_same_model_in_order_and_no_other", async () => {
  const id = newRun();
  const search = tool({ inputSchema: z.object({}) });
  const questions = [{}, { temperature: 1 }, { seed: 7 }, { tools: { search } }, { tools: { search }, toolChoice: "none" }, { system: "short" }];
  /** Asks the drafter and the judge all questions, and the first one twice. */
  const ask = async (run, order) => {
    const models = [asking(run, counting("drafter")), asking(run, counting("judge"))];
    const found = [];
    for (const at of order([...questions.keys(), 0])) for (const [of, model] of order([...models.entries()])) (found[at] ??= []).push([of, await model(questions[at])]);
    return found.map((answers) => answers.sort());
  };
  const first = await ask(await rl.open(id), (order) => order);
  assert.equal(new Set(first.flat().map(String)).size, 14);
  // Another order changes no answer.
  assert.deepEqual(await ask(await rl.open(id), (order) => order.reverse()), first);
});

test("a_process_that_resumes_at_a_checkpoint_does_not_get_the_answers_before_it", async () => {
  const id = newRun();
  const run = await rl.open(id);
  const ask = asking(run, counting("model", "first"));
  assert.equal(await ask(), "first 1");
  await run.checkpoint([{ n: 1 }]);
  assert.equal(await ask(), "first 2");
  const next = await rl.open(id);
  assert.equal(next.recovery.messages.length, 1);
  const again = asking(next, counting("model", "second"));
  assert.deepEqual([await again(), await again()], ["first 2", "second 1"]);
});

test("a_redaction_refuses_recorded_models_and_a_gated_call_keeps_its_arguments", async () => {
  const id = newRun();
  const redaction = new Redaction("cards").texts((text) => text.replace(/4111/g, "*"));
  const paid = [];
  const pay = async () => {
    const run = await connectTo(url, { redaction }).open(id);
    assert.throws(() => recordedModel(run), Usage);
    const tools = gated({ pay: { execute: async ({ card }) => paid.push(card) } }, run);
    return tools.pay.execute({ card: "4111" }, { toolCallId: "call-1", messages: [] });
  };
  assert.deepEqual([await pay(), await pay(), paid], [1, 1, ["4111"]]);
});

test("a_model_that_gives_its_calls_new_ids_stops_before_it_repeats_them", async () => {
  const id = newRun();
  let booked = 0;
  const book = async (run) => {
    const of = tool({ inputSchema: z.object({ city: z.string() }), execute: async () => ++booked });
    const [tools, others] = [gated({ book: of }, run), gated({ mail: of }, run)];
    // Sets of several `gated` may be composed.
    const all = { ...tools, ...others };
    const { text } = await generateText({ model: mock(), tools: all, prompt: "a flight", stopWhen: [stepCountIs(5), stopped(all)] });
    throwIfStopped(all);
    return text;
  };
  await book(await rl.open(id));
  await assert.rejects(book(await rl.open(id)), Diverged);
  assert.equal(booked, 1);
  await book(await rl.open(id, { onDivergence: "allow" }));
  assert.equal(booked, 2);
});

test("calls_whose_ids_begin_anew_in_each_answer_are_not_taken_for_earlier_calls", async () => {
  const run = await rl.open(newRun());
  let paid = 0;
  const tools = gated({ pay: { execute: async () => ++paid } }, run);
  const before = { role: "assistant", content: [{ type: "tool-call", toolCallId: "call_0", toolName: "pay", input: {} }] };
  const pay = (...messages) => tools.pay.execute({}, { toolCallId: "call_0", messages });
  assert.deepEqual([await pay(), await pay(before), await pay(before), await pay(before, before)], [1, 2, 2, 3]);
  const messages = [];
  await tools.pay.execute({ twice: 1 }, { toolCallId: "call_0", messages });
  await assert.rejects(tools.pay.execute({ twice: 1 }, { toolCallId: "call_0", messages }), Conflict);
  throws(tools);
  assert.equal(paid, 4);
});

/** The error that stopped the tools is thrown once. */
function throws(tools) {
  assert.equal(stopped(tools)(), true);
  assert.throws(() => throwIfStopped(tools), Conflict);
  assert.equal(stopped(tools)(), false);
  throwIfStopped(tools);
}

test("a_text_is_no_list_of_names_of_tools", async () => {
  // Each part of a text would be a name: `pay` could run twice.
  const run = await rl.open(newRun());
  for (const option of ["only", "repeatable"]) {
    for (const wrong of ["search_and_book", 5, [5], null]) {
      const isRefused = (error) => error.kind === "usage" && error.message.startsWith(`${option} is an array of names of tools`);
      assert.throws(() => gated({}, run, { [option]: wrong }), isRefused);
    }
  }
});

// The tools of LangChain's agent, and of a graph of LangGraph, with LangChain's fake model.
import { AIMessage, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { Command, interrupt, MemorySaver, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ToolNode } from "@langchain/langgraph/prebuilt";
import { createAgent, fakeModel, tool } from "langchain";
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { Conflict, journalError, ReconcileRequired, ResultNotRecorded } from "../dist/index.js";
import { gated, runlogMiddleware } from "../dist/langchain.js";
import { RunlogSaver } from "../dist/langgraph.js";
import { connectTo, newRun, serve } from "./server.mjs";

const { url } = await serve("--write-schema", "3");
const rl = connectTo(url);

/** A tool that books a city. */
const booking = (effect) => tool(effect, { name: "book", description: "books", schema: z.object({ city: z.string() }) });
/** A message of a model with calls `[id, city]`. */
const asks = (...calls) => new AIMessage({ content: "", tool_calls: calls.map(([id, city]) => ({ id, name: "book", args: { city }, type: "tool_call" })) });
const done = new AIMessage("done");
const model = (...messages) => messages.reduce((fake, message) => fake.respond(message), fakeModel());
const agent = (run, effect, messages, options, checkpointer) =>
  createAgent({ model: model(...messages), tools: [booking(effect)], middleware: [runlogMiddleware(run, options)], checkpointer });
const results = ({ messages }) => messages.filter((message) => ToolMessage.isInstance(message)).map((message) => message.content);
const input = { messages: [new HumanMessage("a flight")] };

test("an_agent_that_died_after_its_tools_gets_their_results_from_the_journal", async () => {
  const id = newRun();
  const config = { configurable: { thread_id: id }, durability: "sync" };
  const saver = () => new RunlogSaver(url, { prefix: "lc/", warn: () => {} });
  let booked = 0;
  const effect = async ({ city }) => `B-${city}-${++booked}`;
  // The process dies before the graph stores the answer of its tools.
  const dying = saver();
  const { putWrites } = dying;
  dying.putWrites = async (...write) => (booked ? Promise.reject(new Error("died")) : putWrites.apply(dying, write));
  await assert.rejects(agent(await rl.open(id), effect, [asks(["a", "LHR"])], {}, dying).invoke(input, config), /died/);
  assert.equal(booked, 1);
  const next = agent(await rl.open(id), effect, [done], {}, saver());
  assert.deepEqual(results(await next.invoke(null, config)), ["B-LHR-1"]);
  assert.equal(booked, 1);
});

test("a_call_that_may_have_happened_ends_the_agent_and_its_error_reaches_the_program", async () => {
  const run = await rl.open(newRun());
  const lost = async () => { throw new TypeError("fetch failed"); };
  const error = await agent(run, lost, [asks(["a", "LHR"]), done]).invoke(input).catch((thrown) => thrown);
  assert.ok(journalError(error) instanceof ReconcileRequired, String(error));
  assert.equal(journalError(new Error("other")), undefined);
});

test("a_repeated_id_never_gets_the_answer_of_an_earlier_call", async () => {
  let booked = 0;
  const effect = async ({ city }) => `B-${city}-${++booked}`;
  const again = [asks(["call_0", "LHR"]), asks(["call_0", "LHR"]), done];
  for (let n = 0; n < 2; n++) {
    const run = await rl.open("repeated-ids", { fromStart: true });
    assert.deepEqual(results(await agent(run, effect, again).invoke(input)), ["B-LHR-1", "B-LHR-2"]);
  }
  const twice = await agent(await rl.open(newRun()), effect, [asks(["x", "LHR"], ["x", "LHR"]), done]).invoke(input).catch((thrown) => thrown);
  assert.ok(journalError(twice) instanceof Conflict, String(twice));
  assert.equal(booked, 2);
});

test("answers_with_an_artifact_or_a_command_come_back_and_refused_arguments_are_an_answer_for_the_model", async () => {
  const id = newRun();
  const answers = [
    async (_, { toolCallId }) => new ToolMessage({ content: "ok", tool_call_id: toolCallId, artifact: { pages: [1] } }),
    async (_, { toolCallId }) => new Command({ update: { messages: [new ToolMessage({ content: "by command", tool_call_id: toolCallId })] } }),
    async () => assert.fail("ran"),
  ];
  const calls = [asks(["a", "LHR"]), asks(["b", "CDG"]), asks(["c", 5]), done];
  for (let n = 0; n < 2; n++) {
    let at = 0;
    const effect = (args, config) => (n ? assert.fail("ran again") : answers[at++](args, config));
    const found = await agent(await rl.open(id, { fromStart: true }), effect, calls).invoke(input);
    assert.deepEqual(results(found).slice(0, 2), ["ok", "by command"]);
    assert.match(results(found)[2], /^The tool did nothing: .*book/);
    assert.deepEqual(found.messages.find((message) => message.artifact).artifact, { pages: [1] });
  }
  const large = async (_, { toolCallId }) => new ToolMessage({ content: "ok", tool_call_id: toolCallId, artifact: { count: 1n } });
  const other = newRun();
  assert.deepEqual(results(await agent(await rl.open(other), large, [asks(["a", "LHR"]), done]).invoke(input)), ["ok"]);
  const error = await agent(await rl.open(other), large, [asks(["a", "LHR"]), done]).invoke(input).catch((thrown) => thrown);
  assert.ok(journalError(error) instanceof ResultNotRecorded, String(error));
});

test("the_tools_of_a_graph_go_through_the_gate_and_an_interrupt_of_a_repeatable_tool_is_answered", async () => {
  const run = await rl.open(newRun());
  let began = 0;
  const effect = async ({ city }) => {
    began++;
    return `B-${city}-${interrupt("may I?")}`;
  };
  const tools = gated([booking(effect)], run, { repeatable: ["book"] });
  const graph = new StateGraph(MessagesAnnotation).addNode("tools", new ToolNode(tools, { handleToolErrors: false })).addEdge(START, "tools")
    .compile({ checkpointer: new MemorySaver() });
  const config = { configurable: { thread_id: "1" } };
  await graph.invoke({ messages: [asks(["a", "LHR"])] }, config);
  assert.deepEqual(results(await graph.invoke(new Command({ resume: "yes" }), config)), ["B-LHR-yes"]);
  assert.equal(began, 2);
  const plain = gated([booking(async () => "plain")], run, { only: ["other"] });
  assert.equal(await plain[0].invoke({ city: "LHR" }), "plain");
});

test("a_text_is_no_list_of_names_of_tools", async () => {
  // Each part of a text would be a name: `pay` could run twice.
  const run = await rl.open(newRun());
  for (const option of ["only", "repeatable"]) {
    for (const wrong of ["search_and_book", 5, [5], null]) {
      const isRefused = (error) => error.kind === "usage" && error.message.startsWith(`${option} is an array of names of tools`);
      assert.throws(() => runlogMiddleware(run, { [option]: wrong }), isRefused);
      assert.throws(() => gated([], run, { [option]: wrong }), isRefused);
    }
  }
});

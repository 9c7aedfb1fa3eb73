// The saver with LangGraph's own graphs. LangGraph's validation suite is in `validation/`.
import { load } from "@langchain/core/load";
import { Document } from "@langchain/core/documents";
import { AIMessage, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { PromptTemplate } from "@langchain/core/prompts";
import { Annotation, END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Conflict, Fenced } from "../dist/index.js";
import { RunlogSaver, StrictSerializer, TypeNotAllowed } from "../dist/langgraph.js";
import { defer, newRun, serve } from "./server.mjs";

const { url } = await serve();
const saverOf = (settings = {}) => new RunlogSaver(url, { agent: "tester", prefix: "t/", warn: () => {}, ...settings });
const thread = () => ({ configurable: { thread_id: newRun() } });
const metadata = { source: "update", step: 0, parents: {} };

const State = Annotation.Root({ log: Annotation({ reducer: (a, b) => [...a, ...b], default: () => [] }), name: Annotation() });

/** A graph that runs nodes one after the other; each returns its addition to the log. */
function chain(checkpointer, nodes) {
  const graph = new StateGraph(State);
  let before = START;
  for (const [name, node] of Object.entries(nodes)) {
    graph.addNode(name, node).addEdge(before, name);
    before = name;
  }
  return graph.addEdge(before, END).compile({ checkpointer });
}
const adds = (text) => async () => ({ log: [text] });

async function parents(saver, config) {
  const found = [];
  for await (const { parentConfig } of saver.list(config)) if (parentConfig) found.push(parentConfig.configurable.checkpoint_id);
  return found;
}

test("a_graph_continues_in_another_process_after_the_last_node_that_ended", async () => {
  const config = thread();
  let tries = 0;
  const nodes = { one: async () => ({ log: [`one ${++tries}`], name: "x" }), two: async () => { throw new Error("died"); } };
  await assert.rejects(chain(saverOf(), nodes).invoke({ log: ["in"] }, { ...config, durability: "sync" }), /died/);
  const graph = chain(saverOf(), { ...nodes, two: adds("two") });
  assert.deepEqual(await graph.invoke(null, config), { log: ["in", "one 1", "two"], name: "x" });
  const steps = [];
  for await (const { values } of graph.getStateHistory(config)) steps.push(values.log?.length ?? 0);
  assert.deepEqual(steps, [3, 2, 1, 0]);
});

test("a_superseded_saver_is_fenced_and_the_chain_of_checkpoints_does_not_fork", async () => {
  const config = thread();
  const [a, b] = [saverOf(), saverOf()];
  const [reached, go] = [defer(), defer()];
  const waiting = async () => {
    reached.resolve();
    await go.promise;
    return { log: ["waited"] };
  };
  const old = chain(a, { one: adds("one"), waiting, two: adds("two") }).invoke({ log: ["old"] }, { ...config, durability: "sync" });
  await reached.promise;
  await chain(b, { one: adds("one"), two: adds("two") }).invoke({ log: ["new"] }, config);
  // Reading does not give the thread back to the loop that lost it.
  await a.getTuple({ configurable: { ...config.configurable, checkpoint_id: (await parents(b, config))[0] } });
  go.resolve();
  await assert.rejects(old, Fenced);
  const found = await parents(saverOf(), config);
  assert.equal(new Set(found).size, found.length);
  // After another read the saver takes the thread over again.
  const { log } = await chain(a, { one: adds("again") }).invoke({ log: [] }, config);
  assert.equal(log.at(-1), "again");
});

test("of_two_workers_that_read_a_thread_together_one_continues_and_the_other_ends", async () => {
  for (let n = 0; n < 8; n++) {
    const config = thread();
    if (n % 2) await chain(saverOf(), { one: adds("one") }).invoke({ log: ["first"] }, config);
    const workers = [saverOf(), saverOf()];
    // Two loops of one saver, too.
    if (n % 4 > 1) workers[1] = workers[0];
    const ran = workers.map((saver, at) => chain(saver, { a: adds(`a ${at}`), b: adds(`b ${at}`) }).invoke({ log: [`in ${at}`] }, { ...config, durability: "sync" }));
    const ended = await Promise.allSettled(ran);
    const [fenced] = ended.filter(({ status }) => status === "rejected");
    const [winner] = ended.filter(({ status }) => status === "fulfilled");
    // A worker that reads after the other one has ended continues its thread.
    if (fenced) {
      assert.ok(fenced.reason instanceof Fenced, String(fenced.reason));
      assert.equal(new Set(winner.value.log.slice(n % 2 ? 2 : 0).map((text) => text.at(-1))).size, 1);
    }
    const found = await parents(saverOf(), config);
    assert.equal(new Set(found).size, found.length);
  }
});

/** Puts a checkpoint with a saver. */
const put = (saver, base, tag) => saver.put(base, { ...emptyCheckpoint(), id: uuid6(0) }, { ...metadata, source: "loop", tag }, {});
const claims = async ({ configurable: { thread_id } }) => {
  const { records } = await (await fetch(`${url}/v1/runs/${encodeURIComponent(`t/${thread_id}`)}/records`)).json();
  return records.filter((line) => line.payload_type === "run_claim").length;
};

test("a_worker_whose_claim_comes_after_a_newer_checkpoint_ends_and_the_writer_of_that_checkpoint_continues", async () => {
  // A server whose index is late may accept the claim. Then the writer of the newest checkpoint takes the thread back.
  for (const isAccepted of [false, true]) {
    const config = thread();
    const a = saverOf();
    await a.getTuple(config);
    let last = await put(a, config, "first");
    const b = saverOf({ fetch: async (path, init) => {
      if (!path.includes("/claims")) return fetch(path, init);
      last = await put(a, last, "second");
      if (!isAccepted) return fetch(path, init);
      const { only_if, ...claim } = JSON.parse(init.body);
      return fetch(path, { ...init, body: JSON.stringify(claim) });
    } });
    const { config: read } = await b.getTuple(config);
    await assert.rejects(put(b, read, "b"), Fenced);
    await put(a, last, "third");
    assert.equal(await claims(config), isAccepted ? 3 : 1);
    const tags = [];
    for await (const { metadata } of saverOf().list(config)) tags.push(metadata.tag);
    assert.deepEqual(tags, ["third", "second", "first"]);
  }
});

test("a_loop_whose_claim_is_refused_claims_with_no_other_write", async () => {
  // A loop puts a checkpoint and its writes at once, and runs ahead: it may put writes of a checkpoint that it puts later. All of them end,
  // or the loop ends and has fenced the other worker.
  for (const isWrittenFirst of [false, true]) {
    const config = thread();
    const a = saverOf();
    await a.getTuple(config);
    const first = await put(a, config, "first");
    let isBeside = false;
    const b = saverOf({ fetch: async (path, init) => {
      // The other worker's writes change the run, and not the number of its next checkpoint.
      if (path.includes("/claims") && !isBeside) {
        isBeside = true;
        await a.putWrites(first, [["log", ["a"]]], "task");
      }
      return fetch(path, init);
    } });
    const { config: read } = await b.getTuple(config);
    const id = uuid6(0);
    const putWrites = (id) => b.putWrites({ configurable: { ...read.configurable, checkpoint_id: id } }, [["log", ["b"]]], "task");
    const puts = [
      () => b.put(read, { ...emptyCheckpoint(), id }, { ...metadata, source: "loop", tag: "b" }, {}),
      () => putWrites(id),
      () => putWrites(uuid6(0)),
    ];
    const ended = await Promise.allSettled((isWrittenFirst ? puts.reverse() : puts).map((each) => each()));
    assert.ok(ended.every(({ reason }) => reason instanceof Fenced) && isBeside, JSON.stringify(ended));
    assert.equal(await claims(config), 1);
    const last = await put(a, first, "second");
    // A loop that reads the thread again continues it.
    const found = await b.getTuple(config);
    assert.equal(found.config.configurable.checkpoint_id, last.configurable.checkpoint_id);
    await put(b, found.config, "third");
  }
});

test("the_newest_checkpoint_is_the_last_one_in_the_log_and_an_id_below_its_parents_is_refused", async () => {
  const config = thread();
  const [early, late] = [uuid6(0), uuid6(0)];
  const saver = saverOf();
  const putAs = (base, id) => saver.put(base, { ...emptyCheckpoint(), id }, metadata, {});
  const stored = await putAs(config, late);
  const refused = (error) => error instanceof Conflict && error.action === "retry" && /clock of this machine is behind .* by at least \d+\.\d{3} s/.test(error.message);
  await assert.rejects(putAs(stored, early), refused);
  // The writes of the checkpoint and its successor end with the same error.
  const place = { configurable: { ...stored.configurable, checkpoint_id: early } };
  await assert.rejects(saver.putWrites(place, [["log", 1]], "task"), refused);
  await assert.rejects(putAs(place, uuid6(0)), refused);
  await putAs(config, early);
  for (const each of [saver, saverOf()]) assert.equal((await each.getTuple(config)).checkpoint.id, early);
});

/** What is sent while an operation runs. */
async function sentBy(operation) {
  const sent = [];
  await operation(saverOf({ fetch: (path, init) => {
    if (init.body) sent.push(init.body.length);
    return fetch(path, init);
  } }), sent);
  return sent;
}

test("a_step_sends_its_new_messages_and_not_the_whole_state", async () => {
  const config = thread();
  const model = async () => ({ messages: [new AIMessage("short")] });
  const compiled = (checkpointer) => new StateGraph(MessagesAnnotation).addNode("model", model).addEdge(START, "model").addEdge("model", END).compile({ checkpointer });
  const messages = Array.from({ length: 200 }, (_, n) => new HumanMessage(`${n} ${"x".repeat(1000)}`));
  const text = { big: "y".repeat(100_000) };
  await sentBy(async (saver, sent) => {
    await compiled(saver).invoke({ messages }, config);
    sent.length = 0;
    await compiled(saver).invoke({ messages: [new HumanMessage("next")] }, config);
    assert.ok(Math.max(...sent) < 8_000, `${sent}`);
  });
  // Another process knows no piece of the thread, and sends the new ones, too.
  const other = await sentBy((saver) => compiled(saver).invoke({ messages: [new HumanMessage("last")] }, config));
  assert.ok(Math.max(...other) < 8_000, `${other}`);
  assert.equal((await compiled(saverOf()).getState(config)).values.messages.length, 205);
  // A value that is no list is not sent again before it changes.
  const large = thread();
  const sizes = await sentBy((saver) => chain(saver, { one: async () => ({ name: text }), two: adds("two"), three: adds("three") }).invoke({ log: [] }, { ...large, durability: "sync" }));
  assert.equal(sizes.filter((size) => size > 100_000).length, 2, "the write of a task, and the checkpoint");
});

test("messages_of_langchain_and_values_of_javascript_come_back", async () => {
  const serde = new StrictSerializer();
  const again = async (value) => serde.loadsTyped(...(await serde.dumpsTyped(value)));
  const call = { id: "call-1", name: "book", args: { city: "LHR" }, type: "tool_call" };
  const message = await again(new AIMessage({ id: "m", content: [{ type: "text", text: "hi" }], tool_calls: [call] }));
  assert.ok(message instanceof AIMessage);
  assert.deepEqual([message.id, message.tool_calls], ["m", [call]]);
  const result = await again(new ToolMessage({ content: "ok", tool_call_id: "call-1", artifact: { lc: 1, note: "data" } }));
  assert.deepEqual([result.tool_call_id, result.artifact], ["call-1", { lc: 1, note: "data" }]);
  const document = await again(new Document({ pageContent: "text", metadata: { page: 1 } }));
  // LangChain has no serialized form of it.
  assert.deepEqual([document.pageContent, document.metadata], ["text", { page: 1 }]);
  const plain = { map: new Map([["a", 1]]), set: new Set([1, 2]), bytes: Uint8Array.of(1, 255), pattern: /a+/gi, missing: undefined, list: [null, "x", 1.5] };
  assert.deepEqual(await again(plain), plain);
  const hostile = await again(JSON.parse('{"__proto__": {"isAdmin": true}}'));
  assert.equal(hostile.isAdmin, undefined);
  // LangGraph's own serializer stores a text in their place.
  await assert.rejects(serde.dumpsTyped({ count: 1n }), /it has no JSON: .*BigInt/);
  await assert.rejects(serde.dumpsTyped(new Map([["count", 1n]])), /it has no JSON/);
  const circle = {};
  circle.self = [circle];
  await assert.rejects(serde.dumpsTyped({ circle }), /it has no JSON: .*circular/);
  assert.equal(await again("[Circular]"), "[Circular]");
});

test("a_stored_class_that_is_not_on_the_list_is_neither_made_nor_stored", async () => {
  const config = thread();
  const template = PromptTemplate.fromTemplate("{x}");
  await assert.rejects(chain(saverOf(), { one: async () => ({ name: template }) }).invoke({ log: [] }, config), TypeNotAllowed);
  // Another program wrote it. LangGraph's own serializer makes an object of the class.
  const text = JSON.stringify({ name: template, message: new HumanMessage("hi") });
  assert.ok((await load(JSON.stringify(template))) instanceof PromptTemplate);
  const other = { dumpsTyped: async () => ["json", new TextEncoder().encode(text)], loadsTyped: async () => ({}) };
  const place = thread();
  await saverOf({ serde: other }).put(place, { ...emptyCheckpoint(), channel_values: { name: 1 }, channel_versions: { name: 1 } }, metadata, { name: 1 });
  await assert.rejects(saverOf().getTuple(place), (error) => error instanceof TypeNotAllowed && /PromptTemplate/.test(error.message));
  // A class that is named like a listed one, and other shapes of records.
  const serde = new StrictSerializer();
  for (const id of [["langchain_core", "messages", "mergeContent"], ["langchain_core", "HumanMessage"], ["langchain", "messages", "HumanMessage"], ["langchain_core", "__proto__", "HumanMessage"]]) {
    const record = { lc: 1, type: "constructor", id, kwargs: { content: "hi" } };
    await assert.rejects(serde.loadsTyped("json", JSON.stringify({ a: [record] })), TypeNotAllowed);
    await assert.rejects(serde.loadsTyped("json", JSON.stringify({ lc: 1, type: "constructor", id: ["langchain_core", "messages", "AIMessage"], kwargs: { content: "", extra: record } })), TypeNotAllowed);
  }
  await assert.rejects(serde.loadsTyped("msgpack", "x"), TypeNotAllowed);
});

test("a_deleted_thread_begins_anew_and_a_loop_that_read_it_before_ends", async () => {
  const config = thread();
  const [saver, { thread_id }] = [saverOf(), config.configurable];
  const [reached, go] = [defer(), defer()];
  const waiting = async () => {
    reached.resolve();
    await go.promise;
    return { log: ["waited"] };
  };
  const loop = chain(saver, { waiting }).invoke({ log: ["old"] }, { ...config, durability: "sync" });
  await reached.promise;
  await saver.deleteThread(thread_id);
  assert.equal(await saverOf().getTuple(config), undefined);
  go.resolve();
  await assert.rejects(loop, Fenced);
  assert.deepEqual((await chain(saver, { one: adds("one") }).invoke({ log: ["new"] }, config)).log, ["new", "one"]);
  const found = await parents(saverOf(), config);
  assert.equal(found.length, 2);
});

test("a_lost_answer_loses_no_checkpoint_and_stores_none_twice", async () => {
  const steps = { one: adds("one"), two: adds("two") };
  await Promise.all(Array.from({ length: 12 }, async (_, lost) => {
    const config = thread();
    let n = 0;
    const saver = saverOf({ fetch: async (path, init) => {
      const at = n++;
      const answer = await fetch(path, init);
      if (at === lost) throw new TypeError("fetch failed");
      return answer;
    } });
    assert.deepEqual((await chain(saver, steps).invoke({ log: ["in"] }, config)).log, ["in", "one", "two"]);
    assert.equal((await parents(saverOf(), config)).length, 3);
  }));
});

test("a_saver_refuses_the_thread_of_another_prefix_and_lists_its_own_threads", async () => {
  const id = newRun();
  const [outer, inner] = [saverOf({ prefix: `${id}:` }), saverOf({ prefix: `${id}:inner:` })];
  await inner.put({ configurable: { thread_id: "a" } }, emptyCheckpoint(), metadata, {});
  await outer.put({ configurable: { thread_id: "b" } }, emptyCheckpoint(), { ...metadata, tag: "x" }, {});
  await assert.rejects(outer.getTuple({ configurable: { thread_id: "inner:a" } }), (error) => error instanceof Conflict && /thread "a" of a saver with the prefix/.test(error.message));
  const ids = async (saver, filter) => {
    const found = [];
    for await (const { config } of saver.list({ configurable: {} }, { filter })) found.push(config.configurable.thread_id);
    return found;
  };
  assert.deepEqual([await ids(outer), await ids(inner), await ids(outer, { tag: "y" })], [["b"], ["a"], []]);
});

// `runlog mcp-gate` between the official MCP client for TypeScript and a server: progress, cancellations, time-outs and a killed gate.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, readdirSync, watch, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { binary, connectTo, env, newRun, serve } from "./server.mjs";

const { url, folder } = await serve();
const server = new URL("mcp-server.mjs", import.meta.url).pathname;

/** A ledger of an MCP server, and the clients of a run in front of it. */
class Desk {
  run = newRun();
  folder = mkdtempSync(join(folder, "desk-"));

  /** Connects through the gate, or directly to the server. */
  async connect(isGated = true) {
    const program = [process.execPath, server, this.folder];
    const gate = [binary, "mcp-gate", "--server", url, "--run", this.run, "--", ...program];
    const [command, ...args] = isGated ? gate : program;
    const client = new Client({ name: "tester", version: "1" });
    client.errors = [];
    client.onerror = (error) => client.errors.push(error.message);
    await client.connect(new StdioClientTransport({ command, args, env, stderr: "ignore" }));
    return client;
  }

  files = (of) => (existsSync(join(this.folder, of)) ? readdirSync(join(this.folder, of)).sort() : []).map((name) => readFileSync(join(this.folder, of, name), "utf8"));
  bookings = () => this.files("booked");
  /** The messages of a method that the server got. */
  received = (method) => this.files("received").filter(Boolean).map((line) => JSON.parse(line)).filter((message) => message.method === method);
  seen = (step) => writeFileSync(join(this.folder, `seen-${step}`), "");
  release = () => writeFileSync(join(this.folder, "go"), "");
  kill = () => process.kill(Number(readFileSync(join(this.folder, "gate"), "utf8")), "SIGKILL");

  /** Waits until the server has booked so many flights. */
  booked = (count) =>
    new Promise((resolve) => {
      const watcher = watch(join(this.folder, "booked"), look);
      const desk = this;
      function look() {
        if (desk.bookings().length >= count) resolve(watcher.close());
      }
      look();
    });
}

const book = (client, args, options) => client.callTool({ name: "book", arguments: args }, options);
/** The text of an answer, marked if it is recorded. */
const text = ({ content, _meta }) => (_meta?.["io.runlog/recorded"] ? "recorded: " : "") + content[0].text;

test("progress_of_a_gated_call_reaches_the_client_as_without_the_gate", async () => {
  const seen = [];
  for (const isGated of [false, true]) {
    const desk = new Desk();
    const client = await desk.connect(isGated);
    const steps = [];
    const onprogress = (step) => {
      steps.push(step);
      desk.seen(step.progress);
    };
    const answer = await client.callTool({ name: "slow", arguments: { flight: "HAT136" } }, { onprogress });
    seen.push([text(answer), steps]);
    assert.deepEqual(client.errors, []);
    await client.close();
  }
  assert.deepEqual(seen[1], seen[0]);
  assert.deepEqual(seen[0][1].map(({ progress, total, message }) => [progress, total, message]), [[1, 2, "step 1"], [2, 2, "step 2"]]);
});

const stops = {
  async cancels(client, desk) {
    const cancel = new AbortController();
    const refused = assert.rejects(book(client, { flight: "HAT136", hold: true }, { signal: cancel.signal }));
    await client.ping();
    await desk.booked(1);
    cancel.abort();
    await refused;
  },
  // The gate never begins a call that the client gives up while the run is opened, as on a slow machine: then once more.
  async does_not_wait_for(client, desk) {
    for (let timeout = 400; desk.bookings().length === 0; timeout *= 2) {
      await assert.rejects(book(client, { flight: "HAT136", hold: true }, { timeout }));
    }
  },
};

for (const [how, stop] of Object.entries(stops)) {
  test(`a_call_that_the_client_${how}_is_not_cancelled_and_its_repeat_gets_its_answer`, async () => {
    const desk = new Desk();
    const client = await desk.connect();
    await stop(client, desk);
    const repeat = book(client, { flight: "HAT136", hold: true });
    // The gate reads messages in their order: it has the cancellation and the repeat.
    await client.ping();
    desk.release();
    assert.equal(text(await repeat).replace("recorded: ", ""), "B-1");
    assert.deepEqual([desk.bookings(), desk.received("notifications/cancelled")], [["HAT136"], []]);
    assert.deepEqual(client.errors, []);
    // The client has the answer, so an equal call is a new one.
    assert.equal(text(await book(client, { flight: "HAT136", hold: true })), "B-2");
    await client.close();
  });
}

test("progress_of_a_cancelled_call_does_not_disturb_its_repeat", async () => {
  const desk = new Desk();
  const client = await desk.connect();
  const slow = (options) => client.callTool({ name: "slow", arguments: { flight: "HAT1" } }, options);
  const cancel = new AbortController();
  let refused;
  await new Promise((begun) => {
    refused = assert.rejects(slow({ signal: cancel.signal, onprogress: begun }));
  });
  cancel.abort();
  await refused;
  const repeat = slow({ onprogress: () => {} });
  await client.ping();
  desk.seen(1);
  desk.seen(2);
  assert.equal(text(await repeat).replace("recorded: ", ""), "B-1");
  assert.deepEqual(desk.bookings(), ["HAT1"]);
  await client.close();
});

test("a_gate_that_is_killed_in_a_call_leaves_it_to_a_decision_that_the_next_client_gets", async () => {
  const desk = new Desk();
  const client = await desk.connect();
  const lost = assert.rejects(book(client, { flight: "HAT136", hold: true }));
  await desk.booked(1);
  desk.kill();
  await lost;
  const next = await desk.connect();
  const refused = await book(next, { flight: "HAT136", hold: true });
  assert.equal(refused.isError, true);
  assert.match(text(refused), /an operator must decide, at http/);
  const rl = connectTo(url);
  for await (const effect of rl.undecided(desk.run))
    await rl.decide(effect, "done", { result: { content: [{ type: "text", text: "B-1" }] }, who: "jo", why: "asked the desk", force: true });
  assert.equal(text(await book(next, { flight: "HAT136", hold: true })), "recorded: B-1");
  assert.deepEqual(desk.bookings(), ["HAT136"]);
  await next.close();
});

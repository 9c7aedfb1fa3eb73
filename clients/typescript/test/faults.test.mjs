// Answers that are lost, at each request of an agent: each effect runs once, and its result is recorded.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startProxy } from "../../../tests/protocol-client/proxy.mjs";
import { RunlogError, Unauthenticated, Unavailable, Usage } from "../dist/index.js";
import { connectTo, defer, newRun, serve } from "./server.mjs";

const { url } = await serve("--write-schema", "3");
const REQUESTS = 14;

/** Repeats an operation of a handle until it succeeds. */
async function persist(operation, tries = 8) {
  for (let n = 1; ; n++) {
    try {
      return await operation();
    } catch (error) {
      if (!(error instanceof RunlogError) || n === tries) throw error;
    }
  }
}

/** A program with two effects, through a connection. Returns how often each effect ran. */
async function book(rl, id) {
  const effects = { find: 0, pay: 0 };
  const run = await persist(() => rl.open(id));
  const found = await persist(() => run.tool("find", { to: "LHR" }, {}, () => `flight ${++effects.find}`));
  await persist(() => run.checkpoint([{ found }], { step: 1 }));
  const paid = await persist(() => run.tool("pay", { sum: 1 }, {}, () => `paid ${++effects.pay}`));
  await persist(() => run.end());
  assert.deepEqual([found, paid], ["flight 1", "paid 1"]);
  return effects;
}

async function check(id, effects) {
  assert.deepEqual(effects, { find: 1, pay: 1 });
  const direct = connectTo(url);
  assert.equal((await direct.lookup(id, "pay", { sum: 1 })).result, "paid 1");
  assert.equal((await direct.recover(id)).status, "completed");
}

test("the_client_sends_the_same_bytes_again_whichever_answer_is_lost", async () => {
  await Promise.all(Array.from({ length: REQUESTS }, async (_, lost) => {
    const id = newRun();
    const bodies = [];
    let n = 0;
    const rl = connectTo(url, { fetch: async (path, init) => {
      const at = n++;
      const answer = await fetch(path, init);
      bodies.push(init.body);
      if (at === lost) throw new TypeError("fetch failed");
      return answer;
    } });
    await check(id, await book(rl, id));
    if (lost < n - 1) assert.equal(bodies[lost], bodies[lost + 1]);
  }));
});

test("a_handle_settles_what_a_failed_operation_left_at_each_request", async () => {
  // The operation fails at once. After `internal` it does not know whether its record is in the log, after `forbidden` it does.
  const faults = [["internal", 500, true], ["internal", 500, false], ["forbidden", 403, false]];
  const cases = Array.from({ length: REQUESTS }, (_, failing) => faults.map((fault) => [failing, ...fault])).flat();
  await Promise.all(cases.map(async ([failing, kind, status, arrives]) => {
    const id = newRun();
    let n = 0;
    const rl = connectTo(url, { fetch: async (path, init) => {
      if (n++ !== failing) return fetch(path, init);
      if (arrives) await (await fetch(path, init)).text();
      return Response.json({ kind, title: "broken", status }, { status });
    } });
    await check(id, await book(rl, id));
  }));
});

test("no_effect_runs_twice_through_a_proxy_that_loses_delays_and_repeats", async () => {
  const proxy = await startProxy({ target: url, seed: "typescript", faults: 0.3 });
  try {
    await Promise.all([1, 2, 3].map(async () => {
      const id = newRun();
      await check(id, await book(connectTo(proxy.url), id));
    }));
  } finally {
    proxy.close();
  }
});

test("a_server_that_is_not_there_and_a_token_in_clear_are_refused_at_once", async () => {
  const gone = connectTo("http://127.0.0.1:9", { connectDeadlineMs: 200 });
  await assert.rejects(gone.open("run"), (error) => error instanceof Unavailable && error.happened === "nothing" && /runlog serve/.test(error.message));
  assert.throws(() => connectTo("http://example.com", { token: "t" }), Usage);
  assert.throws(() => connectTo("http://u:p@localhost:1"), Usage);
  const both = connectTo(["http://127.0.0.1:9", url]);
  assert.equal(await (await both.open(newRun())).tool("find", {}, {}, () => 1), 1);
});

test("a_refused_token_is_read_again_and_the_servers_refusal_counts", async () => {
  const sent = [];
  const answer = async (path, init) => {
    sent.push(init.headers.authorization);
    if (init.headers.authorization === "Bearer new") return fetch(path, init);
    return Response.json({ kind: "unauthenticated", title: "the token is unknown", status: 401 }, { status: 401 });
  };
  let token = "old";
  const rl = connectTo(url, { token: () => token, fetch: answer });
  await assert.rejects(rl.open(newRun()), (error) => error instanceof Unauthenticated && error.action === "credentials");
  token = "new";
  assert.equal(await (await rl.open(newRun())).tool("find", {}, {}, () => 1), 1);
  assert.deepEqual(sent.slice(0, 3), ["Bearer old", "Bearer old", "Bearer new"]);
});

test("a_request_goes_only_to_the_server_whose_journal_was_compared", async () => {
  const asked = [];
  const late = defer();
  let isFirst = true;
  // The first answer of one server is late; meanwhile another operation leaves that server. The other server has another journal.
  const rl = connectTo(["http://127.0.0.1:1", "http://127.0.0.1:2"], { deadlineMs: 500, connectDeadlineMs: 500, fetch: async (path, { signal }) => {
    const { port, pathname } = new URL(path);
    if (pathname !== "/v1/journal") {
      asked.push(port);
      return Response.json({ kind: "not_found", title: "no such run", status: 404 }, { status: 404 });
    }
    if (port === "2") return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    if (!isFirst) {
      setTimeout(late.resolve, 0);
      throw new TypeError("fetch failed");
    }
    isFirst = false;
    await late.promise;
    return Response.json({ journal_id: "one", features: [] });
  } });
  await Promise.allSettled([rl.recover("run"), rl.recover("run")]);
  assert.ok(asked.length > 0 && !asked.includes("2"), asked.join());
});

test("only_an_error_before_the_connection_says_that_a_request_was_not_sent", async () => {
  const failing = (code, syscall) => connectTo("http://127.0.0.1:1", { deadlineMs: 100, connectDeadlineMs: 100, fetch: async (path) => {
    if (path.includes("/v1/journal")) return Response.json({ journal_id: "one", features: [] });
    if (!path.includes("/records")) return Response.json({ kind: "not_found", title: "no such run", status: 404 }, { status: 404 });
    throw new TypeError("fetch failed", { cause: Object.assign(new Error(code), { code, syscall }) });
  } });
  for (const [code, syscall, happened] of [
    ["ECONNREFUSED", "connect", "nothing"], ["EHOSTUNREACH", "connect", "nothing"], ["ENETUNREACH", "connect", "nothing"],
    ["EHOSTUNREACH", "read", "unknown"], ["ENETUNREACH", "write", "unknown"], ["ECONNRESET", "read", "unknown"],
  ]) {
    await assert.rejects(failing(code, syscall).open("run"), (error) => error instanceof Unavailable && error.happened === happened, `${code} ${syscall}`);
  }
});

test("a_new_token_serves_every_request_that_was_sent_with_the_old_one", async () => {
  let token = "old";
  const both = defer();
  let refused = 0;
  const rl = connectTo(url, { token: () => token, fetch: async (path, init) => {
    if (token === "old" || init.headers.authorization === "Bearer new") return fetch(path, init);
    if (++refused === 2) both.resolve();
    await both.promise;
    return Response.json({ kind: "unauthenticated", title: "the token is unknown", status: 401 }, { status: 401 });
  } });
  assert.equal(await rl.recover(newRun()), undefined);
  token = "new";
  assert.deepEqual(await Promise.all([rl.recover(newRun()), rl.recover(newRun())]), [undefined, undefined]);
  assert.equal(refused, 2);
});

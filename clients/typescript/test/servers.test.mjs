// Instances that hold some of the partitions. The tests answer in their place.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, Unavailable } from "../dist/index.js";

const [A, B, C, D] = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", "http://127.0.0.1:4"];

/** Connects to servers of which `holders` have the partition of each run; servers in `gone` do not answer. Returns the connection and
 * the requests about runs. `before` sees each of these requests first. */
function placed(servers, holders, gone = [], before = () => {}) {
  const requests = [];
  const rl = connect(servers, { warn: (text) => requests.push(["warning", text]), deadlineMs: 2000, fetch: async (path, init) => {
    const { origin, pathname } = new URL(path);
    if (pathname === "/v1/journal") return Response.json({ journal_id: "one", features: [] });
    before(init);
    requests.push([origin, init.body]);
    if (gone.includes(origin)) throw new TypeError("fetch failed", { cause: Object.assign(new Error("reset"), { code: "ECONNRESET" }) });
    if (!holders.includes(origin)) {
      const detail = `partition 3 is not placed on this server, but placed on ${holders.join(", ")}`;
      const problem = { kind: "unavailable", reason: "not_here", status: 503, title: "unavailable", detail, partition: 3 };
      return Response.json({ ...problem, not_here: { partition: 3, instances: holders.map((url) => `${url}/`) } }, { status: 503 });
    }
    if (init.method === "POST") return Response.json({ kind: "too_large", title: "too large", status: 413 }, { status: 413 });
    return Response.json({ kind: "not_found", title: "no such run", status: 404 }, { status: 404 });
  } });
  return { rl, requests, asked: () => requests.splice(0).map(([origin]) => origin) };
}

test("a_request_goes_to_the_named_server_that_holds_its_partition_and_the_next_ones_go_there_at_once", async () => {
  const { rl, asked } = placed([A, B, C], [D, C]);
  assert.equal(await rl.recover("run"), undefined);
  assert.deepEqual(asked(), [A, C]);
  assert.equal(await rl.recover("run"), undefined);
  assert.deepEqual(asked(), [C]);
  // Another run may be in another partition.
  await rl.recover("other");
  assert.deepEqual(asked(), [A, C]);
});

test("a_claim_that_a_server_refused_for_its_partition_is_sent_on_with_the_same_bytes_and_did_not_happen", async () => {
  const holders = [A];
  const { rl, requests } = placed([A, B, C], holders, [], (init) => {
    // The partition moves between the query and the claim.
    if (init.method === "POST") holders[0] = C;
  });
  await assert.rejects(rl.open("run"), (error) => error.kind === "too_large" && error.happened === "nothing");
  const [[first, one], [second, two], ...others] = requests.filter(([, body]) => body);
  assert.deepEqual([first, second, one === two, others], [A, C, true, []]);
});

test("a_request_ends_after_one_round_if_no_named_server_holds_the_partition_and_no_other_server_gets_it", async () => {
  for (const servers of [[A], [A, B, C]]) {
    const { rl, asked } = placed(servers, [D]);
    const ends = (error) => error instanceof Unavailable && error.action === "fix_the_input" && error.happened === "nothing" && error.message.includes(D);
    await assert.rejects(rl.recover("run"), ends);
    assert.deepEqual(asked(), servers);
  }
});

test("a_server_that_holds_the_partition_and_does_not_answer_is_replaced_by_the_other_one", async () => {
  const gone = [];
  const { rl, asked } = placed([A, B, C], [B, C], gone);
  await rl.recover("run");
  assert.deepEqual(asked(), [A, B]);
  gone.push(B);
  await rl.recover("run");
  assert.deepEqual(asked().filter((each) => each !== "warning"), [B, A, C]);
  // While the only holder does not answer, it is asked until the deadline.
  const waiting = placed([A, B], [B], [B]);
  const late = (error) => error instanceof Unavailable && error.happened === "nothing";
  await assert.rejects(waiting.rl.recover("run"), late);
  assert.ok(waiting.asked().filter((each) => each === B).length > 2);
});

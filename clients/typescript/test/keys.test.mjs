// Idempotency keys that a person cannot see are refused, by the server's rule.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { isBlank } from "../dist/errors.js";
import { connectTo, newRun, serve } from "./server.mjs";

const { url } = await serve();

test("a_key_without_a_visible_character_is_refused_before_anything_is_sent", async () => {
  const sent = [];
  const run = await connectTo(url, { fetch: (path, init) => (sent.push(path), fetch(path, init)) }).open(newRun());
  sent.length = 0;
  for (const key of ["", " ", "\t", "\n\r", "\u{a0}", "\u{200b}", "\u{2060}", "\u{feff} \u{2800}", "\u{e0020}"]) {
    const isRefused = (error) => error.kind === "usage" && error.happened === "nothing" && /key of pay is empty or blank: give a key/.test(error.message);
    await assert.rejects(run.tool("pay", { sum: 1 }, { key }, () => assert.fail("the effect ran")), isRefused, JSON.stringify(key));
  }
  assert.deepEqual(sent, []);
  for (const key of ["k", " k ", "\u{200b}k", "決"]) assert.equal(await run.tool("pay", { sum: 1 }, { key }, () => key), key);
});

test("a_name_or_a_key_that_is_no_whole_text_is_refused_before_anything_runs", async () => {
  const rl = connectTo(url);
  const id = newRun();
  const never = () => assert.fail("the effect ran");
  const run = await rl.open(id);
  for (const [wrong, says] of [[7, /is a text, not a value of type number/], [["a"], /not a value of type object/], ["a\udcff", /has half a character/]]) {
    const isRefused = (error) => error.kind === "usage" && error.happened === "nothing" && says.test(error.message);
    const refused = [
      () => rl.open(wrong), () => rl.recover(wrong), () => rl.lookup(id, wrong, {}), () => run.tool(wrong, {}, {}, never),
      () => run.tool("pay", {}, { key: wrong }, never), () => run.turn(wrong, "said"), async () => connectTo(url, { agent: wrong }),
    ];
    for (const attempt of refused) await assert.rejects(attempt, isRefused, `${wrong} ${attempt}`);
  }
  for (const messages of ["to London", { content: "to London" }, new Set(["to London"]), null]) {
    await assert.rejects(run.checkpoint(messages), /a checkpoint has a list of messages/);
  }
  await assert.rejects(run.end("failed", 7), /the reason of an end is a text/);
  const { pending, completed } = await rl.recover(id);
  assert.deepEqual([pending, completed], [[], []]);
  // The name of a file may be in the text of an exception.
  for (let again = 0; again < 2; again++) await run.end("failed", "no such file: a\udcff");
});

test("a_character_is_blank_if_the_server_calls_it_blank", () => {
  const rule = readFileSync(new URL("../../../schemas/src/hidden.rs", import.meta.url), "utf8");
  const point = (text) => Number.parseInt(text, 16);
  const listed = rule.slice(0, rule.indexOf("pub fn is_blank")).matchAll(/'\\u\{([0-9a-f]+)\}'(?:\.\.='\\u\{([0-9a-f]+)\}')?/g);
  const ranges = [...listed].map(([, from, to]) => [point(from), point(to ?? from)]);
  assert.ok(ranges.length > 10);
  const isServers = (character, at) => /[\p{White_Space}\p{Cc}]/u.test(character) || ranges.some(([from, to]) => from <= at && at <= to);
  for (let at = 0; at <= 0x10ffff; at++) {
    if (at >= 0xd800 && at <= 0xdfff) continue;
    const character = String.fromCodePoint(at);
    assert.equal(isBlank(character), isServers(character, at), at.toString(16));
  }
});

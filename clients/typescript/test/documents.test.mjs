// The program of both READMEs, run as they say.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { serve } from "./server.mjs";

const { url, folder } = await serve();
const client = new URL("..", import.meta.url).pathname;
const program = (file) => /```js\n([^]*?)```/.exec(readFileSync(new URL(file, import.meta.url), "utf8"))[1];

test("the_quick_start_dies_continues_and_books_nothing_twice", () => {
  const source = program("../README.md");
  assert.equal(source, program("../../../README.md"));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(client, join(folder, "node_modules", "runlog-client"));
  writeFileSync(join(folder, "agent.mjs"), source);
  const agent = (env) => spawnSync(process.execPath, ["agent.mjs"], { cwd: folder, env: { ...process.env, RUNLOG_SERVER: url, ...env }, encoding: "utf8" });
  const killed = agent({ DIE_IN: "CDG" });
  assert.equal(killed.signal, "SIGKILL");
  const next = agent({});
  assert.equal(next.stdout, "booking CDG with the key trip-5-CDG, attempt 2\nbooking FCO with the key trip-5-FCO, attempt 1\nB-LHR B-CDG B-FCO\n", next.stderr);
  assert.equal(agent({}).stdout, "B-LHR B-CDG B-FCO\n");
});

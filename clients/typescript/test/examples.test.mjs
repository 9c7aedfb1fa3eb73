// The programs of `examples/`, killed and started again as they say.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { newRun, serve } from "./server.mjs";

const { url } = await serve();

for (const [file, killed, next] of [
  ["langchain-killed.mjs", ["find LHR", "book HAT136"], ["book HAT136", "a flight to London | HAT136 | B-1009 | booked"]],
  ["openai-agents-killed.mjs", ["find LHR", "book HAT136"], ["book HAT136", "booked"]],
]) {
  test(`the_example_${file}_dies_and_continues`, async () => {
    const env = { ...process.env, RUNLOG_SERVER: url, THREAD: newRun() };
    const start = async (more) => {
      const child = spawn(process.execPath, [new URL(`../examples/${file}`, import.meta.url).pathname], { env: { ...env, ...more }, stdio: ["ignore", "pipe", "inherit"] });
      let output = "";
      child.stdout.on("data", (text) => (output += text));
      await once(child, "close");
      return output.trim().split("\n");
    };
    assert.deepEqual(await start({ DIE: "1" }), killed);
    assert.deepEqual(await start({}), next);
  });
}

// LangGraph's validation suite for checkpointers, with `RunlogSaver` and a server on a local log.
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { deltaChannelHistoryTests, validate } from "@langchain/langgraph-checkpoint-validation";
import { RunlogSaver } from "../dist/langgraph.js";

const binary = process.env.RUNLOG_BIN;
const folder = mkdtempSync(join(tmpdir(), "runlog-validation-"));
let server;
let url;

const initializer = {
  checkpointerName: "RunlogSaver",
  async beforeAll() {
    const env = { ...process.env, LD_LIBRARY_PATH: `${dirname(binary)}:${process.env.LD_LIBRARY_PATH ?? ""}` };
    const args = ["serve", "--local", "--data", join(folder, "journal"), "--listen", "127.0.0.1:0"];
    server = spawn(binary, args, { env, stdio: ["ignore", "pipe", "ignore"] });
    const [line] = await once(createInterface(server.stdout), "line");
    url = JSON.parse(line).listening;
  },
  beforeAllTimeout: 60_000,
  async afterAll() {
    server.kill("SIGTERM");
    if (server.exitCode === null) await once(server, "exit");
    rmSync(folder, { recursive: true });
  },
  // Each set of tests has threads of its own.
  createCheckpointer: () => new RunlogSaver(url, { prefix: `${randomUUID()}/`, agent: "tester" }),
};

validate(initializer);
// The default suite leaves this part out.
deltaChannelHistoryTests(initializer);

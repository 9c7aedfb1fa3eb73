// A `runlog serve` process on a local log, and helpers that tests share.
import { execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { connect } from "../dist/index.js";

export const binary = process.env.RUNLOG_BIN ?? new URL("../../../bin/runlog", import.meta.url).pathname;
export const env = { ...process.env, LD_LIBRARY_PATH: `${dirname(binary)}:${process.env.LD_LIBRARY_PATH ?? ""}` };

export const newRun = () => `run-${randomUUID()}`;

/** Starts a server for the tests of a file. After them, its indices must match its log. */
export async function serve(...options) {
  const folder = mkdtempSync(join(tmpdir(), "runlog-ts-"));
  const args = ["serve", "--local", "--data", join(folder, "journal"), "--listen", "127.0.0.1:0", ...options];
  const child = spawn(binary, args, { env, stdio: ["ignore", "pipe", "ignore"] });
  const [line] = await once(createInterface(child.stdout), "line");
  const url = JSON.parse(line).listening;
  after(async () => {
    try {
      execFileSync(binary, ["--server", url, "verify", "--json"], { env });
    } finally {
      child.kill("SIGTERM");
      if (child.exitCode === null) await once(child, "exit");
      rmSync(folder, { recursive: true });
    }
  });
  return { url, folder };
}

/** Connects without warnings; `warnings` gets them. */
export const connectTo = (url, settings = {}) => connect(url, { agent: "tester", warn: () => {}, ...settings });

/** A promise that a test settles. */
export function defer() {
  const deferred = {};
  deferred.promise = new Promise((resolve, reject) => Object.assign(deferred, { resolve, reject }));
  return deferred;
}

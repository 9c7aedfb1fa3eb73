// Writes `openapi.d.ts`, the types of the answers of the command that RUNLOG_BIN names.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import openapiTS, { astToString } from "openapi-typescript";

const binary = process.env.RUNLOG_BIN;
const env = { ...process.env, LD_LIBRARY_PATH: `${dirname(binary)}:${process.env.LD_LIBRARY_PATH ?? ""}` };
const folder = mkdtempSync(join(tmpdir(), "runlog-ts-"));
const server = spawn(binary, ["serve", "--local", "--data", join(folder, "journal"), "--listen", "127.0.0.1:0"], { env, stdio: ["ignore", "pipe", "ignore"] });
try {
  const [line] = await once(createInterface(server.stdout), "line");
  const document = await (await fetch(`${JSON.parse(line).listening}/openapi.json`)).json();
  writeFileSync(new URL("openapi.d.ts", import.meta.url), astToString(await openapiTS(document)));
} finally {
  server.kill("SIGTERM");
  if (server.exitCode === null) await once(server, "exit");
  rmSync(folder, { recursive: true });
}

// many.mjs MINUTES PARALLEL FIRST_SEED: attacks with one seed after the other, on three servers: with one partition, with
// four, and with two that is killed and started again all the time. RUNLOG_BIN names the command,
// SERVE_ARGS has more arguments of `serve`, OUT is the file for the results.
import { spawn } from "node:child_process";
import { appendFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const [minutes = "1", parallel = "3", first = "1"] = process.argv.slice(2);
const command = process.env.RUNLOG_BIN ?? "runlog";
const folder = mkdtempSync(join(tmpdir(), "many-"));
const out = process.env.OUT ?? "many.log";
const end = Date.now() + Number(minutes) * 60000;
const servers = [];

async function serve(server) {
  const args = ["serve", "--local", "--data", server.data, "--listen", `127.0.0.1:${server.port}`, "--partitions", server.partitions,
    ...(process.env.SERVE_ARGS?.split(" ") ?? [])];
  server.child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  const ready = new Promise((resolve) => server.child.stdout.on("data", (text) => {
    const { listening } = JSON.parse(String(text).split("\n")[0]);
    server.port = new URL(listening).port;
    resolve();
  }));
  server.child.stderr.on("data", (text) => appendFileSync(join(folder, "servers.log"), text));
  await ready;
}
for (const partitions of ["1", "4", "2"]) {
  const server = { partitions, port: 0, data: join(folder, `journal-${partitions}`) };
  await serve(server);
  servers.push(server);
}
console.log(`servers ${servers.map(({ port }) => port)}, folder ${folder}`);
let done = false;
const restarts = (async () => {
  for (const server = servers[2]; !done; ) {
    await sleep(8000 + 15000 * Math.random());
    if (done) return;
    const exit = new Promise((resolve) => server.child.on("exit", resolve));
    server.child.kill("SIGKILL");
    await exit;
    await serve(server);
  }
})();

let seed = Number(first), good = 0;
const bad = [];
const attack = (seed) => new Promise((resolve) => {
  const env = { ...process.env, RUNLOG: `http://127.0.0.1:${servers[seed % 3].port}` };
  const child = spawn(process.execPath, [new URL("attack.mjs", import.meta.url).pathname, String(seed)], { env });
  let text = "";
  child.stdout.on("data", (part) => (text += part));
  child.stderr.on("data", (part) => (text += part));
  child.on("close", (code) => {
    appendFileSync(out, code === 0 ? text : `==== seed ${seed} code ${code}\n${text}\n====\n`);
    if (code === 0) good++;
    else bad.push(seed), console.log(`seed ${seed} violates: ${text.split("\n").slice(0, 6).join("\n")}`);
    resolve();
  });
});
await Promise.all(Array.from({ length: Number(parallel) }, async () => {
  while (Date.now() < end) await attack(seed++);
}));
done = true;
console.log(`${good} good, ${bad.length} bad: ${bad}`);
for (const { child } of servers) child.kill("SIGKILL");
process.exit(bad.length ? 1 : 0);

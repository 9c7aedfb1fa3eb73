// An MCP server over stdio that books flights: `node mcp-server.mjs FOLDER`. Each message that it gets is a file in the folder, and so
// is each booking. An answer to a call with `hold` waits for the file `go`, and each step of `slow` for a file `seen-STEP`.
import { existsSync, mkdirSync, readdirSync, watch, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const folder = process.argv[2];
const [received, booked] = [join(folder, "received"), join(folder, "booked")];
for (const of of [received, booked]) mkdirSync(of, { recursive: true });
const add = (to, text) => {
  const count = readdirSync(to).length + 1;
  writeFileSync(join(to, String(count).padStart(4, "0")), text);
  return count;
};
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

/** Waits until the test makes a file. */
const made = (name) =>
  new Promise((resolve) => {
    const watcher = watch(folder, look);
    function look() {
      if (existsSync(join(folder, name))) resolve(watcher.close());
    }
    look();
  });

const tools = ["book", "slow"].map((name) => ({
  name,
  inputSchema: { type: "object", properties: { flight: { type: "string" }, hold: { type: "boolean" } } },
}));

async function call(id, { name, arguments: { flight, hold } = {}, _meta }) {
  // The client forgets the token with the answer, so it must have seen the step before.
  const progress = async (step) => {
    send({ method: "notifications/progress", params: { progressToken: _meta.progressToken, progress: step, total: 2, message: `step ${step}` } });
    await made(`seen-${step}`);
  };
  const booking = add(booked, flight);
  if (name === "slow") await progress(1);
  if (hold) await made("go");
  if (name === "slow") await progress(2);
  send({ id, result: { content: [{ type: "text", text: `B-${booking}` }] } });
}

const answers = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "desk", version: "1" } }),
  "tools/list": () => ({ tools }),
  ping: () => ({}),
};

writeFileSync(join(folder, "gate"), String(process.ppid));
const input = createInterface(process.stdin);
// A call that waits for a file would keep the process alive.
input.on("close", () => process.exit());
input.on("line", (line) => {
  add(received, line);
  const { id, method, params } = JSON.parse(line);
  if (method === "tools/call") call(id, params);
  else if (id !== undefined) send(answers[method] ? { id, result: answers[method](params ?? {}) } : { id, error: { code: -32601, message: "unknown" } });
});

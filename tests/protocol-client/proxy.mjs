// proxy.mjs TARGET PORT SEED FAULTS: an HTTP proxy that duplicates, delays, loses and cuts. FAULTS is a share, such as 0.3.
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { random } from "./random.mjs";

const HOP = ["host", "connection", "keep-alive", "transfer-encoding", "content-length", "expect"];

export function startProxy({ target, port = 0, seed, faults = 0.3, log = () => {} }) {
  const roll = random(`proxy ${seed}`);
  const upstream = new http.Agent({ keepAlive: true });
  const { hostname, port: upstreamPort } = new URL(target);
  const proxy = { faults, late: 0, counts: {} };

  function forward(request, { cut = false } = {}) {
    return new Promise((resolve, reject) => {
      const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => !HOP.includes(name)));
      if (request.body.length) headers["content-length"] = request.body.length;
      const { method, path } = request;
      const out = http.request({ hostname, port: upstreamPort, method, path, headers, agent: cut ? false : upstream });
      out.on("error", reject);
      out.setTimeout(15000, () => out.destroy(new Error("timeout")));
      out.on("response", (answer) => {
        const parts = [];
        answer.on("data", (part) => parts.push(part));
        answer.on("error", reject);
        answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts) }));
      });
      if (cut) {
        out.write(request.body.subarray(0, Math.floor(request.body.length * roll())));
        setTimeout(() => out.destroy(), 20);
        out.on("close", () => reject(new Error("cut")));
      } else out.end(request.body);
    });
  }

  function later(request, ms, why) {
    proxy.late++;
    sleep(ms)
      .then(() => forward(request))
      .then((answer) => log(`${why} after ${Math.floor(ms)} ms ${name(request)}: ${answer.status} ${short(answer)}`))
      .catch((error) => log(`${why} ${name(request)}: ${error.message}`))
      .finally(() => proxy.late--);
  }

  async function handle(request, response) {
    const faulty = roll() < proxy.faults;
    const read = request.method === "GET";
    const fates = read
      ? ["delay", "lose request", "lose answer", "502 before", "503 before", "503 json", "cut answer"]
      : ["delay", "delay and go on", "twice", "late copy", "late copy", "very late copy", "lose request", "lose answer",
         "lose answer", "502 before", "502 after", "503 before", "503 after", "503 json", "cut answer", "cut request", "200 page"];
    const fate = faulty ? fates[Math.floor(roll() * fates.length)] : "pass";
    proxy.counts[fate] = (proxy.counts[fate] ?? 0) + 1;
    if (fate !== "pass") log(`${fate}: ${name(request)}`);
    const gone = async () => {
      if (roll() < 0.3) await sleep(3000 * roll()); // it hangs first
      response.destroy();
    };
    const page = (status) => {
      response.writeHead(status, { "Content-Type": "text/html" });
      response.end(`<html><body><h1>${status}</h1></body></html>`);
    };
    switch (fate) {
      case "lose request": return gone();
      case "502 before": return page(502);
      case "503 before": return page(503);
      case "503 json":
        response.writeHead(503, { "Content-Type": "application/json" });
        return response.end('{"error":"upstream"}');
      case "delay": await sleep(3500 * roll() ** 2); break;
      case "delay and go on": later(request, 6000 * roll() ** 2, "arrives late"); return gone();
      case "late copy": later(request, 1500 * roll(), "copy"); break;
      case "very late copy": later(request, 2000 + 10000 * roll(), "copy"); break;
      case "cut request": await forward(request, { cut: true }).catch(() => {}); return response.destroy();
    }
    const both = [forward(request)];
    if (fate === "twice") both.push(forward(request));
    const answers = await Promise.all(both);
    const answer = answers[Math.floor(roll() * answers.length)];
    switch (fate) {
      case "lose answer": return gone();
      case "502 after": return page(502);
      case "503 after": return page(503);
      case "200 page": return page(200);
    }
    const headers = Object.fromEntries(Object.entries(answer.headers).filter(([header]) => !HOP.includes(header)));
    response.writeHead(answer.status, { ...headers, "Content-Length": answer.body.length });
    if (fate === "cut answer") {
      response.write(answer.body.subarray(0, Math.floor(answer.body.length * roll())));
      setTimeout(() => response.destroy(), 10);
    } else response.end(answer.body);
  }

  const server = http.createServer(async (incoming, response) => {
    response.on("error", () => {});
    const parts = [];
    try {
      for await (const part of incoming) parts.push(part);
      const { method, url: path, headers } = incoming;
      await handle({ method, path, headers, body: Buffer.concat(parts) }, response);
    } catch (error) {
      log(`proxy: ${error.message}`);
      response.destroy();
    }
  });
  server.keepAliveTimeout = 2000;
  proxy.close = () => { server.closeAllConnections(); server.close(); upstream.destroy(); };
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => {
    proxy.url = `http://127.0.0.1:${server.address().port}`;
    resolve(proxy);
  }));
}

const name = ({ method, path, body }) => `${method} ${path.slice(0, 60)} ${/"record_id":"([^"]*)"/.exec(body)?.[1] ?? ""}`;
const short = ({ body }) => /"(outcome|kind)":"[^"]*"(,"reason":[^,]*)?/.exec(body)?.[0] ?? "";

if (process.argv[1] === import.meta.filename) {
  const [target, port, seed, faults] = process.argv.slice(2);
  const proxy = await startProxy({ target, port: Number(port), seed, faults: Number(faults), log: console.log });
  console.log(`${proxy.url} for ${target}`);
}

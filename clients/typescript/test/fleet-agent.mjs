// An agent of the fleet that is killed at the demo's desk (clients/python/tests/kills), as the agents in Python and Rust: it opens its run,
// continues from the run's last checkpoint, and works until the model calls no tool.
//
// It waits for a line on stdin, {url, port, answers, trip}, because Node takes longer to start than an agent lives. It ends with its
// driver. Exit codes: those of kills/processes.py.
import { appendFileSync } from "node:fs";
import { createConnection } from "node:net";
import { createInterface } from "node:readline";
import { connect, Failed, ReconcileRequired, Unavailable, Unknown } from "../dist/index.js";

const [DONE, RECONCILE, BROKEN, UNAVAILABLE] = [0, 3, 4, 5];
const PRICE_POLLS = 2;

/** The desk's answer; `undefined` if there is none: it may have done it. */
function ask(port, request) {
  return new Promise((resolve, reject) => {
    const socket = createConnection(port, "127.0.0.1", () => socket.write(`${JSON.stringify(request)}\n`));
    let text = "";
    socket.on("data", (part) => {
      text += part;
      if (!text.includes("\n")) return;
      socket.end();
      resolve(JSON.parse(text));
    });
    socket.on("close", () => resolve(undefined));
    socket.on("error", (error) => (error.syscall === "connect" ? reject(error) : resolve(undefined)));
  });
}

// The model: kills/trips.py, and cli/demo/src/model.rs.

const heard = (messages, tool) => messages.filter((message) => message.role === "tool" && message.tool === tool);
const found = (messages, tool) => heard(messages, tool).find((message) => "result" in message.heard)?.heard.result;

function next(trip, messages) {
  const flights = found(messages, "search_flights");
  if (!flights) {
    const calls = [{ tool: "search_flights", arguments: { from: trip.begin, to: trip.end, date: trip.date }, key: null }];
    if (trip.room) calls.push({ tool: "search_rooms", arguments: { city: trip.end, date: trip.date }, key: null });
    return { says: "Let me see what there is.", calls };
  }
  const booked = heard(messages, "book_flight");
  const refused = booked.filter((message) => "error" in message.heard).length;
  if (booked.length === refused) {
    if (refused < flights.length) return book(trip, flights[refused].flight, messages);
    return { says: `No seat from ${trip.begin} to ${trip.end} that day.`, calls: [] };
  }
  const rooms = found(messages, "search_rooms");
  if (trip.room && rooms?.length && !heard(messages, "book_room").length) {
    const { room } = rooms[0];
    return { says: `The flight is booked; ${room} too.`, calls: [booking(trip, "book_room", room, { room, date: trip.date, guest: trip.passenger })] };
  }
  return { says: `${trip.passenger} flies to ${trip.end}. Have a good trip!`, calls: [] };
}

function book(trip, flight, messages) {
  const polls = heard(messages, "get_price").filter((message) => message.arguments.flight === flight).length;
  if (polls < PRICE_POLLS) {
    const says = polls === 0 ? `What does ${flight} cost?` : "Is that still the price?";
    return { says, calls: [{ tool: "get_price", arguments: { flight, date: trip.date }, key: null }] };
  }
  return { says: `I take ${flight}.`, calls: [booking(trip, "book_flight", flight, { flight, date: trip.date, passenger: trip.passenger })] };
}

const booking = (trip, tool, item, args) => ({ tool, arguments: args, key: trip.keyed ? `${trip.run_id}/${item}/${trip.date}` : null });

function requestOf(trip, { tool, arguments: args, key }) {
  if (tool === "search_flights") return { op: "flights", ...args };
  if (tool === "search_rooms") return { op: "rooms", ...args };
  if (tool === "get_price") return { op: "price", item: args.flight, date: args.date };
  return { op: "book", item: args.flight ?? args.room, date: args.date, customer: trip.passenger, key };
}

// The agent

async function work({ url, port, answers, trip }) {
  const rl = connect(url, { agent: "travel-agent", connectDeadlineMs: 30_000, warn: () => {} });
  await rl.run(trip.run_id, async (run) => {
    if (run.recovery.status !== "open") return;
    const messages = [...run.recovery.messages];
    if (!messages.length) {
      messages.push({ role: "user", content: trip.wish });
      await run.turn("user", trip.wish);
    }
    for (;;) {
      const { says, calls } = next(trip, messages);
      await run.turn("assistant", says);
      if (!calls.length) return run.end();
      // A call that fails must not leave the other ones running.
      const ended = await Promise.allSettled(calls.map((call) => act(run, port, trip, call, answers)));
      const failed = ended.find(({ status }) => status === "rejected");
      if (failed) throw failed.reason;
      messages.push({ role: "assistant", content: says, calls }, ...ended.map(({ value }) => value));
      await run.checkpoint(messages, null, { turn: messages.filter(({ role }) => role === "assistant").length });
    }
  });
}

async function act(run, port, trip, call, answers) {
  const message = { role: "tool", tool: call.tool, arguments: call.arguments };
  try {
    const { result, callId } = await run.call(call.tool, call.arguments, { key: call.key }, async () => {
      const reply = await ask(port, requestOf(trip, call));
      if (!reply) throw new Unknown("the desk did not answer");
      if (reply.refused) throw new Failed(reply.refused.kind, reply.refused.message);
      return reply.ok;
    });
    appendFileSync(answers, `${JSON.stringify({ run: run.id, call: callId, result })}\n`);
    return { ...message, heard: { result } };
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    return { ...message, heard: { error: { kind: error.kind, message: error.text } } };
  }
}

const lines = createInterface(process.stdin);
lines.on("close", () => process.exit(BROKEN));
lines.once("line", async (line) => {
  try {
    await work(JSON.parse(line));
    process.exit(DONE);
  } catch (error) {
    if (error instanceof ReconcileRequired) process.exit(RECONCILE);
    // The server that it asked was killed. Another process continues.
    if (error instanceof Unavailable && error.action === "retry") process.exit(UNAVAILABLE);
    console.error(error);
    process.exit(BROKEN);
  }
});

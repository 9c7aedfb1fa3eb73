// A LangChain.js agent that is killed in the middle of a tool call, and a second process that continues: run it twice, with a server
// (`runlog serve --local --data ./runlog-data`). The model is a script.
//
// The first tool has run and is not run again. The second tool was interrupted and has a key, so it runs again under that key.
import { AIMessage, HumanMessage } from "@langchain/core/messages";
import { createAgent, fakeModel, tool } from "langchain";
import { connect } from "runlog-client";
import { runlogMiddleware } from "runlog-client/langchain";
import { RunlogSaver } from "runlog-client/langgraph";
import { z } from "zod";

const server = process.env.RUNLOG_SERVER ?? "http://127.0.0.1:7070";
const thread = process.env.THREAD ?? "trip-7";

const find = tool(({ to }) => {
  console.log(`find ${to}`);
  return "HAT136";
}, { name: "find", description: "Finds a flight.", schema: z.object({ to: z.string() }) });
const book = tool(({ flight }) => {
  console.log(`book ${flight}`);
  if (process.env.DIE) process.kill(process.pid, "SIGKILL"); // the answer never arrives
  return "B-1009";
}, { name: "book", description: "Books a flight.", schema: z.object({ flight: z.string() }) });

// Answers by the number of messages that it is given.
const steps = {
  1: new AIMessage({ content: "", tool_calls: [{ name: "find", args: { to: "LHR" }, id: "call-1", type: "tool_call" }] }),
  3: new AIMessage({ content: "", tool_calls: [{ name: "book", args: { flight: "HAT136" }, id: "call-2", type: "tool_call" }] }),
  5: new AIMessage("booked"),
};
const answer = (messages) => steps[messages.length];

const checkpointer = new RunlogSaver(server);
const config = { configurable: { thread_id: thread }, durability: "sync" };
// Beside the thread, which is a run of its own, the tools have a run: `allow`, because the agent does not make its finished calls again.
await connect(server, { agent: "travel-agent" }).run(`tools/${thread}`, async (run) => {
  const agent = createAgent({
    model: fakeModel().respond(answer).respond(answer).respond(answer),
    tools: [find, book],
    middleware: [runlogMiddleware(run, { key: (name, { flight }) => (name === "book" ? `trip-7-${flight}` : undefined) })],
    checkpointer,
  });
  const begun = await checkpointer.getTuple(config);
  const { messages } = await agent.invoke(begun ? null : { messages: [new HumanMessage("a flight to London")] }, config);
  console.log(messages.map((message) => message.text).filter(Boolean).join(" | "));
}, { onDivergence: "allow" });

// An agent of the OpenAI Agents SDK that is killed in the middle of a tool call, and a second process that continues: run it twice, with a
// server (`runlog serve --local --data ./runlog-data`). The model is a script.
//
// The first tool has run and is not run again. The second tool was interrupted and has a key, so it runs again under that key.
import { Agent, run, setTracingDisabled, tool } from "@openai/agents";
import { assistantMessage, functionCall, ScriptedModel } from "@openai/agents/testing";
import { connect } from "runlog-client";
import { recorded, RunlogSession } from "runlog-client/openai-agents";
import { z } from "zod";

setTracingDisabled(true);

const find = ({ to }) => {
  console.log(`find ${to}`);
  return "HAT136";
};
const book = ({ flight }) => {
  console.log(`book ${flight}`);
  if (process.env.DIE) process.kill(process.pid, "SIGKILL"); // the answer never arrives
  return "B-1009";
};

await connect(process.env.RUNLOG_SERVER ?? "http://127.0.0.1:7070", { agent: "travel-agent" }).run(process.env.THREAD ?? "trip-8", async (own) => {
  const tools = [
    tool(recorded(own, { name: "find", description: "Finds a flight.", parameters: z.object({ to: z.string() }), execute: find })),
    tool(recorded(own, { name: "book", description: "Books it.", parameters: z.object({ flight: z.string() }), execute: book },
      { key: ({ flight }) => `trip-8-${flight}` })),
  ];
  const model = new ScriptedModel([
    [functionCall("find", { to: "LHR" }, { callId: "call-1" })],
    [functionCall("book", { flight: "HAT136" }, { callId: "call-2" })],
    [assistantMessage("booked")],
  ]);
  const { finalOutput } = await run(new Agent({ name: "travel", model, tools }), "a flight to London", { session: new RunlogSession(own) });
  console.log(finalOutput);
});

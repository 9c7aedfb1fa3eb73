// A program of a user, which must compile.
import { generateText, stepCountIs, tool as aiTool, wrapLanguageModel, type LanguageModel } from "ai";
import { z } from "zod";
import { gated, recordedModel, stopped } from "../src/ai-sdk.js";
import { connect, Failed, tool, type Call, type Json, type Run } from "../src/index.js";

const book = tool("book_flight", { key: ({ city }: { city: string }) => `trip-${city}`, failedOn: RangeError }, async ({ city }, call: Call) => {
  if (city === "") throw new Failed("no_city");
  return { booking: `B-${city}`, attempt: call.attempt };
});

export async function program(): Promise<string> {
  const rl = connect(["http://127.0.0.1:7070"], { agent: "travel-agent" });
  await using run = await rl.open("trip-3", { unlessActiveMs: 30_000 });
  const booked = await book(run, { city: "LHR" }, { signal: AbortSignal.timeout(5_000) });
  const paid: number = await run.tool("pay", { sum: 10n ** 20n }, { retry: { attempts: 3 }, key: "k" }, () => 1);
  await run.checkpoint([{ role: "tool", content: booked.booking }], { paid });
  for await (const effect of rl.undecided()) await rl.decide(effect, "done", { who: "jo", why: "seen", result: null satisfies Json });
  return booked.booking;
}

export async function withAiSdk(run: Run, model: LanguageModel & object): Promise<void> {
  const tools = gated({ search: aiTool({ inputSchema: z.object({ q: z.string() }), execute: ({ q }) => q }) }, run);
  const wrapped = wrapLanguageModel({ model: model as Parameters<typeof wrapLanguageModel>[0]["model"], middleware: recordedModel(run) });
  await generateText({ model: wrapped, tools, prompt: "", stopWhen: [stepCountIs(3), stopped(tools)] });
}

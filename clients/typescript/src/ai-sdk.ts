// The AI SDK (package `ai`): tools and answers of models through the gate of a run.
//
//   model answers ─▶ recorded ─▶ tool call with its `toolCallId` ─▶ gate ─▶ result ─▶ model …
//   a later process asks for the same answers and calls, and the journal has them
//
// The model's id of a call and its input identify the call, unless it has a key.

import type { Call } from "./call.js";
import type { Kinds } from "./ends.js";
import { RunlogError } from "./errors.js";
import { argsSha256 } from "./json.js";
import type { Run } from "./run.js";
import { argumentsJson } from "./values.js";

/** The part of a tool that the gate needs. */
type ToolSet = { [name: string]: { execute?: (input: any, options: any) => unknown } };

export interface GatedOptions {
  /** The idempotency key of a call; `undefined` for a call without one. */
  key?: (name: string, input: any) => string | null | undefined;
  /** The names of tools to record; others are called plainly. Default: all. */
  only?: readonly string[];
  /** The names of tools that may run any number of times, such as tools that only read. */
  repeatable?: readonly string[];
  /** Errors after which the effect did not happen and will not. After any other error it may have happened. */
  failedOn?: Kinds;
}

/** The first error of the journal, by the tools that it stopped. */
const stops = new WeakMap<object, RunlogError>();

/** The same tools, whose calls go through the gate of a run. `execute` gets the call as `runlog` of its options, for the key to pass
 * on. Tools without `execute` stay as they are.
 *
 * The SDK reports each error of a tool to the model. So name `stopped(tools)` in `stopWhen`, and call `throwIfStopped(tools)` after the
 * loop: a call that waits for a decision is nothing that a model can mend. */
export function gated<T extends ToolSet>(tools: T, run: Run, options: GatedOptions = {}): T {
  const wrapped: ToolSet = {};
  for (const [name, tool] of Object.entries(tools)) {
    const isGated = tool.execute && (options.only?.includes(name) ?? true);
    wrapped[name] = isGated ? { ...tool, execute: (input, of) => execute(name, tool, input, of) } : tool;
  }

  async function execute(name: string, tool: ToolSet[string], input: unknown, of: { toolCallId: string; abortSignal?: AbortSignal }) {
    const key = options.key?.(name, input) ?? undefined;
    // With a key the model's id of the call is not needed: the key identifies the call.
    const args = key === undefined ? { id: of.toolCallId, args: input } : input;
    const calling = { key, unique: true, repeatable: options.repeatable?.includes(name), failedOn: options.failedOn, signal: of.abortSignal };
    try {
      return await run.tool(name, args, calling, (runlog: Call) => lastOf(tool.execute!(input, { ...of, runlog })));
    } catch (error) {
      if (error instanceof RunlogError && !stops.has(wrapped)) stops.set(wrapped, error);
      throw error;
    }
  }
  return wrapped as T;
}

/** The result of a tool; the last one of a tool that yields preliminary results. */
async function lastOf(result: unknown): Promise<unknown> {
  const found = await result;
  if (typeof found !== "object" || found === null || !(Symbol.asyncIterator in found)) return found;
  let last: unknown;
  for await (const each of found as AsyncIterable<unknown>) last = each;
  return last;
}

/** A condition for `stopWhen`: the journal stopped a call of the tools. */
export const stopped = (tools: object) => (): boolean => stops.has(tools);

/** Throws the error of the journal that stopped a call of the tools, if there is one. */
export function throwIfStopped(tools: object): void {
  const error = stops.get(tools);
  if (error) throw error;
}

/** A middleware for `wrapLanguageModel`: the journal has the model's answers by prompt, so a later process gets the same answers, with
 * the same ids of calls. Streams are not recorded. */
export function recordedModel(run: Run, name = "language_model") {
  return {
    specificationVersion: "v3" as const,
    wrapGenerate: async <R>({ doGenerate, params }: { doGenerate: () => PromiseLike<R>; params: { prompt: unknown } }): Promise<R> => {
      const prompt = argumentsJson(params.prompt);
      try {
        // To ask a model again does no harm, so the prompt itself is the key.
        const recorded = await run.tool(name, prompt, { key: argsSha256(prompt) }, async () => {
          const { content, finishReason, usage, warnings, providerMetadata } = (await doGenerate()) as { [name: string]: unknown };
          // Requests and responses have headers, and times that are not those of this process.
          return { content, finishReason, usage, warnings, providerMetadata };
        });
        return recorded as R;
      } catch (error) {
        // The SDK knows by the model's own error whether to try again.
        if (error instanceof RunlogError && error.happened === "unrecorded" && error.cause instanceof Error) throw error.cause;
        throw error;
      }
    },
  };
}

// The AI SDK (package `ai`): tools and answers of models through the gate of a run.
//
//   model answers ─▶ recorded ─▶ tool call with its `toolCallId` ─▶ gate ─▶ result ─▶ model …
//   a later process asks for the same answers and calls, and the journal has them
//
// The model's id of a call and its input identify the call, unless it has a key. A model that is asked again gives other ids; the gate
// then throws `Diverged`, because recorded calls are not asked for.

import type { Call } from "./call.js";
import type { Kinds } from "./ends.js";
import { checkNames, Conflict, RunlogError, Usage } from "./errors.js";
import { argsSha256, encode } from "./json.js";
import type { Run } from "./run.js";
import { argumentsJson, base64 } from "./values.js";

/** The part of a tool that the gate needs. */
type ToolSet = { [name: string]: { execute?: (input: any, options: any) => unknown } };

/** The part of the options of `execute` that the gate needs. */
interface Executing {
  toolCallId: string;
  /** The conversation before the message with the call. */
  messages?: readonly { role: string; content: unknown }[];
  abortSignal?: AbortSignal;
}

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

/** The first error of the journal that stopped a call of the tools that were made together. */
interface Stop {
  error: RunlogError | undefined;
}
const stops = new WeakMap<object, Stop>();

/** The same tools, whose calls go through the gate of a run. `execute` gets the call as `runlog` of its options, for the key to pass
 * on. Tools without `execute` stay as they are.
 *
 * The SDK reports each error of a tool to the model. So name `stopped(tools)` in `stopWhen`, and call `throwIfStopped(tools)` after the
 * loop: a call that waits for a decision is nothing that a model can mend. */
export function gated<T extends ToolSet>(tools: T, run: Run, options: GatedOptions = {}): T {
  checkNames(options);
  const wrapped: ToolSet = {};
  const stop: Stop = { error: undefined };
  /** The calls of each message, by the conversation before it. */
  const seen = new WeakMap<object, Set<string>>();
  for (const [name, tool] of Object.entries(tools)) {
    const isGated = tool.execute && (options.only?.includes(name) ?? true);
    wrapped[name] = isGated ? { ...tool, execute: (input, of) => execute(name, tool, input, of) } : tool;
    if (isGated) stops.set(wrapped[name], stop);
  }

  async function execute(name: string, tool: ToolSet[string], input: unknown, of: Executing) {
    try {
      const key = options.key?.(name, input) ?? undefined;
      // With a key the model's id of the call is not needed: the key identifies the call.
      const args = key === undefined ? identified(name, input, of) : input;
      const calling = { key, unique: true, repeatable: options.repeatable?.includes(name), failedOn: options.failedOn, signal: of.abortSignal };
      return await run.tool(name, args, calling, (runlog: Call) => lastOf(tool.execute!(input, { ...of, runlog })));
    } catch (error) {
      if (error instanceof RunlogError) stop.error ??= error;
      throw error;
    }
  }

  /** The arguments with the model's id. Some model servers begin their ids anew in each answer, as `call_0`: then with the number of
   * the call, so that the journal does not answer it as the earlier call. */
  function identified(name: string, input: unknown, { toolCallId: id, messages = [] }: Executing): unknown {
    const args = { id, args: input };
    const calls = seen.get(messages) ?? new Set();
    seen.set(messages, calls);
    const own = encode([name, argumentsJson(args)]);
    if (calls.has(own)) {
      const message =
        `the model made the same call of ${name} twice in one message, with the same id ${JSON.stringify(id)}: the second one did not run. ` +
        "Give the tool a key, or use a model server whose ids differ";
      throw new Conflict(message, { action: "fix_the_input", runId: run.id });
    }
    calls.add(own);
    const nth = 1 + messages.filter((message) => hasCall(message.content, id, name)).length;
    return nth > 1 ? { ...args, nth } : args;
  }
  return wrapped as T;
}

const hasCall = (content: unknown, id: string, name: string): boolean =>
  Array.isArray(content) && content.some((part) => part?.type === "tool-call" && part.toolCallId === id && part.toolName === name);

/** The result of a tool; the last one of a tool that yields preliminary results. */
async function lastOf(result: unknown): Promise<unknown> {
  const found = await result;
  if (typeof found !== "object" || found === null || !(Symbol.asyncIterator in found)) return found;
  let last: unknown;
  for await (const each of found as AsyncIterable<unknown>) last = each;
  return last;
}

const stopsOf = (tools: object): Stop[] => Object.values(tools).flatMap((tool) => stops.get(tool as object) ?? []);

/** A condition for `stopWhen`: the journal stopped a call of the tools, which may be of several `gated`. */
export const stopped = (tools: object) => (): boolean => stopsOf(tools).some((stop) => stop.error);

/** Throws the error of the journal that stopped a call of the tools, if there is one. The tools can then be used again. */
export function throwIfStopped(tools: object): void {
  const found = stopsOf(tools);
  const error = found.find((stop) => stop.error)?.error;
  for (const stop of found) stop.error = undefined;
  if (error) throw error;
}

/** The part of the SDK's argument of `wrapGenerate` that the gate needs. */
interface Asking<R> {
  doGenerate: () => PromiseLike<R>;
  params: { prompt: unknown; abortSignal?: unknown; headers?: unknown };
  model: { provider: string; modelId: string };
}

/** The numbers of questions that this process asked, by run and question. */
const asked = new WeakMap<Run, Map<string, Set<number>>>();

/** A middleware for `wrapLanguageModel`: the journal has the answers of the models, so a later process gets the same answers, with the
 * same ids of calls. The model and all its parameters identify a question, and its number if it is asked again. Streams are not
 * recorded.
 *
 * Throws `Usage` for a connection with a `Redaction`: a redacted answer would make other calls. */
export function recordedModel(run: Run, name = "language_model") {
  if (run.isRedacted) {
    throw new Usage(
      "recordedModel does not work with a Redaction: the recorded answers of the model would be redacted, and a later process would " +
        "make their calls with redacted arguments. Leave recordedModel out, and give the tools keys",
    );
  }
  return {
    specificationVersion: "v3" as const,
    wrapGenerate: async <R>({ doGenerate, params, model }: Asking<R>): Promise<R> => {
      // An abort and the headers, which have credentials, do not change the answer.
      const { abortSignal: _, headers: __, ...parameters } = params;
      const args = argumentsJson({ provider: model.provider, model: model.modelId, ...parameters });
      const question = argsSha256(args);
      const numbers = numbersOf(run, `${name} ${question}`);
      for (;;) {
        const number = nextOf(numbers);
        numbers.add(number);
        const key = number === 1 ? question : `${question}-${number}`;
        try {
          // To ask a model again does no harm.
          const { result, callId } = await run.call(name, args, { key, repeatable: true }, () => answerOf(doGenerate));
          // The question was asked before the checkpoint at which this process resumes.
          if (run.isCovered(callId)) continue;
          return result as R;
        } catch (error) {
          numbers.delete(number);
          // The SDK knows by the model's own error whether to try again.
          if (error instanceof RunlogError && error.happened === "unrecorded" && error.cause instanceof Error) throw error.cause;
          throw error;
        }
      }
    },
  };
}

function numbersOf(run: Run, question: string): Set<number> {
  const questions = asked.get(run) ?? new Map<string, Set<number>>();
  asked.set(run, questions);
  const numbers = questions.get(question) ?? new Set();
  questions.set(question, numbers);
  return numbers;
}

/** The least number that is free: a question without an answer is asked again. */
function nextOf(numbers: ReadonlySet<number>): number {
  let number = 1;
  while (numbers.has(number)) number++;
  return number;
}

/** The model's answer as JSON. */
async function answerOf(doGenerate: () => PromiseLike<unknown>): Promise<unknown> {
  // Requests and responses have headers, and times that are not those of this process.
  const { content, finishReason, usage, warnings, providerMetadata } = (await doGenerate()) as { [name: string]: unknown };
  const parts = content as readonly { data?: unknown }[];
  const text = parts.map((part) => (part.data instanceof Uint8Array ? { ...part, data: base64(part.data) } : part));
  return { content: text, finishReason, usage, warnings, providerMetadata };
}

// The tools of a LangChain.js agent, or of a LangGraph.js graph, through the gate of a run.
//
// The model's id of a call and its arguments identify the call. So a graph that runs its tools again, after a crash or an interruption in
// the same process, gets the recorded answers. Run it with `durability: "sync"`: then its checkpoint has the model's message before a
// tool runs.

import { AIMessage, ToolMessage } from "@langchain/core/messages";
import { Command, isCommand, Send } from "@langchain/langgraph";
import { createMiddleware } from "langchain";
import type { Call } from "./call.js";
import type { Kinds } from "./ends.js";
import { checkNames, Invalid } from "./errors.js";
import { isObject, type Json } from "./json.js";
import { dump, load } from "./langgraph/pieces.js";
import { StrictSerializer } from "./langgraph/serde.js";
import { identified, type ModelMessage } from "./model-calls.js";
import type { Run } from "./run.js";

export interface ToolOptions {
  /** The idempotency key of a call; `undefined` for a call without one. */
  key?: (name: string, args: any) => string | null | undefined;
  /** The names of tools to record; others are called plainly. Default: all. */
  only?: readonly string[];
  /** The names of tools that may run any number of times, such as tools that only read. */
  repeatable?: readonly string[];
  /** Errors after which the effect did not happen and will not. After any other error it may have happened. */
  failedOn?: Kinds;
}

interface ToolCall {
  readonly id?: string;
  readonly name: string;
  readonly args: any;
}
type ToolAnswer = ToolMessage | Command;

const serde = new StrictSerializer();

/** A middleware for `createAgent`: its tools go through the gate. An error of the gate ends the agent, and LangChain throws it as the cause
 * of its own error: `journalError` finds it. */
export function runlogMiddleware(run: Run, options: ToolOptions = {}) {
  checkNames(options);
  return createMiddleware({
    name: "RunlogMiddleware",
    wrapToolCall: async (request, handler) => {
      const { toolCall, state, runtime } = request;
      if (!isGated(toolCall.name, options)) return handler(request);
      return gatedCall(run, options, toolCall, state, runtime.signal, async () => (await handler(request)) as ToolAnswer);
    },
  });
}

/** The part of a tool that the gate needs. */
interface Invokable {
  name: string;
  invoke: (input: any, config?: any) => Promise<any>;
}

/** The same tools, whose calls by a model go through the gate: for a `ToolNode` of LangGraph.js. Make it with `handleToolErrors: false`:
 * otherwise it reports errors of the gate to the model. */
export function gated<T extends Invokable>(tools: readonly T[], run: Run, options: ToolOptions = {}): T[] {
  checkNames(options);
  return tools.map((tool) => {
    if (!isGated(tool.name, options)) return tool;
    const invoke = async (input: any, config?: any) => {
      // Another program calls the tool with its arguments alone.
      const toolCall: ToolCall = input?.type === "tool_call" ? input : { name: tool.name, args: input };
      const state = config?.state ?? config?.configurable?.__pregel_scratchpad?.currentTaskInput;
      return gatedCall(run, options, toolCall, state, config?.signal, async () => answerOf(await tool.invoke(input, config), toolCall));
    };
    return Object.create(tool, { invoke: { value: invoke } }) as T;
  });
}

const isGated = (name: string, { only }: ToolOptions): boolean => only?.includes(name) ?? true;

/** The answer of a tool that was called with a call, as `ToolNode` converts it. */
function answerOf(output: unknown, { id, name }: ToolCall): ToolAnswer {
  if (ToolMessage.isInstance(output) || isCommand(output)) return output as ToolAnswer;
  return new ToolMessage({ name, content: typeof output === "string" ? output : JSON.stringify(output), tool_call_id: id ?? "" });
}

async function gatedCall(
  run: Run, options: ToolOptions, call: ToolCall, state: unknown, signal: AbortSignal | undefined, effect: () => Promise<ToolAnswer>,
): Promise<ToolAnswer> {
  const { name, args } = call;
  const key = options.key?.(name, args) ?? undefined;
  // With a key the model's id of the call is not needed: the key identifies the call.
  const recorded = key === undefined ? identified(run, { id: call.id, tool: name }, args, modelMessages(state)) : args;
  const calling = { key, unique: true, repeatable: options.repeatable?.includes(name), failedOn: options.failedOn, signal };
  let answer: ToolAnswer | undefined;
  try {
    const result = await run.tool(name, recorded, calling, async (_: Call) => {
      answer = await answered(call, effect);
      return encoded(answer);
    });
    return answer ?? (await decoded(result, call));
  } catch (error) {
    // The graph runs the tool again when the interrupt is answered, if the tool has a key or is repeatable.
    if (calling.repeatable || key !== undefined) throw interruptOf(error) ?? error;
    throw error;
  }
}

/** Arguments that the tool refused are an answer for the model: the tool did nothing. */
async function answered(call: ToolCall, effect: () => Promise<ToolAnswer>): Promise<ToolAnswer> {
  try {
    return await effect();
  } catch (error) {
    const isRefused = error instanceof Error && (Reflect.get(error, "~brand") === "ToolInvocationError" || error.name === "ToolInputParsingException");
    if (!isRefused) throw error;
    const content = `The tool did nothing: ${(error as Error).message.split("\n")[0]}`;
    return new ToolMessage({ name: call.name, content, tool_call_id: call.id ?? "", status: "error" });
  }
}

const interruptOf = (error: unknown): Error | undefined =>
  error instanceof Error && error.cause instanceof Error && Reflect.get(error.cause, "is_bubble_up") === true ? error.cause : undefined;

/** The model's messages in the state of a graph. */
function modelMessages(state: unknown): ModelMessage[] {
  const messages: unknown = Array.isArray(state) ? state : (state as { messages?: unknown } | undefined)?.messages;
  const every = Array.isArray(messages) ? messages.filter((message) => AIMessage.isInstance(message)) : [];
  return every.map(({ id, tool_calls = [] }) => ({ id, calls: tool_calls.map((call) => ({ id: call.id, tool: call.name })) }));
}

/** The answer of a tool as JSON. A value that has no JSON is returned as it is: the call then ends without its result. */
async function encoded(answer: ToolAnswer): Promise<unknown> {
  try {
    if (isCommand(answer)) {
      const { update, goto, graph, resume } = answer as Command;
      const sends = (Array.isArray(goto) ? goto : goto === undefined ? [] : [goto]).map((each: any) =>
        typeof each === "string" ? each : { node: each.node, args: each.args });
      return { command: await dump(serde, { update, goto: sends, graph, resume }, "the command of a tool") };
    }
    const { content, status, name, artifact } = answer as ToolMessage;
    if (artifact === undefined) return { content, ...(status && { status }), ...(name && { name }) };
    return { serialized: await dump(serde, answer, "the answer of a tool") };
  } catch (error) {
    return new Unrecordable(error);
  }
}

/** Has no JSON, so the gate ends its call with a marker that names the type. */
class Unrecordable {
  constructor(readonly cause: unknown) {}
}

async function decoded(recorded: unknown, { id, name }: ToolCall): Promise<ToolAnswer> {
  const what = `the recorded answer of ${name}`;
  const members = isObject(recorded as Json) ? (recorded as { [member: string]: any }) : {};
  if ("command" in members) {
    const { goto, ...rest } = await load(serde, members["command"], what);
    const places = (goto as (string | { node: string; args: unknown })[]).map((each) => (typeof each === "string" ? each : new Send(each.node, each.args)));
    return new Command({ ...rest, goto: places });
  }
  if ("serialized" in members) {
    const message: unknown = await load(serde, members["serialized"], what);
    if (!ToolMessage.isInstance(message)) throw new Invalid(`${what} is not an answer of a tool`);
    return message;
  }
  if (!("content" in members)) throw new Invalid(`${what} is not of the form {"content": …, "status": "success", "name": …}`);
  return new ToolMessage({ content: members["content"], status: members["status"], name: members["name"] ?? name, tool_call_id: id ?? "" });
}

// The OpenAI Agents SDK for JavaScript: tools through the gate of a run, and `RunlogSession`, which keeps a conversation in that run.
//
// The items of the session are the messages of the run's checkpoints: each is written once, and a checkpoint covers the calls that it
// contains. This file does not import the SDK. A call in a later turn with the same arguments is new, and the journal answers
// a call of an interrupted turn. The model's ids of calls are not used: some model servers repeat them.

import type { Call, Calling } from "./call.js";
import { Failed, RunlogError, Usage } from "./errors.js";
import type { Json } from "./json.js";
import { Permits } from "./locks.js";
import type { Run } from "./run.js";
import { toJson } from "./values.js";

/** An item of the SDK. */
type AgentInputItem = any;

/** The state of a checkpoint of a session. */
const STATE = { openai_agents_session: 1 };
/** Milliseconds that an operation of a session waits for the earlier ones. */
const WAIT_MAX = 60_000;

/** The part of the options of the SDK's `tool` that the gate needs. */
interface SdkOptions {
  name?: string;
  execute: (input: any, context?: any, details?: any) => unknown;
  errorFunction?: ((context: any, error: any, details?: any) => any) | null;
}

export interface RecordedOptions extends Omit<Calling, "key" | "unique"> {
  /** The idempotency key of a call, from its input; `undefined` for a call without one. */
  key?: (input: any) => string | null | undefined;
}

/** The options of a tool of the SDK, whose calls go through the gate of a run: `tool(recorded(run, { name, parameters, execute }))`.
 * `execute` gets the call as `runlog` of its details, for the key to pass on.
 *
 * An error of the gate ends the run of the agent with the SDK's `ToolCallError`; `journalError` finds it. The model reads about input that
 * does not fit, and about `Failed`, with which the tool itself says that its effect did not happen; `errorFunction` may word that. */
export function recorded<O extends SdkOptions>(run: Run, options: O, { key, ...calling }: RecordedOptions = {}): O {
  const name = options.name ?? options.execute.name;
  if (!name) throw new Usage("a tool that is recorded needs a name: pass `name`");
  const execute = (input: unknown, context: unknown, details?: { signal?: AbortSignal }) => {
    const withKey = { ...calling, key: key?.(input) ?? undefined, signal: details?.signal };
    return run.tool(name, input, withKey, (runlog: Call) => options.execute(input, context, { ...details, runlog }));
  };
  const errorFunction = (context: unknown, error: unknown, details?: unknown) => {
    const didNothing = error instanceof Failed || (error instanceof Error && error.name === "InvalidToolInputError");
    if (error instanceof RunlogError || !didNothing || options.errorFunction === null) throw error;
    // The SDK's own answer hides the reason, and asks to try again.
    return options.errorFunction ? options.errorFunction(context, error, details) : `The tool did nothing: ${(error as Error).message}`;
  };
  return { ...options, execute, errorFunction };
}

/** The items of a handle, which all its sessions share: `run.recovery` stays as of the claim. */
interface Conversation {
  items: readonly Json[];
  readonly lock: Permits;
}
const conversations = new WeakMap<Run, Conversation>();

/** A `Session` of the SDK, on a run that this process claimed. All sessions of a handle have the same items, so that each turn may make its own.
 *
 * The run belongs to the session: nothing else may take checkpoints of it. Tools of its turns go through the gate of the same run. */
export class RunlogSession {
  readonly #conversation: Conversation;

  constructor(readonly run: Run) {
    const known = conversations.get(run) ?? { items: run.recovery.messages, lock: new Permits(1) };
    conversations.set(run, known);
    this.#conversation = known;
  }

  async getSessionId(): Promise<string> {
    return this.run.id;
  }

  /** The items, oldest first; with a limit, the latest items. */
  getItems(limit?: number): Promise<any[]> {
    return this.#locked(async (items) => structuredClone(limit === undefined ? [...items] : items.slice(items.length - Math.min(limit, items.length))));
  }

  /** Adds items, which are in the log when this returns. Throws `Fenced` if another process has the run. */
  async addItems(items: AgentInputItem[]): Promise<void> {
    const added = items.map((item) => toJson(item));
    if (added.length) await this.#locked((before) => this.#write([...before, ...added]));
  }

  /** Removes the latest item and returns it. */
  popItem(): Promise<AgentInputItem | undefined> {
    return this.#locked(async (items) => {
      if (items.length) await this.#write(items.slice(0, -1));
      return structuredClone(items.at(-1));
    });
  }

  /** Removes all items from answers. Their bytes stay in the log. */
  async clearSession(): Promise<void> {
    await this.#locked(async (items) => (items.length ? this.#write([]) : undefined));
  }

  async #write(items: readonly Json[]): Promise<void> {
    await this.run.checkpoint(items, STATE);
    this.#conversation.items = items;
  }

  async #locked<T>(operation: (items: readonly Json[]) => Promise<T>): Promise<T> {
    const { lock } = this.#conversation;
    if (!(await lock.acquire(WAIT_MAX))) throw new Usage(`an earlier operation of the session ${this.run.id} has not ended`);
    try {
      return await operation(this.#conversation.items);
    } finally {
      lock.release();
    }
  }
}

// Calls of tools that a model identifies by an id. Some model servers begin their ids anew in each answer, as `call_0`.
//
//   message 1   call_0 of pay ─▶ {id, args}             A message is counted if it calls the tool with the id, whatever the
//   message 2   call_0 of pay ─▶ {id, args, nth: 2}     arguments: texts that differ may be validated to equal arguments.

import { Conflict } from "./errors.js";
import { encode } from "./json.js";
import type { Run } from "./run.js";
import { sha256Hex } from "./sha256.js";
import { argumentsJson } from "./values.js";

/** A call in a message of a model. */
export interface ModelCall {
  readonly id: string | undefined;
  readonly tool: string;
}

/** A message of a model. */
export interface ModelMessage {
  /** Absent if the message has none. */
  readonly id: string | undefined;
  readonly calls: readonly ModelCall[];
}

/** The messages that first asked for the calls of a handle, by the recorded arguments. */
const asking = new WeakMap<Run, Map<string, string>>();

/** The arguments to record for a call, with its id. If earlier messages of the conversation call the same tool with the same id, they
 * include the number of the call's message among them, so that the journal does not answer it as an earlier call.
 *
 * Throws `Conflict` if a message calls the tool twice with the id: the results would be ambiguous. Throws it also if another message of
 * the process asked for the same call: the program has removed messages, whose calls are not counted any more. */
export function identified(run: Run, call: ModelCall, args: unknown, messages: readonly ModelMessage[]): unknown {
  const { id, tool } = call;
  const counts = messages.map(({ calls }) => calls.filter((each) => each.id === id && each.tool === tool).length);
  // The call belongs to the last message that contains it.
  const last = counts.findLastIndex((count) => count > 0);
  if ((counts[last] ?? 0) > 1) {
    const message =
      `the model made two calls of ${tool} in one message with the same id ${JSON.stringify(id)}: neither ran. Give the tool a key, or use ` +
      "a model server whose ids differ";
    throw new Conflict(message, { action: "fix_the_input", runId: run.id });
  }
  const nth = counts.filter((count) => count > 0).length;
  const recorded = { id: id ?? null, args, ...(nth > 1 && { nth }) };
  const asker = messages[last]?.id;
  if (asker !== undefined) checkAsker(run, call, recorded, asker);
  return recorded;
}

function checkAsker(run: Run, { id, tool }: ModelCall, recorded: unknown, asker: string): void {
  const askers = asking.get(run) ?? new Map<string, string>();
  asking.set(run, askers);
  const identity = sha256Hex(encode([tool, argumentsJson(recorded)]));
  const first = askers.get(identity) ?? asker;
  askers.set(identity, first);
  if (first === asker) return;
  const message =
    `two messages of the model ask for the same call of ${tool} in run ${run.id}, with the same id ${JSON.stringify(id)}: the later call did ` +
    "not run. They belong to two conversations, or messages between them were removed. Give the tool a key, or the model all messages";
  throw new Conflict(message, { action: "fix_the_input", runId: run.id });
}

// Makes the errors of the gate for a call: it may have happened, its answer is not there, or its effect ran.

import type { LostContent, Pending } from "./answers.js";
import {
  MissingContent, ReconcileRequired, ResultNotRecorded, Stale, Unavailable, type Happened, type Marker, type RunlogError,
} from "./errors.js";
import { pendingCall, type PendingCall } from "./replay.js";

/** A word of a POSIX shell. */
const shellWord = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

/** The errors of the calls of a tool in a run. */
export class Refusals {
  constructor(readonly runId: string, readonly tool: string) {}

  /** Makes the error of a call that must be decided. `tool` names its tool if it is another one than this tool. */
  reconcile(call: string, why: string, pending?: PendingCall, tool = this.tool): ReconcileRequired {
    const message =
      `call ${call} of ${tool} in run ${this.runId} is pending: ${why}; find out whether it happened, then decide: ${this.decision(call)}`;
    return new ReconcileRequired(message, call, pending?.evidence ?? [], { runId: this.runId });
  }

  /** The command that decides. */
  decision(call: string): string {
    const operands = [this.runId, call];
    const words = operands.map(shellWord).join(" ");
    const options = "--who NAME --why TEXT --done RESULT_AS_JSON";
    // Operands that begin with `-` follow `--`, after the options.
    const rest = operands.some((operand) => operand.startsWith("-")) ? `${options} -- ${words}` : `${words} ${options}`;
    return `\`runlog effects resolve ${rest}\`, or with \`--not-done\`, \`--adopt\` or \`--give-up\` in place of \`--done\``;
  }

  /** Makes the error of a call that has changed since its intent or attempt: a result arrived, or somebody decided about it. `now` is
   * its current state; `undefined` if it has ended. */
  changed(call: string, recordId: string, now: Pending | undefined): RunlogError {
    if (now && now.class !== "retry_safe") return this.reconcile(call, now.reason, pendingCall(now));
    const message =
      `call ${call} of ${this.tool} in run ${this.runId} has changed since record ${recordId}: its effect was not run; make the call again`;
    return new Stale(message, { runId: this.runId, recordId: call });
  }

  /** Makes the error of a call that is safe to repeat. */
  mayHaveHappened(call: string, why: string, safe: string): Unavailable {
    const message = `the effect of call ${call} of ${this.tool} may have happened: ${why}; ${safe}`;
    return new Unavailable(message, { happened: "unrecorded", runId: this.runId, recordId: call });
  }

  /** Makes the error of a call that ended with a marker in place of its result. */
  notRecorded(call: string, mark: Marker): ResultNotRecorded {
    const message = `call ${call} of ${this.tool} in run ${this.runId} is completed and was not run again; its result was not recorded`;
    return new ResultNotRecorded(`${message}: ${mark.message}`, mark, this.runId);
  }

  /** Makes the error of a call whose answer cannot be read. */
  answerLost(call: string, status: string, lost: readonly LostContent[]): RunlogError {
    const message = `call ${call} of ${this.tool} in run ${this.runId} is ${status} and was not run again; its recorded answer`;
    const details = { runId: this.runId, recordId: call };
    if (lost.length && lost.every((content) => content.reason === "unavailable")) return new Unavailable(`${message} cannot be read now`, details);
    const why = lost[0] ? `is ${lost[0].reason} in the content store` : "was removed by a retention horizon";
    return new MissingContent(`${message} ${why}`, details);
  }
}

/** Converts an error for a call whose effect ran. */
export function ran(error: RunlogError, request: string, happened: Happened): RunlogError {
  const what =
    happened === "held" ? "its result is held, and recorded by the next operation or by reopening the run"
    : happened === "evidence" ? "its result was left as evidence"
    : "its result could not be recorded";
  const copy = error.copy(`the effect of call ${request} ran; ${what}: ${error.message}`, happened);
  copy.recordId = request;
  return copy;
}

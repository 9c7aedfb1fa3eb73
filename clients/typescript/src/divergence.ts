// Detects a program that does not make the calls of the process before it.
//
//   recorded after the checkpoint   a  b  c
//   asked for by this process       a            then a new call x ─▶ `Diverged`: b and c were not asked for
//
// A program whose calls depend on nothing else makes the recorded calls again before it makes new calls, in any order. If it does
// not, as after a change of its arguments, its new call may repeat the effect of a recorded call. Calls that overlap may begin in
// another order each time, so a new call is only warned of while another call is in flight whose caller waits, or while two steps run.
// A unique call is never new because of the order: the id in its arguments is new.

import type { RecoveryAnswer } from "./answers.js";
import type { Api } from "./api.js";
import { sleep } from "./clock.js";
import { Diverged, Usage } from "./errors.js";
import { encode } from "./json.js";
import { byOrder, orderOf } from "./replay.js";

export type OnDivergence = "raise" | "allow";
/** The maximum number of calls that an error names with their arguments. */
const NAMED_MAX = 3;
const ARGUMENTS_MAX = 100;

export class Divergence {
  /** Recorded calls, by request, in the order of the requests. */
  readonly #expected = new Map<string, { tool: string; fingerprint: string | null | undefined }>();
  readonly #warned = new Set<string>();
  /** The names of tools that this handle called as repeatable: to leave out their recorded calls repeats no effect. */
  readonly #repeatable = new Set<string>();
  #hasReadFacts = false;

  constructor(readonly api: Api, readonly runId: string, readonly mode: OnDivergence) {
    if (mode !== "raise" && mode !== "allow") throw new Usage(`onDivergence is "raise" or "allow", not ${JSON.stringify(mode)}`);
  }

  /** Expects the calls that a recovery lists after its checkpoint. The process may leave out calls that did not happen, and pending
   * calls that are safe to repeat without a key. */
  expect(recovery: RecoveryAnswer, covered: number): void {
    const pending = recovery.pending.filter((call) => call.class !== "retry_safe" || call.idempotency_key);
    const found = [...recovery.completed.filter((call) => call.status !== "failed"), ...pending];
    for (const call of found.sort((a, b) => byOrder(orderOf(a), orderOf(b)))) {
      const { id, journal_seq, tool_name: tool, fingerprint } = call;
      if (journal_seq > covered && tool) this.#expected.set(id, { tool, fingerprint });
    }
  }

  /** Notes the start of a call, before it waits for others. */
  noteCall(tool: string, repeatable: boolean): void {
    if (repeatable) this.#repeatable.add(tool);
  }

  /** Notes that this process asked for a recorded call. `beginsAtStart` if the checkpoint covers it, and the process did not read the
   * recovery. */
  noteAsked(tool: string, callId: string, beginsAtStart: boolean): void {
    this.#expected.delete(callId);
    if (!beginsAtStart) return;
    this.#warn(
      "covered",
      `the journal answers a call of ${tool} in run ${this.runId}, because this process did not read \`run.recovery\` and so begins at ` +
        `the run's start: call ${callId}, which the last checkpoint covers. Read \`run.recovery\` to resume at the checkpoint, where the ` +
        "same call is new, or open the run with fromStart: true",
    );
  }

  /** Expects no call any more: a checkpoint of this process covers them all. */
  forget(): void {
    this.#expected.clear();
  }

  /** Checks a new call of `tool` that may repeat the effect of another. Throws `Diverged` if recorded calls were not asked for, or
   * warns if calls overlap. `others` returns the fingerprints of the calls in flight beside it. */
  async check(tool: string, unique: boolean, steps: () => number, others: () => readonly (string | null | undefined)[]): Promise<void> {
    if (!this.#unasked().length) return;
    // Lets operations that were started together with this one begin their calls.
    await sleep(0);
    if (!this.#hasReadFacts && this.#unasked().length) {
      this.#hasReadFacts = true;
      for (const call of await this.api.repeatableCalls(this.runId, this.#unasked())) this.#expected.delete(call);
    }
    const beside = others();
    // Calls that wait for their turn may still ask.
    const isAsking = (id: string) => beside.includes(this.#expected.get(id)!.fingerprint);
    const unasked = this.#unasked().filter((id) => !unique || !isAsking(id));
    const first = unasked[0];
    if (first === undefined) return;
    if (!unique && (beside.length || steps() > 1)) {
      this.#warn(
        "unasked",
        `${tool} is a new call in run ${this.runId}, and ${unasked.length} recorded calls after the checkpoint were not asked for yet, ` +
          `such as call ${first} of ${this.#expected.get(first)!.tool}. Open a run whose calls are not made again with onDivergence: "allow"`,
      );
      return;
    }
    const named: string[] = [];
    for (const id of unasked.slice(0, NAMED_MAX)) {
      const call = await this.api.call(this.runId, id);
      named.push(`${call.tool_name}(${encode(call.arguments ?? null).slice(0, ARGUMENTS_MAX)}), call ${id}`);
    }
    const more = unasked.length > named.length ? `; and ${unasked.length - named.length} more` : "";
    const message =
      `${tool} is a new call in run ${this.runId}, and recorded calls after the checkpoint were not asked for: ${named.join("; ")}${more}. ` +
      "Nothing ran, because the new call may repeat one of them. Make them again first, with the same arguments, or open the run with " +
      'onDivergence: "allow"';
    throw new Diverged(message, unasked, this.runId);
  }

  #unasked(): string[] {
    if (this.mode === "allow") return [];
    return [...this.#expected].filter(([, { tool }]) => !this.#repeatable.has(tool)).map(([id]) => id);
  }

  #warn(kind: string, message: string): void {
    if (this.#warned.has(kind)) return;
    this.#warned.add(kind);
    this.api.config.warn(message);
  }
}

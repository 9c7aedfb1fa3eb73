// Errors: their kind, the caller's reaction (`action`), and the possible side effects (`happened`).

/** The caller's reaction. `reopen`: `run.reopen()`, or the next operation, looks up the records in the log. `stop`: another process
 * writes the run. `operator`: a person must investigate or decide. */
export type Action = "retry" | "fix_the_input" | "credentials" | "reopen" | "stop" | "operator";

/** The possible side effects of a failed operation.
 *
 * * `nothing`: no record was appended and no effect ran.
 * * `unknown`: a record may be in the log. No effect ran.
 * * `held`: the effect ran. The handle holds its result until its next operation or `run.reopen()` records it.
 * * `evidence`: the effect ran, and the run was lost or ended: the result is in the log as evidence for the decision on the call.
 * * `unrecorded`: the effect may have happened, and the log does not contain its result: the call stays pending. */
export type Happened = "nothing" | "unknown" | "held" | "evidence" | "unrecorded";

/** The members of a server's problem document (RFC 9457). */
export type Problem = Readonly<Record<string, unknown>>;

export interface ErrorDetails {
  action?: Action;
  happened?: Happened;
  runId?: string;
  recordId?: string;
  problem?: Problem;
  cause?: unknown;
}

const HIDDEN =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

const BLANK = new RegExp(`^[${HIDDEN.source.slice(1, -1)}\\s]*$`, "u");

/** Throws `Usage` for a value that is no text, and for a text with half a character, which no URL and no name in a record can have. */
export function checkText(what: string, text: unknown): void {
  if (typeof text !== "string") throw new Usage(`${what} is a text, not a value of type ${text === null ? "null" : typeof text}; pass a string`);
  if (!text.isWellFormed()) throw new Usage(`${what} has half a character (a lone surrogate): ${JSON.stringify(text)}`);
}

/** Throws `Usage` for names of tools that are not in an array: in a text, `includes` would find each part as a name. */
export function checkNames(options: { only?: unknown; repeatable?: unknown }): void {
  for (const option of ["only", "repeatable"] as const) {
    const names = options[option];
    if (names !== undefined && !(Array.isArray(names) && names.every((name) => typeof name === "string"))) {
      throw new Usage(`${option} is an array of names of tools, such as ["search"], not ${JSON.stringify(names)}`);
    }
  }
}

/** Whether a text has no visible character, by the rule of the server (schemas/src/hidden.rs). */
export const isBlank = (text: string): boolean => BLANK.test(text);

/** A text for people: characters that a terminal acts on, or that a person cannot see, are escaped. */
export const visible = (text: string): string => text.replace(HIDDEN, (found) => `\\u{${found.codePointAt(0)!.toString(16)}}`);

/** A failed operation on the journal. `kind` has the server's name for it. */
export class RunlogError extends Error {
  static readonly kind: string = "internal";
  static readonly action: Action = "operator";
  kind: string;
  action: Action;
  happened: Happened;
  runId: string | undefined;
  recordId: string | undefined;
  /** Whether the request never reached a server. */
  wasNotSent = false;
  /** The members of the server's problem document, such as `topic`, `partition`, `offset` and `lag`. */
  problem: Problem;

  constructor(message: string, details: ErrorDetails = {}) {
    super(visible(message), details.cause === undefined ? undefined : { cause: details.cause });
    const { kind, action, name } = new.target;
    this.name = name;
    this.kind = kind;
    this.action = details.action ?? action;
    this.happened = details.happened ?? "nothing";
    this.problem = details.problem ?? {};
    this.runId = details.runId;
    this.recordId = details.recordId ?? (this.problem["record_id"] as string | undefined);
  }

  /** The same error for another operation, or with more context. */
  copy(message: string = this.message, happened: Happened = "nothing"): this {
    const copy = Object.create(Object.getPrototypeOf(this) as object, Object.getOwnPropertyDescriptors(this)) as this;
    Object.defineProperty(copy, "message", { value: visible(message), configurable: true, writable: true });
    copy.happened = happened;
    copy.cause = this;
    return copy;
  }
}

/** The request is wrong. Nothing was appended. */
export class Invalid extends RunlogError {
  static override readonly kind: string = "invalid";
  static override readonly action: Action = "fix_the_input";
}
/** The request is not valid, or the configuration is wrong. */
export class Usage extends Invalid {
  static override readonly kind = "usage";
}
/** The server requires a token or a client certificate, or does not accept the credential that was sent. */
export class Unauthenticated extends RunlogError {
  static override readonly kind = "unauthenticated";
  static override readonly action = "credentials";
}
/** The server does not allow this. Nothing happened. */
export class Forbidden extends RunlogError {
  static override readonly kind = "forbidden";
  static override readonly action = "credentials";
}
/** The resource does not exist. */
export class NotFound extends RunlogError {
  static override readonly kind = "not_found";
  static override readonly action = "fix_the_input";
}
/** The record, or the checkpoint's list, is too large. Nothing was appended. */
export class TooLarge extends RunlogError {
  static override readonly kind = "too_large";
  static override readonly action = "fix_the_input";
}
/** Another process claimed the run. */
export class ClaimLost extends RunlogError {
  static override readonly kind = "claim_lost";
  static override readonly action = "stop";
}
/** Another process took the run over; the journal refuses this process's records. */
export class Fenced extends RunlogError {
  static override readonly kind = "fenced";
  static override readonly action = "stop";
}
/** The journal knows more than the operation assumed, or the run has ended. */
export class Conflict extends RunlogError {
  static override readonly kind = "conflict";
  static override readonly action: Action = "reopen";
}

/** A new call without a key, although recorded calls after the checkpoint were not asked for: it may repeat one of them, as after a
 * change of its arguments. Nothing ran. `calls` are these recorded calls, oldest first. */
export class Diverged extends Conflict {
  static override readonly action = "fix_the_input";
  constructor(message: string, readonly calls: readonly string[], runId?: string) {
    super(message, { runId });
  }
}

/** Content that the journal refers to is lost or was removed. The effect was not run again. */
export class MissingContent extends RunlogError {
  static override readonly kind = "missing_content";
}

/** Why a call ended without its result: `type` and `bytes` are null if they are unknown. */
export interface Marker {
  readonly call: string;
  readonly reason: string;
  readonly message: string;
  readonly type: string | null;
  readonly bytes: number | null;
}

/** The call ended, and its result could not be recorded. The effect was not run again. The process that ran the effect has received
 * the result. */
export class ResultNotRecorded extends RunlogError {
  static override readonly kind = "result_not_recorded";
  constructor(message: string, readonly marker: Marker, runId?: string) {
    super(message, { runId, recordId: marker.call });
  }
}

/** The server is overloaded. Nothing happened. */
export class Overloaded extends RunlogError {
  static override readonly kind = "overloaded";
  static override readonly action = "retry";
  /** The seconds of the `Retry-After` header. */
  retryAfter: number | undefined;
}
/** A defect or a damaged index; see the server's log. */
export class Internal extends RunlogError {
  static override readonly kind = "internal";
}
/** The partition stopped at a record; an operator must act. */
export class PartitionStopped extends RunlogError {
  static override readonly kind = "partition_stopped";
}
/** The server did not answer, or refused the request for now. With the action `operator`, every named server reads a mirror of the
 * journal: name a server of the home. With the action `fix_the_input`, no named server holds the run's partition: name one of
 * `problem.not_here.instances`. Nothing happened in both cases. */
export class Unavailable extends RunlogError {
  static override readonly kind = "unavailable";
  static override readonly action: Action = "retry";
}
/** The index did not reach the requested freshness in time. */
export class Stale extends RunlogError {
  static override readonly kind = "stale";
  static override readonly action: Action = "retry";
}

/** The run was not taken over, because another process wrote to it a moment ago. `age` is the milliseconds since then. */
export class Active extends Unavailable {
  constructor(message: string, readonly writerId: string, readonly epoch: number, readonly age: number, runId: string) {
    super(message, { runId });
  }
}

/** The call may have happened, and repeating it is not safe. Investigate, then run `runlog effects resolve RUN CALL`.
 *
 * If `problem` has the reason `doubt`, the run may have done more than the journal knows, because the journal's home was lost. `call`
 * is then empty. `evidence` has the results that the journal refused and kept, oldest first. */
export class ReconcileRequired extends RunlogError {
  static override readonly kind = "reconcile_required";
  constructor(message: string, readonly call: string, readonly evidence: readonly unknown[] = [], details: ErrorDetails = {}) {
    super(message, { recordId: call, ...details });
  }
}

type Kind = new (message: string, details?: ErrorDetails) => RunlogError;
const KINDS = new Map<string, Kind>(
  [
    Invalid, Usage, Unauthenticated, Forbidden, NotFound, TooLarge, ClaimLost, Fenced, Conflict, MissingContent, Overloaded, Internal,
    PartitionStopped, Unavailable, Stale,
  ].map((kind) => [kind.kind, kind]),
);

/** Makes the error for a problem document with a `kind`. */
export function ofProblem(problem: Problem): RunlogError {
  const kind = String(problem["kind"]);
  const detail = String(problem["detail"] ?? problem["title"] ?? "");
  if (kind === ReconcileRequired.kind) return new ReconcileRequired(detail, String(problem["record_id"] ?? ""), [], { problem });
  const known = KINDS.get(kind);
  if (isNotHere(problem)) return new Unavailable(`${detail}; connect to one of these URLs`, { problem, action: "fix_the_input" });
  if (known) return new known(detail, isMirror(problem) ? { problem, action: "operator" } : { problem });
  const byStatus = problem["status"] === 401 ? Unauthenticated : problem["status"] === 403 ? Forbidden : RunlogError;
  const error = new byStatus(detail, { problem });
  error.kind = kind;
  return error;
}

/** Whether a server refused a request because it reads a mirror of the journal. The request had no effect, and only a server of the
 * home accepts it. */
export const isMirror = (problem: Problem): boolean => problem["kind"] === Unavailable.kind && problem["reason"] === "mirror";

/** Whether a server refused a request because it does not hold the run's partition. The request had no effect; `instancesOf` has the
 * servers that accept it. */
export const isNotHere = (problem: Problem): boolean => problem["kind"] === Unavailable.kind && problem["reason"] === "not_here";

/** The URLs of the servers that hold the partition of a refused request. */
export function instancesOf(problem: Problem): string[] {
  const named = (problem["not_here"] as { instances?: unknown } | undefined)?.instances;
  return Array.isArray(named) ? named.filter((url) => typeof url === "string") : [];
}

/** Whether a server refused to continue a run that the journal's lost home may have continued. No record was appended. */
export const isDoubt = (error: RunlogError): boolean =>
  error.kind === ReconcileRequired.kind && error.problem["reason"] === "doubt";

const CAUSES_MAX = 64;

/** The error of the journal in an error of a framework, which wraps the errors of tools; `undefined` if there is none. */
export function journalError(error: unknown): RunlogError | undefined {
  const left = [error];
  for (let tries = 0; tries < CAUSES_MAX && left.length; tries++) {
    const found = left.shift();
    if (found instanceof RunlogError) return found;
    if (typeof found !== "object" || found === null) continue;
    const { cause, error: inner, errors } = found as { cause?: unknown; error?: unknown; errors?: unknown };
    left.push(cause, inner, ...(Array.isArray(errors) ? errors : []));
  }
  return undefined;
}

/** A tool throws it for a final failure: the effect did not happen. It is recorded, and the same call throws it again. */
export class Failed extends Error {
  /** Whether the failure comes from the journal, and the effect did not run now. */
  recorded = false;
  constructor(readonly kind: string, readonly text: string = "", options?: ErrorOptions) {
    super(text ? `${kind}: ${text}` : kind, options);
    this.name = "Failed";
  }
}

/** A tool throws it if it does not know whether the effect happened. Nothing is recorded, and the call stays pending. */
export class Unknown extends Error {
  constructor(readonly why: string) {
    super(why);
    this.name = "Unknown";
  }
}

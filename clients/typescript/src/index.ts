// The TypeScript client of Runlog: it claims a run, records what an agent does, and runs no effect twice unnoticed.
//
// Read: runlog (connections) → run (handles) → gate (one call) → session, settling (one operation after the other) → writer →
// api (requests) → servers, http. Beside the gate: leaving (callers that left), divergence (calls that are not made again).
// Adapters, each an entry of its own: ai-sdk, langgraph (threads), langchain (tools), openai-agents.

export type { Completed, Evidence, LookupAnswer, Pending } from "./answers.js";
export type { Settings } from "./config.js";
export type { OnDivergence } from "./divergence.js";
export type { Ends, Kinds } from "./ends.js";
export {
  Active, ClaimLost, Conflict, Diverged, Failed, Fenced, Forbidden, Internal, Invalid, MissingContent, NotFound, Overloaded, PartitionStopped,
  ReconcileRequired, ResultNotRecorded, RunlogError, Stale, TooLarge, Unauthenticated, Unavailable, Unknown, Usage,
} from "./errors.js";
export { journalError } from "./errors.js";
export type { Action, Happened, Marker, Problem } from "./errors.js";
export type { Answer, Call, Calling, Retry } from "./call.js";
export type { Json } from "./json.js";
export type { Deciding, Decision, Effect, RunLine, RunsQuery } from "./operators.js";
export { REDACTED, Redaction } from "./redact.js";
export type { Cancelling, Recovery, Run } from "./run.js";
export { connect, type Runlog } from "./runlog.js";
export type { Opening } from "./session.js";
export { tool, type Tool, type ToolOptions } from "./tool.js";

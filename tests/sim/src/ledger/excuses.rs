//! What the observer excuses, and why it is no defect of the product. Each excuse that is used is counted under its
//! name, beside the faults.
//!
//! | excuse | bound | reason |
//! |---|---|---|
//! | [`AFTER_TAKEOVER`]: an effect starts after another process claimed the run | [`READ_BACK`](crate::life::READ_BACK), 4 s | a process can pause between the answer to its read-back and the first instruction of its effect; no journal sees that. Its start still needs a record of its own |
//! | [`DEPOSED_GATE`]: the same, later | while a server reads from a deposed leader, and [`READ_BACK`](crate::life::READ_BACK) longer | `latest` is the log's end as the leader reports it. Kafka's client cannot tell a deposed leader from one without new records |
//! | [`DEPOSED_CHECK`]: a check of a decision or an attempt read an old state | while a server reads from a deposed leader, and longer by the bound without it: for an attempt [`CHECKED_BY_SERVER`] or [`CHECKED_BY_CLIENT`], for a start [`DECIDED_WHILE_IT_STARTED_MAX`]. For a decision, since the last write of the process | the same. The judge's own check (schema version 3) needs no excuse |
//! | [`DECIDED_WHILE_IT_STARTED`]: an effect starts after its call was decided | [`DECIDED_WHILE_IT_STARTED_MAX`], 20 s, and only if the decision was forced, another process has the run, or the run has ended | whoever forces a decision about a living process says that they stopped it, and a process counts as active only while its run is open (spec.md, "No decision while the process is active"). Any other decision is refused while the process is active, and has no excuse |
//! | [`UNCHECKED_BY_JUDGE`]: an attempt is applied whose permission ended before it | schema version 2 only; [`CHECKED_BY_SERVER`], 12 s, and only since the attempt was sent | documented (spec.md, "Permission to run again"): at version 2 the server checks, and does not see what lands between check and append. At version 3 there is no excuse |
//! | [`UNCHECKED_BY_SERVER`]: the same, appended straight to the log | schema version 2 only; [`CHECKED_BY_CLIENT`], 90 s | no server checks such an attempt; the client looks, may pause, and appends. At version 3 there is no excuse |
//! | [`AFTER_SKIP`]: an effect starts after a skip took the record that permits it, or its process's claim | [`DECIDED_WHILE_IT_STARTED_MAX`], 20 s | as after a takeover: the process read its record back before the skip, and no journal sees its pause. The start still needs a record of its own |
//! | [`EQUAL_AFTER_SKIP`]: an effect runs under a request of an equal call | runs of which a record was skipped | requests of equal calls have no other order than the log's. A skip takes requests away, so the next one counts as an earlier call, and a request that was refused may count from then on. The effects of the taken ones still must not run again |
//! | [`EQUAL_BY_FORCE`]: an effect runs that ran as an equal call | the call's request is void or displaced, and `not_done` about it was forced | a server refuses that decision while the run has an equal call. Whoever forces it says that the equal call is another step |
//! | [`DISPLACED_PROCESS`]: a process ends with errors, or without its results in the log; an unforced decision is applied although the process wrote lately | processes, writers and publishers that opened their run before a skip gave numbers of it back | what the process has written counts no more, and what it writes is refused. Its effects still run once, and its calls wait for a decision |
//! | [`LITTLE`]: a result is in neither the log nor the handle | handles that may hold one result (`held_bytes`), while they hold another one | the caller was told `Unrecorded`, and has the result |
//! | [`DEPOSED_ANSWER`]: an answer at `latest` is not compared | while a server reads from a deposed leader, or begins or ceases to | as above |
//! | [`END_MOVED`]: the same | a server began or ceased to see an end before its applied position since the question | the server notices it only if it had applied up to there before the question |
//! | [`STOPPED_LIST`]: a list's partition is not compared | partitions that the answer itself names as unavailable | documented: for a stopped partition a list contains the state at the stop |
//!
//! Further exemptions, which are no excuses of a wrong answer but limits of what is required:
//!
//! | not required | reason |
//! |---|---|
//! | an effect with a key runs once | its receiver deduplicates. Each start needs a record of its own all the same |
//! | a result that is refused as `transition` or `conflict` is applied | its call has ended by a decision or by another result, which the observer has seen; the product keeps it as contradicting |
//! | a life that allows unresolved calls runs no new effect beside one | its user asked for that (`allow_unresolved`). Calls that became unresolved after its first claim are its own |
//! | the checkpoint of an opening is the run's last one | if another process claimed the run since, it may have written one. A skip may have taken it away |
//! | the effects of a handle start in the order of their requests; a call is requested once | runs of which a skip took an applied record: the requests that it took away are made again |
//! | a process ends its steps or waits | if its run has ended, a call without an answer is refused as `conflict`, and the process leaves |
//! | an acknowledged record that an operator skipped, or displaced by a skip, counts | the skip voids it, and gives the numbers of its writer back |
//! | a checkpoint, or a dropped turn, is in the log | these agents do not ask for its outcome. What is acknowledged is required |
//! | a process that is killed, or leaves the run, finishes its steps | the last process of each run must |
//! | a step ends within its tries | while faults last, or if a server ever read from a deposed leader: a handle can then read that its own call does not exist |
//! | skips and lists answer within the deadline; claims and decisions within one deadline | a skip waits for its append as long as the log does, a list waits for each partition; the others read, then append |
//! | an operation of a paused process ends in time | the time of its own pauses is added |
//! | server and model agree at the first look in the end | a decision of an operator may still be in flight: one more look for each operator |

/// See the table above.
pub(super) const AFTER_TAKEOVER: &str = "excused: effect right after a takeover";
/// See the table above.
pub(super) const DEPOSED_GATE: &str = "excused: effect after a takeover that a deposed leader hides";
/// See the table above.
pub(super) const DEPOSED_CHECK: &str = "excused: check at a deposed leader";
/// See the table above.
pub(super) const DECIDED_WHILE_IT_STARTED: &str = "excused: effect after a forced decision";
/// See the table above.
pub(super) const UNCHECKED_BY_JUDGE: &str = "excused: attempt of version 2 after its permission ended";
/// See the table above.
pub(super) const UNCHECKED_BY_SERVER: &str = "excused: the same, straight to the log";
/// See the table above.
pub(super) const LITTLE: &str = "excused: result of a handle that holds another one";
/// See the table above.
pub(super) const DEPOSED_ANSWER: &str = "excused: answer of a deposed leader";
/// See the table above.
pub(super) const END_MOVED: &str = "excused: answer while a log end moved";
/// See the table above.
pub(super) const STOPPED_LIST: &str = "excused: list of a stopped partition";

/// See the table above.
pub(super) const AFTER_SKIP: &str = "excused: effect right after a skip of its record";
/// See the table above.
pub(super) const EQUAL_AFTER_SKIP: &str = "excused: equal call after a skip of an applied record";
/// See the table above.
pub(super) const EQUAL_BY_FORCE: &str = "excused: equal call after a forced decision";
/// See the table above.
pub(super) const DISPLACED_PROCESS: &str = "excused: process whose records a skip displaced";

/// A handle starts an effect within this time of first sending its record, milliseconds. So does the client of the
/// protocol.
pub(super) const DECIDED_WHILE_IT_STARTED_MAX: u64 = 20_000;
/// A server appends an attempt within a request's deadline of its check, and the log lands it within its delays,
/// milliseconds.
pub(super) const CHECKED_BY_SERVER: u64 = 12_000;
/// A handle that appends straight to the log does so within an operation of its check, and the longest pause,
/// milliseconds.
pub(super) const CHECKED_BY_CLIENT: u64 = 90_000;

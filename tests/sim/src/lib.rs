//! A deterministic simulation of everything that acts on a journal.
//!
//! ```text
//!   lives (handles, or clients of the protocol,   operators    a plan, drawn from the seed
//!        │ killed and paused)               │               │
//!        │ HTTP without a socket            │               │ event, time, target
//!        ▼                                  ▼               ▼
//!   one address ── requests late, lost, cut off ──▶ two servers, killed, held, deposed
//!                                                        │ link: appends late, lost, refused
//!                                                        ▼
//!                                                    MemoryLog ──▶ the observer's ledger
//!                                                        │ copier
//!                                                        ▼
//!                            a server ◀── MemoryLog with another id (`mirror`, in some seeds)
//! ```
//!
//! One tokio runtime of one thread with a paused clock runs a seed; all that is random is drawn from the seed, so that it
//! replays to the byte. [`seeds::run`] runs many, on all cores: for the test in `tests/`, and for the command `sim`
//! (`make sim`). Servers have their indices in memory, since databases would take most of the time, and of one seed in 16 in
//! RocksDB; both go the same way ([`world::Indices`]).
//!
//! # What a seed has
//!
//! * Two runs of 25 calls or more, or of 4 to 9, which end under faults, and two to four processes for each. Their
//!   futures are dropped at any await, and they continue with the same handle; they are paused at any await, or are
//!   killed. Some append through a server, some straight to the log, as `kafka:` does. Some may have only one call
//!   in flight, or hold only one result.
//! * Agents: some calls are equal to earlier ones, some keys are used with other arguments, some lives run new
//!   effects while an older one is unresolved. Some make a later call while a step waits for a decision. What failed
//!   once may succeed in a later attempt. Agents write records while a call is in flight, and do not always
//!   ask for the outcome of a dropped one. They save which steps are done, also when a call was dropped or while
//!   calls are in flight, resume there, and hide old checkpoints.
//! * A [`Writer`](runlog_producer::Writer) beside each of some processes, over the same connection, whose writes
//!   are dropped at any time: single records, batches, checkpoints and prunes of another run. Some batches of
//!   handles and writers have a record under an id that has other content, so that they are refused however often
//!   they are written.
//! * A run whose two to five processes have no handle (`letter`): they follow docs/protocol.md, share no code with
//!   the product, and their record ids follow from the steps of the agent. Some look each call up first, some send
//!   the intent and let the answer say whose it is; some read back in the same request, some in a second one. They
//!   run a pending call again as the recovery of their opening says, and decide that their own effects were not
//!   started. Some send an attempt with a wrong number first. A proxy delivers some claims and appends twice. Some processes first send
//!   the claim of the process before them again.
//!   In some seeds they send intents in a batch with a checkpoint, and results in a batch with a message (`plan::batches`).
//! * A look at its run from time to time in each process, over the same connection.
//! * Two clients without a handle that let the server number their records.
//! * Two operators who decide, with and without force, also about calls that a process is at work on, or that may be
//!   repeated. Some of their decisions omit their basis, name an older revision or wrong evidence, and some
//!   override evidence that the effect failed. They skip the record at which a partition stopped, and evidence. In some
//!   runs they skip a record that was applied: an attempt, a decision, a request, a claim, a result, a checkpoint, a batch, or a
//!   record shortly before it. The processes of the run may be alive. They also skip records of writers and publishers.
//! * In some seeds servers accept tokens: handles and clients have the scopes of agents, operators may also decide and skip. In most of
//!   these seeds an intruder with the scopes of an agent claims runs, with a guessed secret or without one. It decides that calls of other
//!   processes were not started, records results of these calls, and tries what only operators may do. It writes under the epoch of
//!   another process, and floods a call with refused results (`intruder`).
//! * A reader who asks for recoveries, heads, lookups, outcomes and pending effects at `latest`.
//! * In some seeds a mirror: a copier copies the log to another log, late and with other offsets, and pauses. For a while some
//!   requests of all clients go to the mirror's server, also before the mirror has a record. In half of these seeds the copier
//!   ends early, and in the end the mirror takes over, as from a lost home.
//! * [`FAULTS`]. In the end all faults cease, and a last process brings each run to its end.
//! * Circumstances that take several faults at once (`plan::stories`): the end of a run is dropped or lost while a
//!   call is in flight; a call is dropped before its effect and again within it, while a server reads from a
//!   deposed leader; a reopening is dropped while another call is about to be read back; a call is answered beside
//!   a longer one, and a state from before both is saved; a process pauses between its intent and its effect, until an
//!   operator may decide or while a client claims the run; a reopening pauses while another process takes the run over;
//!   evidence revokes a decision that a client of the protocol read when it opened the run (`plan::letter`).
//!
//! # What is checked
//!
//! * Each start of an effect has a record of its own in the log. An attempt of a call without a key has a permission
//!   there: a `not_done` after the last start, and no new evidence since (`ledger::permissions`). This holds for a
//!   decision about a living process, too: it permits one start.
//! * The effects of a handle start in the order of its requests in the log.
//! * An effect starts only in a process that has the run, and not after its call was decided (`ledger::effects`).
//! * A skip permits nothing: an effect that ran does not run again, neither under the call that the skip took away nor under a
//!   new one for the same step. Right after a skip the journal has every call whose effect ran as ended, or in need of a
//!   decision (`ledger::skips`).
//! * A decision is applied only to the state that its author saw. Without force it is not applied while the process
//!   that started the effect is active (`ledger::decisions`).
//! * A record of an intruder clears no call and, in the schema version in which the judge knows handles, ends none
//!   (`ledger::intrusions`). What only operators may do is refused, and so is what an intruder writes under the epoch of another. `adopt`
//!   takes the refused result of the process that started the call, and not an intruder's.
//! * A process that sends the claim of an earlier process again, which has written under it, does not get that claim.
//! * `ledger::excuses` lists all exceptions, with the reasons. The test prints how often each was used.
//! * What is acknowledged is in the log, and applied. If it is refused, then because another process had claimed
//!   the run before, or because an operator decided about the call.
//! * A result that a process knows is in the log, applied or as evidence, or its handle holds it, after every
//!   operation and when the process ends by itself. Only a handle that can hold no other result may give it up.
//! * Only a process whose run was claimed by another one reports the loss of its run.
//! * An answer at `latest` equals the independent model's at some moment between question and answer: every status,
//!   number, pending effect with its class, revision and evidence, ended call and checkpoint (`ledger::questions`).
//!   Questions while a server reads from a deposed leader are exempt. Questions while a server sees a log end
//!   before its applied position are not, because it can notice that.
//! * Operations of handles and writers, queries, and requests of clients without a handle, end within their
//!   deadlines. Skips and lists are exempt: a server waits for the append of a skip as long as the log does, and
//!   for each partition of a list as long as for all of them.
//! * In the end all servers agree with the model about each run, and no partition is stopped. The mirror's server agrees too about
//!   partitions without a skip, and no server appended a record to the mirror. After a takeover the mirror's server refuses to
//!   continue each run that had not ended in the copied records, and each unknown run, until an operator accepts it
//!   (`takeover`).
//!
//! # What is missing
//!
//! * Retention, erasure, the content store, a schema registry, the `local:` transport.
//! * Truncation of the log's end, which Kafka does after an unclean election. (Servers see such ends, for a while.)
//!   A server that starts while it sees one stops those partitions until it starts again; here it then sees the
//!   true ends.
//! * After a takeover, a server that restarts while each partition is stopped answers as a mirror until the home is taken again. The
//!   operator here does that: counted, and not a failure.
//! * Tails, and lists other than pending effects.
//! * More requests at once than a server admits: the network answers as it would, for a while. (More appends than
//!   it admits are covered.)
//! * Through a deposed leader a handle may read that its own call does not exist: counted, and not a failure.
//! * A process whose link to the log has failed for good, and the order in which brokers would deny its late
//!   appends.
//!
//! Reading order: [`plan`] and `plan::stories`, `world`, `life` and `scribe`, `letter`, `operator` and `reader`, `intruder`,
//! `grants`, `network`, `server` and `link`, then `ledger`, which contains the requirements.

mod ambient;
mod dice;
mod grants;
mod guard;
mod intruder;
mod ledger;
mod letter;
mod life;
mod link;
mod mirror;
mod network;
mod operator;
pub mod plan;
mod publisher;
mod reader;
mod scribe;
pub mod seeds;
mod server;
pub mod shrink;
mod stage;
mod takeover;
mod trouble;
pub mod world;

pub use stage::Counts;

/// The faults, by their names in the counts. Every hundred seeds contain each of them.
pub const FAULTS: [&str; 64] = [
    "a record of an unknown schema",
    "acknowledgement lost",
    "acknowledgement never came",
    "address switched",
    "answer lost",
    "answer never came",
    "append landed late",
    "append lost",
    "append of an end lost",
    "append refused",
    "append refused: queue full",
    "appends straight to the log",
    "attempt with a wrong number",
    "batch of a checkpoint and an intent",
    "batch of a message and a result",
    "batch with a record that is refused",
    "bytes that are no record",
    "call cancelled",
    "call cancelled once its effect began",
    "call while another one waits for a decision",
    "checkpoint of a state older than answers",
    "claim id of an earlier process",
    "client of the protocol killed",
    "client of the protocol paused",
    "copier of a mirror pauses",
    "copy of a request",
    "decision at an older revision",
    "decision of an intruder",
    "decision that names other evidence, or none",
    "decision without a revision",
    "decision without force",
    "disconnected in mid-request",
    "flood of an intruder",
    "home lost",
    "key looked up",
    "log truncated at its start",
    "pause",
    "panic after a skip",
    "panic in the loop",
    "process killed",
    "reader failed for good",
    "record of an intruder under the epoch of another",
    "refusal of a mirror",
    "reopen cancelled",
    "request lost",
    "request to a mirror",
    "request to a server that is down",
    "request: no connection",
    "requests to any server",
    "result of an intruder",
    "run claimed by two clients",
    "run claimed while its process was paused",
    "server sees an end before its position",
    "server killed",
    "server reads from a deposed leader",
    "server reads from a deposed leader since a step",
    "server reads nothing",
    "server refuses requests for now",
    "skip of an applied record of a writer or a publisher",
    "skip of an applied record, of a run with a process",
    "skip of evidence",
    "skip of what stopped a partition",
    "write of a writer cancelled",
    "write cancelled",
];

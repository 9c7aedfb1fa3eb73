//! A deterministic simulation of everything that acts on a journal.
//!
//! ```text
//!   lives (handles, killed and paused)   operator        a plan, drawn from the seed
//!        │ HTTP without a socket            │               │ what, when, to whom
//!        ▼                                  ▼               ▼
//!   one address ── requests late, lost, cut off ──▶ two servers, killed, held, deposed
//!                                                        │ link: appends late, lost, refused
//!                                                        ▼
//!                                                    MemoryLog ──▶ the observer's ledger
//! ```
//!
//! One tokio runtime of one thread with a paused clock runs a seed; all that is random is drawn from the seed, so that it
//! replays to the byte. [`seeds::run`] runs many, on all cores: for the test in `tests/`, and for the command `sim`
//! (`make sim`). Servers have their indices in memory, since databases would take most of the time, and of one seed in 16 in
//! RocksDB; both go the same way ([`world::Indices`]).
//!
//! # What a seed has
//!
//! * Two runs of 25 calls or more, or of 4 to 9, which end under faults, and two to four processes for each. Their futures
//!   are dropped at any await, and they go on with the same handle; they stand still at any await, or are killed. Some
//!   append through a server, some straight to the log, as `kafka:` does. Some may have only one call in flight, or hold
//!   only one result.
//! * Agents: some calls are equal to earlier ones, some keys are used with other arguments, some lives run new effects
//!   while an older one is unresolved. Agents write records while a call is in flight, and do not always ask what became of
//!   one that they dropped. They save which steps are done, also when a call was dropped or while calls are in
//!   flight, resume there, and hide old checkpoints.
//! * A [`Writer`](runlog_producer::Writer) beside each of some processes, over the same connection, whose writes are
//!   dropped at any time: single records, batches, checkpoints and prunes of another run. Some batches of handles and writers
//!   have a record under an id that has other content, so that they are refused however often they are written.
//! * A look at its run from time to time in each process, over the same connection.
//! * Two clients without a handle that let the server number their records.
//! * Two operators who decide, also about calls that a process is at work on, or that may be repeated. Some of their
//!   decisions say nothing of what they were made at, or say an older revision. They skip the record at which a partition stopped.
//! * A reader who asks for recoveries, heads, lookups, outcomes and pending effects at `latest`.
//! * [`FAULTS`]. In the end all faults cease, and a last process brings each run to its end.
//! * Circumstances that take several faults at once (`plan::stories`): the end of a run is dropped or lost while a call is in
//!   flight; a call is dropped before its effect and again within it, while a server reads from a deposed leader; a reopening
//!   is dropped while another call is about to be read back; a call is answered beside a longer one, and a state from before both is
//!   saved.
//!
//! # What is checked
//!
//! * An effect of a call without a key runs once, unless a decision allowed another run, and only in a process that has the
//!   run (`ledger::effects`). A pause between the read-back of an intent and its effect cannot be fenced by a journal: an
//!   effect that starts after another process claimed the run is excused for as long as a read-back may take, and while a
//!   server reads from a deposed leader.
//! * What is acknowledged is in the log, and applied. If it is refused, then because another process had claimed the run
//!   before, or because an operator decided about the call.
//! * A result that a process knows is in the log, applied or as evidence, or its handle holds it, after every operation
//!   and when the process ends by itself. It may be given up only by a handle that may hold no other.
//! * Only a process whose run was claimed by another one is told that it lost it.
//! * What `latest` answers was so at some moment between question and answer, as the independent model says: every status,
//!   number, pending effect with its class, revision and evidence, ended call and checkpoint (`ledger::questions`). Questions
//!   while a server reads from a deposed leader are exempt, but not while a server is told an end before what it has applied:
//!   that it can notice.
//! * Operations of handles and writers, queries, and requests of clients without a handle, end within their deadlines. Skips
//!   and lists are exempt: a server waits for the append of a skip as long as the log does, and for each partition of a
//!   list as long as for all of them.
//! * In the end all servers say of each run what the model says, and no partition stands still.
//!
//! # What is missing
//!
//! * Skips of records that were applied, retention, erasure, the content store, a schema registry, the `local:` transport.
//! * Truncation of the log's end, which Kafka does after an unclean election. (Servers are told of such ends, for a while.) A
//!   server that starts while it is told one stops those partitions until it starts again; here it is told the true ends then.
//! * Tails, and lists other than that of pending effects.
//! * More requests at once than a server admits: the network answers as it would, for a while. (More appends than it admits
//!   are covered.)
//! * What a handle reads through a deposed leader may say that its own call does not exist: counted, and not a failure.
//! * A process whose link to the log has failed for good, and the order in which brokers would deny its late appends.
//!
//! Reading order: [`plan`] and `plan::stories`, `world`, `life` and `scribe`, `operator` and `reader`, `network`, `server` and
//! `link`, then `ledger`, which says what must hold.

mod ambient;
mod dice;
mod guard;
mod ledger;
mod life;
mod link;
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
mod trouble;
pub mod world;

pub use stage::Counts;

/// The faults, as they are counted. None of them is left out in a hundred seeds or more.
pub const FAULTS: [&str; 41] = [
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
    "batch with a record that is refused",
    "bytes that are no record",
    "call cancelled",
    "call cancelled once its effect began",
    "checkpoint of a state older than answers",
    "decision at an older revision",
    "decision without a revision",
    "disconnected in mid-request",
    "log truncated at its start",
    "pause",
    "panic after a skip",
    "panic in the loop",
    "process killed",
    "reader failed for good",
    "reopen cancelled",
    "request lost",
    "request to a server that is down",
    "request: no connection",
    "requests to any server",
    "run claimed by two clients",
    "server is told an end before what it has read",
    "server killed",
    "server reads from a deposed leader",
    "server reads from a deposed leader since a step",
    "server reads nothing",
    "server refuses requests for now",
    "skip of what stopped a partition",
    "write of a writer cancelled",
    "write cancelled",
];

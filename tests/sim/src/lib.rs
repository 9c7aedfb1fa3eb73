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
//! Two runs of 25 calls or more, two to four processes for each, whose futures are dropped at any await and which go on with the
//! same handle, stand still at any await, or are killed; an operator who decides; two clients without a handle that let the
//! server number their records; [`FAULTS`]. Some calls are equal to earlier ones, some lives run new effects while an older one is
//! unresolved, some keys are used with other arguments. Agents save which steps are done, also when a call was dropped, and
//! resume there. In the end all faults cease, and a
//! last process brings each run to its end.
//!
//! # What is checked
//!
//! See `ledger`. A pause between the read-back of an intent and its effect cannot be fenced by a journal: an effect that starts
//! after another process claimed the run is excused for as long as a read-back may take, and while a server reads from a deposed
//! leader. Of a call that the process which has the run is at work on, an operator says at most how it counts (`give_up`).
//!
//! # What is missing
//!
//! * Prunes and `Writer`; decisions without a revision; operators who say that a running call did not happen.
//! * Skips and stopped partitions, truncation, a full outbox, more requests or appends at once than a server admits, the
//!   content store, the `kafka:` and `local:` transports.
//! * What a handle reads through a deposed leader may say that its own call does not exist: counted, and not a failure.
//! * Operators decide about no call whose intent its process does not know to be in the log.
//! * What `latest` answers is checked of recoveries only: the epoch, and the calls that ended.
//!
//! Reading order: [`plan`], `world`, `life` and `operator`, `network`, `server` and `link`, then `ledger`, which says what must
//! hold.

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
pub mod seeds;
mod server;
pub mod shrink;
mod stage;
pub mod world;

pub use stage::Counts;

/// The faults, as they are counted. None of them is left out in a hundred seeds or more.
pub const FAULTS: [&str; 25] = [
    "acknowledgement lost",
    "acknowledgement never came",
    "address switched",
    "answer lost",
    "answer never came",
    "append landed late",
    "append lost",
    "append refused",
    "append refused: queue full",
    "call cancelled",
    "disconnected in mid-request",
    "pause",
    "panic in the loop",
    "process killed",
    "reader failed for good",
    "reopen cancelled",
    "request lost",
    "request to a server that is down",
    "request: no connection",
    "requests to any server",
    "run claimed by two clients",
    "server killed",
    "server reads from a deposed leader",
    "server reads nothing",
    "write cancelled",
];

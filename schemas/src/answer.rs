//! A server's answers as JSON. The server, the client and the command line share these types.
//!
//! Later versions may add fields and never rename a field. An absent value is null.

pub use crate::judge::{
    CallStatus, Class, Reason, RunStatus,
    lifecycle::{EffectKind, EffectStatus, LifecycleStatus},
};

mod absent;
mod appended;
mod calls;
mod changes;
mod events;
mod facts;
mod health;
mod horizons;
mod journal;
mod lines;
mod overview;
mod plans;
mod position;
mod problem;
mod refused;
mod runs;
mod standing;
mod uploaded;
mod whoami;

pub use crate::or_other::OrOther;
pub use appended::{Appended, Disposition, Outcome, ReadBack, Warning, Writer};
pub use calls::{
    CallError, Done, Effect, EffectRun, EffectState, Effects, Evidence, EvidenceError, Lookup, LookupStatus, Pending,
    PendingState,
};
pub use changes::{Change, Operation};
pub use events::{Event, Events};
pub use facts::{Fact, Facts};
pub use health::{
    Doctor, Finding, IndexDigest, PartitionDigest, PartitionHealth, PartitionState, Severity, Verification,
};
pub use horizons::{Dropped, Horizon, Horizons, Outcomes};
pub use journal::{Feature, HomeSet, Journal, JournalHome, LogRole};
pub use lines::{ContentLoss, Line, Lines, MissingContent};
pub use overview::{Overview, PartitionProgress, PendingByClass, PendingByState, RunsByStatus};
pub use plans::{RetentionOfPartition, RetentionPlan, SkipPlan, SkipTarget};
pub use position::Position;
pub use problem::{Elsewhere, ErrorKind, Problem, ProblemReason, with_causes};
pub use refused::{Anomalies, Anomaly, DeadLetter, DeadLetterReason, DeadLetters};
pub use runs::{
    Checkpoint, CheckpointSummary, Checkpoints, Claim, Copied, EffectCounts, Recovery, Run, RunSummary, Runs,
};
pub use standing::{Standing, Standings};
pub use uploaded::Uploaded;
pub use whoami::{CredentialKind, WhoAmI};

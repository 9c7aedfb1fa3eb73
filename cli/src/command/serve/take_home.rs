//! `--take-home`: makes the mirror that this server reads the home of its journal, while the server answers reads.
//!
//! ```text
//!   refused ─▶ the server ends       records arrive, or Kafka does not answer ─▶ warning, waits, tries again       done ─▶ serves
//! ```
//!
//! A server that waits is more useful than a server that ends: MirrorMaker may still write when the operator starts it, and a
//! supervisor would only start it again.

use crate::{args, error::Error};
use runlog_projector::{
    Projector,
    index::projector::{Decision, Taken},
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{LogId, Offset, PartitionId},
};
use std::time::Duration;

/// After a record arrived during a takeover, the time without records before the next try.
const QUIET: Duration = Duration::from_secs(10);

/// The lost home, and the decision to replace it.
#[derive(Debug)]
pub(super) struct Takeover {
    from: LogId,
    decision: Decision,
}

impl Takeover {
    /// Returns `None` without the flag.
    pub(super) fn new(flags: &args::Serve) -> Option<Self> {
        let decision = Decision { who: flags.who.clone()?, why: flags.why.clone()? };
        Some(Self { from: flags.take_home.clone()?, decision })
    }
}

/// Makes this mirror the home. Resolves only if that is refused.
pub(super) async fn run(projector: &Projector, takeover: Option<Takeover>) -> Error {
    let Some(Takeover { from, decision }) = takeover else { return std::future::pending().await };
    tracing::info!(%from, "--take-home waits until all records of the log are applied and no more arrive");
    loop {
        match projector.take_home(&from, decision.clone()).await {
            Ok(taken) => {
                if let Taken::Now(_) = taken {
                    tracing::warn!(
                        "no agent continues a run that is open or unknown here until an operator accepts it: `runlog runs \
                         --in-doubt` lists the open ones"
                    );
                }
                return std::future::pending().await;
            }
            Err(error) if can_pass(error.kind()) => {
                tracing::warn!(%error, "this log is not the home yet: --take-home tries again");
                await_quiet(projector).await;
            }
            Err(error) => return Error::new(error.kind(), "--take-home is refused").because(error),
        }
    }
}

/// Whether the same call can succeed later.
fn can_pass(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Overloaded | ErrorKind::Stale)
}

/// Waits until no record was applied for [`QUIET`].
async fn await_quiet(projector: &Projector) {
    let mut before = applied(projector);
    loop {
        tokio::time::sleep(QUIET).await;
        let now = applied(projector);
        if now == before {
            return;
        }
        tracing::warn!("records still arrive, so MirrorMaker still runs, and the home may not be lost: --take-home waits");
        before = now;
    }
}

fn applied(projector: &Projector) -> Vec<Offset> {
    let partitions = PartitionId::all(projector.journal().partitions);
    partitions.map(|partition| projector.progress(partition).applied).collect()
}

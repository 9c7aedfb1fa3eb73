//! `--take-home`: makes the mirror that this server reads the home of its journal, while the server answers reads.
//!
//! The process ends if that is refused, also because records still arrive: then the home may be alive, and a takeover at the next
//! pause would make a second home.

use crate::{args, error::Error};
use runlog_projector::{
    Projector,
    index::projector::{Decision, Taken},
};
use runlog_schemas::id::LogId;

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
    let Decision { who, why } = decision.clone();
    tracing::info!(%from, "--take-home waits until this server has applied the whole log and no more records arrive");
    match projector.take_home(&from, decision).await {
        Ok(Taken::Now(_)) => tracing::warn!(
            %from,
            who,
            why,
            "this log is the journal's home now. No agent continues a run that was open or is unknown here: `runlog runs --in-doubt` \
             lists the open runs, `runlog home accept` lets a run continue"
        ),
        Ok(Taken::Before(missing)) if missing.is_empty() => {
            tracing::warn!(%from, "this log has taken over already, so --take-home has no effect; remove it");
        }
        Ok(Taken::Before(missing)) => {
            tracing::warn!(%from, partitions = missing.len(), "the takeover is complete in all partitions now; remove --take-home");
        }
        Err(error) => return Error::from(error),
    }
    std::future::pending().await
}

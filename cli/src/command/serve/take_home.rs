//! `--take-home`: makes the mirror that this server reads the home of its journal, while the server answers reads.
//!
//! If records arrive, the home may be alive. The server stays a mirror and does not try again: it would take over at the next pause of
//! a living home. For the same reason it does not end, because a supervisor would start it again. It ends after another refusal.

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
        Ok(Taken::RecordsArrive { partition, offset }) => tracing::error!(
            %from,
            %partition,
            %offset,
            "records still arrive, so the home is alive, or MirrorMaker is not stopped: this server stays a mirror and does not try again. \
             Stop MirrorMaker, make sure that the home is lost, and start this server again"
        ),
        Err(error) => return Error::from(error),
    }
    std::future::pending().await
}

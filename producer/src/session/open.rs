//! Opens a run: claims it, and reads it after the claim.

use super::{
    Session,
    appender::RunAppender,
    claim::{self, Claim, Claims, epoch_of, not_writer},
    client::RunClient,
    writer_state::WriterState,
};
use crate::{
    config::failpoint,
    error::Error,
    transport::{request::RecoveryQuery, run_without_records},
};
use runlog_schemas::{
    answer::{ErrorKind, Feature, Recovery},
    judge::RunStatus,
};
use std::time::Duration;

/// The options for opening a run.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Resumes at the start instead of at the latest checkpoint: the journal answers every recorded call again.
    pub from_start: bool,
    /// Runs new effects even while an older effect is `reconcile_required`.
    pub allow_unresolved: bool,
    /// Fails if a record was appended to the run within this time; see
    /// [`Runlog::open_unless_active`](crate::Runlog::open_unless_active). Default `None`: takes the run over from any writer.
    pub unless_active: Option<Duration>,
    /// Whether a new call may run before the recorded calls after the checkpoint are made again. Default [`OnDivergence::Allow`].
    pub on_divergence: OnDivergence,
    /// Whether the agent confirms each answer with [`Run::received`](crate::Run::received). Checkpoints then list every answered call
    /// until it is confirmed, however many calls are in flight. Default false: an answer counts as received once no call is in
    /// flight.
    pub receipts: bool,
}

/// The treatment of a new call without a key, while recorded calls after the checkpoint were not requested: the program does not
/// make the calls of the process before it, as after a change of their arguments, and the new call may repeat one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDivergence {
    /// The call runs.
    #[default]
    Allow,
    /// Nothing runs: the call is a `Conflict` with [`Error::not_requested`](crate::Error::not_requested). For programs whose calls follow
    /// each other; concurrent calls may begin in another order each time. Calls with a key, or declared repeatable, run; a checkpoint
    /// ends the check.
    Fail,
}

/// Conditional claims of an open: the run can get another record between each read and its claim.
const CLAIMS_MAX: u32 = 3;

/// Opens a run; see [`Runlog::open_with`](crate::Runlog::open_with). Returns the run's recovery after the claim.
pub(crate) async fn open(client: RunClient, options: OpenOptions) -> Result<(Session, Recovery), Error> {
    let (transport, run_id) = (&client.transport, client.id());
    let claim = claim_open(&client, options.unless_active).await?;
    let query = RecoveryQuery { from_start: options.from_start, ..RecoveryQuery::WHOLE };
    let recovery = transport.whole_recovery(run_id, query).await?.ok_or_else(|| run_without_records(run_id))?;
    match &claim {
        Some(claim) if !claim.is_held_in(&recovery) => return Err(not_writer(run_id, claim.epoch(), recovery.epoch)),
        // Otherwise this handle would act as the run's last writer without a claim.
        None if recovery.status == RunStatus::Open => return Err(claim::before_its_end(run_id)),
        _ => {}
    }
    let is_new = claim.is_some() && recovery.next_journal_seq == 1.into();
    // The run may have ended between the read and the claim.
    let state = match &recovery.status {
        status if *status == RunStatus::Open => WriterState::Ready,
        status => WriterState::Ended(claim::ended(run_id, status.as_str())),
    };
    let claims = Claims::from_first(claim.as_ref());
    let appender = RunAppender::new(client.clone(), Some(&recovery), claims, state);
    let session = Session::new(appender, &options, &recovery);
    if is_new {
        session.lifecycle("started").await?;
    }
    Ok((session, recovery))
}

/// Claims a run unless it has ended. With `unless_active`, only as it was read, if the server can compare; a run that has got a record
/// meanwhile is read again.
async fn claim_open(client: &RunClient, unless_active: Option<Duration>) -> Result<Option<Claim>, Error> {
    let is_conditional = unless_active.is_some() && client.transport.has_conditional_claims();
    let mut claims = 1;
    loop {
        match claim_as_read(client, unless_active, is_conditional).await {
            Err(error) if is_conditional && error.kind() == ErrorKind::Conflict && claims < CLAIMS_MAX => claims += 1,
            claimed => return claimed,
        }
    }
}

async fn claim_as_read(
    client: &RunClient,
    unless_active: Option<Duration>,
    is_conditional: bool,
) -> Result<Option<Claim>, Error> {
    let RunClient { transport, config, .. } = client;
    let run_id = client.id();
    let seen = match unless_active {
        Some(within) => claim::check_inactive(transport, run_id, within).await?,
        None => None,
    };
    let before = transport.recovery(run_id, RecoveryQuery::PENDING, None).await?;
    if unless_active.is_some() {
        claim::check_unchanged(run_id, seen.as_ref(), before.as_ref())?;
    }
    if before.as_ref().is_some_and(|before| before.status != RunStatus::Open) {
        return Ok(None);
    }
    (config.failpoints)(failpoint::HEAD_READ);
    let secret = transport.has(Feature::Commitments).then(|| config.secret());
    let claim = Claim::first(epoch_of(before.as_ref()), secret, client)?;
    if is_conditional {
        let hash = before.map_or_else(Default::default, |before| before.hash);
        match claim.send_if_unchanged(hash, client).await {
            // The address leads to an older server, too, which appended nothing.
            Err(error) if error.kind() == ErrorKind::Usage => claim.send(client).await?,
            sent => sent?,
        }
    } else {
        claim.send(client).await?;
    }
    Ok(Some(claim))
}

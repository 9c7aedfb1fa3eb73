//! `cancel`: ends an open run as cancelled.
//!
//! The command claims the run first, which fences its writers off, then appends `run_lifecycle: cancelled`. The claim and the
//! record have ids of this command. So the server recognises a copy, and the command can send each of them again.

use super::{confirm::confirm, publish::may_be_appended};
use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    render,
    session::{APPEND_WAIT, Session},
    text::Cell,
};
use runlog_schemas::answer::{Claim, ErrorKind, Feature, Outcome, Run, RunStatus};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::time::Duration;

pub(super) async fn run(session: &Session, args: args::Cancel) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, APPEND_WAIT);
    let run_id = &args.run.run;
    let run: Run = session.client.get(Target::run(run_id).with("consistency", "latest"), wait).await?;
    if run.status != RunStatus::Open {
        let what = format!("run {run_id} is {} already; only an open run can be cancelled", run.status);
        return Err(Error::new(ErrorKind::Conflict, what).with("run_id", run_id.as_str()));
    }
    confirm(args.consent, &format!("cancel run {run_id}"), |text| {
        text.facts([
            ("run", Cell::from(run_id)),
            ("status", Cell::status(run.status.as_str())),
            ("records", run.records.into()),
            ("last record", Cell::from(&run.updated_at)),
            ("effect", "its writers are fenced off, and its status stays cancelled".into()),
        ]);
    })?;
    let (who, why) = (&args.attribution.who, &args.attribution.why);
    let claim = json!({
        "record_id": crate::ambient::random_id(),
        "writer_id": crate::ambient::random_id(),
        "claimed_by": format!("{who}, to cancel"),
    });
    session.needs(&[Feature::ClaimIds], wait).await?;
    let claimed = post(session, &Target::run(run_id).path("/claims"), &claim.to_string(), wait).await;
    let half_done = |what: String, error: Error| Error::new(error.kind(), what).with_details_of(&error).because(error);
    let claim: Claim = claimed.map_err(|(error, may_have_landed)| {
        if !may_have_landed && error.kind() != ErrorKind::PartitionStopped {
            return error;
        }
        let what = format!(
            "run {run_id} is not cancelled, but may be claimed (its writers fenced off); run the command again"
        );
        half_done(what, error)
    })?;
    let record = json!({
        "record_id": crate::ambient::random_id(),
        "run_id": run_id,
        "agent_id": "runlog-cli",
        "writer_id": claim.writer_id,
        "writer_epoch": claim.epoch,
        "payload": {"type": "run_lifecycle", "status": "cancelled", "reason": format!("{who}: {why}")},
    });
    let target = Target::run(run_id).path("/records");
    let posted = post(session, &target, &format!("[{record}]"), wait).await;
    let outcome: Vec<Outcome> = posted.map_err(|(error, _)| {
        let what = format!(
            "run {run_id} was claimed (its writers are fenced off) but may not be cancelled; run the command again"
        );
        half_done(what, error)
    })?;
    let Some(outcome) = outcome.into_iter().next() else {
        return Err(Error::new(
            ErrorKind::Internal,
            format!("the server did not report whether run {run_id} is cancelled"),
        ));
    };
    session.output.answer(&outcome, render::outcome)?;
    Ok(Answer::from_outcome(&outcome))
}

/// Sends a request, and once more after an answer that leaves its outcome unknown. Returns with an error whether a copy may have landed:
/// the second copy can be refused although the first one did.
async fn post<T: DeserializeOwned>(
    session: &Session,
    target: &Target,
    body: &str,
    wait: Duration,
) -> Result<T, (Error, bool)> {
    let send = || session.client.post(target.clone(), body.to_owned(), wait);
    match send().await {
        Err(error) if may_be_appended(error.kind()) => send().await.map_err(|error| (error, true)),
        answered => answered.map_err(|error| (error, false)),
    }
}

//! Gives a journal a home, and accepts runs after the loss of a home.
//!
//! An operator gives a journal a home once, at the log where agents write. The request names the log that the operator saw, so
//! that it has no effect at a server of another log. Every mirror learns the home from the records.

use super::{
    app::App,
    append::{attribution, of_partition::sign},
    audit::Action,
    body::Text,
    parameters::{Ask, NOT_BLANK, Patience, check_attribution},
    problem::Refusal,
    strict_json::parsed,
};
use axum::{Json, extract::Query};
use runlog_projector::index::{
    error::Error,
    projector::{Consistency, Decision},
};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, HomeSet, JournalHome, Outcome, Outcomes, ProblemReason},
    id::{LogId, OrEmpty, PartitionId, RunId},
    record::JournalRecord,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HomeQuery {
    /// Checks the request, and appends nothing.
    #[serde(default)]
    dry_run: bool,
    deadline_ms: Option<u64>,
}

/// Makes a log the home of its journal.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewHome", extend("required" = ["log_id", "who", "why"]))]
pub(super) struct HomeBody {
    /// The `log_id` of `GET /v1/journal`. The request is refused at a server of another log.
    log_id: LogId,
    /// Also accepts a topic whose producers choose the timestamps, as in a topic that MirrorMaker creates.
    #[serde(default)]
    force: bool,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    who: String,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    why: String,
}

/// Appends the home to every partition that lacks it.
///
/// Errors: `Invalid` for another log than this server's, for a log without an id, and for a topic that looks like a mirror's.
/// `PartitionStopped`, with no record appended, if a partition is stopped.
pub(super) async fn init(app: App, Query(query): Query<HomeQuery>, Text(body): Text) -> Result<Json<HomeSet>, Refusal> {
    let HomeBody { log_id, force, who, why } = parsed(&body, "a home")?;
    check_attribution("a home", &who, &why)?;
    let who = attribution::who(app.caller.principal(), who);
    let until = Instant::now() + Ask { consistency: None, deadline_ms: query.deadline_ms }.deadline();
    check_named(app.projector.log().id(), &log_id)?;
    app.projector.check_all_held()?;
    let left = || until.saturating_duration_since(Instant::now());
    let plan = app.projector.plan_home(left()).await?;
    if plan.is_first() && !force {
        let settings = app.blocking(|app| Ok(app.projector.log().settings()?)).await?;
        // A local log has no such setting, and no mirror.
        let is_local = app.projector.log().clock_millis().is_some();
        check_timestamps(settings.create_time.or(is_local.then_some(false)), app.projector.log().topic())?;
    }
    let epoch = plan.epoch();
    let set = |outcome: Disposition, positions| HomeSet {
        home: JournalHome { log: log_id.clone(), epoch },
        outcome: outcome.into(),
        positions,
        dry_run: query.dry_run,
    };
    if plan.is_complete() {
        return Ok(Json(set(Disposition::Repeat, Vec::new())));
    }
    if query.dry_run {
        return Ok(Json(set(Disposition::Applied, Vec::new())));
    }
    app.audit(Action::Home, None, json!({ "log": log_id, "force": force, "who": who, "why": why })).await?;
    let by_caller = |record: &mut JournalRecord| sign(&app.projector, &app.caller, record);
    let positions = app.projector.init_home(plan, Decision { who, why }, &by_caller, left()).await?;
    Ok(Json(set(Disposition::Applied, positions)))
}

/// Refuses another log than the server's own.
fn check_named(own: Option<&LogId>, named: &LogId) -> Result<(), Error> {
    let why = match own {
        Some(own) if own == named => return Ok(()),
        Some(own) => format!("log id {named} was named, and this server reads {own}"),
        None => "these brokers give no topic ids, so a mirror would look like the home".to_owned(),
    };
    Err(Error::new(ErrorKind::Invalid, format!("{why}; no record was appended")))
}

/// Refuses a topic with the timestamps of a mirror.
fn check_timestamps(create_time: Option<bool>, topic: &str) -> Result<(), Error> {
    let why = match create_time {
        Some(false) => return Ok(()),
        Some(true) => format!("topic {topic} has message.timestamp.type=CreateTime, as topics of MirrorMaker have"),
        None => format!(
            "the settings of topic {topic} cannot be read, so it may be a topic of MirrorMaker (DescribeConfigs)"
        ),
    };
    let message =
        format!("{why}: no record was appended; if no other cluster's server writes this journal, send `force`");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Accepts runs that the lost home may have continued.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewAcceptance", extend("required" = ["who", "why"]))]
pub(super) struct AcceptBody {
    /// The run. Its effects were checked at their receivers.
    run_id: Option<RunId>,
    /// Accepts instead all run ids that this log does not know, such as of new runs.
    #[serde(default)]
    unknown_runs: bool,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    who: String,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    why: String,
}

/// Appends the statement to the run's partition, or for unknown runs to all partitions. Appends nothing for a run that is not in
/// doubt, and if the journal never lost a home.
///
/// Errors: `Usage` unless exactly one of `run_id` and `unknown_runs` is given.
pub(super) async fn accept(
    app: App,
    Query(patience): Query<Patience>,
    Text(body): Text,
) -> Result<Json<Outcomes>, Refusal> {
    let AcceptBody { run_id, unknown_runs, who, why } = parsed(&body, "an acceptance")?;
    check_attribution("an acceptance", &who, &why)?;
    if run_id.is_some() == unknown_runs {
        let message = "an acceptance needs either a `run_id` or `unknown_runs`";
        return Err(Error::new(ErrorKind::Usage, message).into());
    }
    if !is_needed(&app, run_id.as_ref(), patience.deadline()).await? {
        return Ok(Json(Outcomes { outcomes: Vec::new() }));
    }
    let who = attribution::who(app.caller.principal(), who);
    let detail = json!({ "unknown_runs": unknown_runs, "who": who, "why": why });
    app.audit(Action::Accept, run_id.as_ref().map(RunId::borrow), detail).await?;
    let by_caller = |record: &mut JournalRecord| sign(&app.projector, &app.caller, record);
    let positions = app.projector.accept(run_id, Decision { who, why }, &by_caller, patience.deadline()).await?;
    let outcomes = positions.into_iter().map(|position| Outcome {
        position,
        outcome: Disposition::Applied.into(),
        reason: None,
        record_id: OrEmpty::NONE,
        journal_seq: None,
        record_writer: None,
    });
    Ok(Json(Outcomes { outcomes: outcomes.collect() }))
}

/// Whether the run is in doubt; without a run, whether a partition lacks the acceptance of unknown runs. A second acceptance would leave
/// the runs in doubt that began after the first one.
async fn is_needed(app: &App, run_id: Option<&RunId>, deadline: Duration) -> Result<bool, Error> {
    let Some(run_id) = run_id else {
        app.projector.check_all_held()?;
        if app.projector.home().takeover().is_none() {
            return Ok(false);
        }
        let until = Instant::now() + deadline;
        for partition in PartitionId::all(app.projector.journal().partitions) {
            let left = until.saturating_duration_since(Instant::now());
            match app.projector.wait(partition, Consistency::Latest, left).await {
                // The other partitions can begin runs all the same.
                Err(error) if matches!(error.kind(), ErrorKind::PartitionStopped | ErrorKind::Stale) => {}
                waited => waited?,
            }
        }
        return app.read(|app| app.projector.doubts_unknown_runs()).await;
    };
    app.projector.wait(app.projector.partition_of(run_id.borrow()), Consistency::Latest, deadline).await?;
    match app.check_doubt(run_id.borrow()).await {
        Ok(()) => Ok(false),
        Err(error) if error.reason() == Some(ProblemReason::Doubt) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_set_only_at_the_log_that_the_request_names() {
        let log = |name| LogId::memory(name).unwrap();
        assert!(check_named(Some(&log("a")), &log("a")).is_ok());
        for own in [Some(log("b")), None] {
            assert_eq!(check_named(own.as_ref(), &log("a")).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn a_topic_with_the_timestamps_of_a_mirror_needs_force() {
        assert!(check_timestamps(Some(false), "t").is_ok());
        for (create_time, why) in [(Some(true), "CreateTime"), (None, "cannot be read")] {
            let error = check_timestamps(create_time, "t").unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("`force`"), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}

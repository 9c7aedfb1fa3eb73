//! Skips: shows which record a skip would void, and voids it.
//!
//! Unless forced, a skip is refused if the record can be read and its partition did not stop there. Otherwise every
//! reader would lose a valid record, and an effect that it completed would run again.
//!
//! A request may have the plan that its author saw. It is refused if the skip would now void something else, or displace more.

use super::{
    app::App,
    append::{
        attribution,
        of_partition::{can_skip, skip_for},
    },
    audit::Action,
    body::Text,
    parameters::{Ask, DEADLINE, NOT_BLANK, check_attribution},
    problem::Refusal,
    strict_json::{member, parsed},
};
use axum::{
    Json,
    extract::Query,
    response::{IntoResponse, Response},
};
use runlog_projector::{
    Consistency,
    index::{
        as_of::{self, Limits, RunAsOf},
        error::Error,
        query,
    },
};
use runlog_schemas::{
    answer::{ErrorKind, OrOther, SkipPlan, SkipTarget},
    codec::{self, Unreadable},
    id::{LogId, Offset, OrEmpty, PartitionId, RecordId, RunId},
    payload::Skip,
    record::RecordKind,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkipQuery {
    /// Shows the record that the skip would void, and appends nothing.
    #[serde(default)]
    dry_run: bool,
    /// Also skips a record that can be read.
    #[serde(default)]
    force: bool,
    deadline_ms: Option<u64>,
}

/// Voids one record for every reader.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Skip", extend("required" = ["partition", "offset", "who", "why"]))]
pub(super) struct SkipBody {
    partition: PartitionId,
    /// The record's offset. 0 is the journal's genesis record, which cannot be voided.
    offset: Offset,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    who: String,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    why: String,
    /// The answer of the dry run that the author saw. The skip is refused as `conflict` if it would now do
    /// something else.
    #[serde(default, deserialize_with = "member")]
    plan: Option<SeenPlan>,
}

/// The members of a dry run's answer that are compared with the skip. Others are ignored: a later version may add some.
#[derive(Debug, Deserialize, JsonSchema)]
struct SeenPlan {
    position: SeenPosition,
    target: SkipTarget,
    #[serde(default)]
    run_id: Option<RunId>,
    #[serde(default)]
    #[schemars(with = "Option<OrEmpty<RecordId>>")]
    record_id: OrEmpty<RecordId>,
    #[serde(default)]
    displaced: Option<u64>,
}

/// The members of a position that name the record.
#[derive(Debug, Deserialize, JsonSchema)]
struct SeenPosition {
    partition: PartitionId,
    offset: Offset,
    #[serde(default)]
    log: Option<LogId>,
}

pub(super) async fn append(app: App, Query(query): Query<SkipQuery>, Text(body): Text) -> Result<Response, Refusal> {
    let SkipBody { partition, offset, who, why, plan: seen } = parsed(&body, "a skip")?;
    check_attribution("a skip", &who, &why)?;
    let who = attribution::who(app.caller.principal(), who);
    let deadline = Ask { consistency: None, deadline_ms: query.deadline_ms }.deadline();
    let until = Instant::now() + deadline;
    can_skip(&app.projector, partition, offset, deadline).await?;
    let plan = app.blocking(move |app| skip_plan(app, partition, offset, (query.force, until))).await?;
    let is_refused = plan.target == SkipTarget::Readable && !query.force;
    // A skip that is appended does not wait for the count, which can take the whole deadline.
    if query.dry_run || is_refused {
        let plan = count_displaced(&app, plan, partition, offset, until).await?;
        return if query.dry_run { Ok(Json(plan).into_response()) } else { Err(readable(&plan, partition, offset)) };
    }
    if let Some(seen) = seen {
        check_seen(&app, seen, &plan, until).await?;
    }
    let detail = json!({ "partition": partition, "offset": offset, "force": query.force, "who": who, "why": why });
    app.audit(Action::Skip, plan.run_id.as_ref().map(|run_id| run_id.borrow()), detail).await?;
    let (skip, left) = (Skip { offset, who, why }, until.saturating_duration_since(Instant::now()));
    let outcome = skip_for(&app.projector, &app.caller, partition, skip, left).await?;
    Ok(Json(outcome).into_response())
}

/// Refuses to skip a record that can be read.
fn readable(plan: &SkipPlan, partition: PartitionId, offset: Offset) -> Refusal {
    let message = format!(
        "{partition}:{offset} can be read, and its partition did not stop there: a skip would void {} of run {}{}. Nothing \
         happened; force skips it all the same",
        plan.payload_type.as_ref().map_or("a record", OrOther::as_str),
        plan.run_id.as_ref().map_or("(none)", |run_id| run_id.as_str()),
        plan.displaced.filter(|count| *count > 0).map_or_else(String::new, |count| {
            format!(", and {count} later applied records of the run would be refused")
        }),
    );
    Error::new(ErrorKind::Invalid, message).at(&plan.position).about_record(plan.record_id.borrow()).into()
}

/// Refuses a skip that would not do what its author saw. Counts the displaced records only if the author saw their number, and in all
/// records of the log.
///
/// Errors: `Conflict` if the skip would do something else. `Unavailable` if the records cannot be counted now; as
/// [`Projector::wait`](runlog_projector::Projector::wait) at `latest`.
async fn check_seen(app: &App, seen: SeenPlan, plan: &SkipPlan, until: Instant) -> Result<(), Error> {
    let (position, at) = (&plan.position, &seen.position);
    let (partition, offset) = (position.partition, position.offset);
    // After the dry run a partition can stop at an unreadable record, or continue after it.
    let is_readable = plan.target == SkipTarget::Readable;
    let is_other_log = at.log.as_ref().zip(position.log.as_ref()).is_some_and(|(seen, own)| seen != own);
    let change = if (at.partition, at.offset) != (partition, offset) {
        format!("the plan is about {}:{}", at.partition, at.offset)
    } else if is_other_log {
        "the plan is about another log".to_owned()
    } else if is_readable && seen.target != SkipTarget::Readable {
        format!("it was {}, and is {} now", seen.target, plan.target)
    } else if is_readable && (&seen.run_id, &seen.record_id) != (&plan.run_id, &plan.record_id) {
        format!("it was record {}, and is record {} now", seen.record_id, plan.record_id)
    } else {
        let Some(before) = seen.displaced.filter(|_| is_readable) else { return Ok(()) };
        app.projector.wait(partition, Consistency::Latest, until.saturating_duration_since(Instant::now())).await?;
        let counted = count_displaced(app, plan.clone(), partition, offset, until).await?;
        match counted.displaced {
            Some(now) if now <= before => return Ok(()),
            Some(now) => format!("{before} later records of the run would have been refused, and {now} would be now"),
            None => {
                let message =
                    format!("the records that a skip of {partition}:{offset} displaces cannot be counted now; retry");
                return Err(Error::new(ErrorKind::Unavailable, message).at(position));
            }
        }
    };
    let message = format!(
        "a skip of {partition}:{offset} would not do what its author saw: {change}. Nothing happened; read the plan again \
         (?dry_run=true)"
    );
    Err(Error::new(ErrorKind::Conflict, message).at(position))
}

/// Adds to a plan how many records a skip of a readable record would displace. Absent if its partition is stopped, if the run is
/// too large to count them, or if they are not counted in time.
async fn count_displaced(
    app: &App,
    plan: SkipPlan,
    partition: PartitionId,
    offset: Offset,
    until: Instant,
) -> Result<SkipPlan, Error> {
    let Some(run_id) = plan.run_id.clone() else { return Ok(plan) };
    if app.projector.progress(partition)?.stopped.is_some() {
        return Ok(plan);
    }
    let Some(permits) = app.past_permits(until).await else { return Ok(plan) };
    let count = move |app: &App| {
        let _permits = permits;
        let run = RunAsOf::new(run_id, partition, app.projector.journal().partitions);
        let limits = Limits { bytes: as_of::BYTES_MAX, until: Some(until) };
        Ok(run.count_displaced(&app.projector.store(partition)?.view(), offset, limits).ok())
    };
    Ok(SkipPlan { displaced: app.blocking(count).await?, ..plan })
}

/// Reads the record that a skip of an existing offset would void. Blocking.
///
/// Errors: `Invalid` for a genesis record, since a later one may contain the journal's home. `Unavailable` if the log does not
/// deliver the record in time; or if the registry has not resolved its schema, unless
/// the skip is forced.
fn skip_plan(
    app: &App,
    partition: PartitionId,
    offset: Offset,
    (force, until): (bool, Instant),
) -> Result<SkipPlan, Error> {
    let plan = |target: SkipTarget, detail| SkipPlan {
        dry_run: true,
        position: app.projector.position(partition, offset, 0),
        target: target.into(),
        detail,
        run_id: None,
        record_id: OrEmpty::NONE,
        payload_type: None,
        displaced: None,
    };
    let stop = app.projector.progress(partition)?.stopped;
    if let Some(stop) = stop.filter(|stop| stop.offset == offset && stop.kind.is_ended_by_skip()) {
        return Ok(plan(SkipTarget::Stop, Some(stop.error)));
    }
    let store = app.projector.store(partition)?;
    if let Some((_, detail)) = query::dead_letters::get(&store.view(), app.topic_partition(partition), offset)? {
        return Ok(plan(SkipTarget::Unreadable, Some(detail)));
    }
    let mut reader = app.projector.log().reader(&[(partition, offset)])?;
    let read = reader.poll(1, DEADLINE.min(until.saturating_duration_since(Instant::now())))?;
    let Some(record) = read.first() else {
        let message = format!("the log did not deliver {partition}:{offset} in time; retry");
        return Err(Error::new(ErrorKind::Unavailable, message).at(&app.projector.position(partition, offset, 0)));
    };
    if record.offset != offset {
        return Ok(plan(SkipTarget::Unreadable, Some("the log delivers no record at this offset".to_owned())));
    }
    let framed = match codec::reframe(&record.value, &*app.projector.config().schemas) {
        Ok(framed) => framed,
        Err(why @ Unreadable::Unresolved { .. }) if !force => {
            let message = format!(
                "{partition}:{offset} cannot be read yet: {why}. Nothing happened; retry when the registry answers, or force \
                 the skip"
            );
            return Err(Error::new(ErrorKind::Unavailable, message).at(&app.projector.position(partition, offset, 0)));
        }
        Err(why) => return Ok(plan(SkipTarget::Unreadable, Some(why.to_string()))),
    };
    Ok(match codec::read(&framed) {
        Ok(envelope) if envelope.kind == RecordKind::Genesis => {
            let message = format!("{partition}:{offset} is a genesis record, which cannot be skipped");
            return Err(Error::new(ErrorKind::Invalid, message).at(&app.projector.position(partition, offset, 0)));
        }
        Ok(envelope) => SkipPlan {
            run_id: envelope.run_id.map(|run_id| run_id.to_owned()),
            record_id: Some(envelope.record_id).into(),
            payload_type: Some(envelope.facts.payload_type.clone()),
            ..plan(SkipTarget::Readable, None)
        },
        Err(why) => plan(SkipTarget::Unreadable, Some(why.to_string())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory_limits::PASTS_MAX, options::Options, shutdown::Shutdown};
    use runlog_log::{Entry, Log as _, memory::MemoryLog};
    use runlog_projector::{Config, Projector};
    use runlog_schemas::{
        id::{RecordId, RunId},
        payload::RunLifecycle,
        record::JournalRecord,
    };
    use std::{sync::Arc, time::Duration};

    const DEADLINE: Duration = Duration::from_secs(300);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_forced_skip_does_not_wait_until_the_displaced_records_can_be_counted() {
        let (dir, log) = (tempfile::tempdir().unwrap(), MemoryLog::new(1));
        let config = Config::new(dir.path(), || 0, || "journal".into());
        let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await.unwrap());
        let says = RunLifecycle { status: "started".into(), reason: String::new() };
        let record =
            JournalRecord::new(RunId::new("r").unwrap(), RecordId::new("x").unwrap().to_owned(), "agent", says.into());
        let entry = Entry { key: b"r".to_vec(), value: codec::encode(&record), ..Entry::default() };
        let offset = log.append(PartitionId::ZERO, vec![entry]).await.unwrap()[0];
        let app = App::new(projector, Options::default(), Shutdown::new(Duration::ZERO).1);
        // Other requests fold past states of runs for as long as the test runs.
        let _held = app.limits.pasts.clone().acquire_many_owned(u32::try_from(PASTS_MAX).unwrap()).await.unwrap();

        let body = json!({ "partition": 0, "offset": offset, "who": "w", "why": "y" }).to_string();
        let deadline_ms = u64::try_from(DEADLINE.as_millis()).ok();
        let query = SkipQuery { dry_run: false, force: true, deadline_ms };
        let appended = tokio::time::timeout(DEADLINE / 3, append(app, Query(query), Text(body))).await;
        assert!(appended.expect("it waited for the count").is_ok());
    }
}

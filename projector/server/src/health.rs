//! Health, readiness, and findings about a server that does not work.

mod home;

use super::{app::App, journal::role, parameters::Nothing, problem::Refusal, scrape::count_partition};
use axum::{
    Json,
    extract::Query,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures_util::future::{join, join_all};
use home::{View, is_read_only, of_weakness};
use runlog_log::{Clients, LogSettings, Replacement, Stall};
use runlog_projector::index::{
    fold::{Stop, StopKind},
    held::NotHere,
    home::Role,
    projector::moved_back,
    query::{
        counts::{self, Counts},
        visible::Visible,
    },
    store::meta::Journal,
};
use runlog_schemas::{
    answer::{Doctor, Finding, LogRole, PartitionHealth, PartitionState, Severity},
    id::{Offset, PartitionId},
    shell, symbols,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// How long the doctor reports that a Kafka client was replaced.
const REPLACED_SHOWN: Duration = Duration::from_secs(3600);

/// How long a partition that counts as caught up may take to apply the log's records.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(1);

/// How long the doctor waits for the log.
const PATIENCE: Duration = Duration::from_secs(5);

async fn partition_health(app: &App, partition: PartitionId) -> Result<PartitionHealth, NotHere> {
    let before = app.projector.progress(partition)?.applied;
    let end = app.projector.bounds(partition, PATIENCE).await.map(|bounds| bounds.end);
    let progress = app.projector.progress(partition)?;
    let error = match (&progress.stopped, &end) {
        (Some(stop), _) => Some(stop.error.clone()),
        (None, Err(error)) => Some(error.problem().detail),
        (None, Ok(end)) if *end < before => Some(moved_back(partition, *end, before)),
        (None, Ok(_)) => None,
    };
    Ok(PartitionHealth {
        partition,
        applied: progress.applied,
        end: end.ok(),
        state: if progress.stopped.is_some() { PartitionState::Stopped } else { PartitionState::Running }.into(),
        error,
    })
}

/// Checks the held partitions concurrently: if the log does not answer, the total wait is [`PATIENCE`], not [`PATIENCE`]
/// per partition.
pub(super) async fn health(app: &App) -> Vec<PartitionHealth> {
    let all = join_all(app.projector.held_partitions().map(|partition| partition_health(app, partition))).await;
    all.into_iter().filter_map(Result::ok).collect()
}

/// Reads the log's current settings. The error is a finding.
async fn settings(app: &App) -> Result<LogSettings, Finding> {
    let ask = async {
        // One thread waits for the log, however many requests there are. The semaphore is never closed.
        let turn = app.limits.weaknesses.clone().acquire_owned().await.ok();
        let look = move |app: &App| {
            let _turn = turn;
            Ok(app.projector.log().settings()?)
        };
        app.blocking(look).await
    };
    let unknown = |why: String| {
        let fix = "check that the log is reachable, and that this user may describe the topic";
        warning(format!("cannot read the log's configuration: {why}"), fix)
    };
    match tokio::time::timeout(PATIENCE, ask).await {
        Ok(settings) => settings.map_err(|error| unknown(error.problem().detail)),
        Err(_) => Err(unknown(format!("no answer within {PATIENCE:?}"))),
    }
}

/// Finds settings that could lose records or mislead producers, and what is wrong with the journal's home.
fn findings_of_log(app: &App, settings: Result<LogSettings, Finding>, view: &View) -> Vec<Finding> {
    let (settings, unknown) = match settings {
        Ok(settings) => (Some(settings), None),
        Err(unknown) => (None, Some(unknown)),
    };
    let mut findings = view.findings(settings.as_ref());
    findings.extend(unknown);
    if let Some(LogSettings { weaknesses, partitions, .. }) = settings {
        findings.extend(weaknesses.into_iter().filter_map(|weakness| of_weakness(weakness, is_read_only(app))));
        findings.extend(added_partitions(partitions, app.projector.journal(), app.projector.log().topic()));
    }
    findings
}

/// Finds partitions of the topic that the journal does not have: they were added after the journal's genesis.
fn added_partitions(count: Option<u32>, journal: &Journal, topic: &str) -> Option<Finding> {
    let (count, own) = (count?, journal.partitions);
    let what = format!("topic {topic} has {count} partitions, journal {} has {own}", journal.journal_id);
    let fix = "let producers write to the journal's partitions only: servers do not read the added partitions, and Kafka cannot \
               remove them";
    (count > own).then(|| warning(what, fix))
}

/// Sums the counts of all readable partitions, and makes findings of them.
fn count_rows(app: &App) -> (Counts, Vec<Finding>) {
    let (mut all, mut findings) = (Counts::default(), Vec::new());
    for partition in app.projector.held_partitions() {
        match count_partition(app, partition, &Visible::default()) {
            Ok(counts) => {
                if counts.dead_letters > 0 {
                    let what = format!(
                        "partition {partition} has {} that cannot be read",
                        many(counts.dead_letters, "record")
                    );
                    findings.push(warning(what, "see `runlog dead-letter list`; find out which client writes them"));
                }
                all += counts;
            }
            Err(error) => findings.push(Finding {
                severity: Severity::Error.into(),
                what: format!("partition {partition} cannot be read: {}", error.problem().detail),
                fix: "follow the error's advice, and check the disk's health".into(),
            }),
        }
    }
    if all.reconcile_required.waiting > 0 {
        let what = format!("{} waiting for a decision", many(all.reconcile_required.waiting, "effect"));
        let fix = if is_read_only(app) {
            "`runlog effects --pending --unsafe` lists them; a server of the journal's home records decisions"
        } else {
            "`runlog effects --pending --unsafe` lists them; `runlog effects resolve RUN ID` records a decision"
        };
        findings.push(warning(what, fix));
    }
    if all.contradicted > 0 {
        let what =
            format!("{} with a later result that contradicts the recorded end", many(all.contradicted, "effect"));
        let fix = "`runlog effects --contradicted` lists them with these results; ask the receiver whether the effect \
                   happened twice, or although the call failed, and correct it there";
        findings.push(warning(what, fix));
    }
    if all.anomalies > 0 {
        let what = format!("{} refused", many(all.anomalies, "record"));
        findings
            .push(warning(what, "`runlog anomalies` lists them with the reason; correct the client that writes them"));
    }
    (all, findings)
}

fn warning(what: String, fix: &str) -> Finding {
    Finding { severity: Severity::Warning.into(), what, fix: fix.into() }
}

/// A count of rows, in words.
fn many(count: u64, what: &str) -> String {
    let at_least = if count >= counts::COUNT_MAX { "at least " } else { "" };
    format!("{at_least}{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The command that skips a record.
fn skip(partition: PartitionId, offset: Offset) -> String {
    shell::command("runlog dead-letter skip", &[&format!("{partition}:{offset}")], "--who NAME --why TEXT")
}

/// Advises what to do about a stopped partition. A server that is read-only appends no skip.
fn fix(partition: PartitionId, stop: &Stop, read_only: bool) -> String {
    let at_home = "; a skip is possible at the journal's home only, and stops this partition";
    match stop.kind {
        StopKind::UnknownSchema if read_only => format!("start a version that knows the schema{at_home}"),
        StopKind::Panic if read_only => {
            format!("report the defect with the server's log; start a version without it{at_home}")
        }
        StopKind::CannotRebuild if read_only => {
            "serve the journal's home; this partition answers at eventual. Delete nothing".into()
        }
        StopKind::UnknownSchema => format!(
            "start a version that knows the schema, or void the record: `{}`",
            skip(partition, stop.offset)
        ),
        StopKind::Registry => {
            "check that the schema registry is reachable and accepts the credentials; the partition resumes by itself"
                .into()
        }
        StopKind::LogTruncated => {
            "the log no longer has the next record, so an index cannot be built from the log either: keep the index, which \
             answers at eventual; restore the topic from a copy, or restore an index with a later position; find out what \
             removes records: retention.ms and retention.bytes must be -1"
                .into()
        }
        StopKind::LogDiverged => {
            "check that this is the log that the index was built from; if so, the log lost acknowledged records that the index \
             may still have: read them at eventual, then stop the server, delete the index folder and start again, which \
             builds the index from the log's current records"
                .into()
        }
        StopKind::LogDamaged => {
            "stop the server; restore the log's folder from a copy, or on Kafka let a replica lead whose data is intact; \
             then start again"
                .into()
        }
        StopKind::IndexDamaged => format!(
            "stop the server, delete the folder that the error names, and start again: partition {partition} is built from the log"
        ),
        StopKind::CannotRebuild => format!(
            "take the skip back: `{}`; the record that it names stays applied",
            skip(partition, stop.offset)
        ),
        StopKind::ForeignLog => {
            "serve the log that the index was built from; or stop the server, delete the index folder and start again, which \
             builds the index from this log"
                .into()
        }
        StopKind::ForeignSkip if read_only => {
            "serve the journal's home; this partition answers at eventual, as before the skip. Delete nothing".into()
        }
        // This log took over from the log whose offset the skip names.
        StopKind::ForeignSkip => format!(
            "void the skip, so that the record that it means stays applied: `{}`; a skip of this log can void the record",
            skip(partition, stop.offset)
        ),
        StopKind::NotAJournal => {
            "serve the topic that the journal was created on, or a new one; if MirrorMaker copies another journal into this \
             topic, stop it, and let it fill a topic of its own"
                .into()
        }
        StopKind::Panic => format!(
            "report the defect with the server's log; start a version without it, or void the record: `{}`",
            skip(partition, stop.offset)
        ),
        StopKind::Store => "free space on the disk and check its health; the server retries the partition every second".into(),
        StopKind::StoreStalled => {
            "check whether the disk that the error names hangs or is overloaded; the partition resumes by itself when the write \
             returns"
                .into()
        }
        StopKind::Log => "check that the log is reachable; the server retries the partition".into(),
    }
}

pub(super) async fn doctor(app: App, _: Query<Nothing>) -> Result<Json<Doctor>, Refusal> {
    let (partitions, settings) = join(health(&app), settings(&app)).await;
    let (counts, count_findings) = app.read(|app| Ok(count_rows(app))).await?;
    let shown = partitions.clone();
    let view = app.read(move |app| View::read(app, &shown)).await?;
    let (mut findings, mut without_end) = (Vec::new(), Vec::new());
    for health in &partitions {
        let Ok(progress) = app.projector.progress(health.partition) else { continue };
        match (&progress.stopped, &health.error) {
            (Some(stop), _) => findings.push(Finding {
                severity: Severity::Error.into(),
                what: format!("partition {} is stopped at offset {}: {}", health.partition, stop.offset, stop.error),
                fix: fix(health.partition, stop, is_read_only(&app)),
            }),
            (None, Some(error)) => without_end.push((health.partition, error.as_str())),
            (None, None) => {}
        }
    }
    findings.extend(unknown_ends(&without_end));
    findings.extend(absent_partitions(&app));
    findings.extend(client_findings(&app.projector.log().clients(), Instant::now().into_std()));
    if let Some(why) = app.tokens_failure() {
        findings.push(Finding {
            severity: Severity::Error.into(),
            what: format!("the server uses older tokens, since their file cannot be used: {why}"),
            fix: "correct the file; it is read again every 2 s. To revoke all tokens, leave `tokens` empty".into(),
        });
    }
    for (issuer, why) in app.key_failures() {
        findings.push(Finding {
            severity: Severity::Error.into(),
            what: format!(
                "the server uses older keys of the issuer {issuer}, since its current keys cannot be used: {why}"
            ),
            fix: "correct the file of keys, or check that their URL is reachable; the server retries by itself".into(),
        });
    }
    if let Some(why) = app.certificates_failure() {
        findings.push(Finding {
            severity: Severity::Error.into(),
            what: format!("the server uses older TLS certificates, since their files cannot be used: {why}"),
            fix: "correct the files of --tls-cert, --tls-key and --tls-client-ca; they are read again every 2 s".into(),
        });
    }
    if app.projector.paused() {
        findings.push(Finding {
            severity: Severity::Warning.into(),
            what: "this server is paused: it does not consume the log".into(),
            fix: "start it without --paused".into(),
        });
    }
    findings.extend(count_findings);
    findings.extend(findings_of_log(&app, settings, &view));
    let healthy = findings.iter().all(|finding| finding.severity != Severity::Error);
    let (waiting_decisions, refused_records) = (counts.reconcile_required.waiting, counts.anomalies);
    Ok(Json(Doctor { healthy, partitions, findings, waiting_decisions, refused_records }))
}

/// Names the partitions that the other findings and counts do not cover.
fn absent_partitions(app: &App) -> Option<Finding> {
    let absent: Vec<String> = app.projector.absent().map(|partition| partition.to_string()).collect();
    let mut what = format!("partitions {} are not on this server", absent.join(", "));
    if app.projector.home().role() == Role::Unknown {
        what += ", and it appends nothing, because it knows no home of the journal";
    }
    (!absent.is_empty()).then(|| warning(what, "ask a server that holds them"))
}

/// Reports partitions from which a consumer delivers no records, and clients that were replaced recently.
fn client_findings(clients: &Clients, now: std::time::Instant) -> Vec<Finding> {
    let stalled = clients.stalls.iter().map(|stall| {
        let Stall { partition, next, end, since } = stall;
        let seconds = now.saturating_duration_since(*since).as_secs();
        Finding {
            severity: Severity::Error.into(),
            what: format!(
                "a consumer has delivered nothing from partition {partition} at offset {next} for {seconds} s, although the log \
                 ends at {end}"
            ),
            fix: "the server replaces the consumer and retries; if that does not help within a minute, check the brokers' \
                  logs for errors of this partition, then restart this server"
                .into(),
        }
    });
    let last = clients.last.iter().filter(|last| now.saturating_duration_since(last.at) < REPLACED_SHOWN);
    let replaced = last.map(|Replacement { client, reason, at }| {
        let (client, count) = (client.as_str(), clients.replaced.get(client).copied().unwrap_or_default());
        let minutes = now.saturating_duration_since(*at).as_secs() / 60;
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        warning(
            format!("the {client} was replaced {times} since the start, last {minutes} minutes ago: {reason}"),
            "nothing to do if it stays rare; if it repeats, check the brokers and the network between",
        )
    });
    stalled.chain(replaced).collect()
}

/// Makes one finding per error, since an outage of the log has the same error for many partitions.
fn unknown_ends(failed: &[(PartitionId, &str)]) -> Vec<Finding> {
    let mut partitions_of = BTreeMap::<String, Vec<String>>::new();
    for (partition, error) in failed {
        let error = error.replacen(&format!(", partition {partition}"), "", 1);
        partitions_of.entry(error).or_default().push(partition.to_string());
    }
    let finding = |(error, partitions): (String, Vec<String>)| Finding {
        severity: Severity::Error.into(),
        what: format!(
            "the end offset of {} {} is not known: {error}",
            if partitions.len() == 1 { "partition" } else { "partitions" },
            partitions.join(", ")
        ),
        fix: "check that the log is reachable".into(),
    };
    partitions_of.into_iter().map(finding).collect()
}

symbols! {
    /// Whether the indices follow the log: `catching_up` if a partition lags, `stopped` if all partitions are stopped.
    ReadyState { Ready = "ready", CatchingUp = "catching_up", Stopped = "stopped" }
}

/// Whether a server is ready.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Readiness {
    /// Whether every partition is caught up or stopped, and not all are stopped.
    ready: bool,
    /// The state that `ready` follows from.
    state: ReadyState,
    /// Partitions that are stopped.
    stopped: Vec<PartitionId>,
    /// Partitions that lag the log's end, or whose end offset could not be read.
    lagging: Vec<PartitionId>,
    /// Whether the server reads the journal's home. A server on a mirror is ready, too.
    role: LogRole,
}

/// Answers 200 if every partition is caught up or stopped, 503 while one lags or if all are stopped. Names the stopped
/// and the lagging partitions. A partition lags if it does not reach the log's end within [`CAUGHT_UP_WITHIN`].
pub(super) async fn ready(app: App) -> Response {
    let health = health(&app).await;
    let in_state = |state: PartitionState| health.iter().filter(move |health| health.state == state);
    let stopped: Vec<_> = in_state(PartitionState::Stopped).map(|health| health.partition).collect();
    let app = &app;
    let lagging = join_all(in_state(PartitionState::Running).map(|health| async move {
        // While records are appended, the log is always some records ahead of the index.
        let catches_up = async || app.projector.caught_up(health.partition, CAUGHT_UP_WITHIN).await.is_ok();
        let is_caught_up = match health.end {
            Some(end) if health.error.is_none() => health.applied >= end || catches_up().await,
            _ => false,
        };
        (!is_caught_up).then_some(health.partition)
    }));
    let lagging: Vec<_> = lagging.await.into_iter().flatten().collect();
    let state = match () {
        () if !lagging.is_empty() => ReadyState::CatchingUp,
        // A server without partitions has no lag.
        () if !health.is_empty() && stopped.len() == health.len() => ReadyState::Stopped,
        () => ReadyState::Ready,
    };
    let ready = state == ReadyState::Ready;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, state, stopped, lagging, role: role(app.projector.home()) })).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_log::Client;

    #[test]
    fn a_stall_is_an_error_and_a_replacement_a_warning_for_an_hour() {
        let at = Instant::now().into_std();
        let last = Some(Replacement { client: Client::Consumer, reason: "it lost all brokers".into(), at });
        let stall = Stall { partition: 3.into(), next: 5.into(), end: 9.into(), since: at };
        let clients = Clients { replaced: BTreeMap::from([(Client::Consumer, 2)]), last, stalls: vec![stall] };
        let shown = |after: u64| -> Vec<String> {
            let findings = client_findings(&clients, at + Duration::from_secs(after));
            findings.iter().map(|finding| format!("{}: {}", finding.severity, finding.what)).collect()
        };
        let stalled = |seconds| {
            format!(
                "error: a consumer has delivered nothing from partition 3 at offset 5 for {seconds} s, although the log ends at 9"
            )
        };
        let replaced =
            "warning: the consumer was replaced 2 times since the start, last 1 minutes ago: it lost all brokers";
        assert_eq!(shown(60), [stalled(60), replaced.to_owned()]);
        assert_eq!(shown(3600), [stalled(3600)]);
    }

    #[test]
    fn partitions_beyond_the_journals_count_are_a_warning() {
        let journal = Journal { journal_id: "j".into(), partitions: 2 };
        let finding_of = |count| added_partitions(count, &journal, "t").map(|finding| (finding.severity, finding.what));
        assert_eq!((finding_of(None), finding_of(Some(2))), (None, None));
        let what = "topic t has 3 partitions, journal j has 2".to_owned();
        assert_eq!(finding_of(Some(3)), Some((Severity::Warning.into(), what)));
    }

    #[test]
    fn errors_with_one_cause_are_one_finding() {
        let errors =
            ["timed out, topic t, partition 0", "timed out, topic t, partition 1", "refused, topic t, partition 2"];
        let partitions = PartitionId::all(3);
        let failed: Vec<_> = partitions.zip(errors).collect();
        let messages: Vec<_> = unknown_ends(&failed).into_iter().map(|finding| finding.what).collect();
        let expected = [
            "the end offset of partition 2 is not known: refused, topic t",
            "the end offset of partitions 0, 1 is not known: timed out, topic t",
        ];
        assert_eq!(messages, expected);
    }
}

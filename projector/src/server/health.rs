//! Whether it works, and what is wrong where it does not.

use super::{App, Nothing};
use crate::index::{Error, fold::Stop, query};
use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures_util::future::{join, join_all};
use runlog_schemas::{
    answer::{Doctor, Finding, PartitionHealth},
    id::PartitionId,
};
use serde_json::json;
use std::{fmt::Write as _, time::Duration};

/// How long the doctor waits for the log.
const PATIENCE: Duration = Duration::from_secs(5);

impl App {
    async fn partition_health(&self, partition: PartitionId) -> PartitionHealth {
        let end = self.0.bounds(partition, PATIENCE).await.map(|bounds| bounds.end);
        let progress = self.0.progress(partition);
        let error = match (&progress.stopped, &end) {
            (Some(stop), _) => Some(stop.error.clone()),
            (None, Err(error)) => Some(error.problem().detail),
            (None, Ok(_)) => None,
        };
        PartitionHealth {
            partition,
            applied: progress.applied,
            end: end.ok(),
            state: if progress.stopped.is_some() { "stopped" } else { "running" }.into(),
            error,
        }
    }

    /// Of all partitions, asked at the same time: where nobody answers it takes [`PATIENCE`] and not that for each.
    async fn health(&self) -> Vec<PartitionHealth> {
        join_all(PartitionId::all(self.0.journal().partitions).map(|partition| self.partition_health(partition))).await
    }
}

impl App {
    /// What about the log's configuration, as it is now, could lose records.
    async fn weaknesses(&self) -> Vec<Finding> {
        let asked = tokio::time::timeout(PATIENCE, self.read(|app| Ok(app.0.log().weaknesses()?))).await;
        let unknown = |why: String| Finding {
            severity: "warning".into(),
            what: format!("the log's configuration cannot be looked at: {why}"),
            fix: "check that the log can be reached, and that this user may describe the topic".into(),
        };
        let weak = |what| Finding {
            severity: "error".into(),
            what,
            fix: "change the topic's configuration; a journal must not lose acknowledged records".into(),
        };
        match asked {
            Ok(Ok(weaknesses)) => weaknesses.into_iter().map(weak).collect(),
            Ok(Err(error)) => vec![unknown(error.problem().detail)],
            Err(_) => vec![unknown(format!("no answer within {PATIENCE:?}"))],
        }
    }

    /// Records that nobody can read, or why the index does not say.
    fn unread(&self, partition: PartitionId) -> Option<Finding> {
        let store = self.0.store(partition);
        let found = query::dead_letters::page(&store.view(), self.place(partition), None, query::LIMIT_MAX);
        let (severity, what, fix) = match found {
            Ok((letters, _)) => {
                let what = match letters.len() {
                    0 => return None,
                    1 => format!("partition {partition} has a record that nobody can read"),
                    count => format!("partition {partition} has {count} records that nobody can read"),
                };
                ("warning", what, "see `runlog dead-letter list`; find out which client writes them")
            }
            Err(error) => {
                let what = format!("partition {partition} cannot be read: {}", error.problem().detail);
                ("error", what, "do as it says, and check the disk's health")
            }
        };
        Some(Finding { severity: severity.into(), what, fix: fix.into() })
    }
}

/// What to do about a stop.
fn fix(partition: PartitionId, stop: &Stop) -> String {
    match stop.kind {
        "unknown_schema" => format!(
            "start a version that knows the schema, or void the record: \
             runlog dead-letter skip {partition}:{} --who … --why …",
            stop.offset
        ),
        "registry" => {
            "check that the schema registry can be reached and takes the credentials; the partition goes on by itself"
                .into()
        }
        "log_truncated" => {
            "the log has no longer what comes next here, so an index cannot be built from it either: keep the index, which \
             answers at eventual; bring back a copy of the topic, or an index that had come further, and find out what \
             removes records: retention.ms and retention.bytes have to be -1"
                .into()
        }
        "log_diverged" => {
            "check that this is the log that the index was built from; if so, it lost acknowledged records that the index may \
             still have: look at them at eventual, then stop, delete the index folder and start again, which builds it from \
             what the log has now"
                .into()
        }
        "log_damaged" => "stop the server and bring the log's folder back from a copy".into(),
        "index_damaged" => format!(
            "stop the server, delete the folder that is named, and start again: partition {partition} is built from the log"
        ),
        "cannot_rebuild" => format!(
            "take the skip back: runlog dead-letter skip {partition}:{} --who … --why …; what it voids stays as it is",
            stop.offset
        ),
        "not_a_journal" => "serve the topic that the journal was created on, or a new one".into(),
        "store" => "make room on the disk and check its health; the partition is tried again every second".into(),
        _ => "check that the log can be reached; the partition is tried again".into(),
    }
}

pub(super) async fn doctor(State(app): State<App>, _: Query<Nothing>) -> Result<Json<Doctor>, Error> {
    let (partitions, weaknesses) = join(app.health(), app.weaknesses()).await;
    let mut findings = Vec::new();
    for health in &partitions {
        let progress = app.0.progress(health.partition);
        match (&progress.stopped, &health.error) {
            (Some(stop), _) => findings.push(Finding {
                severity: "error".into(),
                what: format!("partition {} is stopped at offset {}: {}", health.partition, stop.offset, stop.error),
                fix: fix(health.partition, stop),
            }),
            (None, Some(error)) => findings.push(Finding {
                severity: "error".into(),
                what: format!("partition {} cannot be asked for its end: {error}", health.partition),
                fix: "check that the log can be reached".into(),
            }),
            (None, None) => {}
        }
        findings.extend(app.unread(health.partition));
    }
    if app.0.paused() {
        findings.push(Finding {
            severity: "warning".into(),
            what: "this server is paused: it consumes nothing".into(),
            fix: "start it without --paused".into(),
        });
    }
    findings.extend(weaknesses);
    let healthy = findings.iter().all(|finding| finding.severity != "error");
    Ok(Json(Doctor { healthy, partitions, findings }))
}

/// 200 when every partition is caught up or stopped; names the stopped and the lagging.
pub(super) async fn ready(State(app): State<App>) -> Response {
    let health = app.health().await;
    let of = |wanted: fn(&PartitionHealth) -> bool| -> Vec<PartitionId> {
        health.iter().filter(|health| wanted(health)).map(|health| health.partition).collect()
    };
    let stopped = of(|health| health.state == "stopped");
    let lagging = of(|health| health.state == "running" && health.end.is_none_or(|end| health.applied < end));
    let status = if lagging.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": lagging.is_empty(), "stopped": stopped, "lagging": lagging }))).into_response()
}

/// Prometheus text: applied offsets and stops.
pub(super) async fn metrics(State(app): State<App>) -> String {
    let mut text = String::from("# TYPE runlog_applied_offset gauge\n# TYPE runlog_partition_stopped gauge\n");
    for partition in PartitionId::all(app.0.journal().partitions) {
        let progress = app.0.progress(partition);
        let stopped = u8::from(progress.stopped.is_some());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "runlog_applied_offset{{partition=\"{partition}\"}} {}", progress.applied);
        let _ = writeln!(text, "runlog_partition_stopped{{partition=\"{partition}\"}} {stopped}");
    }
    text
}

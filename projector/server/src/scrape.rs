//! `GET /metrics`: fills the gauges in, and answers in the format that Prometheus scrapes.

use super::{
    app::App,
    health::health,
    metrics::{Counted, set},
    problem::Refusal,
};
use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use prometheus_client::encoding::text::encode;
use runlog_projector::index::{
    error::Error,
    query::{
        counts::{self, Counts},
        visible::Visible,
    },
};
use runlog_schemas::{
    answer::{ErrorKind, PartitionState},
    id::PartitionId,
    judge::{Class, RunStatus},
};
use std::{sync::PoisonError, time::Duration};
use tokio::time::Instant;

/// How long counts of the indices are cached.
pub(super) const COUNTS_KEPT: Duration = Duration::from_secs(5);
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the counts of all partitions, at most [`COUNTS_KEPT`] old.
pub(super) async fn counts(app: &App) -> Result<Counted, Error> {
    let cached = app.metrics.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some((_, counts)) = cached.filter(|(at, _)| at.elapsed() < COUNTS_KEPT) {
        return Ok(counts);
    }
    let counts = app.blocking(|app| Ok(count(app, &Visible::default()))).await?;
    let cached = Some((Instant::now(), counts.clone()));
    *app.metrics.counts.lock().unwrap_or_else(PoisonError::into_inner) = cached;
    Ok(counts)
}

/// Counts the visible runs of all partitions now. Blocking.
pub(super) fn count(app: &App, visible: &Visible) -> Counted {
    let mut all = Counted::default();
    for partition in app.projector.held_partitions() {
        match count_partition(app, partition, visible) {
            Ok(counts) => all.counts += counts,
            Err(error) => {
                tracing::warn!("partition {partition} cannot be counted: {}", error.problem().detail);
                all.unreadable.push(partition);
            }
        }
    }
    all
}

/// Counts the visible runs of a partition now. Blocking.
pub(super) fn count_partition(app: &App, partition: PartitionId, visible: &Visible) -> Result<Counts, Error> {
    counts::count(&app.projector.store(partition)?.view(), visible, app.projector.log_now())
}

/// Answers a scrape. A figure that cannot be read is absent.
pub(super) async fn scrape(app: App) -> Result<Response, Refusal> {
    let metrics = &*app.metrics;
    metrics.ends.clear();
    metrics.lags.clear();
    for health in health(&app).await {
        let labels = || [("partition", health.partition.to_string())];
        set(&metrics.applied, labels(), health.applied.get());
        set(&metrics.stopped, labels(), u64::from(health.state == PartitionState::Stopped));
        if let Some(end) = health.end {
            set(&metrics.ends, labels(), end.get());
            set(&metrics.lags, labels(), end.since(health.applied));
        }
    }
    match counts(&app).await {
        // A sum that lacks partitions would look like an improvement.
        Ok(Counted { unreadable, .. }) if !unreadable.is_empty() => {}
        Ok(Counted { counts, .. }) => {
            for (class, of_class) in
                [(Class::RetrySafe, counts.retry_safe), (Class::ReconcileRequired, counts.reconcile_required)]
            {
                let labels = |state: &str| [("class", class.as_str().to_owned()), ("state", state.to_owned())];
                set(&metrics.pending, labels("running"), of_class.running);
                set(&metrics.pending, labels("waiting"), of_class.waiting);
            }
            for status in RunStatus::ALL {
                set(&metrics.runs, [("status", status.as_str().to_owned())], counts.runs.number(*status));
            }
            metrics.contradicted.set(counts.contradicted.cast_signed());
            metrics.anomalies.set(counts.anomalies.cast_signed());
            metrics.dead_letters.set(counts.dead_letters.cast_signed());
        }
        Err(error) => tracing::warn!("the indices cannot be counted for /metrics: {}", error.problem().detail),
    }
    let clients = app.projector.log().clients();
    metrics.count_replacements(&clients.replaced);
    metrics.stalled.set(i64::try_from(clients.stalls.len()).unwrap_or(i64::MAX));
    let failed = app.tokens_failure().is_some() || !app.key_failures().is_empty();
    metrics.token_failures.set(i64::from(failed));
    metrics.certificate_failures.set(i64::from(app.certificates_failure().is_some()));
    metrics.expiries.clear();
    for (what, at) in app.watched().first() {
        if let Some(at) = at {
            set(&metrics.expiries, [("what", what.to_owned())], at / 1000);
        }
    }
    let (cache, memtables) = app.projector.memory_in_use();
    set(&metrics.rocksdb_memory, [("part", "cache".to_owned())], cache as u64);
    set(&metrics.rocksdb_memory, [("part", "memtables".to_owned())], memtables as u64);
    if let Some(bytes) = resident_bytes() {
        metrics.process_memory.set(bytes.cast_signed());
    }
    let mut text = String::new();
    encode(&mut text, &metrics.registry)
        .map_err(|error| Error::new(ErrorKind::Internal, "the metrics cannot be written").because(error))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

/// Resident memory of this process, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

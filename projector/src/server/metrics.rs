//! `GET /metrics`: figures in the OpenMetrics text format, which Prometheus scrapes.
//!
//! Requests update counters and histograms. A scrape reads gauges from the indices, the log and the process. Counts
//! that scan an index are refreshed at most every [`COUNTS_KEPT`].

use super::{App, auth::limits::Limit};
use crate::index::{
    Error,
    query::{
        counts::{self, Counts},
        visible::Visible,
    },
};
use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry, Unit},
};
use runlog_log::Client;
use runlog_schemas::{
    answer::{ErrorKind, Outcome},
    id::PartitionId,
    judge::Class,
};
use std::{
    collections::BTreeMap,
    fmt,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// How long counts of the indices are cached.
const COUNTS_KEPT: Duration = Duration::from_secs(5);
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Label names with their values.
type Labels<const N: usize> = [(&'static str, String); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// Counts failed TLS handshakes.
#[derive(Clone, Debug, Default)]
pub(super) struct HandshakeFailures(Counters<1>);

impl HandshakeFailures {
    /// Counts a failure for this reason.
    pub(super) fn count(&self, reason: &str) {
        count(&self.0, [("reason", reason.to_owned())]);
    }
}

/// Counts requests that exceeded a limit of their principal.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Counters<1>);

impl Refusals {
    /// Counts a request over this limit.
    pub(super) fn count(&self, limit: Limit) {
        count(&self.0, [("limit", limit.as_str().to_owned())]);
    }
}

/// All metrics of a server.
pub(super) struct Metrics {
    registry: Registry,
    requests: Counters<3>,
    durations: Histograms<2>,
    appended: Counters<2>,
    append_errors: Counters<1>,
    applied: Gauges<1>,
    ends: Gauges<1>,
    lags: Gauges<1>,
    stopped: Gauges<1>,
    pending: Gauges<2>,
    contradicted: Gauge,
    anomalies: Gauge,
    dead_letters: Gauge,
    rocksdb_memory: Gauges<1>,
    process_memory: Gauge,
    token_failures: Gauge,
    certificate_failures: Gauge,
    expiries: Gauges<1>,
    /// Locked while it catches up with the log's counts.
    clients_replaced: Mutex<Counters<1>>,
    stalled: Gauge,
    /// Shared with the listener.
    pub(super) handshake_failures: HandshakeFailures,
    counts: Mutex<Option<(Instant, Counted)>>,
}

/// Counts of the partitions that can be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) counts: Counts,
    /// The partitions that cannot be read.
    pub(super) unreadable: Vec<PartitionId>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Registers a metric and returns a handle to it.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn add_bytes<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register_with_unit(name, help, Unit::Bytes, metric.clone());
    metric
}

/// From 0.5 ms to 16 s.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.0, 16))
}

impl Metrics {
    pub(super) fn new(refusals: Refusals) -> Self {
        let mut registry = Registry::default();
        let all = &mut registry;
        let help = "Requests refused because their principal was over a limit, by limit";
        all.register("runlog_principal_refusals", help, refusals.0);
        let durations = Histograms::new_with_constructor(histogram as fn() -> Histogram);
        let help = "Time from a request to its answer, by method and path; of a stream, until it opens";
        all.register_with_unit("runlog_http_request_duration", help, Unit::Seconds, durations.clone());
        Self {
            requests: add(all, "runlog_http_requests", "Requests answered, by method, path and status"),
            durations,
            appended: add(all, "runlog_appended_records", "Records posted and answered, by outcome and reason"),
            append_errors: add(all, "runlog_append_errors", "Requests to append that failed, by kind of error"),
            applied: add(all, "runlog_applied_offset", "Offset of the next record to apply, by partition"),
            ends: add(all, "runlog_end_offset", "End offset of the log, by partition; absent where it does not answer"),
            lags: add(all, "runlog_lag_records", "Records of the log that are not applied yet, by partition"),
            stopped: add(all, "runlog_partition_stopped", "1 where a partition is stopped, by partition"),
            pending: add(all, "runlog_pending_effects", PENDING_HELP),
            contradicted: add(
                all,
                "runlog_contradicted_effects",
                "Ended effects that a later result contradicts; at most 10000 of a partition are counted",
            ),
            anomalies: add(all, "runlog_anomalies", "Refused records; at most 10000 of a partition are counted"),
            dead_letters: add(
                all,
                "runlog_dead_letters",
                "Unreadable records; at most 10000 of a partition are counted",
            ),
            rocksdb_memory: add_bytes(all, "runlog_rocksdb_memory", "Memory of RocksDB: block cache, memtables in it"),
            process_memory: add_bytes(all, "process_resident_memory", "Resident memory of the process"),
            token_failures: add(
                all,
                "runlog_tokens_unusable",
                "1 where the token file, or the keys of an issuer of JWTs, cannot be used as they are now",
            ),
            certificate_failures: add(
                all,
                "runlog_certificates_unusable",
                "1 where the files of certificate and key cannot be used as they are now",
            ),
            expiries: add(
                all,
                "runlog_expiry_timestamp_seconds",
                "When the server's certificate and the first token expire, seconds since the Unix epoch",
            ),
            clients_replaced: Mutex::new(add(
                all,
                "runlog_log_clients_replaced",
                "Clients of the log that were replaced because they lost the brokers or delivered nothing, by client",
            )),
            stalled: add(
                all,
                "runlog_stalled_partitions",
                "Partitions from which a consumer delivers nothing although the log has more, for each consumer",
            ),
            handshake_failures: HandshakeFailures(add(
                all,
                "runlog_tls_handshake_failures",
                "TLS connections that were not made, by reason",
            )),
            counts: Mutex::default(),
            registry,
        }
    }

    /// Counts an answered request. `path` is the route's path, with parameters in braces.
    pub(super) fn count_request(&self, method: &str, path: Option<&str>, status: u16, spent: Duration) {
        // Clients must not be able to create labels.
        let method = if matches!(method, "GET" | "HEAD" | "POST") { method } else { "other" };
        let path = path.unwrap_or("other");
        let labels = [("method", method.to_owned()), ("path", path.to_owned())];
        self.durations.get_or_create_owned(&labels).observe(spent.as_secs_f64());
        let [method, path] = labels;
        count(&self.requests, [method, path, ("status", status.to_string())]);
    }

    /// Raises the counter of replaced clients to the log's counts.
    fn count_replacements(&self, counts: &BTreeMap<Client, u64>) {
        let counters = self.clients_replaced.lock().unwrap_or_else(PoisonError::into_inner);
        for client in Client::ALL {
            let counter = counters.get_or_create_owned(&[("client", client.as_str().to_owned())]);
            let count = counts.get(&client).copied().unwrap_or_default();
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// Counts a failed request to append.
    pub(super) fn append_failed(&self, kind: ErrorKind) {
        count(&self.append_errors, [("kind", kind.as_str().to_owned())]);
    }

    /// Counts appended records, by outcome.
    pub(super) fn appended(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let reason = outcome.reason.as_ref().map(ToString::to_string).unwrap_or_default();
            count(&self.appended, [("outcome", outcome.outcome.to_string()), ("reason", reason)]);
        }
    }
}

const PENDING_HELP: &str = "Effects without a recorded end, by class (retry_safe, or reconcile_required) and state: \
                            running, if the process that started them has the run and wrote to it within 30 s, or waiting \
                            for a decision or another process; at most 10000 of a partition are counted";

fn count<S: EncodeLabelSet + Clone + Hash + Eq>(family: &Family<S, Counter>, labels: S) {
    family.get_or_create_owned(&labels).inc();
}

fn set<S: EncodeLabelSet + Clone + Hash + Eq>(family: &Family<S, Gauge>, labels: S, value: u64) {
    family.get_or_create_owned(&labels).set(value.cast_signed());
}

impl App {
    /// Returns the counts of all partitions, at most [`COUNTS_KEPT`] old.
    pub(super) async fn counts(&self) -> Result<Counted, Error> {
        let cached = self.metrics().counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, counts)) = cached.filter(|(at, _)| at.elapsed() < COUNTS_KEPT) {
            return Ok(counts);
        }
        let counts = self.blocking(|app| Ok(app.count(&Visible::default()))).await?;
        let cached = Some((Instant::now(), counts.clone()));
        *self.metrics().counts.lock().unwrap_or_else(PoisonError::into_inner) = cached;
        Ok(counts)
    }

    /// Counts the visible runs of all partitions now. Blocking.
    pub(super) fn count(&self, visible: &Visible) -> Counted {
        let mut all = Counted::default();
        for partition in PartitionId::all(self.0.journal().partitions) {
            match counts::count(&self.0.store(partition).view(), visible, self.0.log_now()) {
                Ok(counts) => all.counts += counts,
                Err(error) => {
                    tracing::warn!("partition {partition} cannot be counted: {}", error.problem().detail);
                    all.unreadable.push(partition);
                }
            }
        }
        all
    }
}

/// Answers a scrape. A figure that cannot be read is absent.
pub(super) async fn scrape(app: App) -> Result<Response, Error> {
    let metrics = app.metrics();
    metrics.ends.clear();
    metrics.lags.clear();
    for health in app.health().await {
        let labels = || [("partition", health.partition.to_string())];
        set(&metrics.applied, labels(), health.applied.get());
        set(&metrics.stopped, labels(), u64::from(app.0.progress(health.partition).stopped.is_some()));
        if let Some(end) = health.end {
            set(&metrics.ends, labels(), end.get());
            set(&metrics.lags, labels(), end.since(health.applied));
        }
    }
    match app.counts().await {
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
            metrics.contradicted.set(counts.contradicted.cast_signed());
            metrics.anomalies.set(counts.anomalies.cast_signed());
            metrics.dead_letters.set(counts.dead_letters.cast_signed());
        }
        Err(error) => tracing::warn!("the indices cannot be counted for /metrics: {}", error.problem().detail),
    }
    let clients = app.0.log().clients();
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
    let (cache, memtables) = app.0.shared.budget.in_use();
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

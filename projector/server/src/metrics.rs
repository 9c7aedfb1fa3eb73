//! `GET /metrics`: figures in the OpenMetrics text format, which Prometheus scrapes.
//!
//! Requests update counters and histograms. A scrape reads gauges from the indices, the log and the process. Counts
//! that scan an index are refreshed at most every [`COUNTS_KEPT`](super::scrape::COUNTS_KEPT).

use super::auth::limits::Limit;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry, Unit},
};
use runlog_log::Client;
use runlog_projector::index::query::counts::Counts;
use runlog_schemas::{
    answer::{ErrorKind, Outcome},
    id::PartitionId,
};
use std::{
    collections::BTreeMap,
    fmt,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

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
pub(crate) struct Refusals(Counters<1>);

impl Refusals {
    /// Counts a request over this limit.
    pub(super) fn count(&self, limit: Limit) {
        count(&self.0, [("limit", limit.as_str().to_owned())]);
    }
}

/// All metrics of a server.
pub(super) struct Metrics {
    pub(super) registry: Registry,
    pub(super) requests: Counters<3>,
    pub(super) durations: Histograms<2>,
    pub(super) appended: Counters<2>,
    pub(super) append_errors: Counters<1>,
    forwarded: Counters<2>,
    pub(super) applied: Gauges<1>,
    pub(super) ends: Gauges<1>,
    pub(super) lags: Gauges<1>,
    pub(super) stopped: Gauges<1>,
    pub(super) runs: Gauges<1>,
    pub(super) pending: Gauges<2>,
    pub(super) contradicted: Gauge,
    pub(super) anomalies: Gauge,
    pub(super) dead_letters: Gauge,
    pub(super) rocksdb_memory: Gauges<1>,
    pub(super) process_memory: Gauge,
    pub(super) token_failures: Gauge,
    pub(super) certificate_failures: Gauge,
    pub(super) expiries: Gauges<1>,
    /// Locked while it catches up with the log's counts.
    pub(super) clients_replaced: Mutex<Counters<1>>,
    pub(super) stalled: Gauge,
    /// Shared with the listener.
    pub(super) handshake_failures: HandshakeFailures,
    pub(super) counts: Mutex<Option<(Instant, Counted)>>,
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
            forwarded: add(
                all,
                "runlog_forwarded_requests",
                "Requests sent to another instance, by instance and whether it answered",
            ),
            applied: add(all, "runlog_applied_offset", "Offset of the next record to apply, by partition"),
            ends: add(all, "runlog_end_offset", "End offset of the log, by partition; absent if it does not answer"),
            lags: add(all, "runlog_lag_records", "Records of the log that are not applied yet, by partition"),
            stopped: add(all, "runlog_partition_stopped", "1 if a partition is stopped, by partition"),
            runs: add(all, "runlog_runs", "Runs with an applied record, by status"),
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
                "1 if the current token file, or the current keys of an issuer of JWTs, cannot be used",
            ),
            certificate_failures: add(
                all,
                "runlog_certificates_unusable",
                "1 if the current files of certificate and key cannot be used",
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
    pub(super) fn count_replacements(&self, counts: &BTreeMap<Client, u64>) {
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

    /// Counts a request that was sent to another instance of the list.
    pub(super) fn forwarded(&self, to: &str, answered: bool) {
        count(&self.forwarded, [("to", to.to_owned()), ("answered", answered.to_string())]);
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

pub(super) fn set<S: EncodeLabelSet + Clone + Hash + Eq>(family: &Family<S, Gauge>, labels: S, value: u64) {
    family.get_or_create_owned(&labels).set(value.cast_signed());
}

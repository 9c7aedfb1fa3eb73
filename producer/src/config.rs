//! Where the journal is, and how long to wait for it.

use crate::{
    error::{Action, Error, SideEffect},
    metrics::Meter,
    redact::Redaction,
};
use runlog_content::Store;
use runlog_schemas::{
    answer::ErrorKind,
    id::{RecordId, RunId},
    json::Json,
    record::JournalRecord,
};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Where a journal is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Journal {
    /// `http://HOST:PORT`: append and query through a server.
    Http(String),
    /// `kafka:BROKERS` for appends, a server for queries.
    Kafka {
        /// `HOST:PORT`, several separated by commas.
        brokers: String,
        /// The query server's URL. It also names topic, journal and partition count.
        server: String,
    },
    /// `local:DIR`: log and projector inside this process (feature `embedded`).
    Local(PathBuf),
}

impl Journal {
    /// Reads `http://…`, `local:DIR`, or `kafka:BROKERS` with the query server beside it.
    pub fn parse(url: &str, server: Option<&str>) -> Option<Self> {
        if url.starts_with("http://") {
            return Some(Self::Http(url.trim_end_matches('/').to_owned()));
        }
        if let Some(dir) = url.strip_prefix("local:") {
            return Some(Self::Local(dir.into()));
        }
        let brokers = url.strip_prefix("kafka:")?.to_owned();
        Some(Self::Kafka { brokers, server: server?.trim_end_matches('/').to_owned() })
    }
}

/// What a producer is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the journal is.
    pub journal: Journal,
    /// The `agent_id` of every record.
    pub agent_id: String,
    /// Who claims, for people: a host and process.
    pub claimed_by: String,
    /// Where payloads go that are too large for a record: the store that the server reads from. Default none: `local:`
    /// uses its folder's `content/`, `http:` leaves it to the server, and with `kafka:` such a record is `TooLarge`.
    pub content: Option<runlog_content::Config>,
    /// How long an append waits for its acknowledgement, and a query for its answer. Default 30 s.
    pub deadline: Duration,
    /// How long the gate waits for its intent to be read back as applied; past it the effect does not run. Default 10 s.
    pub read_back: Duration,
    /// Calls of one handle that may be under way at a time, from before their intent until their result is recorded; held
    /// results count. One more waits. Default 256.
    pub calls_max: usize,
    /// How long one operation of a handle may take in all, however many appends and questions it comes to; the effect of a
    /// call does not count. Past it the operation is cancelled, and its error says what it may have left behind. Default 120 s.
    pub operation: Duration,
    /// Records that may be on their way at a time, of all handles of a connection: sent, and not acknowledged. One more waits,
    /// up to `deadline`. Default 4096.
    pub buffer_records: usize,
    /// Their bytes, as they are encoded, in steps of a KiB. One that is larger goes alone. Default 32 MiB.
    pub buffer_bytes: usize,
    /// Milliseconds since the Unix epoch.
    pub clock: fn() -> u64,
    /// Random ids.
    pub ids: fn() -> String,
    /// What is taken out of records before they are encoded. Default nothing.
    pub redaction: Option<Redaction>,
    /// Takes what is counted. Default none.
    pub meter: Option<Arc<dyn Meter>>,
    /// The W3C `traceparent` of the operation that asks, which goes with its records as a header: with OpenTelemetry, that of
    /// the current span. What is no `traceparent` is left out. Default none.
    pub traceparent: fn() -> Option<String>,
    /// Called at the points that [`failpoint`] names, so that a test can stop this process, or let another go first,
    /// exactly there. It holds up the call that comes by. Default: does nothing.
    pub failpoints: fn(&'static str),
}

/// The points at which [`Config::failpoints`] is called.
pub mod failpoint {
    /// `open` has read the run's head and has not claimed the run yet.
    pub const HEAD_READ: &str = "head_read";
    /// A record has its numbers and is about to be sent. Claims do not come by here.
    pub const RECORD_NUMBERED: &str = "record_numbered";
    /// A payload is in the content store, and the record that names it not yet appended.
    pub const CONTENT_STORED: &str = "content_stored";
    /// An intent, or another attempt, is acknowledged and not yet read back.
    pub const INTENT_ACKNOWLEDGED: &str = "intent_acknowledged";
    /// A read-back was answered, and the answer not yet looked at.
    pub const READ_BACK_ANSWERED: &str = "read_back_answered";
}

impl Config {
    /// A new record's id.
    pub(crate) fn record_id(&self) -> Result<RecordId, Error> {
        Ok(RecordId::new((self.ids)())?)
    }

    pub(crate) fn count(&self, name: &'static str) {
        if let Some(meter) = &self.meter {
            meter.count(name, 1);
        }
    }

    pub(crate) fn observe(&self, name: &'static str, since: std::time::Instant) {
        if let Some(meter) = &self.meter {
            meter.observe(name, since.elapsed().as_secs_f64());
        }
    }

    /// The content store that the producer writes to itself, if one is configured.
    pub(crate) fn content_store(&self) -> Result<Option<Store>, Error> {
        Ok(self.content.as_ref().map(Store::open).transpose()?)
    }

    /// Runs an operation on a run for at most [`Config::operation`]. After that it is cancelled, with an error that reports
    /// `side_effect` as what the cancelled operation may have left behind.
    ///
    /// The operation is boxed before it is moved: a future that holds a record is large, and each layer around it would
    /// hold it twice.
    pub(crate) fn time_limited<'a, T: 'a>(
        &'a self,
        run_id: RunId<&'a str>,
        side_effect: SideEffect,
        operation: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        let in_time = tokio::time::timeout(self.operation, Box::pin(operation));
        async move {
            let late = || {
                let message = format!("timed out after {:?} during an operation on run {run_id}", self.operation);
                Error::new(ErrorKind::Unavailable, Action::Reopen, message).with_side_effect(side_effect)
            };
            in_time.await.unwrap_or_else(|_| Err(late()))
        }
    }

    /// Applies the redaction to a record.
    pub(crate) fn redact_record(&self, record: &mut JournalRecord) -> Result<(), Error> {
        self.redaction.as_ref().map_or(Ok(()), |redaction| redaction.record(record))
    }

    /// A value of `tool`, or of no tool, as it may be recorded.
    pub(crate) fn redacted(&self, tool: Option<&str>, json: &Json) -> Json {
        self.redaction.as_ref().map_or_else(|| json.clone(), |redaction| redaction.json(tool, json))
    }

    /// A text as it may be recorded.
    pub(crate) fn redacted_text(&self, text: &str) -> String {
        self.redaction.as_ref().map_or_else(|| text.to_owned(), |redaction| redaction.text(text))
    }

    /// The defaults for `journal`, in the name of `agent_id`.
    pub fn new(journal: Journal, agent_id: impl Into<String>) -> Self {
        Self {
            journal,
            agent_id: agent_id.into(),
            claimed_by: format!("process {}", std::process::id()),
            content: None,
            deadline: Duration::from_secs(30),
            read_back: Duration::from_secs(10),
            calls_max: 256,
            operation: Duration::from_secs(120),
            buffer_records: 4096,
            buffer_bytes: 32 << 20,
            clock: system_millis,
            ids: || uuid::Uuid::new_v4().to_string(),
            redaction: None,
            meter: None,
            traceparent: || None,
            failpoints: |_| {},
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the default of a constructor argument; tests give their own")]
fn system_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

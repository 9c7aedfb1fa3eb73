//! Which journal to use, and the limits on time and memory.

use crate::{
    error::{Action, Error, SideEffect},
    http_sender::HttpSender,
    metrics::Meter,
    redact::Redaction,
    security::{Security, Tls},
    token::Token,
};
use runlog_content::Store;
use runlog_log::Log;
use runlog_schemas::{
    answer::ErrorKind,
    datum::Sha256,
    id::{RecordId, RunId, Secret},
    json::Json,
    record::JournalRecord,
};
use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

/// The address of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Journal {
    /// `https://HOST:PORT` or `http://HOST:PORT`: append and query through a server.
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
    /// Parses `https://…`, `http://…`, `local:DIR`, or `kafka:BROKERS` with the URL of its query server. `None` for other text.
    pub fn parse(url: &str, server: Option<&str>) -> Option<Self> {
        if url.starts_with("https://") || url.starts_with("http://") {
            return Some(Self::Http(url.trim_end_matches('/').to_owned()));
        }
        if let Some(dir) = url.strip_prefix("local:") {
            return Some(Self::Local(dir.into()));
        }
        let brokers = url.strip_prefix("kafka:")?.to_owned();
        Some(Self::Kafka { brokers, server: server?.trim_end_matches('/').to_owned() })
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(server) => f.write_str(server),
            Self::Kafka { brokers, .. } => write!(f, "kafka:{brokers}"),
            Self::Local(dir) => write!(f, "local:{}", dir.display()),
        }
    }
}

/// Properties of librdkafka. `Debug` shows their names only, since they hold passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KafkaProperties(pub BTreeMap<String, String>);

impl fmt::Debug for KafkaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The configuration of a producer.
#[derive(Clone, Debug)]
pub struct Config {
    /// The journal to use.
    pub journal: Journal,
    /// The `agent_id` of every record.
    pub agent_id: String,
    /// Names the claiming process for people: its host and process id. Default `process PID`.
    pub claimed_by: String,
    /// The store for payloads that are too large for a record; the server must read from the same store. Default none: `local:`
    /// uses its folder's `content/`, `http:` leaves it to the server, and with `kafka:` such a record is `TooLarge`.
    pub content: Option<runlog_content::Config>,
    /// The token to send to the server. Default: the environment's token, see [`Token::from_env`].
    pub token: Option<Token>,
    /// The certificates for an `https://` server. Default: the environment's certificates, see [`Tls::from_env`].
    pub tls: Option<Tls>,
    /// Sends the token over `http://` to other machines too, where others on the network can read it. Default false: the token
    /// is sent over `https://` and to this machine only.
    pub insecure_no_tls: bool,
    /// librdkafka's properties for a [`Journal::Kafka`], such as `security.protocol`. `NAME_file` names a private file that
    /// contains the value of `NAME`, for example `sasl.password_file`. Default: the properties in the file that
    /// `RUNLOG_KAFKA_PROPERTIES` names, one `name=value` per line.
    pub kafka: Option<KafkaProperties>,
    /// How long an append waits for its acknowledgement, and a query for its answer. Default 30 s.
    pub deadline: Duration,
    /// How long the gate waits for the read-back of its intent, and then, with a second wait of the same length, for earlier
    /// calls in flight. After either wait the effect does not run. Default 10 s.
    pub read_back: Duration,
    /// The maximum number of calls in flight per handle. A call counts from before its intent until its result is recorded, so
    /// held results count. Another call waits. Default 256.
    pub calls_max: usize,
    /// The maximum bytes of results that a handle holds until they are recorded. A result beyond the limit is not held: its
    /// call stays pending if its append fails. A single result is held at any size. Default 64 MiB.
    pub held_bytes_max: usize,
    /// How long one operation of a handle may take, including its appends and reads but not the effect of a call. A longer
    /// operation is cancelled; its error reports the possible [`SideEffect`]. Default 120 s.
    pub operation: Duration,
    /// The maximum number of unacknowledged records and waiting intents, over all handles of a connection. Intents of cancelled
    /// calls do not count. Another record waits up to `deadline`. Default 4096.
    pub buffer_records: usize,
    /// The maximum encoded bytes of the records that `buffer_records` counts, each record rounded up to a KiB. A larger record
    /// is sent alone. Default 32 MiB.
    pub buffer_bytes: usize,
    /// The clock: milliseconds since the Unix epoch. Default the system's.
    pub clock: fn() -> u64,
    /// Generates unique ids. Default random UUIDs.
    pub ids: fn() -> String,
    /// The content to remove from records before they are encoded. Default none.
    pub redaction: Option<Redaction>,
    /// Receives metrics. Default none.
    pub meter: Option<Arc<dyn Meter>>,
    /// Returns the W3C `traceparent` of the current operation; with OpenTelemetry, of the current span. Records carry it as a
    /// header, unless it is malformed. Default none.
    pub traceparent: fn() -> Option<String>,
    /// Called at the points in [`failpoint`], so that a test can stop this process or let another process run first. It blocks
    /// the calling operation. Default does nothing.
    pub failpoints: fn(&'static str),
    /// The highest `journal_seq` that a checkpoint covers if the covered calls are listed. If it covers more, a call with a key is
    /// looked up alone. Default 1000: one page.
    #[doc(hidden)]
    pub covered_list_max: u64,
    /// Replaces TCP for HTTP requests. Default none.
    #[doc(hidden)]
    pub http: Option<HttpSender>,
    /// Replaces the topic that a [`Journal::Kafka`] appends to; must have the same partition count. Default none.
    #[doc(hidden)]
    pub log: Option<Arc<dyn Log>>,
}

/// The points at which [`Config::failpoints`] is called.
pub mod failpoint {
    /// `open` has read the run's head and has not claimed the run yet.
    pub const HEAD_READ: &str = "head_read";
    /// A record is numbered and about to be sent. Not reached by claims.
    pub const RECORD_NUMBERED: &str = "record_numbered";
    /// A payload is in the content store; the record that refers to it is not appended yet.
    pub const CONTENT_STORED: &str = "content_stored";
    /// An intent or attempt is acknowledged. Its read-back follows, unless one request did both.
    pub const INTENT_ACKNOWLEDGED: &str = "intent_acknowledged";
    /// The answer to a read-back has arrived and is not evaluated yet.
    pub const READ_BACK_ANSWERED: &str = "read_back_answered";
}

impl Config {
    /// A new record's id.
    pub(crate) fn record_id(&self) -> Result<RecordId, Error> {
        Ok(RecordId::new((self.ids)())?)
    }

    /// A new secret: the hash of two ids, each of which has 122 random bits by default.
    pub(crate) fn secret(&self) -> Secret {
        Secret::new(Sha256::of_parts(&[(self.ids)().as_bytes(), (self.ids)().as_bytes()]).0)
    }

    pub(crate) fn count(&self, name: &'static str) {
        if let Some(meter) = &self.meter {
            meter.count(name, 1);
        }
    }

    pub(crate) fn observe(&self, name: &'static str, since: tokio::time::Instant) {
        if let Some(meter) = &self.meter {
            meter.observe(name, since.elapsed().as_secs_f64());
        }
    }

    /// The token and certificates for connections to a server. Blocking.
    ///
    /// Errors: `Usage` for a token that cannot be read.
    pub(crate) fn security(&self) -> Result<Security, Error> {
        Ok(Security {
            token: self.token.clone().map_or_else(Token::from_env, |token| Ok(Some(token)))?,
            tls: self.tls.clone().unwrap_or_else(Tls::from_env),
            insecure_no_tls: self.insecure_no_tls,
        })
    }

    /// The content store that the producer writes to itself, if one is configured.
    pub(crate) fn content_store(&self) -> Result<Option<Store>, Error> {
        Ok(self.content.as_ref().map(Store::open).transpose()?)
    }

    /// Runs an operation on a run for at most [`Config::operation`]. After that the operation is cancelled, and its error
    /// reports `side_effect`.
    ///
    /// Boxes the operation before moving it: a future with a record is large, and each layer around it would store it twice.
    pub(crate) fn time_limited<'a, T: 'a>(
        &'a self,
        run_id: RunId<&'a str>,
        side_effect: SideEffect,
        operation: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        let in_time = tokio::time::timeout(self.operation, Box::pin(operation));
        async move {
            let late = || {
                let waited = humantime::format_duration(self.operation);
                let message = format!("timed out after {waited} during an operation on run {run_id}");
                Error::new(ErrorKind::Unavailable, Action::Reopen, message).with_side_effect(side_effect)
            };
            in_time.await.unwrap_or_else(|_| Err(late())).map_err(|error| error.about_run(run_id))
        }
    }

    /// Applies the redaction to a record.
    pub(crate) fn redact_record(&self, record: &mut JournalRecord) -> Result<(), Error> {
        self.redaction.as_ref().map_or(Ok(()), |redaction| redaction.record(record))
    }

    /// Redacts a value of `tool`, or of no tool.
    pub(crate) fn redacted(&self, tool: Option<&str>, json: &Json) -> Json {
        self.redaction.as_ref().map_or_else(|| json.clone(), |redaction| redaction.json(tool, json))
    }

    /// Redacts a text.
    pub(crate) fn redacted_text(&self, text: &str) -> String {
        self.redaction.as_ref().map_or_else(|| text.to_owned(), |redaction| redaction.text(text))
    }

    /// The defaults for `journal` and `agent_id`.
    pub fn new(journal: Journal, agent_id: impl Into<String>) -> Self {
        Self {
            journal,
            agent_id: agent_id.into(),
            claimed_by: format!("process {}", std::process::id()),
            content: None,
            token: None,
            tls: None,
            insecure_no_tls: false,
            kafka: None,
            deadline: Duration::from_secs(30),
            read_back: Duration::from_secs(10),
            calls_max: 256,
            held_bytes_max: 64 << 20,
            operation: Duration::from_secs(120),
            buffer_records: 4096,
            buffer_bytes: 32 << 20,
            clock: system_millis,
            ids: random_id,
            redaction: None,
            meter: None,
            traceparent: || None,
            failpoints: |_| {},
            covered_list_max: 1000,
            http: None,
            log: None,
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the default of a constructor argument; tests give their own")]
fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[allow(clippy::disallowed_methods, reason = "the default of a constructor argument; tests give their own")]
fn system_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

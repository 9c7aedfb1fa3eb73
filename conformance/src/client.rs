//! Requests to the server under test. Every wait has a limit. An error status is an answer like any other.

use eventsource_stream::Eventsource;
use futures_util::{StreamExt, stream::BoxStream};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use runlog_schemas::answer::Feature;
use std::{collections::BTreeSet, fmt::Display, time::Duration};
use tokio::{runtime::Runtime, time::timeout};

/// Time limit of connecting, and of each request before the first rule.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The largest answer that is accepted, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why the rules cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's URL is invalid.
    #[error("invalid server URL {url:?}: {why}; an example is http://127.0.0.1:7070")]
    Url {
        /// The URL from the caller.
        url: String,
        /// The defect of the URL.
        why: String,
    },
    /// The server does not answer.
    #[error("{url} does not answer: {why}")]
    Unavailable {
        /// The server's URL.
        url: String,
        /// The cause, with its own causes.
        why: String,
    },
    /// The HTTP client cannot be built on this machine.
    #[error("cannot create the HTTP client: {0}")]
    Client(String),
}

/// A path below the server's URL, with its query, percent-encoded.
#[derive(Clone, Debug)]
pub(crate) struct Target(String);

impl Target {
    /// Creates a target from a path that needs no encoding.
    pub(crate) fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn run(run_id: &str) -> Self {
        Self::new("/v1/runs").segment(run_id)
    }

    pub(crate) fn segment(mut self, segment: &str) -> Self {
        self.0.push('/');
        self.0.extend(utf8_percent_encode(segment, RESERVED));
        self
    }

    /// Adds a path that needs no encoding.
    pub(crate) fn path(mut self, path: &str) -> Self {
        self.0.push_str(path);
        self
    }

    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(&value.to_string(), RESERVED));
        self
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// An answer as it was received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

/// A stream of the data of server-sent events, or of the error that ends it.
pub(crate) struct Events(BoxStream<'static, Result<String, String>>);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

/// A server under test. Its methods block.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    runtime: Runtime,
    features: BTreeSet<String>,
}

impl Client {
    /// Connects to the server at `http://HOST:PORT` or `https://HOST:PORT`, with or without a path, and sends one request.
    /// `http` contains the certificates and the token that the server requires.
    ///
    /// Errors: an invalid URL, an HTTP client that cannot be built, or a server that does not answer within 10 s.
    pub fn connect(server: &str, http: reqwest::ClientBuilder) -> Result<Self, Error> {
        let invalid = |why: String| Error::Url { url: server.to_owned(), why };
        let url = reqwest::Url::parse(server).map_err(|error| invalid(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it must start with http:// or https:// and have neither query nor fragment".into()));
        }
        // A proxy from the environment would also get the requests to this machine's own address.
        let http = http.no_proxy().connect_timeout(FIRST_WAIT).build();
        let http = http.map_err(|error| Error::Client(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::Client(error.to_string()))?;
        let base = url.as_str().trim_end_matches('/').to_owned();
        let mut client = Self { http, base, runtime, features: BTreeSet::new() };
        let journal = client.first_answer(&Target::new("/v1/journal"))?;
        client.features = listed_features(&journal.body);
        Ok(client)
    }

    /// Returns whether the server listed the feature when the client connected.
    pub(crate) fn lists(&self, feature: Feature) -> bool {
        self.features.contains(feature.as_str())
    }

    /// Returns whether the server has a run whose id begins with `prefix`.
    pub fn has_runs(&self, prefix: &str) -> Result<bool, Error> {
        let answer = self.first_answer(&Target::new("/v1/runs").with("prefix", prefix).with("limit", 1))?;
        let page: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        Ok(page["runs"].as_array().is_some_and(|runs| !runs.is_empty()))
    }

    fn first_answer(&self, target: &Target) -> Result<Received, Error> {
        self.get(target, FIRST_WAIT).map_err(|why| Error::Unavailable { url: self.base.clone(), why })
    }

    pub(crate) fn get(&self, target: &Target, wait: Duration) -> Result<Received, String> {
        self.send(self.http.get(self.url(target)), wait)
    }

    pub(crate) fn post(&self, target: &Target, body: String, wait: Duration) -> Result<Received, String> {
        let request = self.http.post(self.url(target)).header(reqwest::header::CONTENT_TYPE, "application/json");
        self.send(request.body(body), wait)
    }

    /// Opens a stream of server-sent events.
    pub(crate) fn events(&self, target: &Target, wait: Duration) -> Result<Events, String> {
        let request = self.http.get(self.url(target)).header(reqwest::header::ACCEPT, "text/event-stream").send();
        self.runtime.block_on(async {
            let response = timeout(wait, request).await.map_err(|_| late(wait))?.map_err(chain)?;
            let response = response.error_for_status().map_err(chain)?;
            let mut bytes = 0;
            let bounded = response.bytes_stream().map(move |chunk| {
                let chunk = chunk.map_err(chain)?;
                bytes += chunk.len();
                if bytes <= ANSWER_BYTES_MAX { Ok(chunk) } else { Err(too_long()) }
            });
            let events = bounded.eventsource();
            Ok(Events(events.map(|event| event.map(|event| event.data).map_err(|error| error.to_string())).boxed()))
        })
    }

    /// Returns the data of the next event, or `None` if the server ended the stream.
    pub(crate) fn next(&self, events: &mut Events, wait: Duration) -> Result<Option<String>, String> {
        self.runtime.block_on(async { timeout(wait, events.0.next()).await.map_err(|_| late(wait))?.transpose() })
    }

    fn send(&self, request: reqwest::RequestBuilder, wait: Duration) -> Result<Received, String> {
        self.runtime.block_on(async {
            let mut response = request.timeout(wait).send().await.map_err(chain)?;
            let content_type = response.headers().get(reqwest::header::CONTENT_TYPE);
            let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
            let mut bytes = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(chain)? {
                bytes.extend_from_slice(&chunk);
                if bytes.len() > ANSWER_BYTES_MAX {
                    return Err(too_long());
                }
            }
            let body = String::from_utf8_lossy(&bytes).into_owned();
            Ok(Received { status: response.status().as_u16(), content_type, body })
        })
    }

    fn url(&self, target: &Target) -> String {
        format!("{}{}", self.base, target.as_str())
    }
}

/// Returns the features in the description of a journal. An older server has no list.
fn listed_features(journal: &str) -> BTreeSet<String> {
    let journal: serde_json::Value = serde_json::from_str(journal).unwrap_or_default();
    let listed = journal["features"].as_array().into_iter().flatten();
    listed.filter_map(|feature| feature.as_str().map(str::to_owned)).collect()
}

fn too_long() -> String {
    format!("the answer exceeds {ANSWER_BYTES_MAX} bytes")
}

fn late(wait: Duration) -> String {
    format!("no answer within {wait:?}")
}

/// Formats the error and its causes.
fn chain(error: reqwest::Error) -> String {
    runlog_schemas::answer::with_causes(&error)
}

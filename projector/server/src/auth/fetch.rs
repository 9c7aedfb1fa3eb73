//! Fetches a key set over HTTPS, with limits of time and length. Follows no redirects.

use super::key_error::{Error, SET_BYTES_MAX};
use crate::tls;
use reqwest::{Client, StatusCode, Url, redirect::Policy};
use runlog_projector::index::executor::Executor;
use std::{path::PathBuf, time::Duration};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout, timeout_at},
};

/// How long a fetch may take.
const FETCH_WAIT: Duration = Duration::from_secs(5);
/// How long a JWT waits for a fetch: [`FETCH_WAIT`], and time to build the HTTP client.
const KEY_WAIT: Duration = Duration::from_secs(6);
/// The minimum time between two fetches.
const FETCH_PAUSE: Duration = Duration::from_secs(10);
/// The interval of fetches while no key is missing.
const FETCH_EVERY: Duration = Duration::from_secs(300);

/// A URL of keys, and when it was fetched last.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) url: String,
    ca: Option<PathBuf>,
    /// Notified when a JWT names a key that is not in the set.
    wanted: Notify,
    /// When the last fetch ended; `None` before its end.
    ended: watch::Sender<Option<Instant>>,
}

impl Remote {
    pub(super) fn new(url: String, ca: Option<PathBuf>) -> Self {
        Self { url, ca, wanted: Notify::new(), ended: watch::Sender::new(None) }
    }

    /// Waits for the fetch that is in flight or due now. Returns false if there is none.
    pub(super) async fn next_fetch(&self) -> bool {
        let mut ended = self.ended.subscribe();
        if ended.borrow_and_update().is_some_and(|at| at.elapsed() < FETCH_PAUSE) {
            return false;
        }
        self.wanted.notify_one();
        matches!(timeout(KEY_WAIT, ended.changed()).await, Ok(Ok(())))
    }

    /// Waits until a fetch is due. The first fetch is due at once. After a success, the next fetch is due when a JWT
    /// names an unknown key, at the latest after [`FETCH_EVERY`].
    pub(super) async fn due(&self, failed: bool) {
        let Some(ended) = *self.ended.borrow() else { return };
        sleep_until(ended + FETCH_PAUSE).await;
        if !failed {
            timeout_at(ended + FETCH_EVERY, self.wanted.notified()).await.ok();
        }
    }

    /// Fetches the text. The caller must call [`Remote::ended`] after it has processed the result.
    pub(super) async fn fetch(&self, executor: &Executor) -> Result<String, Error> {
        let (url, ca) = (self.url.clone(), self.ca.clone());
        let made = executor.run(move || client(&url, ca)).await;
        let client = made.map_err(|_| self.failed("the server ends"))??;
        let failed = |error: reqwest::Error| self.failed(runlog_schemas::answer::with_causes(&error.without_url()));
        let mut response = client.get(&self.url).send().await.map_err(failed)?;
        if response.status() != StatusCode::OK {
            return Err(self.failed(format!("it answered {}", response.status())));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > SET_BYTES_MAX {
                return Err(Error::TooLarge { location: self.url.clone() });
            }
            body.extend_from_slice(&chunk);
        }
        String::from_utf8(body).map_err(|_| self.failed("it did not answer with UTF-8"))
    }

    /// Notifies waiting JWTs that a fetch ended and its keys can be used.
    pub(super) fn notify_ended(&self) {
        self.ended.send_replace(Some(Instant::now()));
    }

    fn failed(&self, why: impl Into<String>) -> Error {
        Error::Fetch { url: self.url.clone(), why: why.into() }
    }
}

/// Reads the authorities, and makes a client that trusts them. Blocking.
fn client(url: &str, ca: Option<PathBuf>) -> Result<Client, Error> {
    let failed = |why: String| Error::Fetch { url: url.to_owned(), why };
    let roots = match ca {
        Some(path) => tls::authorities(&path).map_err(Error::Authorities)?,
        None => tls::authorities_of_system(),
    };
    if roots.is_empty() {
        return Err(failed("this system has no certificate authorities: name a file of them as `jwks_ca`".to_owned()));
    }
    let config = tls::trusting(roots).map_err(|error| failed(error.to_string()))?;
    let mut builder = Client::builder()
        .tls_backend_preconfigured(config)
        .https_only(true)
        .redirect(Policy::none())
        .timeout(FETCH_WAIT);
    // A proxy from the environment would also receive requests for this machine's own address.
    if matches!(Url::parse(url).as_ref().map(Url::host_str), Ok(Some("localhost" | "127.0.0.1" | "[::1]"))) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| failed(runlog_schemas::answer::with_causes(&error)))
}

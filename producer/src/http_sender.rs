//! Sends HTTP requests through a function in this process instead of TCP.

use crate::security::tls_failure;
use std::{fmt, pin::Pin, sync::Arc};

/// The future response, or the reason why there is none.
pub type Sending = Pin<Box<dyn Future<Output = Result<reqwest::Response, NoResponse>> + Send>>;

/// Sends HTTP requests to servers without a socket, for tests and simulations.
///
/// The function receives the complete request (its URL names the server) and resolves to the complete response:
/// `http::Response<Vec<u8>>` converts into a `reqwest::Response`. A future that never resolves is dropped at the request's
/// timeout; the request then counts as sent.
#[derive(Clone)]
pub struct HttpSender {
    client: reqwest::Client,
    send: Arc<dyn Fn(reqwest::Request) -> Sending + Send + Sync>,
}

impl HttpSender {
    /// Passes requests that `client` builds to `send`. The connections share `client`: with TLS, building a client per
    /// connection takes longer than all its requests.
    pub fn new(client: reqwest::Client, send: impl Fn(reqwest::Request) -> Sending + Send + Sync + 'static) -> Self {
        Self { client, send: Arc::new(send) }
    }

    pub(crate) fn client(&self) -> reqwest::Client {
        self.client.clone()
    }

    pub(crate) fn send(&self, request: reqwest::Request) -> Sending {
        (self.send)(request)
    }
}

impl fmt::Debug for HttpSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpSender")
    }
}

/// A request without a response.
#[derive(Clone, Debug)]
pub struct NoResponse {
    /// Whether the server may have received any part of the request. False only if no connection was made.
    pub sent: bool,
    /// The cause.
    pub why: String,
}

impl From<reqwest::Error> for NoResponse {
    fn from(error: reqwest::Error) -> Self {
        let why = tls_failure(&error).unwrap_or_else(|| format!("{error:#}; is `runlog serve` running there?"));
        Self { sent: !error.is_connect(), why }
    }
}

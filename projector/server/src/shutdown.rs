//! Shuts down with an answer for each request in flight before the connections close.
//!
//! ```text
//!   signal ──▶ streams end with an error event ──▶ reads: 503 ──▶ writes: 503 ──▶ connections close
//!              at once                             READ_GRACE     grace - MARGIN   grace
//! ```

use super::problem::problem;
use axum::{
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};
use runlog_projector::index::error::Error;
use runlog_schemas::answer::ErrorKind;
use std::time::Duration;
use tokio::sync::watch;

/// How long a read in flight may take after the signal.
const READ_GRACE: Duration = Duration::from_millis(200);
/// Time to write the last answers.
const MARGIN: Duration = Duration::from_millis(200);

/// Whether the server is shutting down, and how long requests may still take.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown {
    begun: watch::Receiver<bool>,
    grace: Duration,
}

impl Shutdown {
    /// Sending true begins the shutdown. Dropping the sender does not.
    pub(crate) fn new(grace: Duration) -> (watch::Sender<bool>, Self) {
        let (begin, begun) = watch::channel(false);
        (begin, Self { begun, grace })
    }

    /// Resolves when the shutdown begins.
    pub(crate) async fn begins(&self) {
        if self.begun.clone().wait_for(|begun| *begun).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the grace of a shutdown is over.
    pub(crate) async fn over(&self) {
        self.begins().await;
        tokio::time::sleep(self.grace).await;
    }
}

/// Runs a request. During a shutdown, answers 503 if it takes too long.
pub(super) async fn answer_in_time(State(shutdown): State<Shutdown>, request: Request, next: Next) -> Response {
    let (wait, message) = if request.method() == Method::GET {
        (READ_GRACE, "the server is shutting down; send the query again")
    } else {
        let message = "the server is shutting down, and it is not known whether the records were appended; send them \
                       again with the same record ids";
        (shutdown.grace.saturating_sub(MARGIN), message)
    };
    let late = async {
        shutdown.begins().await;
        tokio::time::sleep(wait).await;
    };
    tokio::select! {
        biased;
        response = next.run(request) => response,
        () = late => problem(&Error::new(ErrorKind::Unavailable, message)),
    }
}

//! Refuses requests that this server's log cannot answer: calls that append, on a mirror of the journal's home.
//!
//! The index refuses the same appends again, since programs also append without a server. This check answers before the
//! body is read and before content is stored.

use super::problem::problem;
use axum::{extract::Request, middleware::Next, response::Response};
use runlog_projector::index::{error::Error, projector::Projector};
use runlog_schemas::subject::Subject;
use std::sync::Arc;

/// Runs a request that this server's log can answer. `at_home` is the name of a call that only the home can answer.
pub(super) async fn check(
    projector: Arc<Projector>,
    at_home: Option<&'static str>,
    request: Request,
    next: Next,
) -> Response {
    match refusal(&projector, at_home) {
        Ok(()) => next.run(request).await,
        Err(error) => {
            let topic = Some(projector.log().topic().to_owned());
            problem(&error.about(Subject { topic, ..Subject::default() }))
        }
    }
}

fn refusal(projector: &Projector, at_home: Option<&str>) -> Result<(), Error> {
    at_home.map_or(Ok(()), |what| projector.home().check_home(what))
}

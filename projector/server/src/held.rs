//! Refuses requests about a run whose partition this server does not hold: such a run must not look as if it did not exist.
//!
//! The index refuses the same reads and appends again. This check answers before the body is read and before the log is asked.

use super::{auth::run_of, problem::problem};
use axum::{extract::Request, middleware::Next, response::Response};
use runlog_projector::index::{error::Error, projector::Projector};
use runlog_schemas::id::RunId;
use std::sync::Arc;

/// Runs a request whose run, if it names one, is in a held partition. The handler refuses a malformed run.
pub(super) async fn check(projector: Arc<Projector>, request: Request, next: Next) -> Response {
    if projector.holds_all() {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let partition = run_of(&mut parts).await.as_ref().map(RunId::borrow).map(|run| projector.partition_of(run));
    if let Some(Err(not_here)) = partition.map(|partition| projector.check_held(partition)) {
        return problem(&Error::from(not_here));
    }
    next.run(Request::from_parts(parts, body)).await
}

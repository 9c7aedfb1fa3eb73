//! Makes responses from errors: RFC 9457 problems, with the kind that callers act on.

use axum::{
    Extension, Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use runlog_projector::index::{error::Error, held::NotHere};
use runlog_schemas::answer::{ErrorKind, Problem};

/// When a client may repeat a request that was refused as `overloaded`, in seconds, if no better estimate exists.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Makes an `application/problem+json` response from an error, with the kind that callers act on.
pub(super) fn problem(error: &Error) -> Response {
    let problem = error.problem();
    if problem.kind == ErrorKind::Internal {
        tracing::error!("{}", problem.detail);
    }
    let mut response = respond(problem);
    if let Some(wait) = error.wait() {
        // Rounded up to whole seconds, so that the wait is over after them.
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    }
    response
}

pub(super) fn respond(problem: Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = problem.kind;
    let mut response =
        (status, Extension(kind), [(header::CONTENT_TYPE, "application/problem+json")], Json(problem)).into_response();
    if kind == ErrorKind::Overloaded {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

/// An error as the answer of a handler.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<NotHere> for Refusal {
    fn from(not_here: NotHere) -> Self {
        Self(not_here.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        problem(&self.0)
    }
}

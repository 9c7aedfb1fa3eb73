//! Answers requests that match no route, and reshapes the framework's own refusals.

use super::{
    problem::{problem, respond},
    requests,
    routes::operations,
};
use axum::{
    Json,
    extract::Request,
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use runlog_projector::index::error::Error;
use runlog_schemas::answer::{ErrorKind, Problem};
use serde_json::json;
use std::collections::BTreeSet;

pub(super) async fn refuse_method(uri: Uri, request: Request) -> Response {
    let message = format!("{} does not accept {}", uri.path(), request.method());
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::METHOD_NOT_ALLOWED.as_u16(), ..problem })
}

/// Answers `GET /` with the paths that are served.
fn index() -> Response {
    let paths: BTreeSet<&str> = operations().map(|(_, path)| path).collect();
    Json(json!({ "runlog": env!("CARGO_PKG_VERSION"), "paths": paths })).into_response()
}

/// Answers an unknown path with the kind `usage`. The kind `not_found` means that the path is known and the resource
/// absent.
pub(super) async fn refuse_path(uri: Uri, request: Request) -> Response {
    if uri.path() == "/" && request.method() == Method::GET {
        return index();
    }
    let message = format!("no such resource: {} {}; GET / lists the paths", request.method(), uri.path());
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::NOT_FOUND.as_u16(), ..problem })
}

pub(super) async fn refuse_admin_path(uri: Uri) -> Response {
    let message = format!("no such resource: {}; this address serves {}", uri.path(), requests::PROBES.join(", "));
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::NOT_FOUND.as_u16(), ..problem })
}

/// Turns the framework's own refusals (a query or body that does not parse) into problems.
pub(super) async fn reshape(response: Response) -> Response {
    let status = response.status();
    let plain =
        response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !status.is_client_error() || !plain {
        return response;
    }
    let kind = if status == StatusCode::PAYLOAD_TOO_LARGE { ErrorKind::TooLarge } else { ErrorKind::Usage };
    let body = axum::body::to_bytes(response.into_body(), 64 << 10).await.unwrap_or_default();
    problem(&Error::new(kind, String::from_utf8_lossy(&body).into_owned()))
}

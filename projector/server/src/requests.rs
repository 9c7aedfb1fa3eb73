//! Writes one log line per request (method, path, status, duration, kind of error, and the run that the path names),
//! and its metrics.
//!
//! The line omits the query, which may contain the arguments of a call. The line of a stream is written when it opens.

use super::{
    auth::Principal,
    memory_limits::{MemoryLimits, REQUESTS_MAX},
    metrics::Metrics,
    problem::problem,
    url_text::decode_percent,
};
use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::Response,
};
use runlog_projector::index::error::Error;
use runlog_schemas::answer::ErrorKind;
use std::sync::Arc;
use tokio::time::Instant;
use tracing::Level;

/// The paths that monitoring requests every few seconds.
pub(super) const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The route that appends records.
const APPENDS: &str = "/v1/runs/{run}/records";

/// Refuses a request if [`REQUESTS_MAX`] are in progress. Probes are always answered.
pub(super) async fn admit(State(limits): State<Arc<MemoryLimits>>, request: Request, next: Next) -> Response {
    if PROBES.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match limits.requests.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => problem(&Error::new(
            ErrorKind::Overloaded,
            format!("{REQUESTS_MAX} requests are in progress; nothing happened, send this request again later"),
        )),
    }
}

/// Forbids caching, since an answer is outdated at once, and content sniffing by browsers.
pub(super) async fn forbid_storing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Runs a request, counts and logs it.
pub(super) async fn observe(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    let (status, spent) = (response.status(), started.elapsed());
    let kind = response.extensions().get::<ErrorKind>().copied();
    let principal = response.extensions().get::<Principal>().cloned();
    metrics.count_request(method.as_str(), matched.as_deref(), status.as_u16(), spent);
    if let Some(kind) = kind.filter(|_| method == Method::POST && matched.as_deref() == Some(APPENDS)) {
        metrics.append_failed(kind);
    }
    let level = level(status, matched.as_deref());
    // The level of an event is part of its code.
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                $level,
                %method,
                path,
                status = status.as_u16(),
                // Microseconds are exact in a double.
                duration_ms = spent.as_micros() as f64 / 1000.0,
                error = kind.map(ErrorKind::as_str),
                principal = principal.as_ref().map(|principal| principal.0.as_str()),
                run = run(&path),
                "request"
            )
        };
    }
    match level {
        Level::ERROR => line!(Level::ERROR),
        Level::WARN => line!(Level::WARN),
        Level::INFO => line!(Level::INFO),
        _ => line!(Level::DEBUG),
    }
    response
}

/// Picks the log level: error for a server fault, warning for a refused request or one to retry, debug for probes. An
/// absent run or record is a normal answer: each agent that starts a new run asks for its recovery first.
fn level(status: StatusCode, matched: Option<&str>) -> Level {
    if status == StatusCode::NOT_FOUND && matched.is_some() {
        Level::INFO
    } else if status == StatusCode::SERVICE_UNAVAILABLE || status.is_client_error() {
        Level::WARN
    } else if status.is_server_error() {
        Level::ERROR
    } else if matched.is_some_and(|path| PROBES.contains(&path)) {
        Level::DEBUG
    } else {
        Level::INFO
    }
}

/// Extracts the run from `/v1/runs/{run}/…`.
pub(crate) fn run(path: &str) -> Option<String> {
    let segment = path.strip_prefix("/v1/runs/")?.split('/').next()?;
    String::from_utf8(decode_percent(segment)).ok().filter(|run| !run.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_follows_from_the_status() {
        for (status, matched, expected) in [
            (200, Some("/v1/runs"), Level::INFO),
            (200, Some("/readyz"), Level::DEBUG),
            (503, Some("/readyz"), Level::WARN),
            (404, None, Level::WARN),
            (404, Some("/v1/runs/{run}/recovery"), Level::INFO),
            (500, Some("/v1/runs"), Level::ERROR),
        ] {
            assert_eq!(level(StatusCode::from_u16(status).unwrap(), matched), expected, "{status} {matched:?}");
        }
    }

    #[test]
    fn the_run_is_named_as_it_is_and_not_as_the_url_writes_it() {
        assert_eq!(run("/v1/runs/a%2Fb%20c/records").as_deref(), Some("a/b c"));
        assert_eq!(run("/v1/runs/a%+fb%/records").as_deref(), Some("a%+fb%"), "no digits, so no escape");
        assert_eq!((run("/v1/runs"), run("/v1/runs/"), run("/v1/journal")), (None, None, None));
    }
}

//! Names the instances that hold a partition, in the error of a server that does not hold it.

use super::Placed;
use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::Response,
};
use runlog_schemas::answer::{Elsewhere, ErrorKind, OrOther, Problem, ProblemReason};
use std::sync::Arc;

/// The longest problem, bytes.
const PROBLEM_BYTES_MAX: usize = 1 << 20;

/// Adds the URLs of the partition's instances to answers with the reason `not_here`.
pub(crate) async fn name_instances(State(placed): State<Arc<Placed>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.extensions().get::<ErrorKind>() != Some(&ErrorKind::Unavailable) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&body).ok().and_then(|problem| with_instances(&placed, problem));
    let Some(changed) = problem.and_then(|problem| serde_json::to_vec(&problem).ok()) else {
        return Response::from_parts(parts, Body::from(body));
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(changed))
}

/// `None` for a problem with another reason.
fn with_instances(placed: &Placed, problem: Problem) -> Option<Problem> {
    let is_not_here = problem.reason == Some(OrOther::from(ProblemReason::NotHere));
    let partition = problem.partition.filter(|_| is_not_here)?;
    let instances = placed.urls(partition);
    let detail = format!("{}, but placed on {}", problem.detail, instances.join(", "));
    Some(Problem { detail, not_here: Some(Elsewhere { partition, instances }), ..problem })
}

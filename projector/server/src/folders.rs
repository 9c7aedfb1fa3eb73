//! Hides the paths of the server's folders from HTTP clients: errors name the data folder `DIR`, and a separate content
//! store `CONTENT`. The startup log has the paths.

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::Response,
};
use runlog_projector::index::projector::Projector;
use runlog_schemas::answer::{ErrorKind, Problem};
use std::{path::PathBuf, sync::Arc};

/// The longest problem, bytes.
const PROBLEM_BYTES_MAX: usize = 1 << 20;

/// The absolute paths of the server's folders with their placeholders, longest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Folders(Arc<[(String, &'static str)]>);

impl Folders {
    /// Reads a server's folders. Relative paths reveal no location, and stay.
    pub(super) fn new(projector: &Projector) -> Self {
        let config = projector.config();
        let content = config.content.as_ref().and_then(runlog_content::Store::folder);
        let content = content.filter(|content| !content.starts_with(&config.dir));
        let named = [(Some(config.dir.clone()), "DIR"), (content, "CONTENT")];
        let mut folders: Vec<_> = named.into_iter().filter_map(|(path, name)| Some((path?, name))).collect();
        // Some libraries report the target of a symbolic link.
        let real = |(path, name): &(PathBuf, &'static str)| Some((path.canonicalize().ok()?, *name));
        folders.extend(folders.iter().filter_map(real).collect::<Vec<_>>());
        let text = |(path, name): (PathBuf, &'static str)| {
            let place = path.parent().is_some() && path.is_absolute();
            path.to_str().filter(|_| place).map(|path| (path.trim_end_matches('/').to_owned(), name))
        };
        let mut folders: Vec<_> = folders.into_iter().filter_map(text).collect();
        folders.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(folders.into())
    }

    /// Replaces the paths in a problem.
    pub(super) fn hide_in(&self, problem: Problem) -> Problem {
        let hide = |detail: String, (path, name): &(String, &str)| detail.replace(path.as_str(), name);
        Problem { detail: self.0.iter().fold(problem.detail, hide), ..problem }
    }
}

/// Replaces the paths in error answers.
pub(super) async fn hide(State(folders): State<Folders>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.extensions().get::<ErrorKind>().is_none() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&body).ok().map(|problem| folders.hide_in(problem));
    let hidden = problem.and_then(|problem| serde_json::to_vec(&problem).ok());
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, hidden.map_or_else(|| Body::from(body), Body::from))
}

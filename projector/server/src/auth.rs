//! Authenticates callers and checks their permissions.
//!
//! ```text
//!   Authorization: Bearer TOKEN ──▶ SHA-256 ───────────────┐
//!                  Bearer JWT ────▶ signature, claims ─────┼──▶ table of the token file ──▶ Caller
//!   client certificate ───────────▶ its names ─────────────┘
//!
//!   Caller ──▶ the route's Access ──▶ handler, with App.caller
//! ```
//!
//! `authenticate` runs for every request and puts a `Caller` into its extensions. `permit` runs for every route with
//! the `Access` of its table entry, and refuses a request without a `Caller`. A run that a caller may not see has no
//! rows for the caller (`App::rows`), so the answers are the same as for an absent run.

pub(super) mod caller;
mod fetch;
#[cfg(fuzzing)]
pub(super) mod fuzzed;
mod grants;
pub mod identities;
mod issuers;
mod jwks;
mod jwt;
mod key_error;
pub mod limits;
pub(super) mod permissions;
pub mod receipts;
pub mod token_file;
mod tokens;
pub(super) mod usage;

pub(super) use caller::{Caller, Principal};
pub use tokens::Authentication;
pub(super) use usage::InProgress;

use super::{client_certificate::ClientCertificate, problem::problem, unauthenticated_connections::Peer};
use axum::{
    extract::{FromRequestParts, RawPathParams, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use permissions::Scope;
use runlog_projector::index::error::Error;
use runlog_schemas::{answer::ErrorKind, id::RunId};
use std::sync::Arc;
use tokens::AuthenticatedCaller;

/// The path that needs no authentication.
const OPEN: &str = "/healthz";

/// The access that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing.
    Open,
    /// Any valid token.
    Known,
    /// This scope. A run that the caller may not see is answered like an absent run; lists omit it.
    Run(Scope),
    /// This scope, and permission for the run of the path, even if it is absent: the request would create it.
    NewRun(Scope),
    /// One of these scopes, for all runs.
    AllRuns(&'static [Scope]),
}

impl Access {
    /// The scopes of which a caller needs one; empty if any token suffices.
    pub(super) fn scopes(self) -> Vec<Scope> {
        match self {
            Self::Open | Self::Known => Vec::new(),
            Self::Run(scope) | Self::NewRun(scope) => vec![scope],
            Self::AllRuns(scopes) => scopes.to_vec(),
        }
    }
}

/// Authenticates the caller. Without valid credentials, only [`OPEN`] is answered.
pub(super) async fn authenticate(
    State(authentication): State<Option<Arc<Authentication>>>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match &authentication {
        None => Some(Caller::Unchecked),
        Some(authentication) => {
            identify(authentication, &mut request).await.map(|known| Caller::Known(Arc::new(known)))
        }
    };
    match caller {
        Some(caller) => {
            let peer = request.extensions_mut().remove::<Peer>();
            if let Some(Err(error)) = peer.map(|peer| peer.assign_to(&caller)) {
                let mut response = problem(&error);
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                return response;
            }
            let _in_progress = match caller.request() {
                Ok(in_progress) => in_progress,
                Err(error) => return problem(&error),
            };
            let principal = caller.principal_text();
            request.extensions_mut().insert(caller);
            let mut response = next.run(request).await;
            if let Some(principal) = principal {
                response.extensions_mut().insert(principal);
            }
            response
        }
        None if request.uri().path() == OPEN => next.run(request).await,
        None => unauthenticated(),
    }
}

/// Authenticates a request. The certificate counts only without an `Authorization` header: a header that the client
/// sent decides, even if it is wrong.
async fn identify(authentication: &Arc<Authentication>, request: &mut Request) -> Option<AuthenticatedCaller> {
    let certificate = request.extensions_mut().remove::<Arc<ClientCertificate>>();
    if !request.headers().contains_key(header::AUTHORIZATION) {
        return authentication.by_certificate(&*certificate?);
    }
    authentication.identify(bearer(request.headers())?).await
}

/// The same for a missing token, an unknown one and an expired one.
fn unauthenticated() -> Response {
    let message = "this server needs a valid token: send it as `Authorization: Bearer TOKEN`";
    let mut response = problem(&Error::new(ErrorKind::Unauthenticated, message));
    debug_assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"runlog\""));
    response
}

/// The token of a request; `None` if there are several.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Runs a request whose caller has the access that its route needs.
pub(super) async fn permit(access: Access, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let refused = refusal(access, &mut parts).await;
    match refused {
        None => next.run(Request::from_parts(parts, body)).await,
        Some(response) => response,
    }
}

async fn refusal(access: Access, parts: &mut Parts) -> Option<Response> {
    if access == Access::Open {
        return None;
    }
    let Some(caller) = parts.extensions.get::<Caller>().cloned() else { return Some(unauthenticated()) };
    let allowed = match access {
        Access::Open | Access::Known => Ok(()),
        Access::Run(scope) => caller.require(scope),
        Access::AllRuns(scopes) => caller.require_for_all_runs(scopes),
        Access::NewRun(scope) => match caller.require(scope) {
            Ok(()) => match run_of(parts).await {
                Some(run_id) => caller.require_run(run_id.borrow()),
                // The handler refuses a malformed run id.
                None => Ok(()),
            },
            refused => refused,
        },
    };
    allowed.err().map(|error| problem(&error))
}

/// Reads the decoded run id of a path.
pub(super) async fn run_of(parts: &mut Parts) -> Option<RunId> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    let run = params.iter().find(|(name, _)| *name == "run").map(|(_, value)| value.to_owned())?;
    RunId::new(run).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_a_single_bearer_header() {
        let headers = |values: &[&str]| {
            values.iter().map(|value| (header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())).collect()
        };
        assert_eq!(bearer(&headers(&["Bearer a"])), Some("a"));
        assert_eq!(bearer(&headers(&["bEARER  a"])), Some("a"));
        for none in [&[][..], &["a"], &["Basic a"], &["Bearer"], &["Bearer a", "Bearer a"]] {
            assert_eq!(bearer(&headers(none)), None, "{none:?}");
        }
    }
}

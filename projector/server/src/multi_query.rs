//! Queries in which a parameter may be repeated, which axum's own extractor refuses.

use super::problem::problem;
use axum::{
    extract::{FromRequestParts, Query},
    http::{Uri, request::Parts},
    response::{IntoResponse, Response},
};
use runlog_projector::index::{error::Error, store::events::EACH_MAX};
use runlog_schemas::answer::ErrorKind;
use serde::de::DeserializeOwned;

/// The parameter.
pub(super) const CORRELATION: &str = "correlation";

/// A query, and its repeatable parameter `correlation`. The limit is the number of entries that a record can have in
/// the index.
#[derive(Debug)]
pub(super) struct WithCorrelation<Q>(pub(super) Q, pub(super) Vec<String>);

impl<S: Sync, Q: DeserializeOwned> FromRequestParts<S> for WithCorrelation<Q> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let given = parts.uri.query().unwrap_or_default();
        let (repeated, others): (Vec<_>, Vec<_>) =
            form_urlencoded::parse(given.as_bytes()).partition(|(name, _)| name == CORRELATION);
        let usage = |message: String| Error::new(ErrorKind::Usage, message);
        if repeated.len() > EACH_MAX {
            let message = format!("{} times {CORRELATION}, more than {EACH_MAX}", repeated.len());
            return Err(problem(&usage(message)));
        }
        let others = form_urlencoded::Serializer::new(String::new()).extend_pairs(others).finish();
        let uri: Uri = format!("/?{others}")
            .parse()
            .map_err(|error| problem(&usage("the query is too long".to_owned()).because(error)))?;
        let Query(query) = Query::try_from_uri(&uri).map_err(IntoResponse::into_response)?;
        Ok(Self(query, repeated.into_iter().map(|(_, value)| value.into_owned()).collect()))
    }
}

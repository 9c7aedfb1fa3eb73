//! The query parameters that a handler takes, by the types of its arguments.

use super::{
    app::App,
    body::Text,
    multi_query::{CORRELATION, WithCorrelation},
};
use axum::{
    extract::{Path, Query, Request},
    http::HeaderMap,
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

/// The arguments of a handler: an axum extractor, or a tuple as `Handler` has it.
pub(super) trait Extracts {
    /// The names of its query parameters.
    fn query() -> Vec<String> {
        Vec::new()
    }
}

impl<Q: JsonSchema> Extracts for WithCorrelation<Q> {
    fn query() -> Vec<String> {
        [Query::<Q>::query(), vec![CORRELATION.to_owned()]].concat()
    }
}

impl<Q: JsonSchema> Extracts for Query<Q> {
    fn query() -> Vec<String> {
        let mut generator = generator(SchemaSettings::draft2020_12().for_deserialize());
        let schema = Q::json_schema(&mut generator);
        schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect()
    }
}

impl Extracts for App {}
impl<T> Extracts for Path<T> {}
impl Extracts for Text {}
impl Extracts for HeaderMap {}
impl Extracts for Request {}
impl Extracts for ((),) {}

macro_rules! extracts {
    ($($name:ident),+) => {
        impl<M, $($name: Extracts),+> Extracts for (M, $($name),+) {
            fn query() -> Vec<String> {
                [$($name::query()),+].concat()
            }
        }
    };
}
extracts!(A);
extracts!(A, B);
extracts!(A, B, C);
extracts!(A, B, C, D);

/// Makes a generator of schemas for the OpenAPI document.
pub(super) fn generator(mut settings: SchemaSettings) -> SchemaGenerator {
    settings.definitions_path = "/components/schemas".into();
    SchemaGenerator::new(settings)
}

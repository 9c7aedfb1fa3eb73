//! The query parameters and the answer of a handler, by its types.

use super::{
    app::App,
    body::Text,
    multi_query::{CORRELATION, WithCorrelation},
    problem::Refusal,
};
use axum::{
    Json,
    extract::{Path, Query, Request},
    http::HeaderMap,
    response::{Response, Sse},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

/// An argument of a handler.
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

/// The answer of a handler.
pub(super) trait Answers {
    /// Returns the schema of the answer's JSON. `None` if the handler writes the response itself.
    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }
}

impl Answers for Response {}
impl Answers for &'static str {}
impl<S> Answers for Sse<S> {}

impl<T: JsonSchema> Answers for Json<T> {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }
}

impl<T: Answers> Answers for Result<T, Refusal> {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        T::schema(generator)
    }
}

/// A handler whose arguments and answer describe it. `T` is the tuple of its arguments, as `Handler` has it.
pub(super) trait Described<T> {
    /// The names of its query parameters.
    fn query() -> Vec<String>;
    /// Returns the schema of its answer, if the answer has a type.
    fn answer(generator: &mut SchemaGenerator) -> Option<Schema>;
}

macro_rules! described {
    ($arguments:ty: $($name:ident),*) => {
        impl<M, F: Fn($($name),*) -> R, R: Future<Output: Answers>, $($name: Extracts),*> Described<$arguments> for F {
            fn query() -> Vec<String> {
                [Vec::new(), $($name::query()),*].concat()
            }

            fn answer(generator: &mut SchemaGenerator) -> Option<Schema> {
                <R::Output as Answers>::schema(generator)
            }
        }
    };
}
described!((M,):);
described!((M, A): A);
described!((M, A, B): A, B);
described!((M, A, B, C): A, B, C);
described!((M, A, B, C, D): A, B, C, D);

/// Makes a generator of schemas for the OpenAPI document.
pub(super) fn generator(mut settings: SchemaSettings) -> SchemaGenerator {
    settings.definitions_path = "/components/schemas".into();
    SchemaGenerator::new(settings)
}

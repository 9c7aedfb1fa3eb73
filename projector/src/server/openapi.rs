//! The interface as an OpenAPI document: paths from `openapi/`, answers and bodies from their types, payloads from the Avro
//! schema.

use super::{fleet, health, horizons, runs, skips};
use crate::index::{changes::shown, store::facts::Family};
use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use runlog_schemas::answer;
use schemars::{
    Schema, SchemaGenerator,
    generate::SchemaSettings,
    transform::{RecursiveTransform, Transform},
};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

mod payloads;

const WRITTEN: &str = concat!(
    "{\"openapi\": \"3.1.0\",\n\"info\": ",
    include_str!("openapi/info.json"),
    ",\n\"paths\": ",
    include_str!("openapi/paths.json"),
    ",\n\"components\": {\n\"parameters\": ",
    include_str!("openapi/parameters.json"),
    ",\n\"responses\": ",
    include_str!("openapi/responses.json"),
    ",\n\"schemas\": ",
    include_str!("openapi/schemas.json"),
    "}}\n",
);

static DOCUMENT: LazyLock<String> = LazyLock::new(|| written().to_string());

pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

fn written() -> Value {
    let mut document: Value = serde_json::from_str(WRITTEN).expect("the compiled-in document is JSON");
    let schemas = &mut document["components"]["schemas"];
    for (name, schema) in answers().into_iter().chain(bodies()) {
        if schemas.get(&name).is_none() {
            schemas[name] = schema;
        }
    }
    payloads::describe(schemas);
    document
}

/// The answers' schemas by name.
fn answers() -> Map<String, Value> {
    let mut generator = generator(SchemaSettings::draft2020_12().for_serialize());
    macro_rules! answers {
        ($($answer:ty),* $(,)?) => {$(
            generator.subschema_for::<$answer>();
        )*};
    }
    answers![
        answer::Anomalies,
        answer::Appended,
        answer::Change,
        answer::Checkpoint,
        answer::Claim,
        answer::DeadLetters,
        answer::Doctor,
        answer::Effects,
        answer::Events,
        answer::Facts,
        answer::Horizons,
        answer::Journal,
        answer::Lines,
        answer::Lookup,
        answer::Outcomes,
        answer::Problem,
        answer::ReadBack,
        answer::Recovery,
        answer::RetentionPlan,
        answer::Runs,
        answer::SkipPlan,
        answer::Standings,
        answer::Verification,
        fleet::Shown,
        health::Readiness,
    ];
    let family = <Family as schemars::JsonSchema>::json_schema(&mut generator);
    let mut schemas = generator.take_definitions(true);
    each(&mut schemas, answered);
    schemas.insert("FactFamily".into(), family.into());
    let indices: Vec<&str> = shown::names().collect();
    let about = "An index, as `verify` names it; `horizons` has no changes to follow.";
    schemas.insert("IndexName".into(), json!({ "type": "string", "description": about, "enum": indices }));
    schemas
}

/// The schemas of request bodies, by name. Unlike an answer's, an optional member may be null.
fn bodies() -> Map<String, Value> {
    let mut generator = generator(SchemaSettings::draft2020_12().for_deserialize());
    generator.subschema_for::<horizons::HorizonBody>();
    generator.subschema_for::<runs::ResolutionBody>();
    generator.subschema_for::<skips::SkipBody>();
    let mut schemas = generator.take_definitions(true);
    each(&mut schemas, of_json);
    schemas
}

fn generator(mut settings: SchemaSettings) -> SchemaGenerator {
    settings.definitions_path = "/components/schemas".into();
    SchemaGenerator::new(settings)
}

/// Changes every schema, and those within it.
fn each(schemas: &mut Map<String, Value>, change: fn(&mut Schema)) {
    for schema in schemas.values_mut() {
        if let Ok(schema) = schema.try_into() {
            RecursiveTransform(change).transform(schema);
        }
    }
}

/// Removes from a derived schema what describes Rust and not JSON.
fn of_json(schema: &mut Schema) {
    schema.remove("default");
    if schema.get("format").and_then(Value::as_str) != Some("date-time") {
        schema.remove("format");
    }
    if let Some(Value::String(about)) = schema.get_mut("description") {
        *about = about.replace('\n', " ").replace("[`", "`").replace("`]", "`");
    }
}

/// The same for an answer: a member is there or it is not, and defaults are for whoever reads an older server's.
fn answered(schema: &mut Schema) {
    of_json(schema);
    let required: Vec<String> =
        schema.get("required").and_then(|names| serde_json::from_value(names.clone()).ok()).unwrap_or_default();
    for (name, member) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if !required.contains(name) {
            never_null(member);
        }
    }
}

/// Takes null away from what a schema allows.
fn never_null(schema: &mut Value) {
    let null = |one: &Value| *one == json!({ "type": "null" });
    if let Some([name, other]) = schema["type"].as_array().map(Vec::as_slice)
        && other == "null"
    {
        schema["type"] = name.clone();
    } else if let Some([one, other]) = schema["anyOf"].as_array().map(Vec::as_slice)
        && null(other)
    {
        let mut one = one.clone();
        if let (Some(one), Some(schema)) = (one.as_object_mut(), schema.as_object()) {
            one.extend(schema.clone().into_iter().filter(|(name, _)| name != "anyOf"));
        }
        *schema = one;
    }
}

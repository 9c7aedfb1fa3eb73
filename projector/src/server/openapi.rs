//! The interface as an OpenAPI document: paths from `openapi/`, answers from their types, payloads from the Avro schema.

use super::{fleet, health};
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
    for (name, schema) in answers() {
        if schemas.get(&name).is_none() {
            schemas[name] = schema;
        }
    }
    payloads::describe(schemas);
    document
}

/// The answers' schemas by name.
fn answers() -> Map<String, Value> {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = SchemaGenerator::new(settings);
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
    for schema in schemas.values_mut() {
        if let Ok(schema) = schema.try_into() {
            RecursiveTransform(answered).transform(schema);
        }
    }
    schemas.insert("FactFamily".into(), family.into());
    let indices: Vec<&str> = shown::names().collect();
    let about = "An index, as `verify` names it; `horizons` has no changes to follow.";
    schemas.insert("IndexName".into(), json!({ "type": "string", "description": about, "enum": indices }));
    schemas
}

/// What a schema that was derived says of an answer and not of Rust: a member is there or it is not, and defaults are for
/// whoever reads an older server's.
fn answered(schema: &mut Schema) {
    schema.remove("default");
    if schema.get("format").and_then(Value::as_str) != Some("date-time") {
        schema.remove("format");
    }
    if let Some(Value::String(about)) = schema.get_mut("description") {
        *about = about.replace('\n', " ").replace("[`", "`").replace("`]", "`");
    }
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

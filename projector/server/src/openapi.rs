//! Builds the OpenAPI document: paths from `openapi/`, answers and bodies from their Rust types, payloads from the Avro
//! schema. Each operation has recorded example requests with their answers.

use super::{
    append::claims::ClaimBody, auth::Access, copies, extracts::generator, health, home, horizons, route::Route, runs,
    skips,
};
use payloads::items;
use runlog_projector::index::{changes::shown, store::facts::Family};
use runlog_schemas::answer;
use schemars::{
    Schema, SchemaGenerator,
    generate::SchemaSettings,
    transform::{RecursiveTransform, Transform},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

mod payloads;

const WRITTEN: &str = concat!(
    "{\"openapi\": \"3.1.0\",\n\"info\": ",
    include_str!("openapi/info.json"),
    ",\n\"paths\": ",
    include_str!("openapi/paths.json"),
    ",\n\"security\": [{\"bearer\": []}, {\"certificate\": []}, {}],\n\"components\": {\n\"securitySchemes\": {",
    "\"bearer\": {\"type\": \"http\", \"scheme\": \"bearer\", \"description\": \"A token or a JWT, if the server was ",
    "started with `--tokens`.\"}, \"certificate\": {\"type\": \"mutualTLS\", \"description\": \"A certificate that the token ",
    "file names, if the server was started with `--tls-client-ca`.\"}},\n\"parameters\": ",
    include_str!("openapi/parameters.json"),
    ",\n\"responses\": ",
    include_str!("openapi/responses.json"),
    ",\n\"schemas\": ",
    include_str!("openapi/schemas.json"),
    "}}\n",
);

/// Requests and their answers, as the test `openapi_describes` recorded them.
const EXAMPLES: &str = include_str!("openapi/examples.json");

/// An example of [`EXAMPLES`].
#[derive(Deserialize)]
struct Example {
    method: String,
    /// The path in the document, with parameter names.
    path: String,
    /// The requested path and query.
    url: String,
    body: Option<Value>,
    answer: Value,
}

/// Makes the document of these operations.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut document: Value = serde_json::from_str(WRITTEN).expect("the compiled-in document is JSON");
    let mut generator = generator(SchemaSettings::draft2020_12().for_serialize());
    for Route { method, path, answer, .. } in routes {
        if let Some(schema) = answer(&mut generator) {
            let content = json!({ "application/json": { "schema": schema } });
            document["paths"][path][method]["responses"]["200"]["content"] = content;
        }
    }
    let schemas = &mut document["components"]["schemas"];
    for (name, schema) in answers(generator).into_iter().chain(bodies()) {
        if schemas.get(&name).is_none() {
            schemas[name] = schema;
        }
    }
    payloads::describe(schemas);
    for Route { method, path, access, query, .. } in routes {
        let names = query();
        for name in &names {
            take(&mut document, method, path, name);
        }
        let item = &mut document["paths"][path];
        if path.contains("{run}") && item.get("parameters").is_none() {
            item["parameters"] = json!([{ "$ref": "#/components/parameters/run" }]);
        }
        describe_errors(&mut item[method], path);
        // A position or cursor may belong to another log.
        if path.contains("{at}") || names.iter().any(|name| OF_A_LOG.contains(&name.as_str())) {
            refer(&mut item[method], "409", "Conflict");
        }
        secure(&mut item[method], *access);
    }
    let examples: Vec<Example> = serde_json::from_str(EXAMPLES).expect("the compiled-in examples are JSON");
    for example in examples {
        show(&mut document, example);
    }
    document
}

/// The operations that read no index.
const WITHOUT_INDEX: [&str; 2] = ["/v1/journal", "/v1/whoami"];
/// The operations that also answer if the log does not.
const WITHOUT_LOG: [&str; 2] = ["/v1/overview", "/v1/doctor"];

/// The query parameters whose values belong to a log.
const OF_A_LOG: [&str; 6] = ["also", "as_of", "consistency", "cursor", "from", "position"];

/// Adds the errors that operations have in common; `paths.json` has the others.
fn describe_errors(operation: &mut Value, path: &str) {
    if !path.starts_with("/v1/") {
        return;
    }
    refer(operation, "400", "BadRequest");
    if WITHOUT_INDEX.contains(&path) {
        return;
    }
    refer(operation, "429", "Overloaded");
    refer(operation, "500", "Internal");
    if !WITHOUT_LOG.contains(&path) {
        refer(operation, "503", "Unavailable");
    }
}

/// Adds a shared response to an operation.
fn refer(operation: &mut Value, status: &str, response: &str) {
    operation["responses"][status] = json!({ "$ref": format!("#/components/responses/{response}") });
}

/// Describes the access that an operation needs on a server with tokens.
fn secure(operation: &mut Value, access: Access) {
    if access == Access::Open {
        operation["security"] = json!([]);
        return;
    }
    refer(operation, "401", "Unauthenticated");
    let scopes = access.scopes();
    if !scopes.is_empty() {
        refer(operation, "403", "Forbidden");
        operation["x-scopes"] = scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().into();
    }
}

/// Adds a request and its answer to the operation.
fn show(document: &mut Value, example: Example) {
    let Example { method, path, url, body, answer } = example;
    let operation = &mut document["paths"][path][&method];
    let request = format!("{} {url}", method.to_uppercase());
    if let (Some(body), Some(content)) = (body, operation.pointer_mut("/requestBody/content")) {
        add(content, &request, body);
    }
    add(&mut operation["responses"]["200"]["content"], &request, answer);
}

/// Adds an example to each media type of a content. Its key is its number, from 1.
fn add(content: &mut Value, request: &str, value: Value) {
    for media in content.as_object_mut().into_iter().flat_map(Map::values_mut) {
        let number = 1 + media["examples"].as_object().map_or(0, Map::len);
        media["examples"][number.to_string()] = json!({ "summary": request, "value": value });
    }
}

/// Adds a reference to a shared parameter that an operation accepts and does not describe itself. If two shared
/// parameters have the name, the first is for lists and the second for runs.
fn take(document: &mut Value, method: &str, path: &str, name: &str) {
    let shared = document["components"]["parameters"].as_object().into_iter().flatten();
    let mut shared = shared.filter(|(_, parameter)| parameter["name"] == name).map(|(key, _)| key.clone());
    let (list, run) = (shared.next(), shared.next());
    let operation = &mut document["paths"][path][method];
    let described = |parameter: &Value| parameter["name"] == name;
    if items(&operation["parameters"]).iter().any(described) {
        return;
    }
    let Some(key) = (if path.contains("{run}") { run.or(list) } else { list }) else { return };
    let parameter = json!({ "$ref": format!("#/components/parameters/{key}") });
    match operation["parameters"].as_array_mut() {
        Some(parameters) => parameters.push(parameter),
        None => operation["parameters"] = json!([parameter]),
    }
}

/// The answers' schemas by name: the generator's schemas, and the schemas of handlers that write their responses
/// themselves.
fn answers(mut generator: SchemaGenerator) -> Map<String, Value> {
    macro_rules! answers {
        ($($answer:ty),* $(,)?) => {$(
            generator.subschema_for::<$answer>();
        )*};
    }
    answers![
        answer::Appended,
        answer::Change,
        answer::Effects,
        answer::Lines,
        answer::Outcomes,
        answer::Problem,
        answer::RetentionPlan,
        answer::SkipPlan,
        health::Readiness,
    ];
    let family = <Family as schemars::JsonSchema>::json_schema(&mut generator);
    let mut schemas = generator.take_definitions(true);
    each(&mut schemas, describe_answer);
    schemas.insert("FactFamily".into(), family.into());
    let indices: Vec<&str> = shown::names().collect();
    let about = "An index, as `verify` names it; `horizons` has no changes to follow.";
    schemas.insert("IndexName".into(), json!({ "type": "string", "description": about, "enum": indices }));
    schemas
}

/// The schemas of request bodies, by name. Unlike in an answer, an optional member may be null.
fn bodies() -> Map<String, Value> {
    let mut generator = generator(SchemaSettings::draft2020_12().for_deserialize());
    generator.subschema_for::<ClaimBody>();
    generator.subschema_for::<copies::CopyBody>();
    generator.subschema_for::<home::AcceptBody>();
    generator.subschema_for::<home::HomeBody>();
    generator.subschema_for::<horizons::HorizonBody>();
    generator.subschema_for::<runs::ResolutionBody>();
    generator.subschema_for::<skips::SkipBody>();
    let mut schemas = generator.take_definitions(true);
    each(&mut schemas, remove_rust_keywords);
    schemas
}

/// Changes every schema and its subschemas.
fn each(schemas: &mut Map<String, Value>, change: fn(&mut Schema)) {
    for schema in schemas.values_mut() {
        if let Ok(schema) = schema.try_into() {
            RecursiveTransform(change).transform(schema);
        }
    }
}

/// Removes keywords that describe Rust, not JSON, from a derived schema.
fn remove_rust_keywords(schema: &mut Schema) {
    schema.remove("default");
    if schema.get("format").and_then(Value::as_str) != Some("date-time") {
        schema.remove("format");
    }
    if let Some(Value::String(about)) = schema.get_mut("description") {
        *about = about.replace('\n', " ").replace("[`", "`").replace("`]", "`");
    }
}

/// Also makes an answer's members present or absent, never null, and removes defaults: these serve clients that read
/// older servers' answers.
fn describe_answer(schema: &mut Schema) {
    remove_rust_keywords(schema);
    let required: Vec<String> =
        schema.get("required").and_then(|names| serde_json::from_value(names.clone()).ok()).unwrap_or_default();
    for (name, member) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if !required.contains(name) {
            never_null(member);
        }
    }
}

/// Removes null from the types that a schema allows.
fn never_null(schema: &mut Value) {
    let null = |schema: &Value| *schema == json!({ "type": "null" });
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

//! Makes the JSON Schema of every payload type from the Avro schema, so that no type is missing.
//!
//! ```text
//!   record ▶ object    enum ▶ string, with its symbols in the description: other symbols are kept
//!   union with null ▶ optional    bytes, fixed ▶ hexadecimal    string whose doc says "JSON text" ▶ any value
//!   record with the attribute "json" ▶ an object that names its variant
//! ```
//!
//! A member is required if the Avro field has no default and the example (`schemas/examples/TYPE.json`) has it: the
//! server fills in members that an example omits. Schemas are named `payload.NAME` after their Avro types; the
//! `discriminator` of `Payload` finds them by `type`. They do not restrict `Payload` itself, since answers mask
//! content.

use runlog_schemas::{payload::Payload, schema};
use serde_json::{Map, Value, json};

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Adds the payloads to the schemas of the document.
pub(super) fn describe(schemas: &mut Value) {
    let record: Value = serde_json::from_str(schema::JOURNAL_RECORD).expect("the compiled-in schema is JSON");
    let branches = items(&record["fields"])
        .iter()
        .find(|field| field["name"] == "payload")
        .map_or(&[][..], |field| items(&field["type"]));
    let (mut named, mut mapping) = (Map::new(), Map::new());
    // A field before the payload may define a type; later fields then refer to the type by name.
    for field in items(&record["fields"]).iter().filter(|field| field["name"] != "payload") {
        schema_of(&field["type"], &mut named);
    }
    let shared = std::mem::take(&mut named);
    for ((branch, tag), example) in branches.iter().zip(Payload::TYPES).zip(Payload::EXAMPLES) {
        let reference = schema_of(branch, &mut named);
        mapping.insert((*tag).to_owned(), reference["$ref"].clone());
        let example: Value = serde_json::from_str(example).unwrap_or_default();
        let name = component(branch["name"].as_str().unwrap_or_default());
        if let Some(payload) = named.get_mut(&name).and_then(Value::as_object_mut) {
            finish(payload, tag, &example["payload"]);
        }
    }
    // Keeps only the envelope's types that a payload refers to.
    let used = references(&Value::Object(named.clone()), &shared);
    named.extend(shared.into_iter().filter(|(name, _)| used.contains(name)));
    schemas["Payload"]["discriminator"] = json!({ "propertyName": "type", "mapping": mapping });
    if let Some(schemas) = schemas.as_object_mut() {
        schemas.extend(named);
    }
}

/// Sets the type, the required members of the example, and the example.
fn finish(payload: &mut Map<String, Value>, tag: &str, example: &Value) {
    if let Some(properties) = payload.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("type".into(), json!({ "const": tag }));
    }
    let is_in_example = |name: &Value| name.as_str().is_some_and(|name| example.get(name).is_some());
    if let Some(required) = payload.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(is_in_example);
        required.insert(0, "type".into());
    }
    payload.insert("examples".into(), json!([example]));
}

/// Makes the schema of an Avro type. Named types go into `named`, and become references.
fn schema_of(avro: &Value, named: &mut Map<String, Value>) -> Value {
    match avro {
        Value::String(name) => primitive(name),
        Value::Array(branches) => union(branches, named),
        _ => match avro["type"].as_str().unwrap_or_default() {
            "array" => json!({ "type": "array", "items": schema_of(&avro["items"], named) }),
            "record" | "enum" | "fixed" => {
                let name = component(avro["name"].as_str().unwrap_or_default());
                let schema = match avro["type"].as_str() {
                    Some("enum") => symbols(avro),
                    Some("fixed") => json!({ "type": "string", "description": "Hexadecimal." }),
                    _ if avro.get("json").is_some() => variants(avro, named),
                    _ => object(avro, named),
                };
                named.insert(name.clone(), schema);
                json!({ "$ref": format!("#/components/schemas/{name}") })
            }
            other => primitive(other),
        },
    }
}

fn component(name: &str) -> String {
    format!("payload.{name}")
}

fn primitive(name: &str) -> Value {
    match name {
        "null" => json!({ "type": "null" }),
        "boolean" => json!({ "type": "boolean" }),
        "int" | "long" => json!({ "type": "integer" }),
        "float" | "double" => json!({ "type": "number" }),
        "string" => json!({ "type": "string" }),
        "bytes" => json!({ "description": "Hexadecimal, or base64.", "anyOf": [
            { "type": "string", "pattern": "^([0-9a-fA-F]{2})*$" },
            { "type": "object", "required": ["base64"], "additionalProperties": false,
                "properties": { "base64": { "type": "string", "contentEncoding": "base64",
                    "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$" } } },
        ] }),
        // A batch holds records.
        "JournalRecord" => json!({ "$ref": "#/components/schemas/Record" }),
        named => json!({ "$ref": format!("#/components/schemas/{}", component(named)) }),
    }
}

fn union(branches: &[Value], named: &mut Map<String, Value>) -> Value {
    let schemas: Vec<Value> = branches.iter().map(|branch| schema_of(branch, named)).collect();
    json!({ "anyOf": schemas })
}

fn object(avro: &Value, named: &mut Map<String, Value>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in items(&avro["fields"]) {
        let (name, doc) = (field["name"].as_str().unwrap_or_default(), field["doc"].as_str().unwrap_or_default());
        let mut schema = schema_of(&field["type"], named);
        if doc.contains("JSON text") {
            let any_json = json!({ "description": "Any JSON value." });
            let is_list = field["type"]["type"] == "array";
            schema = if is_list { json!({ "type": "array", "items": any_json }) } else { any_json };
        } else if !doc.is_empty() {
            schema["description"] = doc.into();
        }
        properties.insert(name.to_owned(), schema);
        if field.get("default").is_none() {
            required.push(Value::from(name));
        }
    }
    let mut schema = json!({ "type": "object", "properties": properties, "required": required });
    schema["additionalProperties"] = true.into();
    if let Some(doc) = avro["doc"].as_str() {
        schema["description"] = doc.into();
    }
    schema
}

/// Not an `enum`, since symbols that this version does not know are kept.
fn symbols(avro: &Value) -> Value {
    let symbols: Vec<&str> = items(&avro["symbols"]).iter().filter_map(Value::as_str).collect();
    json!({ "type": "string", "description": format!("One of {}.", symbols.join(", ")), "examples": symbols })
}

/// Makes the schema of an enum with data. The attribute names the JSON form of the variant.
fn variants(avro: &Value, named: &mut Map<String, Value>) -> Value {
    let form = &avro["json"];
    let branches = items(&avro["fields"][0]["type"]).iter().skip(1);
    let names = items(&form["variants"]).iter().filter_map(Value::as_str);
    let variants: Vec<Value> = names
        .zip(branches)
        .map(|(name, branch)| {
            let content = schema_of(branch, named);
            match (form["tag"].as_str(), form["content"].as_str()) {
                (Some(tag), Some(member)) => json!({ "type": "object", "required": [tag, member],
                    "properties": { tag: { "const": name }, member: content }, "additionalProperties": true }),
                (Some(tag), None) => json!({ "allOf": [content, { "type": "object", "required": [tag],
                    "properties": { tag: { "const": name } }, "additionalProperties": true }] }),
                (None, _) => json!({ "type": "object", "required": [name],
                    "properties": { name: content }, "additionalProperties": true }),
            }
        })
        .collect();
    json!({ "type": "object", "description": "One of these, or a variant that this version does not know.",
        "anyOf": variants, "additionalProperties": true, "properties": {}, "required": [] })
}

/// Collects the names of `shared` that a value refers to, directly or indirectly.
fn references(value: &Value, shared: &Map<String, Value>) -> Vec<String> {
    let text = value.to_string();
    let mut names: Vec<String> = Vec::new();
    for (name, schema) in shared {
        if text.contains(&format!("\"#/components/schemas/{name}\"")) {
            names.push(name.clone());
            names.extend(references(schema, shared));
        }
    }
    names
}

//! A JSON value beside what an OpenAPI document says of it: every member is described, every required one is there.

use serde_json::{Map, Value};

/// What is wrong with `value` by `schema`, each with its place; nothing where it is as described. Members that no schema
/// names are wrong, too, unless it says that there are others.
pub fn faults(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(document, schema, value, "", &mut faults);
    if let (Value::Object(members), Some(described)) = (value, members(document, schema)) {
        let unknown = members.keys().filter(|name| !described.contains_key(*name));
        faults.extend(unknown.map(|name| format!("/{name} is not described")));
    }
    faults
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    if let Some(target) = schema["$ref"].as_str() {
        match document.pointer(target.trim_start_matches('#')) {
            Some(schema) => check(document, schema, value, at, faults),
            None => faults.push(format!("{at}: {target} is not there")),
        }
    }
    for part in list(&schema["allOf"]) {
        check(document, part, value, at, faults);
    }
    let any = list(&schema["anyOf"]).iter().chain(list(&schema["oneOf"]));
    let any: Vec<_> = any.map(|part| self::faults(document, part, value)).collect();
    if !any.is_empty() && !any.iter().any(Vec::is_empty) {
        faults.extend(any[0].iter().map(|fault| format!("{at}{fault}")));
    }
    if !schema["type"].is_null() && !is(&schema["type"], value) {
        faults.push(format!("{at} is {value}, not {}", schema["type"]));
    }
    if schema["enum"].is_array() && !list(&schema["enum"]).contains(value) {
        faults.push(format!("{at} is {value}, none of {}", schema["enum"]));
    }
    if let Value::Object(members) = value {
        let absent =
            list(&schema["required"]).iter().filter_map(Value::as_str).filter(|name| !members.contains_key(*name));
        faults.extend(absent.map(|name| format!("{at}/{name} is not there")));
        for (name, value) in members {
            let schema = schema["properties"]
                .get(name)
                .or_else(|| schema["additionalProperties"].as_object().and(schema.get("additionalProperties")));
            if let Some(schema) = schema {
                faults.extend(
                    self::faults(document, schema, value).into_iter().map(|fault| format!("{at}/{name}{fault}")),
                );
            }
        }
    }
    if let (Value::Array(items), Some(schema)) = (value, schema.get("items")) {
        for (index, item) in items.iter().enumerate() {
            faults.extend(self::faults(document, schema, item).into_iter().map(|fault| format!("{at}/{index}{fault}")));
        }
    }
}

/// The members that an object's schema names; none where it takes any, or is judged by one of several.
fn members<'a>(document: &'a Value, schema: &'a Value) -> Option<Map<String, Value>> {
    let mut all = schema["properties"].as_object().cloned().unwrap_or_default();
    let any =
        schema.get("additionalProperties").is_some() || schema.get("anyOf").is_some() || schema.get("oneOf").is_some();
    let named = schema.get("properties").is_some();
    let mut parts: Vec<&Value> = list(&schema["allOf"]).iter().collect();
    parts.extend(schema["$ref"].as_str().and_then(|target| document.pointer(target.trim_start_matches('#'))));
    if any || (!named && parts.is_empty()) {
        return None;
    }
    for part in parts {
        all.extend(members(document, part)?);
    }
    Some(all)
}

fn is(types: &Value, value: &Value) -> bool {
    let one = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    };
    types.as_array().map_or_else(|| one(types), |types| types.iter().any(one))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

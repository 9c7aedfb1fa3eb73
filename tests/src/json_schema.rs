//! Checks a JSON value against a schema of an OpenAPI document. Every member must be described, every required one present.

use serde_json::{Map, Value};

/// The violations of `schema` in `value`, each with its JSON pointer. A member that no schema names is a violation,
/// unless the schema allows additional members.
pub fn violations(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    check(document, schema, value, "", &mut violations);
    if let (Value::Object(members), Some(described)) = (value, members(document, schema)) {
        let unknown = members.keys().filter(|name| !described.contains_key(*name));
        violations.extend(unknown.map(|name| format!("/{name} is not described")));
    }
    violations
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, violations: &mut Vec<String>) {
    if let Some(target) = schema["$ref"].as_str() {
        match document.pointer(target.trim_start_matches('#')) {
            Some(schema) => check(document, schema, value, at, violations),
            None => violations.push(format!("{at}: {target} does not exist")),
        }
    }
    for part in list(&schema["allOf"]) {
        check(document, part, value, at, violations);
    }
    let any = list(&schema["anyOf"]).iter().chain(list(&schema["oneOf"]));
    // Beside `properties`, the alternatives only restrict members.
    let restricts = schema.get("properties").is_some();
    let alternative = |part: &Value| match restricts {
        true => restriction_violations(document, part, value),
        false => self::violations(document, part, value),
    };
    let any: Vec<_> = any.map(alternative).collect();
    if !any.is_empty() && !any.iter().any(Vec::is_empty) {
        violations.extend(any[0].iter().map(|violation| format!("{at}{violation}")));
    }
    if !schema["type"].is_null() && !is(&schema["type"], value) {
        violations.push(format!("{at} is {value}, not {}", schema["type"]));
    }
    if schema["enum"].is_array() && !list(&schema["enum"]).contains(value) {
        violations.push(format!("{at} is {value}, not in {}", schema["enum"]));
    }
    if let Value::Object(members) = value {
        let absent =
            list(&schema["required"]).iter().filter_map(Value::as_str).filter(|name| !members.contains_key(*name));
        violations.extend(absent.map(|name| format!("{at}/{name} is missing")));
        for (name, value) in members {
            let schema = schema["properties"]
                .get(name)
                .or_else(|| schema["additionalProperties"].as_object().and(schema.get("additionalProperties")));
            if let Some(schema) = schema {
                violations.extend(
                    self::violations(document, schema, value)
                        .into_iter()
                        .map(|violation| format!("{at}/{name}{violation}")),
                );
            }
        }
    }
    if let (Value::Array(items), Some(schema)) = (value, schema.get("items")) {
        for (index, item) in items.iter().enumerate() {
            violations.extend(
                self::violations(document, schema, item)
                    .into_iter()
                    .map(|violation| format!("{at}/{index}{violation}")),
            );
        }
    }
}

/// The violations of a schema that need not name all members.
fn restriction_violations(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    check(document, schema, value, "", &mut violations);
    violations
}

/// The members that an object's schema names; `None` if it allows any member or is one of several schemas.
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

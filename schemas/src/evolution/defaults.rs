//! Checks that each default of a schema is a value of its field's type. Some parsers accept a wrong default, which then
//! fails at the first read of an old record.
//!
//! The default of a union must be a value of its *first* branch. Avro before 1.12 and most readers support no other branch.

use super::{
    incompatibility::{Incompatibility, Rule, broken},
    model::{Body, Primitive, Schema, Type},
};
use serde_json::Value;

/// Returns the invalid defaults.
pub(super) fn check(schema: &Schema) -> Vec<Incompatibility> {
    let mut incompatibilities = Vec::new();
    for (name, named) in &schema.named {
        match &named.body {
            Body::Record(fields) => {
                for field in fields {
                    if let Some(default) = &field.default
                        && !fits(schema, &field.of, default)
                    {
                        let reason =
                            format!("the default {default} is not a value of {}{}", first(&field.of), field.of);
                        incompatibilities.push(broken(Rule::Avro, &format!("{name}.{}", field.name), reason));
                    }
                }
            }
            Body::Enum { symbols, default: Some(default) } if !symbols.contains(default) => {
                incompatibilities.push(broken(
                    Rule::Avro,
                    name,
                    format!("the default {default:?} is not one of the symbols"),
                ));
            }
            _ => {}
        }
    }
    incompatibilities
}

fn first(of: &Type) -> &'static str {
    if matches!(of, Type::Union(_)) { "the first branch of the " } else { "" }
}

fn fits(schema: &Schema, of: &Type, value: &Value) -> bool {
    match of {
        Type::Primitive(primitive, _) => match primitive {
            Primitive::Null => value.is_null(),
            Primitive::Boolean => value.is_boolean(),
            Primitive::Int => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            Primitive::Long => value.as_i64().is_some(),
            Primitive::Float | Primitive::Double => value.is_number(),
            Primitive::String => value.is_string(),
            Primitive::Bytes => value.as_str().is_some_and(is_bytes),
        },
        Type::Array(items) => value.as_array().is_some_and(|all| all.iter().all(|item| fits(schema, items, item))),
        Type::Map(values) => value.as_object().is_some_and(|all| all.values().all(|item| fits(schema, values, item))),
        Type::Union(branches) => branches.first().is_some_and(|branch| fits(schema, branch, value)),
        Type::Named(name) => match schema.find_type(name).map(|named| &named.body) {
            Some(Body::Enum { symbols, .. }) => {
                value.as_str().is_some_and(|symbol| symbols.iter().any(|known| known == symbol))
            }
            Some(Body::Fixed { size, .. }) => {
                value.as_str().is_some_and(|text| is_bytes(text) && text.chars().count() == *size)
            }
            Some(Body::Record(fields)) => value.as_object().is_some_and(|members| {
                let given = |field: &super::model::Field| members.get(&field.name).or(field.default.as_ref()).cloned();
                fields.iter().all(|field| given(field).is_some_and(|value| fits(schema, &field.of, &value)))
            }),
            None => false,
        },
    }
}

/// Returns whether `text` can be bytes in JSON: it has only the characters U+0000 to U+00FF.
fn is_bytes(text: &str) -> bool {
    text.chars().all(|c| u32::from(c) <= 0xff)
}

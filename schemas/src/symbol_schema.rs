//! The JSON Schema of an enum from [`symbols!`](crate::symbols).

use schemars::Schema;
use serde_json::{Value, json};

/// Lists the symbols of an enum as one `enum` keyword. An open enum gets no keyword, because it accepts any text.
pub fn list_symbols(schema: &mut Schema) {
    let collect_symbols = |schema: &Schema| -> Vec<Value> {
        let each = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        let each = each.flat_map(|one| match one.get("enum").and_then(Value::as_array) {
            Some(several) => several.clone(),
            None => one.get("const").cloned().into_iter().collect(),
        });
        each.collect()
    };
    let symbols = collect_symbols(schema);
    if !symbols.is_empty() {
        schema.remove("oneOf");
        schema.insert("type".into(), json!("string"));
        if !symbols.contains(&json!("unrecognized")) {
            schema.insert("enum".into(), symbols.into());
        }
    }
}

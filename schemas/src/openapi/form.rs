//! JSON Schemas of texts and JSON values without their own type: `#[schemars(with = "form::Time")]`.

use super::named;
use schemars::json_schema;

macro_rules! forms {
    ($($name:ident as $title:literal = $schema:expr;)*) => {$(
        #[doc = concat!("A JSON Schema: `", $title, "`.")]
        #[derive(Debug)]
        pub enum $name {}
        named! { $name as $title = $schema; }
    )*};
}

forms! {
    Time as "Time" = json_schema!({
        "type": "string",
        "format": "date-time",
        "description": "RFC 3339 in UTC with milliseconds.",
        "examples": ["2026-11-22T02:00:01.000Z"],
    });
    LineCursor as "LineCursor" = json_schema!({
        "type": "string",
        "description": "The point at which a timeline continues: of one run, or, with `at:`, of all runs in the \
            partitions' order. After `@` is the log to which it belongs. It stays valid after writes.",
        "pattern": "^(([0-9a-f]{2})+|at:[0-9]+(\\.[0-9]+)?(,[0-9]+(\\.[0-9]+)?)*)(@[A-Za-z0-9._:-]{1,160})?$",
    });
    IndexHash as "IndexHash" = json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" });
    RowKey as "RowKey" = json_schema!({
        "type": "object",
        "description": "The row's key within its partition: the family of its rows, and the parts of the key.",
        "required": ["rows"],
        "properties": { "rows": { "type": "string" } },
        "additionalProperties": true,
    });
    LinePayload as "LinePayload" = json_schema!({
        "description": "The payload, or the reason why it is not shown.",
        "anyOf": [
            { "$ref": "#/components/schemas/Payload" },
            {
                "type": "object",
                "description": "Replaces a payload that a retention horizon deleted.",
                "required": ["dropped"],
                "properties": { "dropped": { "$ref": "#/components/schemas/Position" } },
                "additionalProperties": false,
            },
            {
                "type": "object",
                "description": "Replaces a payload that nests too deep to be shown: the member, its depth, and the limit.",
                "required": ["unreadable"],
                "properties": { "unreadable": { "type": "string" } },
                "additionalProperties": false,
            },
        ],
    });
    // The generator of the document defines these schemas.
    IndexName as "IndexName" = json_schema!({ "type": "string" });
    FactFamily as "FactFamily" = json_schema!({ "type": "string" });
    Record as "Record" = json_schema!({ "type": "object" });
}

//! JSON Schemas of types with a manual JSON encoding, for the OpenAPI document of a server. Other answers derive their schemas,
//! with their doc comments as descriptions.

use crate::{
    datum::Sha256,
    id::{
        Epoch, FINGERPRINT_BYTES_MAX, Fingerprint, ID_BYTES_MAX, JournalSeq, LOG_ID_BYTES_MAX, LogId, Offset, OrEmpty,
        PartitionId, PrevHash, RecordId, RunHash, RunId, WriterId, WriterSeq,
    },
    json::Json,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

pub mod form;

macro_rules! named {
    ($($type:ty as $name:literal = $schema:expr;)*) => {$(
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    )*};
}
pub(crate) use named;

fn text(description: &str, bytes_max: usize) -> Schema {
    json_schema!({ "type": "string", "description": description, "minLength": 1, "maxLength": bytes_max })
}

fn number(description: &str, max: u64) -> Schema {
    json_schema!({ "type": "integer", "description": description, "minimum": 0, "maximum": max })
}

named! {
    RunId as "RunId" = {
        let about = "A run: at most 1024 bytes of UTF-8. Its records are in one partition, which follows from the id.";
        text(about, ID_BYTES_MAX)
    };
    RecordId as "RecordId" = {
        let about = "A record, unique within its run: at most 1024 bytes of UTF-8. The record id of a request identifies \
            its call.";
        text(about, ID_BYTES_MAX)
    };
    WriterId as "WriterId" = text("A writer, random per claim: at most 1024 bytes of UTF-8.", ID_BYTES_MAX);
    Fingerprint as "Fingerprint" = {
        let about = "The hash that identifies a call: `v1:` and the lower-case hexadecimal SHA-256 of tool name, a zero byte \
            and the SHA-256 of the arguments in canonical JSON (RFC 8785); or a host's own, as it gave it. At most 1024 \
            bytes.";
        text(about, FINGERPRINT_BYTES_MAX)
    };
    Epoch as "Epoch" = number("The number of claims of a run; 0 before the first claim.", Self::MAX.get());
    WriterSeq as "WriterSeq" = {
        let about = "The number of a record within its writer's epoch: 1, 2, 3 …; 0 for claims and for records that need none.";
        number(about, Self::MAX.get())
    };
    JournalSeq as "JournalSeq" = {
        let about = "The number of a record within its run, for the kinds that are numbered: 1, 2, 3 … without gaps. 0 for \
            the others.";
        number(about, Self::MAX.get())
    };
    Offset as "Offset" = number("A record's position in its partition: increasing, with gaps allowed.", Self::MAX.get());
    PartitionId as "Partition" = number("A partition, from 0.", Self::MAX.get().into());
    LogId as "LogId" = {
        let about = "A log: `kafka:CLUSTER:TOPIC-ID` or `local:HEX`. Equal ids are the same log. A copy of a log, and a topic that was \
            deleted and created again, have other ids.";
        let mut schema = text(about, LOG_ID_BYTES_MAX);
        schema.insert("pattern".into(), "^[A-Za-z0-9._:-]+$".into());
        schema
    };
    Sha256 as "Sha256" = {
        json_schema!({ "type": "string", "description": "A SHA-256, lower-case hexadecimal.", "pattern": "^[0-9a-f]{64}$" })
    };
    Json as "Json" = json_schema!({ "description": "Any JSON value." });
}

/// Uses the JSON Schema of another type.
macro_rules! same {
    ($([$($of:tt)*] $type:ty = $other:ty;)*) => {$(
        impl<$($of)*> schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                <$other as schemars::JsonSchema>::inline_schema()
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$other as schemars::JsonSchema>::schema_name()
            }
            fn schema_id() -> std::borrow::Cow<'static, str> {
                <$other as schemars::JsonSchema>::schema_id()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$other as schemars::JsonSchema>::json_schema(generator)
            }
        }
    )*};
}

pub(crate) use same;

same! {
    [] RunHash = Sha256;
    [] PrevHash = Sha256;
}

/// Allows the id's texts and the empty text.
impl<T: JsonSchema> JsonSchema for OrEmpty<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("{}OrEmpty", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        schema.remove("minLength");
        schema
    }
}

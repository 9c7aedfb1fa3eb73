//! Payloads. Each is a branch of the union at the end of the record; its JSON has the member `"type"`.
//!
//! The branch numbers are the union's order in the schema. A branch number is never reused. Runlog's own payloads are
//! structs; [payloads of other contracts](contract) are data that the schema describes.

use self::{
    contract::ContractPayload,
    lifetime::{Erasure, Fork, RetentionHorizon},
    observed::{CodeEditProposal, Retraction, ToolJournalEntry},
    wrapped::{Batch, Encrypted, HostPayload},
};
use crate::{
    canonical, datum,
    datum::{Datum, Input, Malformed, Sha256, put_long},
    id::{Epoch, Fingerprint, Offset, OrEmpty, RecordId, WriterId},
    json::{self, Invalid, Json, invalid},
    or_other::OrOther,
};
use serde::{Deserialize, Serialize, de::Error};
use serde_json::value::RawValue;
use std::borrow::Cow;

mod checkpoint;
pub mod contract;
pub mod lifetime;
pub mod observed;
#[macro_use]
pub(crate) mod payload_type;
pub mod wrapped;

pub use checkpoint::{CheckpointPrune, LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint};
pub use payload_type::PayloadType;

/// The contract's run lifecycle: `started`, then one of `completed`, `failed`, `cancelled`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLifecycle {
    /// The status. A status other than these four is kept and has no effect.
    pub status: String,
    /// The reason.
    #[serde(default)]
    pub reason: String,
}
datum!(RunLifecycle { status, reason });

/// One message of a conversation (the observability contract's `conversation_turns`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationTurn {
    /// Unique within the run.
    pub message_id: String,
    /// The id of the message that this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    /// The thread of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// `user`, `assistant`, `system`, `sysinfo`, `tool`.
    pub kind: String,
    /// The content in its source's form: a string, null, or parts.
    pub content: Json,
}
datum!(ConversationTurn { message_id, parent_id, thread_id, kind, content });

/// A tool call that is about to run. Durable before the call starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallRequested {
    /// Correlates the calls of one model response.
    pub request_id: String,
    /// The provider's id. Providers repeat it, so it is not unique.
    pub call_id: String,
    /// The message that requested the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    /// The model's vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// The tool.
    pub tool_name: String,
    /// Hexadecimal SHA-256 of the canonical arguments; filled in from `arguments` if absent.
    #[serde(default)]
    pub args_sha256: String,
    /// The fingerprint (`docs/spec.md`, "Tool calls"); filled in if absent.
    #[serde(default)]
    pub fingerprint: OrEmpty<Fingerprint>,
    /// The arguments; absent if only hashes are kept.
    #[serde(default, deserialize_with = "json::present", skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
}
datum!(ToolCallRequested { request_id, call_id, parent_id, vendor, tool_name, args_sha256, fingerprint, arguments });

impl ToolCallRequested {
    /// Computes a missing hash and fingerprint from the arguments. Present values are kept, because redacted arguments
    /// no longer determine them; [`ToolCallRequested::is_sealed`] compares.
    pub fn seal(mut self) -> Result<Self, canonical::Error> {
        if let Some(arguments) = &self.arguments {
            let sha = canonical::args_sha256(arguments.as_str())?;
            if self.args_sha256.is_empty() {
                self.args_sha256 = sha;
            }
        }
        if self.fingerprint.is_none() && !self.args_sha256.is_empty() {
            self.fingerprint = Fingerprint::of_hashed_call(&self.tool_name, &self.args_sha256).into();
        }
        Ok(self)
    }

    /// Whether the fingerprint matches tool and hash, and the hash the arguments, unless they are absent or `redacted`.
    pub fn is_sealed(&self, redacted: bool) -> bool {
        let args = redacted
            || self.arguments.as_ref().is_none_or(|arguments| {
                canonical::args_sha256(arguments.as_str()).is_ok_and(|sha| sha == self.args_sha256)
            });
        args && self.fingerprint == Fingerprint::of_hashed_call(&self.tool_name, &self.args_sha256).into()
    }
}

/// A further attempt at a pending call. Recorded before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallAttempt {
    /// The request's `record_id`.
    pub request_record_id: RecordId,
    /// 2 for the first repetition.
    pub attempt: u32,
    /// The reason why the attempt is safe.
    pub reason: String,
}
datum!(ToolCallAttempt { request_record_id, attempt, reason });

/// A tool call that returned a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallCompleted {
    /// The request's `record_id`.
    pub request_record_id: RecordId,
    /// The recorded result; absent if it is redacted.
    #[serde(default, deserialize_with = "json::present", skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// How long the effect took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<i64>,
}
datum!(ToolCallCompleted { request_record_id, result, latency_ms });

/// A tool call that failed permanently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallFailed {
    /// The request's `record_id`.
    pub request_record_id: RecordId,
    /// A name for the kind of failure.
    pub error_kind: String,
    /// The error message.
    pub error_message: String,
    /// How long the effect took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<i64>,
}
datum!(ToolCallFailed { request_record_id, error_kind, error_message, latency_ms });

/// A writer claims a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaim {
    /// The claiming writer; equal to the envelope's.
    pub writer_id: WriterId,
    /// The claimed epoch; equal to the envelope's.
    pub epoch: Epoch,
    /// The claiming host and process, for people.
    #[serde(default)]
    pub claimed_by: String,
}
datum!(RunClaim { writer_id, epoch, claimed_by });

/// A decision on a pending effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectResolution {
    /// The request's `record_id`.
    pub request_record_id: RecordId,
    /// `done`, `adopt`, `not_done` or `give_up`.
    pub decision: String,
    /// With `done`: the result.
    #[serde(default, deserialize_with = "json::present", skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The author of the decision.
    pub who: String,
    /// The reason.
    pub why: String,
}
datum!(EffectResolution { request_record_id, decision, result, who, why });

impl EffectResolution {
    /// Returns whether it has a result that its decision does not use. Null counts as absent.
    pub fn has_stray_result(&self) -> bool {
        self.decision != "done" && self.result.as_ref().is_some_and(|result| result.as_str() != "null")
    }
}

/// Voids one record of this partition for every reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The voided record's offset.
    pub offset: Offset,
    /// The author of the decision.
    pub who: String,
    /// The reason.
    pub why: String,
}
datum!(Skip { offset, who, why });

/// The first record of every partition of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Genesis {
    /// A random id, assigned once.
    pub journal_id: String,
    /// The journal's partition count, which never changes.
    pub partitions: u32,
}
datum!(Genesis { journal_id, partitions });

/// The claim check of a payload in the content store. The record has that payload's kind and facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPayload {
    /// The payload's type.
    pub payload_type: OrOther<PayloadType>,
    /// SHA-256 of the payload's Avro encoding, its branch included; the object's name.
    pub sha256: Sha256,
    /// The encoding's length, bytes.
    pub bytes: u64,
}
datum!(StoredPayload { payload_type, sha256, bytes });

/// Content that does not match its claim check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentMismatch {
    /// Another length or hash.
    #[error("its {bytes} bytes hash to {sha256}")]
    Other {
        /// The hash of the bytes.
        sha256: Sha256,
        /// The number of bytes.
        bytes: usize,
    },
    /// The bytes match, but are not a payload of the record's type.
    #[error("it is no {0}")]
    NotOfType(String),
}

impl StoredPayload {
    /// Creates the claim check for `content`, the encoding of a `payload_type`.
    pub fn of(payload_type: PayloadType, content: &[u8]) -> Self {
        Self { payload_type: payload_type.into(), sha256: Sha256::of(content), bytes: content.len() as u64 }
    }

    /// Returns whether it fits a record whose facts name `payload_type`: the types are equal, or the content is encrypted.
    pub fn fits(&self, payload_type: &OrOther<PayloadType>) -> bool {
        *payload_type != PayloadType::StoredPayload
            && (self.payload_type == *payload_type || self.payload_type == PayloadType::Encrypted)
    }

    /// Decodes the content after checking its length and hash.
    pub fn open(&self, content: &[u8]) -> Result<Payload, ContentMismatch> {
        let sha256 = Sha256::of(content);
        if sha256 != self.sha256 || content.len() as u64 != self.bytes {
            return Err(ContentMismatch::Other { sha256, bytes: content.len() });
        }
        match Payload::from_bytes(content) {
            Ok(payload) if self.payload_type == payload.payload_type() => Ok(payload),
            _ => Err(ContentMismatch::NotOfType(self.payload_type.to_string())),
        }
    }
}

macro_rules! payloads {
    ($(own { $($name:ident = $tag:literal),* $(,)? } contract { $($contract:ident = $contract_tag:literal),* $(,)? })*) => {
        /// A record's payload.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each variant is the struct of its name")]
        #[allow(clippy::large_enum_variant, reason = "moved once, from its bytes to its reader")]
        pub enum Payload { $($($name($name),)*)* Contract(ContractPayload) }

        impl Payload {
            /// The payload types in the order of the schema's union.
            pub const TYPES: &'static [&'static str] = &[$($($tag,)* $($contract_tag,)*)*];

            /// An example record of each payload type, in the same order: the JSON of `examples/TYPE.json`.
            pub const EXAMPLES: &'static [&'static str] = &[$(
                $(include_str!(concat!("../examples/", $tag, ".json")),)*
                $(include_str!(concat!("../examples/", $contract_tag, ".json")),)*
            )*];

            /// The payload's own type: `encrypted` or `stored_payload` for a payload that hides another one.
            pub fn payload_type(&self) -> PayloadType {
                match self {
                    $($(Self::$name(_) => PayloadType::$name,)*)*
                    Self::Contract(payload) => payload.payload_type(),
                }
            }

            fn parse(payload_type: PayloadType, text: &str) -> Result<Self, Invalid> {
                match payload_type {
                    $($(PayloadType::$name => json::bounded::read(text).map(Self::$name).map_err(|e| invalid(e, "")),)*)*
                    contract => ContractPayload::parse(contract, text).map(Self::Contract),
                }
            }
        }

        impl Datum for Payload {
            fn put(&self, out: &mut Vec<u8>) {
                put_long(self.payload_type() as i64, out);
                match self {
                    $($(Self::$name(value) => value.put(out),)*)*
                    Self::Contract(payload) => out.extend_from_slice(payload.datum()),
                }
            }
            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                match PayloadType::ALL[input.branch(Self::TYPES.len())?] {
                    $($(PayloadType::$name => $name::take(input).map(Self::$name),)*)*
                    contract => ContractPayload::take(contract, input).map(Self::Contract),
                }
            }
            fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
                match PayloadType::ALL[input.branch(Self::TYPES.len())?] {
                    $($(PayloadType::$name => $name::skip(input),)*)*
                    contract => ContractPayload::skip(contract, input),
                }
            }
        }

        impl Serialize for Payload {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                #[derive(Serialize)]
                struct Tagged<'a, T> { #[serde(rename = "type")] tag: &'static str, #[serde(flatten)] value: &'a T }
                match self {
                    $($(Self::$name(value) => Tagged { tag: $tag, value }.serialize(s),)*)*
                    Self::Contract(payload) => payload.serialize(s),
                }
            }
        }

        $($(impl From<$name> for Payload { fn from(value: $name) -> Self { Self::$name(value) } })*)*
    };
}

payload_list!(payloads);

impl From<ContractPayload> for Payload {
    fn from(payload: ContractPayload) -> Self {
        Self::Contract(payload)
    }
}

impl Payload {
    /// Reads the JSON object of a payload by its `type`. The error's pointer is relative to the payload.
    pub fn from_json(raw: &RawValue) -> Result<Self, Invalid> {
        #[derive(Deserialize)]
        struct Tag<'a> {
            #[serde(rename = "type", borrow)]
            tag: Cow<'a, str>,
        }
        let tag = serde_json::from_str::<Tag<'_>>(raw.get()).map_err(|e| invalid(e, ""))?.tag;
        match tag.parse() {
            Ok(payload_type) => Self::parse(payload_type, raw.get()),
            Err(_) => Err(invalid(format!("unknown payload type {tag:?}"), "")),
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let read = Self::from_json(&Box::<RawValue>::deserialize(d)?);
        read.map_err(|e| D::Error::custom(if e.pointer.is_empty() { e.what } else { e.to_string() }))
    }
}

//! What a producer needs to know of a journal.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a producer needs to know of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Journal {
    /// The topic.
    pub topic: String,
    /// The journal.
    pub journal_id: String,
    /// Its partition count.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub partitions: u32,
    /// Fingerprints of the schemas that this server reads, hexadecimal as on the wire.
    pub schemas: Vec<String>,
    /// The ids that the journal's schema registry gave, by fingerprint; empty without a registry. A producer whose schema
    /// is among them frames its records with the id.
    #[serde(default)]
    pub schema_ids: BTreeMap<String, u32>,
    /// The longest payload that is taken, bytes of its Avro encoding: what a record holds, or where there is a content
    /// store what that holds.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    #[serde(default = "inline_only")]
    pub payload_bytes_max: u64,
}

/// The limit of a server that does not report one.
fn inline_only() -> u64 {
    crate::codec::RECORD_BYTES_MAX as u64
}

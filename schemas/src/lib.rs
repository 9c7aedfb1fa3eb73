//! Runlog's records: their types, their encoding, and the rules that judge them.
//!
//! Reading order: [`id`] (ids, numbers, hashes), [`record`] (the envelope), [`payload`], [`messages`] (message lists of
//! checkpoints), [`judge`] (the rules), [`codec`] (the encoding), [`canonical`] (fingerprints). The contract is
//! `avsc/v1/JournalRecord.avsc`; all else follows from it.

#![deny(missing_docs)]

pub mod answer;
pub mod canonical;
pub mod codec;
pub mod datum;
pub mod depth;
pub mod draft;
pub mod evolution;
pub mod headers;
pub mod hidden;
pub mod id;
pub mod json;
pub mod judge;
pub mod messages;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod or_other;
pub mod original;
pub mod partition;
pub mod payload;
pub mod record;
pub mod refs;
pub mod scalar;
pub mod schema;
pub mod shell;
pub mod subject;
#[cfg(feature = "openapi")]
pub mod symbol_schema;
pub mod trace;

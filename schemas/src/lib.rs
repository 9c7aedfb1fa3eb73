//! The vocabulary of Runlog: what a record is, how it is written, what it means.
//!
//! Reading order: [`id`] (what must not be mixed up), [`record`] (the envelope), [`payload`] (what it says),
//! [`messages`] (what checkpoints are made of), [`judge`] (what it means), [`codec`] (how it travels), [`canonical`]
//! (fingerprints). The contract is `avsc/v1/JournalRecord.avsc`; all else follows from it.

#![deny(missing_docs)]

pub mod answer;
pub mod canonical;
pub mod codec;
pub mod contract;
pub mod datum;
pub mod depth;
pub mod draft;
pub mod evolution;
pub mod headers;
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
pub mod subject;
#[cfg(feature = "openapi")]
pub mod symbol_schema;
pub mod trace;

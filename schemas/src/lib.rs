//! The vocabulary of Runlog: what a record is, how it is written, what it means.
//!
//! Reading order: [`record`] (the envelope), [`payload`] (what it says), [`judge`] (what it means), [`codec`] (how it
//! travels), [`canonical`] (fingerprints). The contract is `avsc/v1/JournalRecord.avsc`; all else follows from it.

#![deny(missing_docs)]

pub mod answer;
pub mod canonical;
pub mod codec;
pub mod datum;
pub mod draft;
pub mod evolution;
pub mod json;
pub mod judge;
pub mod partition;
pub mod payload;
pub mod record;
pub mod refs;
pub mod schema;

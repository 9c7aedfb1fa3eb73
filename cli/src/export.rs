//! Runs in the formats of other tools.
//!
//! ```text
//!   server ──source──▶ records of a run, up to a position ──atif, tables──▶ files ──staging──▶ folder, all at once
//! ```
//!
//! The export does not judge records: every record that the server lists was applied.

pub(crate) mod atif;
pub(crate) mod source;
pub(crate) mod staging;
#[cfg(feature = "parquet")]
pub(crate) mod tables;

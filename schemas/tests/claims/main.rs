//! The claims of the vocabulary, one module per claim.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

mod allocations;
mod contracts;
mod counting;
mod evolution;
mod examples;
mod golden;
mod golden_payloads;
mod hostile;
mod hostile_drafts;
mod oracle;
mod round_trips;
mod stored;
mod vocabulary;

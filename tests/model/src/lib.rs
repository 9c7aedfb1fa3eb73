//! An independent model of the journal, and the histories that it and the product are compared over.
//!
//! The model implements the specification (`docs/spec.md`) a second time, as naively as possible: it keeps every
//! record of a run in a list, and answers each question by walking that list. It shares only the JSON of records and
//! answers with the product (`scripts/model-alone.sh` checks that). If the two differ, one is wrong.
//!
//! ```text
//!   seed ──▶ generator ──▶ History: appends and faults ──▶ deliveries ──▶ Model ──▶ answers
//!                                   └── the product's log ──▶ projector ──▶ the same answers?
//! ```
//!
//! `tests/src/agreement` compares the two, on the pure projection and on disk with kills at named points
//! (`tests/tests/model_agrees.rs`). A difference names its seed, the position, the question and both answers. For
//! each rule a seed detects a model without it. If document and product differ, one of them is wrong.
//!
//! Reading order: [`delivery`](Delivery), `rule`, `run` (the only state), `judge` and `content` (the order of judgement),
//! `effects`, `lifecycles`, `checkpoints` (the lifecycles), `fold` (the partition), `answers`, `time`, `events`; then
//! `generator`.

mod answers;
mod checkpoints;
mod content;
mod delivery;
mod effects;
mod events;
mod fold;
mod generator;
mod hashes;
mod judge;
mod lifecycles;
mod random;
mod record;
mod rule;
mod run;
mod time;

pub use delivery::{Delivery, Journal, What};
pub use events::EventFilter;
pub use fold::Model;
pub use generator::{AppendFault, Event, History, Step, history};
pub use hashes::{basis, content as content_hash, fingerprint, partition_of, state_hash};
pub use rule::{Rule, Rules};

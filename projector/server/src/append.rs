//! Appends through a server: numbers and judges records against the index, then appends them to the log.
//!
//! ```text
//!   appender (locks, deadlines) ──▶ stow (large payloads) ──▶ plan (numbers, judgement) ──▶ land (append, wait, outcome)
//!                                                              ▲                            │
//!                                                              └── renumber (taken numbers) ◀┘
//! ```

pub(crate) mod appender;
pub(crate) mod attribution;
mod basis;
mod batch;
mod blocking;
pub(crate) mod check;
mod claimants;
pub(crate) mod claims;
pub(crate) mod decisions;
mod land;
mod numbers;
pub(crate) mod of_partition;
pub(crate) mod origin;
pub(crate) mod outcomes;
mod own;
pub(crate) mod plan;
mod renumber;
pub(crate) mod resolve;
mod run_locks;
mod stow;

pub use appender::Appender;
pub use of_partition::skip;

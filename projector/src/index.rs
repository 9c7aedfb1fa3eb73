//! The indices: the log's content as RocksDB rows, and all queries of them. This module knows no HTTP, and appends only the
//! first record of a new journal.
//!
//! ```text
//!   Log ──▶ pipeline (the only loop) ──▶ fold ──▶ codec, judge, project (pure) ──▶ store (one write batch)
//!                                                                                     │
//!   answers ◀── query ◀── views of one position (or as_of: a run as of an offset) ◀──────────┘
//! ```
//!
//! Reading order: [`pipeline`], [`fold`], [`project`], [`store`], then [`query`]. [`projector`] combines them.

pub mod as_of;
mod blocking_schemas;
pub mod bulk;
pub mod changes;
pub mod claimant;
pub mod config;
pub mod content;
mod doubt;
pub mod entry;
pub mod error;
pub mod executor;
pub mod failpoint;
pub mod flush;
pub mod fold;
pub mod follow;
mod guarded_log;
pub mod held;
pub mod home;
pub mod journal;
pub mod pipeline;
pub mod principal;
pub mod project;
pub mod projector;
pub mod query;
pub mod rebuild;
pub mod shared;
pub mod store;
pub mod stored_journal;
mod verify;

pub use config::{APPENDS_MAX, Clock, Config};
pub use content::Contents;
pub use error::Error;
pub use executor::Executor;
pub use projector::{Consistency, Projector};

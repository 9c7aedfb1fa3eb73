//! The projector: folds the log into RocksDB indices and answers from them.
//!
//! ```text
//!   Log ──▶ pipeline (the only loop) ──▶ fold ──▶ codec, judge, project (pure) ──▶ store (one write batch)
//!                                                                                     │
//!   HTTP ◀── serve ◀── query ◀── views of one position (or past: a run as it was) ◀────┘
//! ```
//!
//! Reading order: [`pipeline`], [`fold`], [`project`], [`store`], then [`query`] and [`serve`].

#![deny(missing_docs)]

mod append;
pub mod changes;
pub mod content;
mod error;
pub mod failpoint;
pub mod fold;
pub mod follow;
pub mod journal;
pub mod open;
pub mod past;
pub mod pipeline;
pub mod project;
pub mod query;
pub mod replace;
pub mod serve;
pub mod service;
pub mod store;
mod verify;

pub use content::Contents;
pub use error::Error;
pub use service::{Clock, Config, Consistency, Projector};

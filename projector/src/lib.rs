//! The projector: folds the log into RocksDB indices, and serves them over HTTP.
//!
//! ```text
//!   Log ──▶ index ──▶ server ──▶ HTTP
//!    ▲                  │
//!    └──── appends ─────┘
//! ```
//!
//! Two layers: the [`index`] reads the log and answers queries; the [`server`] appends records and serves HTTP. The index
//! never calls the server. [`open`] opens an index over a folder or a Kafka topic.

#![deny(missing_docs)]

pub mod index;
pub mod open;
pub mod server;

pub use index::{Clock, Config, Consistency, Contents, Error, Executor, Projector, error::kind_of};

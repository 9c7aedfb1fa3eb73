//! Schema registries with Confluent's REST interface.
//!
//! ```text
//!   Registry ──▶ cache (memory, disk) ──miss──▶ client ──▶ HTTP, bounded retries
//!      ▲                                          │
//!      └── the loop asks without waiting ◀────────┘ keeps answers, never failures
//! ```
//!
//! Reading order: [`Registry`] (ids to schemas, schema to id), [`Client`] (the interface), `cache`.

#![deny(missing_docs)]

mod cache;
mod client;
mod config;
mod error;
mod ids;

pub use client::Client;
pub use config::{Auth, Config};
pub use error::{Error, Kind};
pub use ids::Registry;

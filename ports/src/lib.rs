//! Other agent SDKs' own journal traits, implemented on Runlog: who uses one of them changes the line that makes the store.
//!
//! Each port is a module behind a feature of its SDK's name, over the public API of `runlog-producer` alone: a
//! [`Writer`](runlog_producer::Writer) per run that it writes, and reads that claim nothing. Which way the journal is reached,
//! `local:`, `http:` or `kafka:`, is the producer's configuration.
//!
//! Reading order: [`Blocking`], then the port.

#![deny(missing_docs)]

#[cfg(feature = "agent-sdk-core")]
pub mod agent_sdk_core;
mod blocking;
#[cfg(feature = "bob-core")]
pub mod bob_core;
#[cfg(feature = "codetether")]
pub mod codetether;
#[cfg(any(feature = "bob-core", feature = "observability"))]
mod depth;
mod desks;
#[cfg(feature = "observability")]
pub mod observability;
#[cfg(any(feature = "agent-sdk-core", feature = "bob-core", feature = "codetether", feature = "observability"))]
mod seek;
#[cfg(any(feature = "bob-core", feature = "codetether", feature = "observability"))]
mod settled;

pub use blocking::{Blocking, Unconnected};
pub use desks::{Desks, taken_over};
pub use runlog_producer as producer;

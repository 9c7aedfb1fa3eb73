//! Journal traits of other agent SDKs, implemented on Runlog. A host changes only the line that creates its store.
//!
//! Each port is a module with a feature named after its SDK. It uses only the public API of `runlog-producer`: a
//! [`Writer`](runlog_producer::Writer) per run that it writes, and reads that claim nothing. The producer's configuration
//! chooses between `local:`, `http:` and `kafka:`.
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
#[cfg(any(feature = "bob-core", feature = "codetether", feature = "observability"))]
mod confirmed_write;
#[cfg(any(feature = "bob-core", feature = "observability"))]
mod depth;
#[cfg(feature = "observability")]
pub mod observability;
#[cfg(any(feature = "agent-sdk-core", feature = "bob-core", feature = "codetether", feature = "observability"))]
mod record_list;
mod writer_pool;

pub use blocking::{Blocking, ConnectError};
pub use runlog_producer as producer;
pub use writer_pool::{WriterPool, taken_over};

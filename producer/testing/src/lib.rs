#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

#[cfg(feature = "containers")]
pub mod containers;
#[cfg(feature = "in-process")]
mod in_process;

#[cfg(feature = "in-process")]
pub use in_process::InProcess;
pub use runlog_producer as producer;

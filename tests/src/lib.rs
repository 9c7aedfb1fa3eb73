//! Runlog.

pub mod kafka;
pub mod log_contract;

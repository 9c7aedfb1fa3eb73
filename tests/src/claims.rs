//! Claims that hold on every way to a journal: each is written once here and tested on each way by the files in `tests/`.

pub mod batches;
pub mod calls;
pub mod decisions;
pub mod gate;
pub mod interleavings;
pub mod killed_producers;
pub mod port_bob_core;
pub mod port_codetether;
pub mod port_conformance;
pub mod port_observability;
pub mod records;
pub mod reopen;
pub mod takeover;
pub mod writing;

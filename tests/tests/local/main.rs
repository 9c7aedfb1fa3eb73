//! Claims that need no broker: one module per claim. A module named `foreign_*` needs another language or tool,
//! `recorded_*` the recorded runs, `disk_*` root, who mounts small disks.

mod as_of;
mod batches_and_states;
mod checkpoint_cost;
mod conformance;
mod content_elsewhere;
mod disk_full;
mod documents;
mod foreign_golden;
mod foreign_openapi;
mod gate;
mod handles;
mod http_answers;
mod http_questions;
mod index_changes;
mod interleaved_polls;
mod log_contract;
mod openapi_describes;
mod paused_is_stale;
mod ports_bob_core;
mod ports_codetether;
mod ports_examples;
mod ports_observability;
mod producer_kill;
mod projector_kill;
mod publish_batch;
mod recorded_runs;
mod retention;
mod slow_first_read;
mod tail_all;
mod takeover;
mod torn_writes;
mod unreadable_records;
mod valid_time;
mod verify_names_the_index;
mod writer_checkpoints;

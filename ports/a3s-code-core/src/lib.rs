//! The loop checkpoints of a3s-code-core, kept in Runlog: a [`LoopCheckpointSink`] whose checkpoints survive the process and
//! the machine, and from which a process that was taken over can save nothing any more.
//!
//! ```text
//!   agent loop ──save_checkpoint──▶ CheckpointSink ──▶ a writer per run ──▶ the log      one small record per round
//!   a host, to resume ──try_load──▶ CheckpointSink ──▶ the run's last checkpoint, or why there is none to be had
//! ```
//!
//! A sink can be given to whatever takes a [`LoopCheckpointSink`]. The sessions of version 9.1.3 take none: they save and load
//! by their session store, around which a [`CheckpointedStore`] is put.
//!
//! ```no_run
//! use runlog_a3s_code_core::{CheckpointSink, producer::{Config, Journal, Runlog}};
//! # async fn host() -> Result<(), Box<dyn std::error::Error>> {
//! let runlog = Runlog::connect(Config::new(Journal::Http("http://127.0.0.1:7171".into()), "coder")).await?;
//! let sink = std::sync::Arc::new(CheckpointSink::new(runlog));
//! // options.with_session_store(Arc::new(CheckpointedStore::new(sink.clone(), store)))
//! match sink.resume("run-1").await? {
//!     Some(checkpoint) => println!("goes on behind round {}", checkpoint.turn),
//!     None => println!("the log has no checkpoint of it: it starts"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **A lost checkpoint never halts the run.** [`save_checkpoint`](LoopCheckpointSink::save_checkpoint) returns when the
//! checkpoint is in the log and applied, or when it is lost; then it warns, and [`CheckpointSink::last_error`] has why. The next
//! one has everything that it had.
//!
//! **Nobody starts from nothing by mistake.** A host that is told `None` asks the model and runs the tools from the first round
//! on. [`CheckpointSink::try_load`] says `None` only where the log proves that the run has no checkpoint, and everything
//! else as a [`LoadError`]. The trait's [`load_latest`](LoopCheckpointSink::load_latest) has no room for an error: it waits for
//! a journal that does not answer, within a bound, and then **panics**, as it does at once for what no waiting mends.
//! Hosts do better to call [`CheckpointSink::resume`] or [`CheckpointSink::try_load`].
//!
//! Reading order: [`CheckpointSink`], [`LoadError`], `form` (what a checkpoint is in the journal).
//!
//! [`LoopCheckpointSink`]: a3s_code_core::loop_checkpoint::LoopCheckpointSink

#![deny(missing_docs)]

mod form;
mod load;
mod sink;
mod store;

pub use load::LoadError;
pub use runlog_ports::producer;
pub use sink::{CheckpointSink, Lost, SaveError};
pub use store::CheckpointedStore;

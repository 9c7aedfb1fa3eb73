//! Keeps the loop checkpoints of a3s-code-core in Runlog: a [`LoopCheckpointSink`] whose checkpoints survive the process and the
//! machine. A process whose run was taken over can no longer save.
//!
//! ```text
//!   agent loop ──save_checkpoint──▶ CheckpointSink ──▶ a writer per run ──▶ the log      one small record per round
//!   a host, to resume ──try_load──▶ CheckpointSink ──▶ the run's last checkpoint, or why it cannot be loaded
//! ```
//!
//! A sink can be used wherever a [`LoopCheckpointSink`] is accepted. The sessions of version 9.1.3 accept none: they save and load
//! through their session store, so wrap that in a [`CheckpointedStore`].
//!
//! ```no_run
//! use runlog_a3s_code_core::{CheckpointSink, producer::{Config, Journal, Runlog}};
//! # async fn host() -> Result<(), Box<dyn std::error::Error>> {
//! let runlog = Runlog::connect(Config::new(Journal::Http("http://127.0.0.1:7171".into()), "coder")).await?;
//! let sink = std::sync::Arc::new(CheckpointSink::new(runlog));
//! // options.with_session_store(Arc::new(CheckpointedStore::new(sink.clone(), store)))
//! match sink.resume("run-1").await? {
//!     Some(checkpoint) => println!("resumes after round {}", checkpoint.turn),
//!     None => println!("the log has no checkpoint of this run: it starts"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **A lost checkpoint never stops the run.** [`save_checkpoint`](LoopCheckpointSink::save_checkpoint) returns when the checkpoint
//! is applied, or when it is lost. In the second case it logs a warning, and [`CheckpointSink::last_error`] returns the reason.
//! The next checkpoint contains everything.
//!
//! **No run starts from the beginning by mistake.** After `None` a host asks the model and runs the tools from the first round.
//! [`CheckpointSink::try_load`] therefore returns `None` only if the log proves that the run has no checkpoint; anything else is a
//! [`LoadError`]. The trait's [`load_latest`](LoopCheckpointSink::load_latest) cannot return an error: it waits a bounded time for
//! a journal that does not answer and then **panics**; for errors that waiting cannot mend it panics at once. Hosts should call
//! [`CheckpointSink::resume`] or [`CheckpointSink::try_load`] instead.
//!
//! Reading order: [`CheckpointSink`], [`LoadError`], `form` (a checkpoint's form in the journal).
//!
//! [`LoopCheckpointSink`]: a3s_code_core::loop_checkpoint::LoopCheckpointSink

#![deny(missing_docs)]

mod error;
mod form;
mod load;
mod sink;
mod store;

pub use error::LoadError;
pub use runlog_ports::producer;
pub use sink::{CheckpointSink, Lost, SaveError};
pub use store::CheckpointedStore;

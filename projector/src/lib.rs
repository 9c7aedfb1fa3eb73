//! The projector: folds the log into RocksDB indices, and answers queries of them.
//!
//! ```text
//!   Log ──▶ index ──▶ answers
//! ```
//!
//! The [`index`] reads the log and answers queries; [`open`] opens an index over a folder or a Kafka topic. The crate
//! `runlog-server` appends records and serves HTTP. The index never calls it.
//!
//! The parts of the index that a server needs, beside [`Projector`] and its [`Config`]:
//!
//! | module | for |
//! |---|---|
//! | [`query`](index::query), [`changes`](index::changes), [`follow`](index::follow), [`as_of`](index::as_of) | answers and streams |
//! | [`project`](index::project), [`store`](index::store), [`entry`](index::entry) | judging a record before it is appended |
//! | [`principal`](index::principal) | proofs of who decided |
//! | [`claimant`](index::claimant) | who claimed an epoch |
//! | [`executor`](index::executor) | its own reads and tasks |
//! | [`fold`](index::fold) | why a partition is stopped, and which records are skipped |

#![deny(missing_docs)]

pub mod index;
pub mod open;

pub use index::{Clock, Config, Consistency, Contents, Error, Executor, Projector, error::kind_of};

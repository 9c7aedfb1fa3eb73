//! agent-sdk-core as its own contract tests use it, with Runlog's journal and checkpoint store in place of its own.

mod store;

pub use sdk::*;
pub use store::InMemoryCheckpointStore;

/// The names that rewritten tests use.
pub mod contract {
    pub use crate::store::{JOURNAL, Records, SERVER, TOKEN};
}

/// The SDK's testing module, without its journal.
pub mod testing {
    pub use crate::store::FakeJournalStore;
    pub use sdk::testing::*;
}

//! agent-sdk-core as its own contract tests see it, its journal and its checkpoint store being Runlog's.

mod store;

pub use sdk::*;
pub use store::InMemoryCheckpointStore;

/// What rewritten tests name.
pub mod contract {
    pub use crate::store::{JOURNAL, Records, SERVER};
}

/// The SDK's testing module, but for its journal.
pub mod testing {
    pub use crate::store::FakeJournalStore;
    pub use sdk::testing::*;
}

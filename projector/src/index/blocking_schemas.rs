//! A schema registry whose lookups block until it has answered, for code that may block.

use runlog_schemas::{
    codec::{Framing, Schemas, Unreadable},
    schema::Version,
};
use std::time::Duration;
use tokio::time::Instant;

/// How long one wait for the registry lasts.
const STEP: Duration = Duration::from_millis(200);

/// A registry, and how long a lookup waits for it.
#[derive(Debug)]
pub(super) struct BlockingSchemas<'s> {
    pub(super) schemas: &'s dyn Schemas,
    pub(super) longest: Duration,
}

impl Schemas for BlockingSchemas<'_> {
    /// Blocks until the registry has answered. After `longest` it is [`Unreadable::Unresolved`].
    fn version(&self, id: u32) -> Result<&'static Version, Unreadable> {
        let mut until = None;
        loop {
            match self.schemas.version(id) {
                Err(Unreadable::Unresolved { .. })
                    if Instant::now() < *until.get_or_insert_with(|| Instant::now() + self.longest) =>
                {
                    self.schemas.wait(STEP);
                }
                answer => return answer,
            }
        }
    }

    fn framing(&self, version: &'static Version) -> Result<Framing, String> {
        self.schemas.framing(version)
    }

    fn wait(&self, longest: Duration) {
        self.schemas.wait(longest);
    }
}

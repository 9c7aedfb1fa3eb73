//! The programs of a demo.

use crate::{desk::Desk, server::Server};

/// The demo: its seed, and the programs that its agents use.
#[derive(Debug)]
pub(crate) struct Demo {
    pub(crate) seed: u64,
    /// The journal's server.
    pub(crate) url: String,
    pub(crate) server: Server,
    pub(crate) desk: Desk,
}

//! How much a principal may have in progress, so that it leaves room for others.

use super::caller::Caller;
use crate::Error;
use runlog_schemas::answer::ErrorKind;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of a principal in progress at the same time, of the server's 1024.
pub const REQUESTS_MAX: usize = 256;
/// Streams of a principal that are open at the same time. Those over all runs are 16 in all.
pub const STREAMS_MAX: usize = 64;

/// What a principal has in progress, with all of its tokens together.
#[derive(Debug)]
pub(super) struct Room {
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Room {
    pub(super) fn new() -> Self {
        let room = |size| Arc::new(Semaphore::new(size));
        Self { requests: room(REQUESTS_MAX), streams: room(STREAMS_MAX) }
    }
}

impl Caller {
    /// Room for a request until it is answered; none is needed where nobody is told apart.
    ///
    /// Errors: `Overloaded`; nothing happened.
    pub(super) fn request(&self) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let Some(room) = self.room() else { return Ok(None) };
        let full = || full(format!("{REQUESTS_MAX} requests of this principal are in progress"));
        room.requests.clone().try_acquire_owned().map(Some).map_err(|_| full())
    }

    /// Room for a stream until it ends.
    ///
    /// Errors: `Overloaded`; nothing happened.
    pub(in crate::server) fn stream(&self) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let Some(room) = self.room() else { return Ok(None) };
        let full = || full(format!("{STREAMS_MAX} streams of this principal are open"));
        room.streams.clone().try_acquire_owned().map(Some).map_err(|_| full())
    }
}

fn full(what: String) -> Error {
    Error::new(ErrorKind::Overloaded, format!("{what}; nothing happened, send this one again later"))
}

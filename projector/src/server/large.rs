//! Answers that may be large: so many are made at the same time, and those that are made and not yet sent share room, so that
//! clients that do not read theirs do not fill the memory.

use super::App;
use crate::Error;
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use runlog_schemas::answer::ErrorKind;
use serde::Serialize;
use std::{convert::Infallible, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Answers that are made at the same time. Each reads some 16 MiB, and takes a multiple of that until it is made.
const MADE_MAX: usize = 4;
/// An answer up to this needs no room, bytes; longer ones share [`UNSENT_BYTES_MAX`].
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Longer answers that are not sent yet, bytes.
const UNSENT_BYTES_MAX: usize = 128 << 20;
/// What is handed to a connection at once, bytes: what a client that does not read has in memory beside the room.
const CHUNK_BYTES: usize = 64 << 10;

/// Room for large answers.
#[derive(Debug)]
pub(super) struct Large {
    made: Arc<Semaphore>,
    /// In KiB.
    unsent: Arc<Semaphore>,
}

impl Large {
    pub(super) fn new() -> Self {
        let room = |size| Arc::new(Semaphore::new(size));
        Self { made: room(MADE_MAX), unsent: room(UNSENT_BYTES_MAX >> 10) }
    }
}

impl App {
    /// The JSON of what `read` returns, which runs on a thread when its turn comes.
    ///
    /// Errors: those of `read`; `Overloaded` where others do not read what they asked for, and there is no room for more.
    pub(super) async fn large<T: Serialize>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<Response, Error> {
        // It is never closed. The thread has it, which goes on when the client disconnects.
        let made = self.1.large.made.clone().acquire_owned().await.ok();
        let text = self.read(move |app| {
            let _made = made;
            let answer = read(app)?;
            serde_json::to_vec(&answer)
                .map_err(|error| Error::new(ErrorKind::Internal, "the answer cannot be written as JSON").because(error))
        });
        let bytes = Bytes::from(text.await?);
        let length = HeaderValue::from(bytes.len());
        let body = if bytes.len() > SMALL_BYTES_MAX {
            let kilobytes = u32::try_from(bytes.len().div_ceil(1 << 10)).unwrap_or(u32::MAX);
            let room = self.1.large.unsent.clone().try_acquire_many_owned(kilobytes);
            sent_from(bytes, room.map_err(|_| Error::new(ErrorKind::Overloaded, FULL))?)
        } else {
            Body::from(bytes)
        };
        let kind = HeaderValue::from_static("application/json");
        Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_LENGTH, length)], body).into_response())
    }
}

const FULL: &str =
    "there is no room for the answer, since clients do not read theirs; ask again later, or for fewer items";

/// A body that has its room until its last chunk is taken. As a whole it would be the connection's at once.
fn sent_from(bytes: Bytes, room: OwnedSemaphorePermit) -> Body {
    Body::from_stream(stream::unfold((bytes, room), |(mut bytes, room)| async move {
        let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
        if chunk.is_empty() { None } else { Some((Ok::<_, Infallible>(chunk), (bytes, room))) }
    }))
}

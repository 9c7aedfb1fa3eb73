//! Answers that may be large: so many are made at the same time, and those that are made and not yet sent share room, so that
//! clients that do not read theirs do not fill the memory.
//!
//! They are made on threads of their own, as many as are made at the same time: an allocator keeps what a thread freed for
//! that thread, and each of the runtime's threads that had once made a large answer kept some 16 MiB.

use super::{App, no_answer};
use crate::Error;
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::{future::OptionFuture, stream};
use runlog_schemas::answer::ErrorKind;
use serde::Serialize;
use std::{
    collections::VecDeque,
    convert::Infallible,
    io::{self, Write},
    sync::Arc,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Answers that are made at the same time, half of them for one principal at the most. Each reads some 16 MiB, and takes a
/// multiple of that until it is made.
pub(super) const MADE_MAX: usize = 4;
/// An answer up to this needs no room, bytes; longer ones share [`UNSENT_BYTES_MAX`].
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Longer answers that are not sent yet, bytes, half of them of one principal at the most.
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
        Self::of(1)
    }

    /// What one principal may take of it.
    pub(super) fn share() -> Self {
        Self::of(2)
    }

    fn of(shares: usize) -> Self {
        let room = |size| Arc::new(Semaphore::new(size / shares));
        Self { made: room(MADE_MAX), unsent: room(UNSENT_BYTES_MAX >> 10) }
    }

    /// The turn to make an answer, until it is dropped. Waits for it.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        self.made.clone().acquire_owned().await.ok()
    }

    /// Room for an answer that is made. One that is longer than all there is takes it all.
    fn unsent(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        let kilobytes = bytes.min(UNSENT_BYTES_MAX / 2).div_ceil(1 << 10);
        let room = self.unsent.clone().try_acquire_many_owned(u32::try_from(kilobytes).unwrap_or(u32::MAX));
        room.map_err(|_| Error::new(ErrorKind::Overloaded, FULL))
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
        let share = self.caller().large();
        // Its own first: whoever waits for that takes nothing from others. The thread has them, which goes on when the client
        // disconnects.
        let made = (OptionFuture::from(share.map(Large::turn)).await, self.1.large.turn().await);
        let app = self.clone();
        let executor = &self.0.shared.config.executor;
        let text = self.1.large_threads.run(executor, move || {
            let _made = made;
            let mut text = Text::default();
            serde_json::to_writer(&mut text, &read(&app)?).map_err(|error| {
                Error::new(ErrorKind::Internal, "the answer cannot be written as JSON").because(error)
            })?;
            Ok::<_, Error>(text)
        });
        let text = text.await.map_err(no_answer)??;
        let length = HeaderValue::from(text.bytes);
        let room = if text.bytes > SMALL_BYTES_MAX {
            let share = share.map(|share| share.unsent(text.bytes)).transpose()?;
            Some((share, self.1.large.unsent(text.bytes)?))
        } else {
            None
        };
        let body = text.sent_from(room);
        let kind = HeaderValue::from_static("application/json");
        Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_LENGTH, length)], body).into_response())
    }
}

const FULL: &str =
    "there is no room for the answer, since clients do not read theirs; ask again later, or for fewer items";

/// A text as it is written, in chunks: one whole would be in memory two or three times whenever it grows.
#[derive(Default)]
struct Text {
    /// Each of [`CHUNK_BYTES`] but the last.
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Write for Text {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.bytes.is_multiple_of(CHUNK_BYTES) {
            self.chunks.push_back(Vec::new());
        }
        let taken = text.len().min(CHUNK_BYTES - self.bytes % CHUNK_BYTES);
        if let Some(last) = self.chunks.back_mut() {
            last.extend_from_slice(&text[..taken]);
            self.bytes += taken;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Text {
    /// A body that has its room until its last chunk is taken. As a whole it would be the connection's at once.
    fn sent_from(self, room: Option<(Option<OwnedSemaphorePermit>, OwnedSemaphorePermit)>) -> Body {
        Body::from_stream(stream::unfold((self.chunks, room), |(mut chunks, room)| async move {
            chunks.pop_front().map(|chunk| (Ok::<_, Infallible>(Bytes::from(chunk)), (chunks, room)))
        }))
    }
}

//! Bounds the memory of large answers. A limited number is built concurrently, and built answers that are not sent yet
//! share a quota. So clients that do not read their answers cannot fill the memory.
//!
//! Dedicated threads build them, one per concurrent answer. The allocator keeps memory that a thread freed for that
//! thread, and each runtime thread that had once built a large answer kept some 16 MiB.

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

/// Answers that are built concurrently, at most half of them for one principal. Each reads some 16 MiB and takes a
/// multiple of that while it is built.
pub(super) const BUILDS_MAX: usize = 4;
/// An answer up to this size needs no quota, bytes; longer ones share [`UNSENT_BYTES_MAX`].
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Longer answers that are not sent yet, bytes, at most half of them for one principal.
const UNSENT_BYTES_MAX: usize = 128 << 20;
/// The size of a chunk that a connection gets, bytes. For a client that does not read, one chunk is in memory outside
/// the quota.
const CHUNK_BYTES: usize = 64 << 10;

/// The quotas of large answers.
#[derive(Debug)]
pub(super) struct ResponseMemory {
    builds: Arc<Semaphore>,
    /// In KiB.
    unsent: Arc<Semaphore>,
}

impl ResponseMemory {
    pub(super) fn new() -> Self {
        Self::with_shares(1)
    }

    /// Makes the share of one principal.
    pub(super) fn new_share() -> Self {
        Self::with_shares(2)
    }

    fn with_shares(shares: usize) -> Self {
        let semaphore = |size| Arc::new(Semaphore::new(size / shares));
        Self { builds: semaphore(BUILDS_MAX), unsent: semaphore(UNSENT_BYTES_MAX >> 10) }
    }

    /// Waits for a permit to build an answer.
    async fn acquire_build(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.builds.clone().acquire_owned().await.ok()
    }

    /// Reserves quota for a built answer. An answer beyond half the quota reserves half.
    fn reserve_unsent(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        let kilobytes = bytes.min(UNSENT_BYTES_MAX / 2).div_ceil(1 << 10);
        let permit = self.unsent.clone().try_acquire_many_owned(u32::try_from(kilobytes).unwrap_or(u32::MAX));
        permit.map_err(|_| Error::new(ErrorKind::Overloaded, FULL))
    }
}

impl App {
    /// Runs `read` on a dedicated thread, once it has a permit, and answers with the JSON of the result.
    ///
    /// Errors: errors of `read`; `Overloaded` if unread answers of other requests use up the quota.
    pub(super) async fn build_response<T: Serialize>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<Response, Error> {
        let share = self.caller().response_memory();
        // The principal's permit comes first: a request that waits for it holds no shared permit. The thread owns both,
        // since it continues when the client disconnects.
        let permits = (
            OptionFuture::from(share.map(ResponseMemory::acquire_build)).await,
            self.1.response_memory.acquire_build().await,
        );
        let app = self.clone();
        let executor = &self.0.shared.config.executor;
        let text = self.1.response_threads.run(executor, move || {
            let _permits = permits;
            let mut text = Text::default();
            serde_json::to_writer(&mut text, &read(&app)?).map_err(|error| {
                Error::new(ErrorKind::Internal, "the answer cannot be written as JSON").because(error)
            })?;
            Ok::<_, Error>(text)
        });
        let text = text.await.map_err(no_answer)??;
        let length = HeaderValue::from(text.bytes);
        let reservation = if text.bytes > SMALL_BYTES_MAX {
            let share = share.map(|share| share.reserve_unsent(text.bytes)).transpose()?;
            Some((share, self.1.response_memory.reserve_unsent(text.bytes)?))
        } else {
            None
        };
        let body = text.into_body(reservation);
        let kind = HeaderValue::from_static("application/json");
        Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_LENGTH, length)], body).into_response())
    }
}

const FULL: &str = "clients do not read their answers, so the server has no memory for this one; retry later, or ask for \
                    fewer items";

/// A text in chunks. A contiguous buffer would be in memory two or three times whenever it grows.
#[derive(Default)]
struct Text {
    /// Each has [`CHUNK_BYTES`], except the last.
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Write for Text {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.bytes.is_multiple_of(CHUNK_BYTES) {
            self.chunks.push_back(Vec::new());
        }
        let count = text.len().min(CHUNK_BYTES - self.bytes % CHUNK_BYTES);
        if let Some(last) = self.chunks.back_mut() {
            last.extend_from_slice(&text[..count]);
            self.bytes += count;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Text {
    /// Makes a body that holds its quota until its last chunk is sent. A single chunk would leave the quota at once.
    fn into_body(self, reservation: Option<(Option<OwnedSemaphorePermit>, OwnedSemaphorePermit)>) -> Body {
        Body::from_stream(stream::unfold((self.chunks, reservation), |(mut chunks, reservation)| async move {
            chunks.pop_front().map(|chunk| (Ok::<_, Infallible>(Bytes::from(chunk)), (chunks, reservation)))
        }))
    }
}

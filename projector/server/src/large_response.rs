//! Builds large answers, within the limits of [`ResponseMemory`].
//!
//! Dedicated threads build them, one per concurrent answer. The allocator keeps memory that a thread freed for that
//! thread, and each runtime thread that had once built a large answer kept some 16 MiB.

use super::{
    app::{App, no_answer},
    response_memory::ResponseMemory,
};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::{future::OptionFuture, stream};
use runlog_projector::index::error::Error;
use runlog_schemas::answer::ErrorKind;
use serde::Serialize;
use std::{
    collections::VecDeque,
    convert::Infallible,
    io::{self, Write},
};
use tokio::sync::OwnedSemaphorePermit;

/// An answer up to this size needs no quota, bytes; longer answers share 128 MiB.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// The size of a chunk that a connection gets, bytes. For a client that does not read, one chunk is in memory outside
/// the quota.
const CHUNK_BYTES: usize = 64 << 10;

/// Runs `read` on a dedicated thread, once it has a permit, and answers with the JSON of the result.
///
/// Errors: errors of `read`; `Overloaded` if unread answers of other requests use up the quota.
pub(super) async fn build<T: Serialize>(
    app: &App,
    read: impl FnOnce(&App) -> Result<T, Error> + Send + 'static,
) -> Result<Response, Error> {
    let share = app.caller.response_memory();
    // The principal's permit comes first: a request that waits for it holds no shared permit. The thread owns both,
    // since it continues when the client disconnects.
    let permits = (
        OptionFuture::from(share.map(ResponseMemory::acquire_build)).await,
        app.limits.response_memory.acquire_build().await,
    );
    let reader = app.clone();
    let executor = app.projector.executor();
    let text = app.limits.response_threads.run(executor, move || {
        let _permits = permits;
        let mut text = Text::default();
        serde_json::to_writer(&mut text, &read(&reader)?)
            .map_err(|error| Error::new(ErrorKind::Internal, "the answer cannot be written as JSON").because(error))?;
        Ok::<_, Error>(text)
    });
    let text = text.await.map_err(no_answer)??;
    let length = HeaderValue::from(text.bytes);
    let reservation = if text.bytes > SMALL_BYTES_MAX {
        let share = share.map(|share| share.reserve_unsent(text.bytes)).transpose()?;
        Some((share, app.limits.response_memory.reserve_unsent(text.bytes)?))
    } else {
        None
    };
    let body = text.into_body(reservation);
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_LENGTH, length)], body).into_response())
}

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

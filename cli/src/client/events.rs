//! Server-sent events of one connection, with a bound on the size of an event.

use crate::error::Error;
pub(crate) use eventsource_stream::Event;
use eventsource_stream::{EventStreamError, Eventsource};
use futures_util::{StreamExt, stream::BoxStream};
use runlog_schemas::answer::ErrorKind;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The largest event that is accepted, bytes: many times the largest record as JSON.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// A stream of events.
pub(crate) struct Events {
    stream: BoxStream<'static, Result<Event, EventStreamError<io::Error>>>,
    /// Bytes received since the last event.
    pending_bytes: Arc<AtomicUsize>,
    url: String,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) fn new(response: reqwest::Response, url: String) -> Self {
        let chunks = response.bytes_stream().map(|chunk| chunk.map_err(|error| io::Error::other(error.without_url())));
        Self::from_chunks(chunks, url)
    }

    fn from_chunks<B: AsRef<[u8]> + Send + 'static>(
        chunks: impl futures_util::Stream<Item = io::Result<B>> + Send + 'static,
        url: String,
    ) -> Self {
        let pending_bytes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pending_bytes);
        let bounded = chunks.map(move |chunk| {
            let chunk = chunk?;
            let bytes = chunk.as_ref().len();
            match counter.fetch_add(bytes, Ordering::Relaxed) + bytes {
                total if total > EVENT_BYTES_MAX + bytes => Err(io::Error::other("an event is larger than any record")),
                _ => Ok(chunk),
            }
        });
        Self { stream: bounded.eventsource().boxed(), pending_bytes, url }
    }

    /// Returns the next event, or `None` if the server ended the stream. Cancel safe: received bytes are kept.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Error> {
        let next = self.stream.next().await;
        self.pending_bytes.store(0, Ordering::Relaxed);
        next.transpose().map_err(|error| {
            let what = format!("the stream from {} broke off", self.url);
            Error::new(ErrorKind::Unavailable, what).because(error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn events(chunks: Vec<Vec<u8>>) -> Events {
        Events::from_chunks(stream::iter(chunks.into_iter().map(Ok)), "http://h".into())
    }

    #[tokio::test]
    async fn events_are_the_same_however_they_are_cut() {
        let text =
            ": hello\n\nid: 1\ndata: {\"a\":\ndata:\"é\"}\n\nevent: end\r\ndata\r\n\r\nevent: lost\n\ndata: half";
        for size in [1, 2, 3, 7, 1000] {
            let mut events = events(text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect());
            let mut parsed_events = Vec::new();
            while let Some(event) = events.next().await.unwrap() {
                parsed_events.push((event.event, event.data));
            }
            let expected = [("message".to_owned(), "{\"a\":\n\"é\"}".to_owned()), ("end".to_owned(), String::new())];
            assert_eq!(parsed_events, expected, "chunks of {size}");
        }
    }

    #[tokio::test]
    async fn an_event_without_end_is_refused() {
        let chunks = std::iter::repeat_n(vec![b'x'; 1 << 20], (EVENT_BYTES_MAX >> 20) + 3);
        let error = events(chunks.collect()).next().await.unwrap_err();
        assert!(error.chain().contains("larger than any record"), "{}", error.chain());
    }
}

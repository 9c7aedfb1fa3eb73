//! Server-sent events: what starts and ends a stream, and the events between.

use super::{
    app::App,
    auth::{Caller, InProgress},
    folders::Folders,
    shutdown::Shutdown,
};
use axum::{
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use runlog_projector::index::error::Error;
use runlog_schemas::answer::ErrorKind;
use serde::Serialize;
use std::{convert::Infallible, time::Duration};

/// Interval of keep-alive comments on an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Returns where a stream starts. A browser that reconnects repeats the URL and sends the id of its last event.
pub(super) fn from<'a>(headers: &'a HeaderMap, requested: Option<&'a str>) -> Option<&'a str> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    last.or(requested)
}

fn ending() -> Error {
    Error::new(ErrorKind::Unavailable, "the server is shutting down; resume at the last cursor")
}

fn revoked() -> Error {
    Error::new(
        ErrorKind::Unauthenticated,
        "this stream's token was revoked, changed or has expired; resume with a valid one",
    )
}

/// The content of an event.
pub(super) trait EventItem: Serialize + Send {
    /// The cursor that resumes after it.
    fn cursor(&self) -> &str;
}

/// A source of events: lines or changes.
pub(super) trait Source: Send + 'static {
    /// The content of each event.
    type Item: EventItem;
    /// Waits for the next item. Returns none at the end of the stream.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Item>, Error>> + Send;
}

/// The outside events that end a stream.
pub(super) struct Ends {
    shutdown: Shutdown,
    caller: Caller,
    folders: Folders,
    _in_progress: [Option<InProgress>; 2],
}

impl Ends {
    /// Errors: `Overloaded` if the caller is at its limit of streams.
    pub(super) fn new(app: &App) -> Result<Self, Error> {
        let streams = [app.caller.stream()?, None];
        let folders = Folders::new(&app.projector);
        Ok(Self { shutdown: app.shutdown.clone(), caller: app.caller.clone(), folders, _in_progress: streams })
    }

    /// Makes the ends of a stream of all runs, which also counts against the limit of such streams.
    pub(super) fn for_all_runs(app: &App) -> Result<Self, Error> {
        let ends = Self::new(app)?;
        let [stream, _] = ends._in_progress;
        Ok(Self { _in_progress: [stream, app.caller.stream_of_all_runs()?], ..ends })
    }
}

/// Sends each item as an event whose id is its cursor. An error ends the stream, as do a shutdown and the end of the
/// caller's access.
pub(super) fn events(ends: Ends, source: impl Source) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = stream::unfold(Some((ends, source)), |state| async move {
        let (ends, mut source) = state?;
        let next = tokio::select! {
            biased;
            () = ends.shutdown.begins() => Err(ending()),
            () = ends.caller.ended() => Err(revoked()),
            next = source.next() => next,
        };
        match next {
            Ok(Some(item)) => {
                let event = Event::default().id(item.cursor()).json_data(&item);
                Some((Ok(event.unwrap_or_else(|_| Event::default().event("error"))), Some((ends, source))))
            }
            Ok(None) => None,
            Err(error) => {
                let event = Event::default()
                    .event("error")
                    .json_data(ends.folders.hide_in(error.problem()))
                    .unwrap_or_default();
                Some((Ok(event), None))
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

//! Timelines as server-sent events, of a run or of all: each event's id is the cursor that resumes behind it.

mod all;

pub(super) use all::every;

use super::{App, Ask, Caller, Shutdown, auth::InProgress, folders::Folders};
use crate::index::{
    Error,
    query::{
        Order, parse_cursor,
        timeline::{self, Showing},
    },
};
use axum::{
    extract::{Path, Query},
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use runlog_schemas::{
    answer::{ErrorKind, Line},
    id::{PartitionId, RunId},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, convert::Infallible, time::Duration};

/// Lines read at once, and their bytes: what a stream has in memory whose client does not read.
const PAGE: usize = 100;
const PAGE_BYTES_MAX: u64 = 128 << 10;
/// How often an idle stream says that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TailQuery {
    from: Option<String>,
    #[serde(default)]
    until_end: bool,
    #[serde(default)]
    raw: bool,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

struct Tail {
    app: App,
    run_id: RunId,
    partition: PartitionId,
    cursor: Option<Vec<u8>>,
    ready: VecDeque<Line>,
    until_end: bool,
    show: timeline::Show,
}

/// Sends what is there, then what comes, or ends there with `until_end`. Resuming at a cursor neither repeats nor leaves
/// out a line.
pub(super) async fn one(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<TailQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Error> {
    let show = app.show(query.raw, false, Some(run_id.borrow())).await?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let partition = app.fresh(run_id.borrow(), &ask).await?;
    let cursor = match from(&headers, query.from.as_deref()) {
        None | Some("beginning") => None,
        Some("end") => timeline::end(&app.rows(&app.0.store(partition), run_id.borrow()), run_id.borrow())?,
        cursor => timeline::cursor(run_id.borrow(), cursor)?,
    };
    let ends = Ends::of(&app)?;
    let tail = Tail { app, run_id, partition, cursor, ready: VecDeque::new(), until_end: query.until_end, show };
    Ok(events(ends, tail))
}

/// Where a stream that goes on starts: a browser that connects again asks the same URL, and says what it had last.
pub(super) fn from<'a>(headers: &'a HeaderMap, asked: Option<&'a str>) -> Option<&'a str> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    last.or(asked)
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

/// What an event tells.
pub(super) trait Told: Serialize + Send {
    /// Resumes behind it.
    fn cursor(&self) -> &str;
}

impl Told for Line {
    fn cursor(&self) -> &str {
        &self.cursor
    }
}

/// Lines, or whatever is told, that come one by one.
pub(super) trait Source: Send + 'static {
    /// What comes.
    type Item: Told;
    /// The next one; none at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Item>, Error>> + Send;
}

/// What ends a stream from outside.
pub(super) struct Ends {
    shutdown: Shutdown,
    caller: Caller,
    folders: Folders,
    _room: [Option<InProgress>; 2],
}

impl Ends {
    /// Errors: `Overloaded` where the caller has as many streams as it may.
    pub(super) fn of(app: &App) -> Result<Self, Error> {
        let room = [app.caller().stream()?, None];
        let folders = Folders::of(&app.0);
        Ok(Self { shutdown: app.2.clone(), caller: app.caller().clone(), folders, _room: room })
    }

    /// The same of a stream that is of all runs.
    pub(super) fn of_all_runs(app: &App) -> Result<Self, Error> {
        let ends = Self::of(app)?;
        let [one, _] = ends._room;
        Ok(Self { _room: [one, app.caller().stream_of_all_runs()?], ..ends })
    }
}

/// Each item as an event whose id is its cursor. An error is the last one, as is a shutdown, and the end of what the caller
/// was allowed.
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
                    .json_data(ends.folders.hidden_in(error.problem()))
                    .unwrap_or_default();
                Some((Ok(event), None))
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

impl Source for Tail {
    type Item = Line;

    async fn next(&mut self) -> Result<Option<Line>, Error> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                self.cursor = parse_cursor(Some(&line.cursor))?;
                return Ok(Some(line));
            }
            // Taken before reading: what is applied after the read ends the wait.
            let before = self.app.0.progress(self.partition);
            self.fill().await?;
            if !self.ready.is_empty() {
                continue;
            }
            if self.until_end {
                return Ok(None);
            }
            self.app.0.wait_until(self.partition, |progress| *progress != before).await;
        }
    }
}

impl Tail {
    async fn fill(&mut self) -> Result<(), Error> {
        let (partition, run_id, cursor, show) = (self.partition, self.run_id.clone(), self.cursor.clone(), self.show);
        let page = self.app.read_ahead(move |app| {
            let (store, contents) = (app.0.store(partition), app.0.contents(super::DEADLINE));
            let proofs = app.proofs();
            let show = Showing { show, proofs: proofs.as_ref() };
            let ask = timeline::Query { limit: PAGE, show, as_of: None, order: Order::Asc };
            timeline::page_within(
                &app.rows(&store, run_id.borrow()),
                &contents,
                app.place(partition),
                run_id.borrow(),
                (ask, PAGE_BYTES_MAX),
                cursor.as_deref(),
            )
        });
        self.ready = page.await?.records.into();
        Ok(())
    }
}

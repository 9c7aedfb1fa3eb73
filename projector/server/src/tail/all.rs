//! Streams the timelines of all runs: each partition's records in order, and no order between partitions.

use super::TailQuery;
use crate::{
    app::App,
    event_stream::{Ends, Source, events, from},
    parameters::Ask,
    problem::Refusal,
};
use axum::{
    extract::Query,
    http::HeaderMap,
    response::sse::{Event, Sse},
};
use futures_util::Stream;
use runlog_log::Delivery;
use runlog_projector::index::{
    changes,
    error::Error,
    follow::{Cursor, Follower, From},
    query::timeline::{self, Showing},
    store::{Rows, meta},
};
use runlog_schemas::{
    answer::Line,
    codec::{self, Unreadable},
};
use std::{collections::VecDeque, convert::Infallible, time::Duration};

/// Records of the log whose lines one read returns.
const RECORDS: usize = 32;
/// How long lines wait for content.
const CONTENT_WAIT: Duration = Duration::from_secs(10);

struct All {
    app: App,
    follower: Follower,
    cursor: Cursor,
    records: VecDeque<Delivery>,
    ready: VecDeque<Line>,
    show: timeline::Show,
}

/// Sends the applied records, then new records; with `until_end`, stops after the records that were applied at the
/// start. Resuming at a cursor neither repeats nor skips a line, even if the indices were rebuilt in between.
pub(crate) async fn stream_all(
    app: App,
    Query(query): Query<TailQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let show = app.show(query.raw, false, None).await?;
    let partitions = app.projector.journal().partitions;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    app.wait_for_each_partition(&ask).await?;
    let (begin, given) = match from(&headers, query.from.as_deref()) {
        None | Some("beginning") => (From::Beginning, None),
        Some("end") => (From::End, None),
        Some(cursor) => {
            let cursor = Cursor::parse(cursor, partitions)?;
            (From::Offsets(cursor.offsets()), Some(cursor))
        }
    };
    let ends = Ends::for_all_runs(&app)?;
    let follower = Follower::new(&app.projector, begin, query.until_end).await?;
    let cursor = given.unwrap_or_else(|| Cursor::before(follower.next_offsets()));
    let (records, ready) = (VecDeque::new(), VecDeque::new());
    Ok(events(ends, All { app, follower, cursor, records, ready, show }))
}

impl Source for All {
    type Item = Line;

    async fn next(&mut self) -> Result<Option<Line>, Error> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Some(line));
            }
            if self.records.is_empty() {
                match self.follower.next().await? {
                    Some(records) => self.records.extend(records),
                    None => return Ok(None),
                }
            }
            self.fill().await?;
        }
    }
}

impl All {
    /// Turns the next records into lines.
    async fn fill(&mut self) -> Result<(), Error> {
        let count = self.records.len().min(RECORDS);
        let records: Vec<Delivery> = self.records.drain(..count).collect();
        let (mut cursor, show) = (self.cursor.clone(), self.show);
        let read = self.app.read_ahead(move |app| {
            let mut ready = VecDeque::new();
            for record in &records {
                let lines = lines(app, record, show)?;
                let (count, given) = (lines.len(), cursor.sent(record.partition, record.offset));
                for (nth, mut line) in lines.into_iter().enumerate().skip(given) {
                    cursor.advance(record, nth + 1, count);
                    line.cursor = app.with_log(cursor.to_string());
                    ready.push_back(line);
                }
                cursor.advance(record, count, count);
            }
            Ok((ready, cursor))
        });
        (self.ready, self.cursor) = read.await?;
        Ok(())
    }
}

/// Returns the lines of an applied record. Refused and unreadable records, records of a partition, and records of runs
/// that the caller may not see have no lines.
fn lines(app: &App, record: &Delivery, show: timeline::Show) -> Result<Vec<Line>, Error> {
    let framed = match codec::reframe(&record.value, &*app.projector.config().schemas) {
        Ok(framed) => framed,
        // It was applied with its schema, unless a skip voids it: the stream must not continue without its lines.
        Err(why @ Unreadable::Unresolved { .. }) if !is_voided(app, record)? => {
            return Err(changes::unavailable(record, &why));
        }
        Err(_) => return Ok(Vec::new()),
    };
    let Ok(envelope) = codec::read(&framed) else { return Ok(Vec::new()) };
    let Some(run_id) = envelope.run_id else { return Ok(Vec::new()) };
    let (store, contents) = (app.projector.store(record.partition)?, app.projector.contents(CONTENT_WAIT));
    let place = app.topic_partition(record.partition);
    let proofs = app.proofs();
    let show = Showing { show, proofs: proofs.as_ref() };
    timeline::at_offset(&app.rows(&store, run_id), &contents, place, run_id, record.offset, show)
}

fn is_voided(app: &App, record: &Delivery) -> Result<bool, Error> {
    Ok(app.projector.store(record.partition)?.row(meta::skip(record.offset).bytes())?.is_some())
}

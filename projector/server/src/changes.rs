//! Streams the changes of an index as server-sent events. An event's id is the cursor that resumes after it.

use super::{
    app::App,
    event_stream::{Ends, EventItem, Source, events, from},
    parameters::Ask,
    problem::Refusal,
};
use axum::{
    extract::{Path, Query},
    http::HeaderMap,
    response::sse::{Event, Sse},
};
use futures_util::Stream;
use runlog_log::Delivery;
use runlog_projector::index::{
    changes::{
        CACHE_BYTES, Changed, Deltas,
        cursor::{Cursor, StreamPosition},
        shown::{self, Shows},
    },
    error::Error,
    fold,
    follow::{Follower, From},
    query::with_log,
    store::{Index, Rows as _, horizons::Horizons},
};
use runlog_schemas::{
    answer::{Change, ErrorKind, Operation},
    id::{Offset, PartitionId, RunId},
    json::Json,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
};

/// Records of the log that one read folds.
const RECORDS: usize = 32;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangesQuery {
    from: Option<String>,
    #[serde(default)]
    until_end: bool,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// A stream of changes.
struct Feed {
    app: App,
    follower: Follower,
    /// Absent only during a fold.
    folding: Option<Folding>,
    records: VecDeque<Delivery>,
    ready: VecDeque<Change>,
}

/// The state of a fold, which runs off the network threads.
struct Folding {
    cursor: Cursor,
    deltas: Deltas,
}

impl EventItem for Change {
    fn cursor(&self) -> &str {
        &self.cursor
    }
}

/// Sends the past changes of an index, then new changes; with `until_end`, stops after the past changes. Resuming at a
/// cursor neither repeats nor skips a change.
pub(super) async fn stream(
    app: App,
    Path(name): Path<String>,
    Query(query): Query<ChangesQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let index = shown::index(&name).ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!("no index {name:?} to follow; `runlog verify -v` lists the indices, and all but `horizons` can be followed"),
        )
    })?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    app.projector.check_all_held()?;
    app.wait_for_all_runs(&ask).await?;
    let partitions = app.projector.journal().partitions;
    let start = match from(&headers, query.from.as_deref()) {
        None | Some("beginning") => {
            Some(Cursor { index, positions: vec![StreamPosition::default(); partitions as usize] })
        }
        Some("end") => None,
        Some(cursor) => Some(Cursor::parse(cursor, index, partitions)?),
    };
    // Rows result from all records since offset 0. So `beginning` is offset 0, and fails if the log has dropped
    // records.
    let begin =
        start.as_ref().map_or(From::End, |cursor| From::Offsets(cursor.positions.iter().map(|at| at.next).collect()));
    let ends = Ends::for_all_runs(&app)?;
    let follower = Follower::new(&app.projector, begin, query.until_end).await.map_err(explain_dropped)?;
    let cursor = match start {
        Some(cursor) => cursor,
        None => end(&app, index, follower.next_offsets())?,
    };
    let deltas = Deltas::new(partitions, app.projector.config().schemas.clone(), CACHE_BYTES);
    let folding = Some(Folding { cursor, deltas });
    Ok(events(ends, Feed { app, follower, folding, records: VecDeque::new(), ready: VecDeque::new() }))
}

/// Explains that changes of dropped records cannot be sent again.
fn explain_dropped(error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    let message = "the log no longer has the next records; follow from the end, and query the index for its rows";
    Error::new(ErrorKind::NotFound, message).about(error.subject().clone()).because(error)
}

/// Makes the cursor after all applied records: they are below `next` of each partition.
fn end(app: &App, index: Index, next: &[Offset]) -> Result<Cursor, Error> {
    let position = |(partition, next): (PartitionId, &Offset)| -> Result<StreamPosition, Error> {
        Ok(StreamPosition::new(*next, &fold::skips_of(&*app.projector.store(partition)?)?))
    };
    let positions =
        PartitionId::all(app.projector.journal().partitions).zip(next).map(position).collect::<Result<_, _>>()?;
    Ok(Cursor { index, positions })
}

impl Source for Feed {
    type Item = Change;

    async fn next(&mut self) -> Result<Option<Change>, Error> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(Some(change));
            }
            if self.records.is_empty() {
                match self.follower.next().await? {
                    Some(records) => self.records.extend(records),
                    None => return Ok(None),
                }
            }
            let count = self.records.len().min(RECORDS);
            let records: Vec<Delivery> = self.records.drain(..count).collect();
            let Some(mut folding) = self.folding.take() else { return Ok(None) };
            let fold = move |app: &App| folding.fold(app, &records).map(|ready| (folding, ready));
            let (folding, ready) = self.app.read_ahead(fold).await?;
            (self.folding, self.ready) = (Some(folding), ready);
        }
    }
}

impl Folding {
    /// Returns the changes of applied records, in order per partition; may return none.
    fn fold(&mut self, app: &App, records: &[Delivery]) -> Result<VecDeque<Change>, Error> {
        let mut ready = VecDeque::new();
        for chunk in records.chunk_by(|a, b| a.partition == b.partition) {
            let partition = chunk[0].partition;
            // One view, so that skips, rows and horizons belong together.
            let (store, proofs) = (app.projector.store(partition)?, app.proofs());
            let view = store.view();
            let skips = fold::skips_of(&view)?;
            let horizons = Horizons::read(|key| view.get(key))?;
            if !self.cursor.positions[partition.index()].holds(&skips) {
                let message = format!(
                    "a record of partition {partition} was skipped whose changes were sent, and the index was built \
                     again without it: start from the beginning"
                );
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            for record in chunk {
                let delta = self.deltas.compute(&view, &skips, record)?;
                let index = self.cursor.index.byte;
                let is_seen = delta.run_id.as_ref().is_some_and(|run_id| app.caller.sees(run_id.borrow()))
                    || app.caller.visible().is_all();
                let rows = delta.rows.into_iter().filter(|row| is_seen && row.key.first() == Some(&index));
                let shows =
                    Shows { place: app.topic_partition(partition), horizons: &horizons, proofs: proofs.as_ref() };
                ready.extend(self.unsent_changes(record, delta.run_id.as_ref(), rows.collect(), &skips, shows)?);
            }
        }
        Ok(ready)
    }

    /// Returns the changes of a delivery that were not sent yet, and advances the cursor past the delivery.
    fn unsent_changes(
        &mut self,
        delivery: &Delivery,
        run_id: Option<&RunId>,
        rows: Vec<Changed>,
        skips: &BTreeMap<Offset, Offset>,
        shows: Shows<'_>,
    ) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        let (lane, offset) = (delivery.partition.index(), delivery.offset);
        let after = StreamPosition::new(offset.saturating_add(1), skips);
        let before = self.cursor.positions[lane];
        let sent = if before.next == offset { before.sent } else { 0 };
        let last = rows.len() as u64;
        for (nth, Changed { key, old, new }) in (1..).zip(rows).filter(|(nth, _)| *nth > sent) {
            let here = StreamPosition { sent: nth, ..StreamPosition::new(offset, skips) };
            self.cursor.positions[lane] = if nth == last { after } else { here };
            let operation = match (&old, &new) {
                (None, _) => Operation::Insert,
                (_, None) => Operation::Delete,
                _ => Operation::Update,
            };
            let json = |row: Option<&Vec<u8>>| -> Result<Option<Json>, Error> {
                row.map(|bytes| shown::row_of(&key, bytes, shows).map(Json::from)).transpose()
            };
            changes.push(Change {
                cursor: with_log(self.cursor.to_string(), shows.place.log),
                index: self.cursor.index.name.to_owned(),
                position: shows.place.position(offset, 0),
                operation: operation.into(),
                run_id: run_id.cloned(),
                key: Json::from(shown::key(&key)?),
                old: json(old.as_ref())?,
                new: json(new.as_ref())?,
            });
        }
        self.cursor.positions[lane] = after;
        Ok(changes)
    }
}

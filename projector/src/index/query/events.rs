//! Finds records by their summary for event streams.

use super::{Order, Span, TopicPartition, visible::Visible};
use crate::index::{
    error::Error,
    store::{
        self, Key, Parts, Rows, events,
        records::{RecordRow, prefix as records_of},
    },
};
use runlog_schemas::{
    answer::{ErrorKind, Event},
    codec,
    datum::Malformed,
    id::{Offset, RunId},
    refs::EntityKind,
};
use std::ops::ControlFlow;

/// The maximum number of rows that one page reads, including rows that do not match.
const LOOKED_AT_MAX: usize = 5_000;

/// The filter: an event must match all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The run.
    pub run_id: Option<RunId>,
    /// The family.
    pub family: Option<String>,
    /// The kind within its family.
    pub kind: Option<String>,
    /// The subject.
    pub subject: Option<(EntityKind, String)>,
    /// A related reference.
    pub related: Option<(EntityKind, String)>,
    /// Correlation entries: key and value. The first is looked up, the others are compared.
    pub correlation: Vec<(String, String)>,
    /// A tag.
    pub tag: Option<String>,
    /// The runs whose events may be seen.
    pub visible: Visible,
}

impl Filter {
    /// The key prefixes to scan, in order: the prefixes of the most selective condition.
    ///
    /// Errors: `Usage` without any indexed condition.
    fn lists(&self) -> Result<Vec<Key>, Error> {
        if self.run_id.as_ref().is_some_and(|run_id| !self.visible.contains(run_id.borrow())) {
            return Ok(Vec::new());
        }
        if let Some((kind, id)) = &self.subject {
            // An event about its own run has no index row: it is found among that run's records.
            let own = RunId::new(id.as_str())
                .ok()
                .filter(|run_id| *kind == EntityKind::Run && self.visible.contains(*run_id));
            let about = events::of_subject(*kind, id);
            return Ok(match (own, &self.run_id) {
                (Some(own), None) => vec![records_of(own), about],
                (Some(own), Some(run_id)) if *run_id == own => vec![records_of(own)],
                _ => vec![about],
            });
        }
        self.list().map(|list| vec![list])
    }

    fn list(&self) -> Result<Key, Error> {
        if let Some((kind, id)) = &self.related {
            return Ok(events::of_related(*kind, id));
        }
        if let Some((key, value)) = self.correlation.first() {
            return Ok(events::of_correlation(key, value));
        }
        if let Some(tag) = &self.tag {
            return Ok(events::of_tag(tag));
        }
        match (&self.run_id, &self.family, &self.kind) {
            (Some(run_id), _, _) => Ok(records_of(run_id.borrow())),
            (None, Some(family), Some(kind)) => Ok(events::of_kind(family, kind)),
            (None, Some(family), None) => Ok(events::of_family(family)),
            _ => {
                let message =
                    "a query of events needs run, family, family and kind, subject, related, correlation or tag";
                Err(Error::new(ErrorKind::Usage, message))
            }
        }
    }

    fn matches(&self, run_id: RunId<&str>, event: &codec::Event<'_>) -> bool {
        fn is<T: ?Sized + PartialEq>(wanted: Option<&T>, actual: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == actual)
        }
        self.run_id.as_ref().is_none_or(|wanted| *wanted == run_id)
            && is(self.family.as_deref(), event.family)
            && is(self.kind.as_deref(), event.kind)
            && self
                .subject
                .as_ref()
                .is_none_or(|(kind, id)| (*kind, id.as_str()) == (event.subject.kind, event.subject.id))
            && self.related.as_ref().is_none_or(|(kind, id)| {
                event.related.iter().any(|entity| (*kind, id.as_str()) == (entity.kind, entity.id))
            })
            && self.correlation.iter().all(|(key, value)| event.correlation.contains(&(key.as_str(), value.as_str())))
            && self.tag.as_ref().is_none_or(|tag| event.tags.contains(&tag.as_str()))
    }
}

/// A page of this partition's events. It may have fewer items than `limit`, or none, and still return a cursor.
///
/// Cost: one seek for a run's records (two for a run as subject), otherwise one seek for each million offsets. Then a step
/// and a get per row read.
///
/// Errors: `Usage` for a cursor of another list, and without any indexed condition.
pub fn page<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    filter: &Filter,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Event>, Option<Vec<u8>>), Error> {
    page_of(rows, filter, (cursor, Order::Asc), limit, &mut |_, (run_id, at, row)| event(place, run_id, at, &row))
}

/// Like [`page`]. `make` creates an item from a row's key and its record. In reverse log order the filter must name a
/// run, so that only one list is scanned.
pub(super) fn page_of<R: Rows, T>(
    rows: &R,
    filter: &Filter,
    (cursor, order): (Option<&[u8]>, Order),
    limit: usize,
    make: &mut Make<'_, T>,
) -> Result<(Vec<T>, Option<Vec<u8>>), Error> {
    let lists = filter.lists()?;
    let list = |cursor: &[u8]| lists.iter().position(|list| cursor.starts_with(list.bytes()));
    let from = cursor.map_or(Ok(0), |cursor| list(cursor).ok_or_else(super::foreign_cursor))?;
    let (mut items, mut looked_at) = (Vec::new(), 0);
    for (at, list) in lists.iter().enumerate().skip(from) {
        if items.len() == limit {
            // The page is full at the end of a list: the next one begins with this list's first row.
            return Ok((items, Some(list.bytes().to_vec())));
        }
        let span = Span { prefix: list, end: None, cursor: cursor.filter(|_| at == from), order };
        if let Some(next) = scan_list(rows, filter, span, (&mut items, limit), &mut looked_at, make)? {
            return Ok((items, Some(next)));
        }
    }
    Ok((items, None))
}

/// Scans one list after a cursor. Returns the next cursor if the page ends before the list.
fn scan_list<R: Rows, T>(
    rows: &R,
    filter: &Filter,
    span: Span<'_>,
    (items, limit): (&mut Vec<T>, usize),
    looked_at: &mut usize,
    make: &mut Make<'_, T>,
) -> Result<Option<Vec<u8>>, Error> {
    let (mut last, mut more, mut failure) = (None, false, None);
    span.scan(rows, &mut |key, row| {
        if items.len() == limit || *looked_at == LOOKED_AT_MAX {
            more = true;
            last.get_or_insert_with(|| span.prefix.bytes().to_vec());
            return Ok(ControlFlow::Break(()));
        }
        *looked_at += 1;
        last = Some(key.to_vec());
        let read = record(rows, &filter.visible, key, row);
        match read.and_then(|read| read.map_or(Ok(None), |record| matching(filter, record))) {
            Ok(None) => {}
            Ok(Some(record)) => match make(key, record) {
                Ok(made) => items.push(made),
                Err(error) => failure = Some(error),
            },
            Err(error) => failure = Some(error),
        }
        Ok(if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    failure.map_or(Ok(last.filter(|_| more)), Err)
}

/// Creates an item from a row's key and its record.
pub(super) type Make<'m, T> = dyn FnMut(&[u8], FoundRecord) -> Result<T, Error> + 'm;

/// The record, if it matches.
fn matching(filter: &Filter, record: FoundRecord) -> Result<Option<FoundRecord>, Error> {
    let (run_id, at, row) = record;
    Ok(matches(filter, run_id.borrow(), at, &row)?.then_some((run_id, at, row)))
}

/// Whether a record matches. An unreadable record is an error that names it, because skipping it would hide that it exists.
pub(super) fn matches(filter: &Filter, run_id: RunId<&str>, at: (Offset, u32), row: &RecordRow) -> Result<bool, Error> {
    let damaged = |why: &dyn std::fmt::Display| {
        let message = format!(
            "the stored record of run {run_id} at offset {}, index {} does not decode ({why}); delete the index folder to \
             rebuild it from the log",
            at.0, at.1
        );
        Error::new(ErrorKind::Internal, message)
    };
    let envelope = codec::read(&row.framed.0).map_err(|error| damaged(&error))?;
    let event = envelope.event().map_err(|error| damaged(&error))?;
    Ok(filter.matches(run_id, &event))
}

/// A run, and a record's offset, index and row.
pub(super) type FoundRecord = (RunId, (Offset, u32), RecordRow);

/// The record of a row of the records index, or of the events index, which names run, offset and index. None if the run is
/// not visible; its record is then not read.
fn record<R: Rows>(rows: &R, visible: &Visible, key: &[u8], row: &[u8]) -> Result<Option<FoundRecord>, Error> {
    let damaged = |what| Error::from(store::damaged(key, Malformed { what, at: 0 }));
    let no_place = || damaged("its key names no record");
    if key.first() == Some(&(store::records::INDEX.byte)) {
        let mut parts = Parts::new(key);
        let (Some(run_id), Some(offset), Some(index)) = (parts.id::<RunId>(), parts.offset(), parts.u32()) else {
            return Err(no_place());
        };
        return if visible.contains(run_id.borrow()) {
            Ok(Some((run_id, (offset, index), store::decode(key, row)?)))
        } else {
            Ok(None)
        };
    }
    let place = key.len().checked_sub(12).map(|from| &key[from..]).ok_or_else(no_place)?;
    let mut parts = Parts::from_bytes(place);
    let (Some(offset), Some(index)) = (parts.offset(), parts.u32()) else { return Err(no_place()) };
    let run_id: RunId = store::decode(key, row)?;
    if !visible.contains(run_id.borrow()) {
        return Ok(None);
    }
    let row: Option<RecordRow> = rows.get(&store::records::key(run_id.borrow(), offset, index))?;
    let row = row.ok_or_else(|| damaged("it names a record that does not exist"))?;
    Ok(Some((run_id, (offset, index), row)))
}

fn event(
    place: TopicPartition<'_>,
    run_id: RunId,
    (offset, index): (Offset, u32),
    row: &RecordRow,
) -> Result<Event, Error> {
    let (numbers, body) = super::summary(row)?;
    Ok(Event {
        position: place.position(offset, index),
        run_id,
        record_id: body.record_id,
        journal_seq: numbers.journal_seq,
        payload_type: body.facts.payload_type,
        timestamp: super::time(numbers.timestamp_millis),
        event: body.event_index,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::{Commit as _, Memory, records::Bytes};
    use runlog_schemas::{datum::Datum as _, id::RecordId, payload::RunLifecycle, record::JournalRecord};

    #[test]
    fn a_damaged_row_is_an_error_that_names_it_and_is_never_skipped() {
        let run = RunId::new("run-7").unwrap();
        let started = RunLifecycle { status: "started".into(), reason: String::new() };
        let record = JournalRecord::new(run, RecordId::new("r".to_owned()).unwrap(), "a", started.into());
        let good = codec::encode(&record);
        let mut cut = good.clone();
        cut.truncate(good.len() - 3);
        let of_tag = events::key(events::of_tag("t"), Offset::from(9), 2);
        let of_run = store::records::key(run, Offset::from(9), 2);
        let tagged = Filter { tag: Some("t".into()), ..Filter::default() };
        let all = Filter { run_id: Some(run.to_owned()), ..Filter::default() };
        let query_rows = |filter: &Filter, rows: &[(&[u8], Vec<u8>)]| {
            let memory = Memory::default();
            memory.commit(rows.iter().map(|(key, row)| (*key, Some(row.as_slice())))).unwrap();
            let place = TopicPartition { topic: "t", partition: 0.into(), log: None };
            page(&memory, place, filter, None, 10)
                .map(|(events, _)| events.len())
                .map_err(|error| error.problem().detail)
        };
        let row = |framed: &[u8]| RecordRow { logged_at_millis: 0, framed: Bytes(framed.to_vec()) }.to_bytes();
        assert_eq!(query_rows(&all, &[(of_run.bytes(), row(&good))]), Ok(1));
        let refused = query_rows(&all, &[(of_run.bytes(), row(&cut))]).unwrap_err();
        assert!(refused.contains("run run-7 at offset 9, index 2"), "{refused}");
        let refused = query_rows(&tagged, &[(of_tag.bytes(), run.to_owned().to_bytes())]).unwrap_err();
        let key = runlog_schemas::datum::hex(of_tag.bytes());
        assert!(refused.contains(&key) && refused.contains("does not exist"), "{refused}");
        let short = events::of_tag("t").u32(1);
        let refused = query_rows(&tagged, &[(short.bytes(), run.to_owned().to_bytes())]).unwrap_err();
        assert!(refused.contains(&runlog_schemas::datum::hex(short.bytes())), "{refused}");
    }
}

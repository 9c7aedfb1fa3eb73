//! Finds the facts of a run that are valid at a time (valid time), by the records up to the view's position.
//!
//! The statement with the latest valid time up to that time decides. At a tie an assertion wins over a retraction, then the
//! later offset wins. The fact is valid if that statement is an assertion, and is shown at its record.
//!
//! ```text
//!   the run's records, in log order ──▶ the stated fact: family, key
//!                                                │
//!                          the fact's statements, one seek ──▶ does this record decide?
//! ```

use super::{Order, Span, TopicPartition};
use crate::index::{
    error::Error,
    store::{
        self, Key, Parts, Rows,
        evolving::{self, FactRow},
        facts::{self, Family},
        records::{RecordRow, prefix},
        runs::RunRow,
        tool_calls::{self, CallRow},
        turns::{self, TurnRow},
    },
};
use runlog_schemas::{
    answer::{ErrorKind, Fact, Facts},
    codec::Envelope,
    id::{Offset, RecordId, RunId},
    record::Validity,
};
use std::{collections::HashMap, ops::ControlFlow};

/// The maximum number of records that one page reads, including records that state no valid fact.
const LOOKED_AT_MAX: usize = 5_000;

/// The query's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The time, milliseconds since the Unix epoch, inclusive.
    pub at_millis: i64,
    /// Only facts of this family.
    pub family: Option<Family>,
    /// The maximum number of facts of a page.
    pub limit: usize,
    /// Log order, or its reverse.
    pub order: Order,
}

/// The family with this name.
///
/// Errors: `Usage` if there is none.
pub fn family(name: &str) -> Result<Family, Error> {
    Family::ALL.iter().copied().find(|family| family.as_str() == name).ok_or_else(|| {
        let names: Vec<&str> = Family::ALL.iter().map(|family| family.as_str()).collect();
        Error::new(ErrorKind::Usage, format!("family {name:?} is not one of {}", names.join(", ")))
    })
}

/// A page of a run's facts that are valid at a time; `None` for a run without applied records.
///
/// Cost: two gets, then [`valid_at`].
pub fn page<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    ask: Query,
    cursor: Option<&[u8]>,
) -> Result<Option<Facts>, Error> {
    let Some(run) = rows.get::<RunRow>(&store::runs::key(run_id))?.filter(|run| run.head.records > 0) else {
        return Ok(None);
    };
    let (facts, next) = valid_at(rows, run_id, ask, cursor, |_, at, stated, row| {
        let record = super::envelope(&row.framed.0)?;
        Ok(Fact {
            family: stated.family.as_str().to_owned(),
            key: stated.key.clone(),
            at: super::time(stated.at.max(0).cast_unsigned()),
            at_millis: stated.at,
            status: record.facts.status.clone(),
            position: place.position(at.0, at.1),
            record_id: record.record_id.to_owned(),
            journal_seq: record.journal_seq,
            payload_type: record.facts.payload_type,
        })
    })?;
    Ok(Some(Facts {
        run_id: run_id.to_owned(),
        at: super::time(ask.at_millis.max(0).cast_unsigned()),
        position: place.position(run.offset, run.index),
        facts,
        next_cursor: next.map(|key| place.cursor(&key)),
    }))
}

/// A valid fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidFact {
    /// Its family.
    pub family: Family,
    /// Its key within the run.
    pub key: String,
    /// The start of its validity, milliseconds since the Unix epoch (inclusive).
    pub at: i64,
}

/// The records that state a run's facts valid at a time, in the given order, after `cursor` (the key of a record's row).
/// `take` receives the row's key, the record's offset and index, its fact and its row.
///
/// Cost: one seek and a step per record read, at most `LOOKED_AT_MAX` (5,000). Once per fact: one get for a call (and a
/// seek if it has other statements than a request and an end), or one seek for a turn or proposal. In addition a step per
/// statement.
///
/// A page may have fewer items than the limit, or none, and still return a cursor. The cursor stays valid after writes.
pub fn valid_at<R: Rows, T>(
    rows: &R,
    run_id: RunId<&str>,
    Query { at_millis, family, limit, order }: Query,
    cursor: Option<&[u8]>,
    mut take: impl FnMut(&[u8], (Offset, u32), &ValidFact, &RecordRow) -> Result<T, Error>,
) -> Result<(Vec<T>, Option<Vec<u8>>), Error> {
    let prefix = prefix(run_id);
    let span = Span { prefix: &prefix, end: None, cursor, order };
    let (mut valid_facts, mut looked_at) = (Vec::new(), 0);
    let (mut last, mut more, mut failure) = (None, false, None);
    let mut latest_by_fact: HashMap<(Family, String), Option<Latest>> = HashMap::new();
    let mut take_if_valid = |key: &[u8], row: &[u8]| -> Result<Option<T>, Error> {
        let mut parts = Parts::new(key);
        let (Some(_), Some(offset), Some(index)) = (parts.text(), parts.offset(), parts.u32()) else { return Ok(None) };
        let row: RecordRow = store::decode(key, row)?;
        let record: Envelope<'_> = super::envelope(&row.framed.0)?;
        let Some((about, fact)) =
            facts::fact_of(&record).filter(|(about, _)| family.is_none_or(|family| family == *about))
        else {
            return Ok(None);
        };
        let latest = match latest_by_fact.get(&(about, fact.to_owned())) {
            Some(latest) => *latest,
            None => {
                let latest = latest(rows, run_id, about, fact, at_millis)?;
                latest_by_fact.insert((about, fact.to_owned()), latest);
                latest
            }
        };
        let Some(latest) = latest.filter(|latest| latest.holds && latest.place == (offset, index)) else {
            return Ok(None);
        };
        let valid_fact = ValidFact { family: about, key: fact.to_owned(), at: latest.at };
        take(key, (offset, index), &valid_fact, &row).map(Some)
    };
    span.scan(rows, &mut |key, row| {
        if valid_facts.len() == limit || looked_at == LOOKED_AT_MAX {
            more = true;
            return Ok(ControlFlow::Break(()));
        }
        looked_at += 1;
        last = Some(key.to_vec());
        match take_if_valid(key, row) {
            Ok(item) => valid_facts.extend(item),
            Err(error) => {
                failure = Some(error);
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    failure.map_or(Ok((valid_facts, last.filter(|_| more))), Err)
}

/// A statement of a fact. The greatest one decides: by valid time, then assertion over retraction, then offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Latest {
    at: i64,
    holds: bool,
    place: (Offset, u32),
}

impl Latest {
    fn new(Validity { at, is_valid: holds }: Validity, place: (Offset, u32)) -> Self {
        Self { at, holds, place }
    }
}

/// The deciding statement of a fact at a time.
fn latest<R: Rows>(
    rows: &R,
    run_id: RunId<&str>,
    family: Family,
    key: &str,
    at_millis: i64,
) -> Result<Option<Latest>, Error> {
    let mut latest: Option<Latest> = None;
    let mut consider = |stated: Latest| {
        if stated.at <= at_millis && latest.is_none_or(|latest| stated > latest) {
            latest = Some(stated);
        }
    };
    match family {
        Family::ToolCall => {
            let Ok(request) = RecordId::new(key) else { return Ok(None) };
            let call: Option<CallRow> = rows.get(&tool_calls::key(run_id, request))?;
            let Some(call) = call else { return Ok(None) };
            if !call.is_request_void {
                consider(Latest::new(call.requested, (call.request_offset, call.request_index)));
            }
            if let Some(ended) = call.ended {
                consider(Latest::new(ended, (call.status_offset, call.status_index)));
            }
            if call.more_stated {
                let stated = tool_calls::stated_of(run_id, request);
                each(rows, &stated, |place, validity: Validity| consider(Latest::new(validity, place)))?;
            }
        }
        Family::ConversationTurn => {
            let turns = turns::of_message(run_id, key);
            each(rows, &turns, |place, turn: TurnRow| consider(Latest::new(turn.validity, place)))?;
        }
        Family::CodeEditProposal => {
            let stated = evolving::facts_of(evolving::PROPOSALS, run_id, key);
            each(rows, &stated, |place, fact: FactRow| consider(Latest::new(fact.validity, place)))?;
        }
    }
    Ok(latest)
}

/// All rows under a prefix whose keys end in offset and index: one seek, and a step per row.
fn each<R: Rows, T: runlog_schemas::datum::Datum>(
    rows: &R,
    prefix: &Key,
    mut take: impl FnMut((Offset, u32), T),
) -> Result<(), Error> {
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        let mut place = Parts::from_bytes(&key[prefix.bytes().len()..]);
        if let (Some(offset), Some(index)) = (place.offset(), place.u32()) {
            take((offset, index), store::decode(key, row)?);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(())
}

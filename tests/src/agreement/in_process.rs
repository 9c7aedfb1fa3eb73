//! The product's queries over the rows of all partitions, as JSON. Lists are read page by page and returned whole.

use super::answers::{Answers, PAGES_MAX, recovered};
use anyhow::ensure;
use runlog_projector::{
    Contents, Error,
    index::{
        fold::Stop,
        query::{
            self, TopicPartition, anomalies, checkpoint, dead_letters,
            effects::{self, Listed},
            events, facts, lookup, open_items, outcome, recovery, runs, timeline,
            visible::Visible,
        },
        store::{Index, Rows},
    },
};
use runlog_schemas::{
    id::{Fingerprint, JournalSeq, Offset, PartitionId, RecordId, RunId},
    partition::partition_of,
};
use serde::Serialize;
use serde_json::{Value, json};

/// The state of a partition.
#[derive(Clone, Debug)]
pub struct Part {
    /// The next offset; `None` if it must not be compared.
    pub applied: Option<Offset>,
    /// The reason of its stop.
    pub stopped: Option<Stop>,
}

/// A product that answers queries.
#[derive(Debug)]
pub struct InProcess<'a, R> {
    /// The topic, for positions.
    pub topic: &'a str,
    /// By partition.
    pub rows: Vec<&'a R>,
    /// By partition.
    pub parts: Vec<Part>,
}

type Cursor = Option<Vec<u8>>;

/// All pages of one list.
fn all<T>(mut page: impl FnMut(Option<&[u8]>) -> Result<(Vec<T>, Cursor), Error>) -> anyhow::Result<Vec<T>> {
    let (mut found, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let (items, next) = page(cursor.as_deref())?;
        found.extend(items);
        let Some(next) = next else { return Ok(found) };
        ensure!(cursor.as_ref() != Some(&next), "the next page is the same page");
        cursor = Some(next);
    }
    anyhow::bail!("more than {PAGES_MAX} pages")
}

fn value<T: Serialize>(answer: T) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(answer)?)
}

impl<R: Rows> InProcess<'_, R> {
    fn places(&self) -> impl Iterator<Item = (&R, TopicPartition<'_>)> {
        let partitions = PartitionId::all(u32::MAX);
        self.rows
            .iter()
            .zip(partitions)
            .map(|(rows, partition)| (*rows, TopicPartition { topic: self.topic, partition, log: None }))
    }

    fn locate(&self, run_id: RunId<&str>) -> (&R, TopicPartition<'_>) {
        let partition = partition_of(run_id, u32::try_from(self.rows.len()).unwrap_or(1));
        (self.rows[partition.index()], TopicPartition { topic: self.topic, partition, log: None })
    }
}

impl<R: Rows> InProcess<'_, R> {
    /// `show --raw`, with `--as-of` if there is an offset.
    pub fn show_as_of(&self, run_id: RunId<&str>, limit: usize, as_of: Option<Offset>) -> anyhow::Result<Vec<Value>> {
        let (rows, place) = self.locate(run_id);
        let ask = timeline::Query { limit, show: timeline::Show::Raw.into(), as_of, order: query::Order::Asc };
        let lines = all(|cursor| {
            let page = timeline::page(rows, &Contents::none(), place, run_id, ask, cursor)?;
            Ok((page.records, query::parse_cursor(page.next_cursor.as_deref())?))
        })?;
        lines.into_iter().map(value).collect()
    }
}

impl<R: Rows> Answers for InProcess<'_, R> {
    fn partitions(&self) -> anyhow::Result<Value> {
        let row = |(partition, part): (usize, &Part)| {
            let state = if part.stopped.is_some() { "stopped" } else { "running" };
            let error = part.stopped.as_ref().map(|stop| stop.kind.as_str());
            let stopped_at = part.stopped.as_ref().map(|stop| stop.offset);
            json!({"partition": partition, "applied": part.applied, "state": state, "error": error, "stopped_at": stopped_at})
        };
        Ok(self.parts.iter().enumerate().map(row).collect())
    }

    fn runs(&self, limit: usize) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        for (rows, place) in self.places() {
            let mut after: Option<RunId> = None;
            loop {
                let all = runs::Filter::default();
                let page = runs::list(rows, place, &all, after.as_ref().map(RunId::borrow), limit, 0)?;
                let Some(last) = page.last() else { break };
                after = Some(last.run_id.clone());
                items.extend(page);
            }
        }
        items.sort_by(|one, other| {
            (&one.run_id, one.position.partition).cmp(&(&other.run_id, other.position.partition))
        });
        items.into_iter().map(value).collect()
    }

    fn recover(&self, run_id: RunId<&str>, limit: usize) -> anyhow::Result<Value> {
        let (rows, place) = self.locate(run_id);
        let ask = recovery::Query { full: true, from_start: false, content: true, limit, pending: limit, now: None };
        recovered(limit, |cursor| {
            let cursor = query::parse_cursor(cursor)?;
            let page = recovery::get(rows, &Contents::none(), place, run_id, ask, cursor.as_deref())?;
            page.map(value).transpose()
        })
    }

    fn lookup(&self, run_id: RunId<&str>, fingerprint: &str, occurrence: Option<u32>) -> anyhow::Result<Value> {
        let (rows, place) = self.locate(run_id);
        value(lookup::get(rows, &Contents::none(), place, run_id, Fingerprint::new(fingerprint)?, occurrence)?)
    }

    fn checkpoint(&self, run_id: RunId<&str>, at_or_before: Option<u64>) -> anyhow::Result<Value> {
        let (rows, place) = self.locate(run_id);
        let covers = at_or_before.map(|covers| JournalSeq::ZERO.saturating_add(covers));
        let latest = checkpoint::latest(rows, &Contents::none(), place, run_id, covers)?;
        ensure!(latest.missing.is_empty(), "content is missing: {:?}", latest.missing);
        latest.checkpoint.map_or(Ok(Value::Null), |(row, found)| value(checkpoint::answer(place, &row, found, true)))
    }

    fn show(&self, run_id: RunId<&str>, limit: usize) -> anyhow::Result<Vec<Value>> {
        self.show_as_of(run_id, limit, None)
    }

    fn events(&self, filter: &events::Filter, limit: usize) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        for (rows, place) in self.places() {
            items.extend(all(|cursor| events::page(rows, place, filter, cursor, limit))?);
        }
        items.into_iter().map(value).collect()
    }

    fn facts(&self, run_id: RunId<&str>, at_millis: i64, limit: usize) -> anyhow::Result<Vec<Value>> {
        let (rows, place) = self.locate(run_id);
        let ask = facts::Query { at_millis, family: None, limit, order: query::Order::Asc };
        let items = all(|cursor| {
            let Some(page) = facts::page(rows, place, run_id, ask, cursor)? else { return Ok((Vec::new(), None)) };
            Ok((page.facts, query::parse_cursor(page.next_cursor.as_deref())?))
        })?;
        items.into_iter().map(value).collect()
    }

    fn show_at(&self, run_id: RunId<&str>, at_millis: i64, limit: usize) -> anyhow::Result<Vec<Value>> {
        let (rows, place) = self.locate(run_id);
        let ask = facts::Query { at_millis, family: None, limit, order: query::Order::Asc };
        let lines = all(|cursor| {
            let page = timeline::page_valid_at(
                rows,
                &Contents::none(),
                place,
                run_id,
                ask,
                cursor,
                (None, timeline::Show::Raw.into()),
            )?;
            Ok((page.records, query::parse_cursor(page.next_cursor.as_deref())?))
        })?;
        lines.into_iter().map(value).collect()
    }

    fn open_items(&self, run_id: RunId<&str>, index: Index, ended: bool, limit: usize) -> anyhow::Result<Vec<Value>> {
        let (rows, place) = self.locate(run_id);
        let items = all(|cursor| open_items::page(rows, place, index, (Some(run_id), ended), cursor, limit))?;
        items.into_iter().map(|(_, standing)| value(standing)).collect()
    }

    fn open_items_everywhere(&self, index: Index, ended: bool, limit: usize) -> anyhow::Result<Vec<(RunId, Value)>> {
        let mut items = Vec::new();
        for (rows, place) in self.places() {
            items.extend(all(|cursor| open_items::page(rows, place, index, (None, ended), cursor, limit))?);
        }
        items.into_iter().map(|(run_id, standing)| Ok((run_id, value(standing)?))).collect()
    }

    fn effects(&self, listed: Listed, limit: usize) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        for (rows, place) in self.places() {
            items.extend(all(|cursor| {
                let shown = (timeline::Show::Raw, &timeline::Budget::new(timeline::BYTES_MAX));
                effects::page(rows, place, &Visible::default(), listed, shown, (cursor, limit), 0)
            })?);
        }
        items.into_iter().map(value).collect()
    }

    fn anomalies(&self, run_id: Option<RunId<&str>>, limit: usize) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        for (rows, place) in self.places() {
            items.extend(all(|cursor| anomalies::page(rows, place, &Visible::default(), run_id, cursor, limit))?);
        }
        items.into_iter().map(value).collect()
    }

    fn dead_letters(&self, limit: usize) -> anyhow::Result<Vec<Value>> {
        let mut letters = Vec::new();
        for (rows, place) in self.places() {
            letters.extend(all(|cursor| dead_letters::page(rows, place, cursor, limit))?);
        }
        letters.into_iter().map(value).collect()
    }

    fn tells_outcomes(&self, _partition: u32) -> bool {
        true
    }

    fn outcome(
        &self,
        partition: u32,
        (offset, index): (u64, u32),
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
    ) -> anyhow::Result<Value> {
        let (partition, at) = (PartitionId::new(partition)?, (Offset::new(offset)?, index));
        let place = TopicPartition { topic: self.topic, partition, log: None };
        let answer = outcome::get(self.rows[partition.index()], place, run_id, at, Some(record_id))?;
        answer.map_or(Ok(Value::Null), value)
    }

    fn by_id(&self, run_id: RunId<&str>, record_id: RecordId<&str>) -> anyhow::Result<Value> {
        let (rows, place) = self.locate(run_id);
        outcome::by_id(rows, place, run_id, record_id)?.map_or(Ok(Value::Null), |found| value(found.outcome))
    }
}

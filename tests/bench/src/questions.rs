//! Queries of the indices in process, without a server: lookups and recoveries. The data is in memory, or four times as
//! large as the block cache.

use anyhow::{Context, ensure};
use runlog_log::Delivery;
use runlog_projector::index::{
    Contents,
    query::{TopicPartition, lookup, recovery},
    store::{Budget, Store},
};
use runlog_schemas::{
    answer::LookupStatus,
    id::{Fingerprint, PartitionId, RunId},
    payload::Payload,
    record::JournalRecord,
};
use std::{hint::black_box, path::Path, sync::Arc, time::Instant};

use crate::{
    Scale,
    fold::{self, MEMORY_BYTES},
    measure::{Latencies, quantiles},
    records::Journal,
    report::{Figure, Goal, Row, Unit},
    served::mebibytes,
};

/// Records of the index of the lookups at most.
const RECORDS_MAX: u64 = 300_000;
/// Calls that are looked up repeatedly.
const HOT: usize = 1_000;
/// Lookups of a round, and recoveries of a round.
const LOOKUPS: usize = 20_000;
const RECOVERIES: usize = 100;
/// Records of the recovered run.
const OF_RUN: usize = 10_000;
const PLACE: TopicPartition<'static> = TopicPartition { topic: "bench", partition: PartitionId::ZERO, log: None };

type Call = (RunId, Fingerprint);

pub(crate) fn run(scale: &Scale) -> anyhow::Result<Figure> {
    let (dir, count) = (tempfile::tempdir()?, scale.records.min(RECORDS_MAX));
    let mut calls = Vec::new();
    let deliveries = fold::deliveries_of(Journal::new(6, crate::RECORDS_PER_RUN), count, |record| {
        if let Payload::ToolCallRequested(call) = &record.payload {
            let (run, fingerprint) = (record.body.run_id.borrow(), call.fingerprint.borrow());
            calls.extend(run.zip(fingerprint).map(|(run, fingerprint)| (run.to_owned(), fingerprint.to_owned())));
        }
    })?;
    // The last request of a run may have no result yet.
    calls.truncate(calls.len() * 9 / 10);
    let store = filled_store(&deliveries, dir.path(), MEMORY_BYTES)?;
    drop(deliveries);
    let (mut hot, mut cold, mut recovered, mut from_start) = (vec![], vec![], vec![], vec![]);
    for _ in 0..scale.rounds {
        hot.push(looked_up(&store, &calls[..HOT.min(calls.len())])?);
    }
    drop(store);
    let (run_dir, journal) = (tempfile::tempdir()?, long_run()?);
    let run_id = journal.first().and_then(|record| record.body.run_id.borrow()).context("a run")?.to_owned();
    let long = filled_store(&fold::deliveries_in(journal.iter().cloned().map(Ok))?, run_dir.path(), MEMORY_BYTES)?;
    let index = mebibytes(dir.path())?;
    let quarter = (index * 1048576.0 / 4.0) as usize;
    let store = Store::open(dir.path(), &Budget::new(quarter))?;
    for _ in 0..scale.rounds {
        cold.push(looked_up(&store, &calls)?);
        recovered.push(recover(&long, run_id.borrow(), false)?);
        from_start.push(recover(&long, run_id.borrow(), true)?);
    }
    Ok(Figure {
        title: "Questions in process".into(),
        method: format!(
            "Lookups by fingerprint, one after the other, in an index of {count} records ({index:.0} MiB): of {HOT} calls again and \
             again, and of calls all over it with a block cache of a quarter of it (the kernel has the files in memory). \
             Recoveries of a run of {} records, all pages: from its latest checkpoint, and from its start.",
            journal.len()
        ),
        rows: vec![
            Row::new("a lookup, hot, p50", Unit::Millis, quantiles(0.5, &hot)),
            Row::new("a lookup, hot, p99", Unit::Millis, quantiles(0.99, &hot)).goal(Goal::AtMost(0.05)),
            Row::new("a lookup, four times the cache, p50", Unit::Millis, quantiles(0.5, &cold)),
            Row::new("a lookup, four times the cache, p99", Unit::Millis, quantiles(0.99, &cold))
                .goal(Goal::AtMost(2.0)),
            Row::new("recover from a checkpoint, p50", Unit::Millis, quantiles(0.5, &recovered)),
            Row::new("recover from a checkpoint, p99", Unit::Millis, quantiles(0.99, &recovered))
                .goal(Goal::AtMost(10.0)),
            Row::new("recover from the start, p50", Unit::Millis, quantiles(0.5, &from_start)),
            Row::new("recover from the start, p99", Unit::Millis, quantiles(0.99, &from_start))
                .goal(Goal::AtMost(10.0)),
        ],
    })
}

/// The records of one long run.
fn long_run() -> anyhow::Result<Vec<JournalRecord>> {
    let mut journal = Journal::new(7, 2 * OF_RUN as u64);
    let first = journal.record()?;
    let run = first.body.run_id.clone();
    let mut records = vec![first];
    while records.len() < OF_RUN {
        let record = journal.record()?;
        if record.body.run_id == run {
            records.push(record);
        }
    }
    Ok(records)
}

fn filled_store(deliveries: &[Delivery], dir: &Path, memory_bytes: usize) -> anyhow::Result<Arc<Store>> {
    let store = Arc::new(Store::open(dir, &Budget::new(memory_bytes))?);
    fold::apply_all(&store, deliveries)?;
    store.flush()?;
    Ok(store)
}

fn looked_up(store: &Store, calls: &[Call]) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new();
    for nth in 0..LOOKUPS {
        // A stride over all calls, not in their order.
        let (run, fingerprint) = calls.get(nth * 7919 % calls.len()).context("a call")?;
        let started = Instant::now();
        let call = lookup::get(&store.view(), &Contents::none(), PLACE, run.borrow(), fingerprint.borrow(), None)?;
        latencies.add(started.elapsed());
        ensure!(call.status == LookupStatus::Completed, "{call:?}");
    }
    Ok(latencies)
}

fn recover(store: &Store, run_id: RunId<&str>, from_start: bool) -> anyhow::Result<Latencies> {
    let pending = recovery::PENDING_MAX;
    let ask = recovery::Query { full: true, from_start, content: true, limit: 1_000, pending, now: None };
    let mut latencies = Latencies::new();
    for _ in 0..RECOVERIES {
        let (started, mut cursor): (_, Option<Vec<u8>>) = (Instant::now(), None);
        loop {
            let page = recovery::get(&store.view(), &Contents::none(), PLACE, run_id, ask, cursor.as_deref())?;
            let page = black_box(page).context("a run")?;
            let Some(next) = page.next_cursor else { break };
            cursor = runlog_projector::index::query::parse_cursor(Some(&next))?;
        }
        latencies.add(started.elapsed());
    }
    Ok(latencies)
}

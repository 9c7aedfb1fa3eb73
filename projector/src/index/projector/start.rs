//! Opens the indices of a projector, and checks each against the log.

use crate::index::{
    bulk,
    config::Config,
    error::Error,
    executor::Executor,
    fold::{Fold, Stop, StopKind},
    rebuild::{self, LiveStore},
    store::{Budget, Rows, Store, meta},
};
use runlog_log::{Bounds, Log};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    datum::Sha256,
    id::{Offset, PartitionId},
};
use std::{sync::Arc, time::Duration};

/// Opens the partition's store. If it has an older layout, creates an empty store beside it, which is built from the log.
/// If the log cannot rebuild the index, the older store stays unchanged and this fails.
pub(super) async fn open(
    config: &Config,
    log: &Arc<dyn Log>,
    journal: &meta::Journal,
    partition: PartitionId,
    budget: &Budget,
) -> Result<Store, Error> {
    let index = config.index();
    // Removes the temporary files of an unfinished build.
    bulk::folder(&index, partition).remove();
    let older = match rebuild::open(&index, partition, budget)? {
        LiveStore::Current(store) => return Ok(store),
        LiveStore::Older(store) => store,
    };
    let older_journal: Option<meta::Journal> = older.get(&meta::journal())?;
    if let Some(other) = older_journal.filter(|other| other != journal) {
        // An index built from this log would answer that the other journal's runs do not exist.
        let why = format!("it belongs to journal {}, the log to journal {}", other.journal_id, journal.journal_id);
        return Err(older.outgrown(why)?.into());
    }
    if config.paused {
        return Err(older.outgrown("a paused server does not rebuild it; start the server without --paused")?.into());
    }
    let start = log.bounds(partition, Duration::from_secs(30)).await?.start;
    if start > Offset::ZERO {
        let why =
            format!("it cannot be rebuilt: partition {partition} of the log begins at offset {start}, no longer at 0");
        return Err(older.outgrown(why)?.into());
    }
    Ok(rebuild::create_beside(&index, partition, &older, budget)?)
}

/// The time limit of a partition's first read at start.
const FIRST_READ: Duration = Duration::from_secs(30);

/// Returns the stop of a fold that cannot continue on this log, and the offset (exclusive) for a bulk build of an empty
/// index.
pub(super) async fn begins(
    log: &Arc<dyn Log>,
    fold: &Fold,
    bounds: Bounds,
    config: &Config,
) -> Result<(Option<Stop>, Option<Offset>), Error> {
    let stop = check_against_log(log, fold, bounds, &config.executor).await?;
    let is_new = stop.is_none() && fold.next == Offset::ZERO && fold.store.takes_tables();
    let build = is_new && bounds.end.get() >= config.bulk.offsets_min;
    Ok((stop, build.then_some(bounds.end)))
}

/// Returns the stop of a fold that cannot continue on this log.
///
/// Errors: `Unavailable` if the log did not answer in time: its records are unknown.
async fn check_against_log(
    log: &Arc<dyn Log>,
    fold: &Fold,
    bounds: Bounds,
    executor: &Executor,
) -> Result<Option<Stop>, Error> {
    let stop = |kind, error: String| Ok(Some(Stop { offset: fold.next, kind, error }));
    if fold.next < bounds.start {
        return stop(
            StopKind::LogTruncated,
            format!(
                "the index ends at offset {}, the log now starts at {}: records between are lost",
                fold.next, bounds.start
            ),
        );
    }
    if fold.next > bounds.end {
        return stop(
            StopKind::LogDiverged,
            format!(
                "the index ends at offset {}, the log already at {}: this is another log, or the log lost its end",
                fold.next, bounds.end
            ),
        );
    }
    let journal: Option<meta::Journal> = fold.store.get(&meta::journal())?;
    if let Some(other) = journal.filter(|journal| *journal != fold.journal) {
        return stop(
            StopKind::LogDiverged,
            format!("the index is of journal {}, the log of {}", other.journal_id, fold.journal.journal_id),
        );
    }
    let progress: meta::Progress = fold.store.get(&meta::progress())?.unwrap_or_default();
    let Some(last) = progress.last.filter(|last| last.offset >= bounds.start) else { return Ok(None) };
    let (log, partition, wait) = (log.clone(), fold.partition, executor.blocking_wait(FIRST_READ));
    let topic = log.topic().to_owned();
    let read = executor.run(move || {
        let mut reader = log.reader(&[(partition, last.offset)])?;
        let record = reader.poll(1, wait)?.into_iter().next();
        // An empty poll either passed offsets without a record, or timed out.
        let is_read = record.is_some() || reader.position(partition).is_some_and(|next| next > last.offset);
        Ok::<_, runlog_log::Error>((record, is_read))
    });
    let (record, is_read) = read
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, "the read of the log did not complete").because(error))??;
    match record {
        Some(record) if record.offset == last.offset && Sha256::of(&record.value) == last.hash => Ok(None),
        None if !is_read => {
            let waited = humantime::format_duration(FIRST_READ);
            let place = format!("topic {topic}, partition {partition}, offset {}", last.offset);
            let message = format!("timed out after {waited} reading {place}, at the end of the index; retry");
            let position = Position { topic, partition, offset: last.offset, index: 0, log: None };
            Err(Error::new(ErrorKind::Unavailable, message).at(&position))
        }
        _ => stop(
            StopKind::LogDiverged,
            format!("the record at offset {} differs from the record that the index was built from", last.offset),
        ),
    }
}

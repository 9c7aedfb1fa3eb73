//! Writes a record and retries until its outcome is known.

use crate::writer_pool::taken_over;
use runlog_producer::{Error, JournalRecord, RecordMetadata, SideEffect, Writer, answer::ErrorKind};

/// Attempts of a write whose outcome is unknown. Each attempt has its own time limit.
const TRIES: usize = 3;

/// Writes a record once: if it is unknown whether it is in the log, the same record is written again, which finds out.
///
/// Errors: as [`Writer::write`]. [`SideEffect::Unknown`] only if no attempt got an answer.
pub(crate) async fn write(writer: &Writer, record: JournalRecord) -> Result<RecordMetadata, Error> {
    until_known(|| writer.write(record.clone())).await
}

/// The same for records that are applied together.
#[cfg(any(feature = "codetether", feature = "observability"))]
pub(crate) async fn batch(
    writer: &Writer,
    record_id: runlog_producer::id::RecordId,
    records: Vec<JournalRecord>,
) -> Result<Vec<runlog_producer::answer::Position>, Error> {
    until_known(|| writer.batch(record_id.clone(), records.clone())).await
}

async fn until_known<T, F: Future<Output = Result<T, Error>>>(write: impl Fn() -> F) -> Result<T, Error> {
    let mut unknown = None;
    for _ in 1..TRIES {
        match Box::pin(write()).await {
            Err(error) if error.side_effect() == SideEffect::Unknown && !taken_over(&error) => unknown = Some(error),
            done => return outcome(done, unknown),
        }
    }
    outcome(Box::pin(write()).await, unknown)
}

/// The outcome after the last attempt. If an earlier outcome is unknown, a failure to find out leaves it unknown.
fn outcome<T>(done: Result<T, Error>, unknown: Option<Error>) -> Result<T, Error> {
    done.map_err(|error| match unknown {
        Some(unknown) if !taken_over(&error) && error.kind() != ErrorKind::Conflict => unknown,
        _ => error,
    })
}

//! Writing until it is known what came of it.

use crate::taken_over;
use runlog_producer::{Error, JournalRecord, RecordMetadata, SideEffect, Writer, answer::ErrorKind};

/// How often a write is tried whose end nobody knows. Each try ends by itself.
const TRIES: usize = 3;

/// Writes a record once: where nobody knows whether it landed, the same one is written again, which tells.
///
/// Errors: as [`Writer::write`]. [`SideEffect::Unknown`] only where the journal could not be asked either.
pub(crate) async fn write(writer: &Writer, record: JournalRecord) -> Result<RecordMetadata, Error> {
    settled(|| writer.write(record.clone())).await
}

/// The same of records that take effect together.
#[cfg(any(feature = "codetether", feature = "observability"))]
pub(crate) async fn batch(
    writer: &Writer,
    record_id: runlog_producer::id::RecordId,
    records: Vec<JournalRecord>,
) -> Result<Vec<runlog_producer::answer::Position>, Error> {
    settled(|| writer.batch(record_id.clone(), records.clone())).await
}

async fn settled<T, F: Future<Output = Result<T, Error>>>(write: impl Fn() -> F) -> Result<T, Error> {
    let mut unknown = None;
    for _ in 1..TRIES {
        match Box::pin(write()).await {
            Err(error) if error.side_effect() == SideEffect::Unknown && !taken_over(&error) => unknown = Some(error),
            done => return told(done, unknown),
        }
    }
    told(Box::pin(write()).await, unknown)
}

/// What the last try came to. Where an earlier one's end is not known, a failure to find out does not make it known.
fn told<T>(done: Result<T, Error>, unknown: Option<Error>) -> Result<T, Error> {
    done.map_err(|error| match unknown {
        Some(unknown) if !taken_over(&error) && error.kind() != ErrorKind::Conflict => unknown,
        _ => error,
    })
}

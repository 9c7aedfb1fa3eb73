//! Writes one record at a time per run, and retries until its outcome is known.

use super::{
    inner::{CachedNumbers, Inner},
    numbers::Numbers,
    record,
    sdk_error::sdk_error,
};
use crate::writer_pool::taken_over;
use ::agent_sdk_core::{AgentError, JournalCursor, JournalRecord, replay::journal_cursor_for_seq};
use runlog_producer::{
    Error, RecordFilter, SideEffect, Writer,
    answer::ErrorKind,
    id::{JournalSeq, RunId},
};
use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

/// The pause before a retry: the first, doubled each time, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Why a write failed.
pub(super) struct WriteFailed {
    error: Error,
    unknown: bool,
}

impl WriteFailed {
    /// Whether the record was refused as too large and not written.
    pub(super) fn is_too_large(&self) -> bool {
        self.error.kind() == ErrorKind::TooLarge
    }
}

impl From<WriteFailed> for AgentError {
    fn from(failed: WriteFailed) -> Self {
        sdk_error(&failed.error, failed.unknown)
    }
}

impl Inner {
    pub(super) async fn append(&self, record: JournalRecord) -> Result<JournalCursor, AgentError> {
        let run_id = self.run_id(&record.run_id)?;
        let mut ours = record::ours(&record, &run_id)?;
        let numbers = self.numbers(&run_id);
        let mut cached = numbers.lock().await;
        let writer = self.writers.writer(&run_id).await.map_err(|error| sdk_error(&error, false))?;
        let numbers = self.load_numbers(&run_id, &writer, &mut cached).await?;
        let number = record.journal_seq;
        let next = self.try_number(numbers, number);
        if !next {
            let last = numbers.last();
            // If it is not next, it can only be the record that already has its number.
            let our_number = (1..=last).contains(&number).then(|| numbers.ours(number));
            ours.place.journal_seq = our_number
                .filter(|our_number| *our_number > 0)
                .and_then(|our_number| JournalSeq::new(our_number).ok())
                .ok_or_else(|| {
                    let message =
                        format!("journal_seq {number} of run {run_id} is not the next one: the last is {last}");
                    AgentError::contract_violation(message)
                })?;
        }
        if numbers.renames(number, &record.record_id) {
            record::rename(&mut ours, number)?;
        }
        let write = || {
            let (writer, ours) = (writer.clone(), ours.clone());
            async move { writer.write(ours).await }
        };
        let wrote = retry_until_known(self.patience, write).await;
        match wrote {
            Ok(wrote) if next && !wrote.repeat => {
                numbers.add(number, wrote.journal_seq.get(), &record.record_id);
            }
            Ok(_) if !next => {}
            // Another write or a refused write used a number: read the numbers again.
            Ok(_) => *cached = None,
            Err(failed) => {
                *cached = None;
                return Err(failed.into());
            }
        }
        Ok(journal_cursor_for_seq(number))
    }

    /// Whether a record may have this number, which then counts as tried.
    fn try_number(&self, numbers: &Numbers, number: u64) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.is_next(number, *tried);
        if next {
            *tried = (*tried).max(Some(number));
        }
        next
    }

    /// The run's numbers. If they are unknown they are read, after the claim and once earlier writes are settled.
    pub(super) async fn load_numbers<'a>(
        &self,
        run_id: &RunId,
        writer: &Arc<Writer>,
        cached: &'a mut Option<CachedNumbers>,
    ) -> Result<&'a mut Numbers, AgentError> {
        let claim = Arc::downgrade(writer);
        // Discard numbers from an earlier claim of this process: another process may have written in between.
        cached.take_if(|read| !read.claim.ptr_eq(&claim));
        if cached.is_none() {
            // Boxed, because only the first append needs it.
            let (next, _) = Box::pin(writer.next()).await.map_err(|error| sdk_error(&error, false))?;
            let none = next == JournalSeq::from(1);
            let records = if none { Vec::new() } else { Box::pin(self.read(run_id, &RecordFilter::default())).await? };
            *cached = Some(CachedNumbers { claim: claim.clone(), numbers: Numbers::from_records(&records)? });
        }
        Ok(&mut cached.get_or_insert(CachedNumbers { claim, numbers: Numbers::default() }).numbers)
    }
}

/// Writes, and writes the same again while its outcome is unknown, until `patience` is over.
pub(super) async fn retry_until_known<T, F: Future<Output = Result<T, Error>>>(
    patience: Duration,
    mut write: impl FnMut() -> F,
) -> Result<T, WriteFailed> {
    let (begun, mut unknown, mut pause) = (Instant::now(), false, PAUSE.0);
    loop {
        let error = match Box::pin(write()).await {
            Ok(wrote) => return Ok(wrote),
            Err(error) => error,
        };
        unknown |= error.side_effect() == SideEffect::Unknown;
        // Only a refusal is an answer about this record. After another process's claim, or without an answer, it may be in the
        // log.
        unknown &= error.kind() != ErrorKind::Conflict;
        if !unknown || taken_over(&error) || begun.elapsed() >= patience {
            return Err(WriteFailed { error, unknown });
        }
        tracing::warn!(%error, "the outcome of a write is unknown; retrying");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

//! Writing: one at a time per run, and until it is known what became of it.

use super::{Inner, Known, Numbers, failure, record};
use crate::taken_over;
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

/// Pauses before an unknown write is asked for again: from here, doubled, up to there.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Why a write was given up.
pub(super) struct GivenUp {
    error: Error,
    unknown: bool,
}

impl GivenUp {
    /// Whether nothing was written, for its size.
    pub(super) fn is_too_large(&self) -> bool {
        self.error.kind() == ErrorKind::TooLarge
    }
}

impl From<GivenUp> for AgentError {
    fn from(given_up: GivenUp) -> Self {
        failure(&given_up.error, given_up.unknown)
    }
}

impl Inner {
    pub(super) async fn append(&self, record: JournalRecord) -> Result<JournalCursor, AgentError> {
        let run_id = self.run_id(&record.run_id)?;
        let mut ours = record::ours(&record, &run_id)?;
        let seat = self.seat(&run_id);
        let mut seat = seat.lock().await;
        let writer = self.desks.writer(&run_id).await.map_err(|error| failure(&error, false))?;
        let numbers = self.learn(&run_id, &writer, &mut seat).await?;
        let number = record.journal_seq;
        let next = self.turn(numbers, number);
        if !next {
            let last = numbers.last();
            // Where it is not next, only what stands under its number already can be meant.
            let known = (1..=last).contains(&number).then(|| numbers.ours(number));
            ours.place.journal_seq =
                known.filter(|known| *known > 0).and_then(|known| JournalSeq::new(known).ok()).ok_or_else(|| {
                    let message =
                        format!("journal_seq {number} of run {run_id} is not the next one: the last one is {last}");
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
        let wrote = asked(self.patience, write).await;
        match wrote {
            Ok(wrote) if next && !wrote.repeat => {
                numbers.took(number, wrote.journal_seq.get(), &record.record_id);
            }
            Ok(_) if !next => {}
            // A write is under way that nobody here knows of, or one that was refused took a number: read it again.
            Ok(_) => *seat = None,
            Err(given_up) => {
                *seat = None;
                return Err(given_up.into());
            }
        }
        Ok(journal_cursor_for_seq(number))
    }

    /// Whether a record may have this number, which then counts as tried.
    fn turn(&self, numbers: &Numbers, number: u64) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.is_next(number, *tried);
        if next {
            *tried = (*tried).max(Some(number));
        }
        next
    }

    /// The run's numbers, read where they are not known: behind the claim, and behind what was unknown before.
    pub(super) async fn learn<'a>(
        &self,
        run_id: &RunId,
        writer: &Arc<Writer>,
        seat: &'a mut Option<Known>,
    ) -> Result<&'a mut Numbers, AgentError> {
        let of = Arc::downgrade(writer);
        // Those of another claim of this process: another one may have written between the two.
        seat.take_if(|known| !known.of.ptr_eq(&of));
        if seat.is_none() {
            // Boxed: of all appends the first alone needs the room.
            let (next, _) = Box::pin(writer.next()).await.map_err(|error| failure(&error, false))?;
            let none = next == JournalSeq::from(1);
            let records = if none { Vec::new() } else { Box::pin(self.read(run_id, &RecordFilter::default())).await? };
            *seat = Some(Known { of: of.clone(), numbers: Numbers::of(&records)? });
        }
        Ok(&mut seat.get_or_insert(Known { of, numbers: Numbers::default() }).numbers)
    }
}

/// What a write comes to. Where that is unknown it is asked for again, the same, until it is known or `patience` is over.
pub(super) async fn asked<T, F: Future<Output = Result<T, Error>>>(
    patience: Duration,
    mut write: impl FnMut() -> F,
) -> Result<T, GivenUp> {
    let (begun, mut unknown, mut pause) = (Instant::now(), false, PAUSE.0);
    loop {
        let error = match Box::pin(write()).await {
            Ok(wrote) => return Ok(wrote),
            Err(error) => error,
        };
        unknown |= error.side_effect() == SideEffect::Unknown;
        // Only a refusal is a word on this very record; another process's claim leaves it open whether it came first, and so does
        // whatever keeps the journal from answering.
        unknown &= error.kind() != ErrorKind::Conflict;
        if !unknown || taken_over(&error) || begun.elapsed() >= patience {
            return Err(GivenUp { error, unknown });
        }
        tracing::warn!(%error, "what became of a write is asked for again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

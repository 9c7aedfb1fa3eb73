//! Acknowledged records and their outcomes: applied, a repeat, or refused. Pure.

use super::sent_at::{START_WITHIN, SentAt};
use crate::error::{Action, Error};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, OrOther, Outcome, Position, ReadBack},
    id::{Epoch, JournalSeq, Offset, OrEmpty, RecordId, RunId, WriterId},
    judge::Reason,
};
use std::time::Duration;

/// A record that the log has acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct AckedRecord {
    pub(crate) record_id: RecordId,
    pub(crate) journal_seq: JournalSeq,
    pub(crate) position: Position,
    /// Whether the backend reported with the acknowledgement that the record was applied.
    pub(crate) applied: bool,
    /// If the backend reported a repeat: the `journal_seq` of the first record, or 0 if the backend omitted it.
    pub(crate) repeat: Option<JournalSeq>,
    /// Whether it is a batch with records that may repeat others at other positions.
    pub(crate) holds_repeats: bool,
    /// The read-back that came with the acknowledgement, if any.
    pub(crate) read_back: Option<ReadBack>,
    /// When it was first sent.
    pub(crate) sent_at: SentAt,
    /// The offset of the run's last known record when this one was sent.
    pub(crate) sent_after: Offset,
    /// Whether its outcome, if the backend reported that, is [`repeats_earlier`].
    pub(crate) repeats_earlier: bool,
}

impl AckedRecord {
    /// Makes an acknowledged record that is not known to be applied.
    pub(crate) fn new(record_id: RecordId, journal_seq: JournalSeq, position: Position, sent_at: SentAt) -> Self {
        Self {
            record_id,
            journal_seq,
            position,
            applied: false,
            repeat: None,
            holds_repeats: false,
            read_back: None,
            sent_at,
            sent_after: Offset::ZERO,
            repeats_earlier: false,
        }
    }
}

/// Makes the error for an answer that came after the deadline, or was too old when it could be used.
pub(crate) fn too_late(run_id: RunId<&str>, acked: &AckedRecord, deadline: Duration) -> Error {
    let message = format!(
        "timed out after {} reading back record {} of run {run_id}: not known to be applied; reopen the run",
        humantime::format_duration(deadline),
        acked.record_id
    );
    let error = Error::new(ErrorKind::Stale, Action::Reopen, message);
    error.about_record(acked.record_id.borrow()).about_position(&acked.position)
}

/// Makes the error for an effect whose intent was sent so long ago that an operator may have decided the call since.
pub(crate) fn sent_too_long_ago(run_id: RunId<&str>, acked: &AckedRecord) -> Error {
    let message = format!(
        "record {} of run {run_id} was first sent {} ago, more than {}: its effect was not run, because an operator may have \
         decided about the call since; reopen the run",
        acked.record_id,
        humantime::format_duration(Duration::from_secs(acked.sent_at.age().as_secs())),
        humantime::format_duration(START_WITHIN)
    );
    let error = Error::new(ErrorKind::Stale, Action::Reopen, message);
    error.about_record(acked.record_id.borrow()).about_position(&acked.position)
}

/// Makes the error for a call that changed before its effect: the journal now has its answer, or permits another attempt.
pub(crate) fn has_changed(run_id: RunId<&str>, tool: &str, call: &RecordId, acked: &AckedRecord) -> Error {
    let message = format!(
        "call {call} of {tool} in run {run_id} has changed since record {}: its effect was not run; make the call again",
        acked.record_id
    );
    let error = Error::new(ErrorKind::Stale, Action::Retry, message).about_run(run_id);
    error.about_record(call.borrow()).about_position(&acked.position)
}

/// Makes the error for an applied intent whose effect belongs to the process that now writes the run.
pub(crate) fn taken_over(run_id: RunId<&str>, acked: &AckedRecord, answer: &ReadBack) -> Error {
    let message = format!(
        "run {run_id} was taken over by writer {} in epoch {} after record {}: its effect was not run here",
        answer.writer_id, answer.epoch, acked.record_id
    );
    let error = Error::new(ErrorKind::Fenced, Action::Stop, message);
    error.about_record(acked.record_id.borrow()).about_position(&acked.position)
}

/// Makes the error for a handle whose run another process writes, as a recovery shows.
pub(crate) fn fenced(run_id: RunId<&str>, writer_id: &OrEmpty<WriterId>, epoch: Epoch) -> Error {
    let message = format!(
        "run {run_id} was taken over by writer {writer_id} in epoch {epoch}: this handle answers and starts no further call"
    );
    Error::new(ErrorKind::Fenced, Action::Stop, message).about_run(run_id)
}

/// Makes the error for an intent whose id was in the log before: its effect may have run elsewhere.
pub(crate) fn not_own_intent(run_id: RunId<&str>, acked: &AckedRecord, first: &Position) -> Error {
    let message = format!(
        "record {} of run {run_id} was in the log before this call sent it, at offset {}: another call chose the same id, and its \
         effect was not run here; reopen the run",
        acked.record_id, first.offset
    );
    let error = Error::new(ErrorKind::Conflict, Action::Reopen, message);
    error.about_record(acked.record_id.borrow()).about_position(first)
}

/// Whether a record took effect, now or when it was first appended.
pub(crate) fn took_effect(outcome: &Outcome) -> bool {
    matches!(outcome.outcome, OrOther::Known(Disposition::Applied | Disposition::Repeat)) && outcome.reason.is_none()
}

/// Whether a record repeats a record at or before `sent_after`, which was in the log when this one was sent: another
/// process chose the same id. Otherwise the record repeats itself, because it was delivered twice.
pub(crate) fn repeats_earlier(outcome: &Outcome, sent_after: Offset) -> bool {
    outcome.outcome == Disposition::Repeat && outcome.position.offset <= sent_after
}

/// Whether the record with this outcome was written in another epoch than `epoch`, this handle's: then another process
/// wrote it under the same id. A server without the feature `record_writer` does not report the epoch.
pub(crate) fn is_of_another_epoch(outcome: &Outcome, epoch: Epoch) -> bool {
    outcome.record_writer.as_ref().is_some_and(|writer| writer.epoch != epoch)
}

/// For a repeat, the `journal_seq` of the first record; 0 if its kind has none or the server did not report it.
pub(crate) fn repeat_of(outcome: &Outcome) -> Option<JournalSeq> {
    (outcome.outcome == Disposition::Repeat).then(|| outcome.journal_seq.unwrap_or_default())
}

/// Makes the error for the writer of a refused record.
pub(crate) fn refused(run_id: RunId<&str>, record_id: Option<RecordId<&str>>, outcome: &Outcome) -> Error {
    let reason = outcome.reason.as_ref().map_or("unknown", OrOther::as_str);
    let fenced = outcome.reason.as_ref().is_some_and(|reason| *reason == Reason::Fenced);
    let what = if fenced { "; another process took the run over" } else { "" };
    let message = format!("record {} of run {run_id} was refused as {reason}{what}", OrEmpty::from(record_id));
    let (kind, action) = if fenced { (ErrorKind::Fenced, Action::Stop) } else { (ErrorKind::Conflict, Action::Reopen) };
    let error = Error::new(kind, action, message).about_run(run_id).about_position(&outcome.position);
    match record_id {
        Some(record_id) => error.about_record(record_id),
        None => error,
    }
}

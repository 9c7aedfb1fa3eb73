//! Selects the records that the server numbers, and the records that it numbers again.

use runlog_schemas::{
    answer::Outcome,
    draft::Draft,
    judge::{FirstJudgement, Reason},
    payload::Payload,
    record::{JournalRecord, RecordKind},
    schema::RENUMBERED_SINCE,
};

/// Whether the server fills in the record's number in its writer's sequence.
pub(super) fn is_numbered_here(draft: &Draft) -> bool {
    let kind = draft.record.body.record_kind;
    !draft.has_writer_seq && !kind.unclaimed() && !matches!(draft.record.payload, Payload::RunClaim(_))
}

/// Whether to number a draft again: `first` has the same content and was refused for its numbers.
pub(super) fn is_due(draft: &Draft, first: &FirstJudgement) -> bool {
    is_numbered_here(draft) && first.is_for_numbers() && first.content_hash == draft.record.content_hash()
}

/// Whether the judge judges a record again that has the content of `first`.
pub(super) fn is_judged_again(record: &JournalRecord, first: &FirstJudgement) -> bool {
    record.version().number >= RENUMBERED_SINCE && first.is_for_numbers()
}

/// Whether a record's numbers can be the reason of its refusal. A conflict can also concern its id.
pub(super) fn is_for_numbers(reason: Reason) -> bool {
    matches!(reason, Reason::Conflict | Reason::Sequence | Reason::Gap)
}

/// Whether a record was refused because the numbers that the server filled in were taken.
pub(super) fn is_taken(draft: &Draft, expected: &Outcome, outcome: &Outcome) -> bool {
    let for_numbers = |outcome: &Outcome| {
        outcome.reason.as_ref().and_then(|reason| reason.known()).is_some_and(|reason| is_for_numbers(*reason))
    };
    let own_seq = draft.has_journal_seq && draft.record.body.record_kind != RecordKind::Batch;
    let of_client = own_seq && outcome.reason.as_ref().is_some_and(|reason| *reason == Reason::Sequence);
    is_numbered_here(draft) && for_numbers(outcome) && !for_numbers(expected) && !of_client
}

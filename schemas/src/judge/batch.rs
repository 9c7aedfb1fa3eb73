//! Judges batches: records that take effect together or not at all. A batch is one record of the log, with the records in its
//! payload.
//!
//! ```text
//!   the batch    repeat? ─▶ fenced? ─▶ gap? ─▶ conflict? ─▶ well-formed? ─▶ its records
//!   each record  judged like any other, in order ─▶ one refusal refuses the whole batch
//! ```
//!
//! The caller calls [`open`] and judges the records one by one. If one is refused, the caller rolls all of them back
//! and stores the head that [`refused`] returns.

use super::{
    EarlierJudgements, Verdict, find_known, in_epoch,
    status::Reason,
    view::{Head, View},
};
use crate::{codec::Envelope, id::JournalSeq, record::RecordKind};

/// The result of judging a batch as a whole, before its records.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, on the stack")]
pub enum Opened<'a> {
    /// A repeat, or a refusal as a whole.
    Judged(Verdict),
    /// The records of the batch, which the caller must judge in order.
    Records(Vec<Envelope<'a>>),
}

/// Judges a batch as a whole: rules 1 to 4, then whether it is well formed.
pub fn open<'a, V: View>(batch: &Envelope<'a>, view: &mut V) -> Result<Opened<'a>, V::Error> {
    let head = view.head()?;
    let EarlierJudgements { id, same } = find_known(batch, view)?;
    let records = batch.records();
    // 1. repeat
    if let Some(first) = same {
        let count = records.as_ref().map_or(1, Vec::len);
        return Ok(Opened::Judged(Verdict::Repeat { first, head: numbers(batch, count, head) }));
    }
    // 2. fenced
    if !in_epoch(batch, &head) {
        return Ok(Opened::Judged(Verdict::Refused { reason: Reason::Fenced, head }));
    }
    // 3. gap
    if batch.writer_seq > head.next_writer_seq {
        return Ok(Opened::Judged(Verdict::Refused { reason: Reason::Gap, head }));
    }
    // 4. conflict, and the form of the batch
    let conflict = id || batch.writer_seq < head.next_writer_seq;
    Ok(match records {
        Ok(records) if !conflict && well_formed(batch, &records) => Opened::Records(records),
        records => {
            let reason = if conflict { Reason::Conflict } else { Reason::Batch };
            let head = refused(batch, records.as_deref().unwrap_or_default(), head);
            Opened::Judged(Verdict::Refused { reason, head })
        }
    })
}

/// Returns the head after a batch that is refused for its content. If its `writer_seq` was the next one, the batch consumes one
/// number per record. It also consumes each `journal_seq` that was the next one, in record order. So later records of its writer
/// are not refused as gap.
pub fn refused(batch: &Envelope<'_>, records: &[Envelope<'_>], head: Head) -> Head {
    let mut head = numbers(batch, records.len(), head);
    for record in records {
        if record.kind.numbered() && record.journal_seq == head.next_journal_seq {
            head.next_journal_seq = head.next_journal_seq.saturating_add(1);
        }
    }
    head
}

/// Consumes `count` of the writer's numbers if the batch's `writer_seq` is the next one.
fn numbers(batch: &Envelope<'_>, count: usize, mut head: Head) -> Head {
    if in_epoch(batch, &head) && batch.writer_seq == head.next_writer_seq {
        head.next_writer_seq = head.next_writer_seq.saturating_add((count as u64).max(1));
    }
    head
}

/// Returns whether a batch has at least one record, all with its run, writer and epoch and with consecutive `writer_seq` from its
/// own on. Not allowed are batches, claims, records about a partition, kinds that need no claim, and payloads in the content
/// store.
fn well_formed(batch: &Envelope<'_>, records: &[Envelope<'_>]) -> bool {
    let of_a_writer = |kind: RecordKind| {
        !matches!(kind, RecordKind::Batch | RecordKind::RunClaim) && !kind.of_partition() && !kind.unclaimed()
    };
    let fits = |(record, nth): (&Envelope<'_>, u64)| {
        record.run_id == batch.run_id
            && (record.writer_id, record.writer_epoch) == (batch.writer_id, batch.writer_epoch)
            && record.writer_seq.get() == batch.writer_seq.get().saturating_add(nth)
            && of_a_writer(record.kind)
            && record.stored().is_none()
    };
    !records.is_empty() && batch.journal_seq == JournalSeq::ZERO && records.iter().zip(0..).all(fits)
}

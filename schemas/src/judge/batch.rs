//! Records that take effect together or not at all: one record of the log, whose payload holds them.
//!
//! ```text
//!   the batch    repeat? ─▶ fenced? ─▶ gap? ─▶ conflict? ─▶ well-formed? ─▶ its records
//!   each record  judged like any other, behind those before it ─▶ one refusal refuses the batch
//! ```
//!
//! Whoever takes a batch in calls [`open`], judges the records one by one, and takes back what they did where one is
//! refused: [`refused`] is then the head.

use super::{Head, Known, Reason, Verdict, View, in_epoch, known};
use crate::{codec::Envelope, id::JournalSeq, record::RecordKind};

/// What is said of a batch before its records are judged.
#[derive(Clone, Debug, PartialEq)]
pub enum Opened<'a> {
    /// A repeat, or a refusal as a whole.
    Judged(Verdict),
    /// Its records, to be judged in order.
    Records(Vec<Envelope<'a>>),
}

/// Judges a batch as a whole: by rules 1 to 4, and by its form.
pub fn open<'a, V: View>(batch: &Envelope<'a>, view: &mut V) -> Result<Opened<'a>, V::Error> {
    let head = view.head()?;
    let Known { id, same } = known(batch, view)?;
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
    // 4. conflict, and its form
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

/// The head behind a batch that is refused for its content: it consumes as many of its writer's numbers as it has records,
/// if its own was the next, and each number of the run that was the next of its records' in turn. So what its writer
/// numbered behind it is not lost.
pub fn refused(batch: &Envelope<'_>, records: &[Envelope<'_>], head: Head) -> Head {
    let mut head = numbers(batch, records.len(), head);
    for record in records {
        if record.kind.numbered() && record.journal_seq == head.next_journal_seq {
            head.next_journal_seq = head.next_journal_seq.saturating_add(1);
        }
    }
    head
}

/// Takes the writer's numbers of `count` records, if the batch's own is the next.
fn numbers(batch: &Envelope<'_>, count: usize, mut head: Head) -> Head {
    if in_epoch(batch, &head) && batch.writer_seq == head.next_writer_seq {
        head.next_writer_seq = head.next_writer_seq.saturating_add((count as u64).max(1));
    }
    head
}

/// Whether a batch can be taken apart: at least one record, all of the batch's run, writer and epoch, with consecutive
/// numbers from the batch's own on; none of them a batch, a claim, a partition's, one that needs no claim, or held
/// elsewhere.
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

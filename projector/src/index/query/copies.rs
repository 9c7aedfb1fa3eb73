//! Plans the copy of a run: its checkpoints and prunes, messages, turns, retractions and host payloads. Claims, calls,
//! effects and all other records with a lifecycle are not copied. A copy therefore answers no call and has nothing pending.
//!
//! ```text
//!   source   claim · turn 1 · call 2 · result 3 · host payload 4 · checkpoint, covers 4
//!   copy             turn 1                       host payload 2 · checkpoint, covers 2
//! ```
//!
//! A copied record keeps its id, time and content. Copied records are numbered again in their order, and numbers in their
//! payloads are translated.

use super::{Content, Order, Span, Stored, TopicPartition, missing_content};
use crate::index::{
    content::Contents,
    error::Error,
    store::{
        Parts, Rows,
        horizons::Horizons,
        records::{self, RecordRow},
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{JournalSeq, Offset, RunId},
    payload::{Payload, PayloadType},
    record::JournalRecord,
    refs::{EntityKind, EntityRef},
};
use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
};

/// The maximum number of records of a source, including records that are not copied.
pub const RECORDS_MAX: u64 = 100_000;
/// The maximum number of bytes of a source's copied records, with their content.
pub const BYTES_MAX: u64 = 256 << 20;

/// A record that is copied.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Its offset and index.
    pub at: (Offset, u32),
    /// Its size with its content.
    pub bytes: u64,
}

/// The records of a run to copy, in log order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The records.
    pub records: Vec<Chosen>,
    /// The number of records that are not copied.
    pub left_out: u64,
    /// The source's numbers of the copied and numbered records, ascending.
    numbers: Vec<JournalSeq>,
    /// The source's numbers that checkpoints cover.
    covers: BTreeSet<JournalSeq>,
    /// For each prune, by its offset and index, the copy's number for `prune_covered_before`.
    prunes: HashMap<(Offset, u32), JournalSeq>,
}

/// Whether records with this payload type are copied.
fn is_copied(payload_type: PayloadType) -> bool {
    matches!(
        payload_type,
        PayloadType::LoopCheckpoint
            | PayloadType::CheckpointPrune
            | PayloadType::ConversationTurn
            | PayloadType::Message
            | PayloadType::Retraction
            | PayloadType::HostPayload
    )
}

/// Plans a copy of a run as of an offset (inclusive). One seek, and a step and a decode per record.
///
/// Errors: `TooLarge` beyond [`RECORDS_MAX`] or [`BYTES_MAX`]; `MissingContent` if retention removed the content of a
/// record to copy; `Invalid` if its content is encrypted.
pub fn plan<R: Rows>(rows: &R, place: TopicPartition<'_>, run_id: RunId<&str>, as_of: Offset) -> Result<Plan, Error> {
    let (prefix, horizons) = (records::prefix(run_id), Horizons::read(|key| rows.get(key))?);
    let end = prefix.clone().offset(as_of.saturating_add(1));
    let (mut plan, mut bytes, mut failed) = (Plan::default(), 0, None);
    let span = Span { prefix: &prefix, end: Some(&end), cursor: None, order: Order::Asc };
    span.scan(rows, &mut |key, row| {
        let mut parts = Parts::new(key);
        let (Some(_), Some(offset), Some(index)) = (parts.text(), parts.offset(), parts.u32()) else {
            return Ok(ControlFlow::Continue(()));
        };
        let row = crate::index::store::decode(key, row)?;
        let added = plan.add(place, (offset, index), &row, &horizons).and_then(|added| {
            bytes += added;
            check_size(run_id, plan.records.len() as u64 + plan.left_out, bytes)
        });
        failed = added.err();
        Ok(if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    failed.map_or(Ok(plan), Err)
}

fn check_size(run_id: RunId<&str>, records: u64, bytes: u64) -> Result<(), Error> {
    let what = if records > RECORDS_MAX {
        format!("{RECORDS_MAX} records")
    } else if bytes > BYTES_MAX {
        format!("{BYTES_MAX} bytes to copy")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::TooLarge, format!("run {run_id} has more than {what}; nothing was copied")))
}

impl Plan {
    /// Adds a record if it must be copied, and returns its bytes.
    fn add(
        &mut self,
        place: TopicPartition<'_>,
        at: (Offset, u32),
        row: &RecordRow,
        horizons: &Horizons,
    ) -> Result<u64, Error> {
        let Stored { place: sequencing, body, payload } = super::decode(row, at.0, horizons)?;
        if !body.facts.payload_type.known().copied().is_some_and(is_copied) {
            self.left_out += 1;
            return Ok(0);
        }
        let fails = |kind, why: &str| {
            let message = format!("record {} cannot be copied: {why}; nothing was copied", body.record_id);
            Err(Error::new(kind, message).at(&place.position(at.0, at.1)).about_record(body.record_id.borrow()))
        };
        let stored = match payload {
            Content::Dropped(_) => return fails(ErrorKind::MissingContent, "retention removed its content"),
            Content::Available(Payload::Encrypted(_)) => return fails(ErrorKind::Invalid, "it is encrypted"),
            Content::Available(Payload::StoredPayload(stored)) => stored.bytes,
            Content::Available(_) => 0,
        };
        if sequencing.journal_seq > JournalSeq::ZERO {
            self.numbers.push(sequencing.journal_seq);
        }
        match body.facts.payload_type.known() {
            Some(PayloadType::LoopCheckpoint) => self.covers.extend(body.facts.covers_journal_seq),
            Some(PayloadType::CheckpointPrune) => {
                let first_kept = self.first_kept(body.facts.covers_journal_seq.unwrap_or_default())?;
                self.prunes.insert(at, first_kept);
            }
            _ => {}
        }
        let bytes = row.framed.0.len() as u64 + stored;
        self.records.push(Chosen { at, bytes });
        Ok(bytes)
    }

    /// Translates a number of the source: the copy's number of the last copied record up to it (inclusive); 0 if there is
    /// none.
    fn number(&self, of_source: JournalSeq) -> Result<JournalSeq, Error> {
        let count = self.numbers.partition_point(|number| *number <= of_source);
        JournalSeq::try_from(count as u64)
            .map_err(|error| Error::new(ErrorKind::Internal, "the copy has too many records to number").because(error))
    }

    /// Translates a prune's first kept number from the source, when exactly the records before the prune are planned. The
    /// copy hides no checkpoint that the source keeps. It keeps a checkpoint that the source hides, if only records that
    /// are not copied distinguish it from a kept checkpoint.
    fn first_kept(&self, of_source: JournalSeq) -> Result<JournalSeq, Error> {
        let number = self.number(of_source)?;
        if self.numbers.binary_search(&of_source).is_ok() {
            return Ok(number);
        }
        // From one copied record up to the next, all covered numbers translate to the same number. So the copy cannot
        // distinguish kept and hidden checkpoints within that range.
        let next = self.numbers.get(self.numbers.partition_point(|number| *number <= of_source));
        let stays = self.covers.range(of_source..).next().is_some_and(|covers| next.is_none_or(|next| covers < next));
        Ok(if stays { number } else { number.saturating_add(1) })
    }

    /// Returns the record at a position as a record of the run `target`. Blocks if its content is in the content store.
    ///
    /// Errors: `MissingContent`, or `Unavailable`, if its content cannot be read.
    pub fn copied<R: Rows>(
        &self,
        rows: &R,
        contents: &Contents,
        place: TopicPartition<'_>,
        (run_id, target): (RunId<&str>, RunId<&str>),
        at: (Offset, u32),
    ) -> Result<JournalRecord, Error> {
        let gone = || {
            let message = format!("run {run_id} changed during the copy; copy it again");
            Error::new(ErrorKind::Unavailable, message).at(&place.position(at.0, at.1))
        };
        let Stored { place: mut sequencing, mut body, payload } =
            super::record(rows, &Horizons::read(|key| rows.get(key))?, run_id, at)?.ok_or_else(gone)?;
        let Content::Available(payload) = payload else { return Err(gone()) };
        let mut payload = contents.open(place, body.record_id.borrow(), at, payload).map_err(|lost| {
            if lost.unknown() { lost.error } else { missing_content("nothing can be copied", &lost.missing) }
        })?;
        match &mut payload {
            Payload::LoopCheckpoint(checkpoint) => {
                checkpoint.covers_journal_seq = self.number(checkpoint.covers_journal_seq)?;
                body.facts.covers_journal_seq = Some(checkpoint.covers_journal_seq);
            }
            Payload::CheckpointPrune(prune) => {
                prune.prune_covered_before = *self.prunes.get(&at).ok_or_else(gone)?;
                body.facts.covers_journal_seq = Some(prune.prune_covered_before);
            }
            _ => {}
        }
        if sequencing.journal_seq > JournalSeq::ZERO {
            sequencing.journal_seq = self.number(sequencing.journal_seq)?;
        }
        sequencing.prev_hash = None;
        body.run_id = target.to_owned().into();
        target.as_str().clone_into(&mut body.event_index.run_id);
        let summary = &mut body.event_index;
        let related = body.related_refs.iter_mut().chain(&mut summary.related_refs);
        for entity in related.chain([&mut body.subject_ref, &mut summary.subject_ref]) {
            rename(entity, run_id, target);
        }
        Ok(JournalRecord { place: sequencing, body, payload })
    }
}

/// Replaces a reference to the record's own run by a reference to the copy.
fn rename(entity: &mut EntityRef, run_id: RunId<&str>, target: RunId<&str>) {
    if entity.kind == EntityKind::Run && entity.id == run_id.as_str() {
        target.as_str().clone_into(&mut entity.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(numbers: &[u32], covers: &[u32]) -> Plan {
        let numbers = numbers.iter().map(|number| (*number).into()).collect();
        let covers = covers.iter().map(|number| (*number).into()).collect();
        Plan { numbers, covers, ..Plan::default() }
    }

    #[test]
    fn a_number_of_the_source_is_translated_to_the_last_copied_record_up_to_it() {
        let plan = plan(&[2, 3, 7], &[]);
        let translated: Vec<u64> = (0..9_u32).map(|number| plan.number(number.into()).unwrap().get()).collect();
        assert_eq!(translated, [0, 0, 1, 2, 2, 2, 2, 3, 3]);
    }

    #[test]
    fn a_copied_prune_hides_the_same_checkpoints_and_no_others() {
        for covers in [&[1, 2, 3][..], &[2, 4, 6], &[2, 5, 6, 7], &[7], &[0, 9]] {
            for before in 0..12_u32 {
                let plan = plan(&[2, 3, 7], covers);
                let first_kept = plan.first_kept(before.into()).unwrap();
                let is_kept_in_copy = |covers: u32| plan.number(covers.into()).unwrap() >= first_kept;
                let is_kept_in_source = |covers: u32| covers >= before;
                for one in covers.iter().copied() {
                    assert!(
                        is_kept_in_copy(one) || !is_kept_in_source(one),
                        "{covers:?} before {before}: {one} is hidden in the copy alone"
                    );
                    let same =
                        |other: &&u32| plan.number((**other).into()).unwrap() == plan.number(one.into()).unwrap();
                    let alone = covers.iter().filter(same).all(|other| !is_kept_in_source(*other));
                    assert!(
                        !alone || !is_kept_in_copy(one),
                        "{covers:?} before {before}: {one} stays in the copy alone"
                    );
                }
            }
        }
    }

    #[test]
    fn a_run_beyond_the_bounds_is_refused_by_name() {
        let run_id = RunId::new("r").unwrap();
        assert!(check_size(run_id, RECORDS_MAX, BYTES_MAX).is_ok());
        for (records, bytes, named) in [(RECORDS_MAX + 1, 0, "100000 records"), (1, BYTES_MAX + 1, "268435456 bytes")] {
            let refused = check_size(run_id, records, bytes).unwrap_err();
            assert!(refused.kind() == ErrorKind::TooLarge && refused.to_string().contains(named), "{refused}");
        }
    }
}

//! The example record of every kind, numbered for a given run head.

use anyhow::Context;
use runlog_projector::index::store::{Rows, Store, runs};
use runlog_schemas::{
    draft::Draft,
    id::{Epoch, JournalSeq, OrEmpty, RecordId, RunId, WriterId, WriterSeq},
    judge::Head,
    payload::Payload,
    record::{JournalRecord, RecordKind},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The examples of a run's records except claims, sorted by id: a record follows the records that it refers to.
pub fn examples() -> anyhow::Result<Vec<JournalRecord>> {
    let mut records = Vec::new();
    for tag in Payload::TYPES {
        let file = format!("{}/../schemas/examples/{tag}.json", env!("CARGO_MANIFEST_DIR"));
        let mut example: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        example.as_object_mut().context("an object")?.remove("partition");
        let record = Draft::parse(&example.to_string())?.record;
        let kind = record.body.record_kind;
        if !kind.of_partition() && kind != RecordKind::RunClaim {
            records.push(record);
        }
    }
    let number = |record: &JournalRecord| -> u64 {
        record.body.record_id.as_str().rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
    };
    records.sort_by_key(number);
    let mut taken = BTreeSet::new();
    for record in &mut records {
        let id = &mut record.body.record_id;
        if !taken.insert(id.clone()) {
            *id = RecordId::new(format!("{id} too"))?;
        }
    }
    Ok(records)
}

/// The head of a run.
pub fn head(store: &Store, run_id: RunId<&str>) -> anyhow::Result<Head> {
    let row: Option<runs::RunRow> = store.get(&runs::key(run_id))?;
    Ok(row.map(|row| row.head).unwrap_or_default())
}

/// Gives a record, and the records of a batch, the next numbers after `head`.
pub fn number(record: &mut JournalRecord, head: &Head) {
    let writer: OrEmpty<WriterId> = OrEmpty(WriterId::new("writer".to_owned()).ok());
    let mut next = (head.next_writer_seq, head.next_journal_seq);
    let mut give = |record: &mut JournalRecord, consumes: bool| {
        let kind = record.body.record_kind;
        let place = &mut record.place;
        place.writer_id = if head.epoch == Epoch::ZERO { writer.clone() } else { head.writer_id.clone() };
        place.writer_epoch = head.epoch;
        place.writer_seq = if kind.unclaimed() { WriterSeq::ZERO } else { next.0 };
        place.journal_seq = if kind.numbered() { next.1 } else { JournalSeq::ZERO };
        if consumes {
            next.0 = next.0.saturating_add(u64::from(!kind.unclaimed()));
            next.1 = next.1.saturating_add(u64::from(kind.numbered()));
        }
    };
    give(record, false);
    if let Payload::Batch(batch) = &mut record.payload {
        batch.records.iter_mut().for_each(|record| give(record, true));
    }
}

//! `checkpoints`: by rank and by id.

use super::{At, Changes};
use crate::store::{
    self, Rows,
    checkpoints::{CheckpointRow, by_id, key},
};
use runlog_schemas::{codec::Envelope, record::RecordKind};

/// Takes in a loop checkpoint. Runs behind `runs`, which counts the record.
pub fn applied<R: Rows>(record: &Envelope<'_>, at: At<'_>, changes: &mut Changes<'_, R>) -> Result<(), store::Error> {
    // The contract's own checkpoints are records like any other: they hold no messages to go on from.
    if record.kind != RecordKind::LoopCheckpoint {
        return Ok(());
    }
    let facts = &record.facts;
    let (Some(id), Some(covers)) = (&facts.checkpoint_id, facts.covers_journal_seq) else { return Ok(()) };
    let run: Option<store::runs::RunRow> = changes.get(&store::runs::key(record.run_id))?;
    let row = CheckpointRow {
        checkpoint_id: id.clone(),
        covers_journal_seq: covers,
        checkpoint_seq: facts.checkpoint_seq.unwrap_or_default(),
        created_at_millis: facts.created_at_millis.unwrap_or_default(),
        offset: at.offset,
        index: at.index,
        records: run.map(|run| run.head.records).unwrap_or_default(),
    };
    changes.put(key(record.run_id, &row), &row);
    changes.put(by_id(record.run_id, id), &row);
    Ok(())
}

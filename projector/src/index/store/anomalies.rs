//! `anomalies`: refused records, by position, by run, and (if refused for their content) by record id; and repeats of
//! refused records, by position.

use super::{
    index::{Index, KeyPart, OFFSET, RECORD, RECORD_INDEX, RUN_ID, RowFamily},
    key::Key,
};
use runlog_schemas::{
    datum,
    id::{ContentHash, Epoch, Offset, OrEmpty, RecordId, RunId, WriterId},
    judge::{FirstJudgement, Reason},
};

/// The index.
pub const INDEX: Index = Index::new(
    6,
    "anomalies",
    &[
        RowFamily::new::<AnomalyRow>(0, "anomalies", &[OFFSET, RECORD_INDEX]),
        RowFamily::empty(1, "by_run", &[RUN_ID, OFFSET, RECORD_INDEX]),
        RowFamily::new::<FirstJudgement>(2, "by_id", &[RUN_ID, RECORD]),
        RowFamily::new::<FirstJudgement>(3, "by_content", &[RUN_ID, RECORD, KeyPart::Hash("content_hash")]),
        RowFamily::new::<FirstJudgement>(4, "repeats", &[RUN_ID, OFFSET]),
    ],
);

/// An anomaly by position.
pub fn key(offset: Offset, index: u32) -> Key {
    Key::new(INDEX, 0).offset(offset).u32(index)
}

/// All anomalies.
pub fn prefix() -> Key {
    Key::new(INDEX, 0)
}

/// An anomaly of a run by position; the row is empty.
pub fn of_run(run_id: RunId<&str>, offset: Offset, index: u32) -> Key {
    run_prefix(run_id).offset(offset).u32(index)
}

/// A run's anomalies.
pub fn run_prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 1).text(run_id)
}

/// The first judgement of a record id whose content was refused (`judge::FirstJudgement`).
pub fn by_id(run_id: RunId<&str>, record_id: RecordId<&str>) -> Key {
    Key::new(INDEX, 2).text(run_id).text(record_id)
}

/// All such judgements.
pub fn by_ids() -> Key {
    Key::new(INDEX, 2)
}

/// The first judgement of a refused record whose id already belongs to other content (`judge::FirstJudgement`).
pub fn by_content(run_id: RunId<&str>, record_id: RecordId<&str>, content: ContentHash) -> Key {
    Key::new(INDEX, 3).text(run_id).text(record_id).hash(&content.0)
}

/// The refused record that the record at a position repeats (`judge::FirstJudgement`). The record id alone does not
/// identify which of several contents it repeats.
pub fn repeat(run_id: RunId<&str>, offset: Offset) -> Key {
    Key::new(INDEX, 4).text(run_id).offset(offset)
}

/// An anomaly.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AnomalyRow {
    /// The run that the record names.
    pub run_id: RunId,
    /// The record's id.
    pub record_id: RecordId,
    /// Why it was refused.
    pub reason: Reason,
    /// Its writer.
    pub writer_id: OrEmpty<WriterId>,
    /// Its writer's epoch.
    pub writer_epoch: Epoch,
}
datum!(AnomalyRow { run_id, record_id, reason, writer_id, writer_epoch });

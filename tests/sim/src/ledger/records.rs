//! What the observer keeps of the log's records.

use crate::ambient;
use runlog_schemas::{id::Offset, payload::RunClaim, record::JournalRecord};

/// A record in the log.
#[derive(Clone, Debug)]
pub(super) struct Landed {
    pub(super) record: JournalRecord,
    /// When it was appended, milliseconds. In a stopped partition it is judged later.
    pub(super) appended: u64,
    /// The model's outcome; empty until it is judged.
    pub(super) outcome: String,
    pub(super) reason: Option<String>,
    /// A skip voids it.
    pub(super) was_skipped: bool,
}

impl Landed {
    /// A record that is appended now.
    pub(super) fn new(record: JournalRecord) -> Self {
        let appended = ambient::elapsed_millis();
        Self { record, appended, outcome: String::new(), reason: None, was_skipped: false }
    }
}

/// A claim that won.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) life: Option<u32>,
    pub(super) writer: String,
    pub(super) epoch: u64,
    pub(super) at: u64,
    pub(super) offset: Offset,
}

impl Claim {
    /// A claim that is applied now.
    pub(super) fn new(claim: &RunClaim, offset: Offset) -> Self {
        let life = claim.claimed_by.strip_prefix("life-").and_then(|life| life.parse().ok());
        let (writer, epoch) = (claim.writer_id.as_str().to_owned(), claim.epoch.get());
        Self { life, writer, epoch, at: ambient::elapsed_millis(), offset }
    }
}

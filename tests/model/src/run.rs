//! A run as the list of all records that were judged. It has no other state: every question walks the list. Two walks
//! keep their results until an entry is added, so that a million histories can be walked.

use crate::{
    effects::Effect,
    hashes,
    lifecycles::Item,
    record::{inner, needs_claim, number, numbered, payload_type, same_content, text},
    rule::{Rule, Rules},
};
use serde_json::Value;
use std::{cell::RefCell, sync::Arc};

/// Why a record has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Not the run's writer.
    Fenced,
    /// A number that skips the next one.
    Gap,
    /// A number or an id again, with other content.
    Conflict,
    /// Not the next `journal_seq`.
    Sequence,
    /// An illegal step of a lifecycle.
    Transition,
    /// A checkpoint whose references are missing.
    Checkpoint,
    /// After the run's end.
    Ended,
    /// A commit of a write-back that is not staged.
    NotStaged,
    /// An invalid batch.
    Batch,
    /// Not the run's partition.
    WrongPartition,
    /// A decision that was made at an earlier state of its effect.
    StaleDecision,
    /// An intent that refuses to start while an earlier epoch's call waits for a decision.
    Unresolved,
    /// A record about an effect that another handle started.
    NotStartedHere,
}

impl Reason {
    /// The name in answers.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Gap => "gap",
            Self::Conflict => "conflict",
            Self::Sequence => "sequence",
            Self::Transition => "transition",
            Self::Checkpoint => "checkpoint",
            Self::Ended => "ended",
            Self::NotStaged => "not_staged",
            Self::Batch => "batch",
            Self::WrongPartition => "wrong_partition",
            Self::StaleDecision => "stale_decision",
            Self::Unresolved => "unresolved",
            Self::NotStartedHere => "not_started_here",
        }
    }

    /// Whether the place was wrong and not the content: such a record consumes no number and may come again.
    pub(crate) fn may_be_resent(self) -> bool {
        matches!(self, Self::Fenced | Self::Gap)
    }
}

/// The outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is applied.
    Applied,
    /// The entry with that index has the same content.
    Repeat(usize),
    /// It is not applied.
    Refused(Reason),
    /// An operator skipped it.
    Skipped {
        /// What it leaves.
        traces: Traces,
        /// Whether its skip takes a number back, or an applied record.
        renumbers: bool,
        /// The skip's own offset.
        by: u64,
    },
}

/// Of which records of a skipped delivery the effects keep a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traces {
    /// Of all: it would have been applied, or another skip displaced it.
    All,
    /// Of results only: they would have been evidence.
    Results,
    /// Of results that only decisions with a basis read.
    Uncounted,
    /// Of none: no effect had a trace of it.
    Nothing,
}

/// A record's place in its writer's order and in the run's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    writer_id: String,
    writer_epoch: u64,
    writer_seq: u64,
    /// How many of its writer's numbers it consumes.
    takes: u64,
    /// Its `journal_seq`s: for a batch one for each numbered record within.
    numbers: Vec<u64>,
}

impl Place {
    pub(crate) fn from_record(record: &Value) -> Self {
        let batch = payload_type(record) == "batch";
        let records = if batch { inner(record) } else { std::slice::from_ref(record) };
        let takes = if needs_claim(record) { records.len().max(1) as u64 } else { 0 };
        Self {
            writer_id: text(record, "/writer_id").to_owned(),
            writer_epoch: number(record, "/writer_epoch"),
            writer_seq: number(record, "/writer_seq"),
            takes,
            numbers: records.iter().filter(|record| numbered(record)).map(|one| number(one, "/journal_seq")).collect(),
        }
    }
}

/// One judged record. An applied batch has an entry for itself (`envelope`) and then one for each record within.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    pub(crate) index: u32,
    pub(crate) log_millis: i64,
    pub(crate) record: Arc<Value>,
    /// Its place. An applied batch's own place consumes no number: the records within have entries of their own.
    pub(crate) place: Place,
    /// The version of the schema that the record is written in.
    pub(crate) version: u16,
    /// The record's payload type.
    pub(crate) kind: String,
    /// The record's id.
    pub(crate) id: String,
    /// For a batch one for each record within; empty without an encoder.
    pub(crate) datums: Vec<String>,
    /// The record's content hash, for a batch one for each record within; empty without an encoder.
    pub(crate) contents: Vec<String>,
    /// The principal that a server wrote beside a claim.
    pub(crate) claimant: Option<String>,
    pub(crate) verdict: Verdict,
    pub(crate) envelope: bool,
}

impl Entry {
    /// Whether the record is applied and no envelope.
    pub(crate) fn counts(&self) -> bool {
        self.verdict == Verdict::Applied && !self.envelope
    }

    /// The content hash of its record, or of the record within it at an index.
    pub(crate) fn content(&self, index: u32, record: &Value) -> String {
        self.contents.get(index as usize).cloned().unwrap_or_else(|| hashes::unencoded(record))
    }

    /// Whether it was judged by its content, so that the same content again is a repeat.
    pub(crate) fn judged_by_content(&self) -> bool {
        match self.verdict {
            Verdict::Applied => true,
            Verdict::Refused(reason) => !reason.may_be_resent(),
            Verdict::Repeat(_) | Verdict::Skipped { .. } => false,
        }
    }

    /// Its records: itself, or the records of a batch.
    pub(crate) fn records(&self) -> &[Value] {
        if self.kind == "batch" { inner(&self.record) } else { std::slice::from_ref(&*self.record) }
    }
}

/// Who writes a run: the last applied claim's epoch and writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) epoch: u64,
    pub(crate) id: Option<String>,
}

impl Writer {
    /// Whether a place is this writer's. Before any claim everybody writes at epoch 0.
    pub(crate) fn has(&self, place: &Place) -> bool {
        place.writer_epoch == self.epoch && self.id.as_ref().is_none_or(|id| *id == place.writer_id)
    }

    /// Whether a record is this writer's.
    pub(crate) fn wrote(&self, record: &Value) -> bool {
        self.has(&Place::from_record(record))
    }
}

/// The result of a walk over a list, valid while the list has that length.
#[derive(Clone, Debug)]
pub(crate) struct Walked<T>(RefCell<Option<(usize, Arc<Vec<T>>)>>);

impl<T> Default for Walked<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> Walked<T> {
    /// The result of the walk over `length` items.
    pub(crate) fn over(&self, length: usize, walk: impl FnOnce() -> Vec<T>) -> Arc<Vec<T>> {
        if let Some((walked, result)) = &*self.0.borrow()
            && *walked == length
        {
            return Arc::clone(result);
        }
        let result = Arc::new(walk());
        *self.0.borrow_mut() = Some((length, Arc::clone(&result)));
        result
    }
}

/// A run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) entries: Vec<Entry>,
    /// The offset of the record that is judged now.
    pub(crate) at: u64,
    pub(crate) effects: Walked<Effect>,
    pub(crate) items: Walked<Item>,
}

impl Run {
    /// The applied records, in log order.
    pub(crate) fn applied_entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.counts())
    }

    /// The applied records of a payload type.
    pub(crate) fn of_type(&self, name: &str) -> impl Iterator<Item = &Entry> {
        self.applied_entries().filter(move |entry| entry.kind == name)
    }

    /// Whether the record that is judged now is between a skipped claim and its skip: nobody writes the run there.
    pub(crate) fn unclaimed(&self, rules: &Rules) -> bool {
        let until = self.entries.iter().filter_map(crate::effects::claim_skipped_by).max();
        rules.fires(Rule::SkippedClaim, until.is_some_and(|until| self.at < until))
    }

    /// Who writes it.
    pub(crate) fn writer(&self) -> Writer {
        let claim = self.of_type("run_claim").last();
        claim.map_or_else(Writer::default, |claim| Writer {
            epoch: number(&claim.record, "/writer_epoch"),
            id: Some(text(&claim.record, "/writer_id").to_owned()),
        })
    }

    /// The epoch of the first of the last handle's consecutive claims. A claim is of the same handle if it shows the secret that the
    /// claim before it committed to.
    pub(crate) fn handle_since(&self, rules: &Rules) -> u64 {
        let (mut since, mut before) = (0, None);
        for claim in self.of_type("run_claim") {
            let fact = |name: &str| text(&claim.record, &format!("/facts/{name}"));
            let same =
                before.is_some_and(|commitment| hashes::commitment(fact("shown")).as_deref() == Some(commitment));
            if !rules.fires(Rule::SecretShown, same) {
                since = number(&claim.record, "/writer_epoch");
            }
            before = Some(fact("commitment")).filter(|commitment| !commitment.is_empty());
        }
        since
    }

    /// The next `writer_seq` of the epoch.
    pub(crate) fn next_writer_seq(&self, rules: &Rules) -> u64 {
        let (mut next, mut unclaimed_until) = (1, None);
        let mut writer = Writer::default();
        for entry in &self.entries {
            unclaimed_until = unclaimed_until.max(crate::effects::claim_skipped_by(entry));
            if rules.fires(Rule::SkippedClaim, unclaimed_until.is_some_and(|until| entry.offset < until)) {
                continue;
            }
            if entry.counts() && entry.kind == "run_claim" {
                writer = Writer {
                    epoch: number(&entry.record, "/writer_epoch"),
                    id: Some(text(&entry.record, "/writer_id").to_owned()),
                };
                next = 1;
                continue;
            }
            let place = &entry.place;
            let is_next = place.takes > 0 && place.writer_seq == next;
            let own = writer.has(place);
            let consumes = match entry.verdict {
                Verdict::Applied => own,
                Verdict::Refused(reason) => {
                    own && !reason.may_be_resent() && rules.fires(Rule::RefusalConsumesWriterSeq, is_next)
                }
                Verdict::Repeat(_) => {
                    !rules.fires(Rule::RepeatOfOtherEpoch, is_next && !own)
                        && rules.fires(Rule::RepeatConsumes, is_next)
                }
                Verdict::Skipped { .. } => false,
            };
            if is_next && consumes {
                next += place.takes;
            }
        }
        next
    }

    /// The next `journal_seq`.
    pub(crate) fn next_journal_seq(&self, rules: &Rules) -> u64 {
        self.next_journal_seq_after(rules, self.entries.len())
    }

    /// The next `journal_seq` after the first `count` entries.
    pub(crate) fn next_journal_seq_after(&self, rules: &Rules, count: usize) -> u64 {
        let mut next = 1;
        for entry in &self.entries[..count] {
            for number in &entry.place.numbers {
                let is_next = *number == next;
                let consumes = match entry.verdict {
                    Verdict::Applied => true,
                    Verdict::Refused(reason) => {
                        !reason.may_be_resent() && rules.fires(Rule::RefusalConsumesJournalSeq, is_next)
                    }
                    Verdict::Repeat(_) | Verdict::Skipped { .. } => false,
                };
                next += u64::from(is_next && consumes);
            }
        }
        next
    }

    /// The run's status: `open`, or how it ended.
    pub(crate) fn status(&self, rules: &Rules) -> &'static str {
        self.end(rules).and_then(|at| ends_as(rules, &self.entries[at].record)).unwrap_or("open")
    }

    /// The entry that ended the run.
    pub(crate) fn end(&self, rules: &Rules) -> Option<usize> {
        self.entries.iter().position(|entry| entry.counts() && ends_as(rules, &entry.record).is_some())
    }

    /// The last entry with this id and this content that was judged by its content.
    pub(crate) fn same(&self, record: &Value) -> Option<usize> {
        let id = text(record, "/record_id");
        let same = |entry: &Entry| entry.judged_by_content() && entry.id == id && same_content(&entry.record, record);
        self.entries.iter().rposition(same)
    }

    /// The entry of the first content under an id.
    pub(crate) fn by_id(&self, id: &str) -> Option<&Entry> {
        let first = self.entries.iter().find(|entry| entry.judged_by_content() && entry.id == id)?;
        self.same(&first.record).map(|at| &self.entries[at])
    }

    /// Whether a record is judged again: version 2 of a record that was refused for its numbers.
    pub(crate) fn judges_anew(&self, record: &Value, version: u16) -> bool {
        let judged = self.by_id(text(record, "/record_id"));
        version >= 2
            && judged.is_some_and(|entry| {
                matches!(entry.verdict, Verdict::Refused(Reason::Conflict | Reason::Sequence))
                    && same_content(&entry.record, record)
            })
    }

    /// Whether a record of this id was judged.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.entries.iter().any(|entry| entry.judged_by_content() && entry.id == id)
    }
}

/// How a record ends its run: the contract's lifecycle, or its terminal marker.
fn ends_as(rules: &Rules, record: &Value) -> Option<&'static str> {
    let status = match payload_type(record) {
        "run_lifecycle" => text(record, "/payload/status"),
        "terminal_result" => text(record, "/payload/terminal_status"),
        _ => return None,
    };
    let end = match status {
        "completed" | "run_completed" => "completed",
        "failed" | "run_failed" => "failed",
        "cancelled" | "run_cancelled" => "cancelled",
        _ => return None,
    };
    let marker = payload_type(record) == "terminal_result";
    (!marker || rules.fires(Rule::MarkerEndsRun, true)).then_some(end)
}

//! The calls that the checkpoint of a recovery covers. A run may have many of them, so opening it reads none. They are added before
//! a call that one of them may answer.
//!
//! ```text
//!   call with a key     ─▶ its first request in the log, looked up
//!                            └─ the list, if the request does not settle which recorded call answers
//!   call without a key  ─▶ the list, unless the process resumes at the checkpoint
//! ```

use super::{CallKey, RecordedCall, Replay, RequestOrder, done_key, pending_key};
use runlog_schemas::{
    answer::{Done, Lookup, LookupStatus, OrOther, Pending, Position, Recovery},
    id::{Fingerprint, JournalSeq, RecordId},
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The state of the covered calls.
#[derive(Debug, Default)]
pub(super) struct Covered {
    /// The last `journal_seq` that the checkpoint covers, inclusive; 0 without a checkpoint.
    covers: JournalSeq,
    /// The run's last record as of the recovery.
    position: Option<Position>,
    /// Whether [`Replay::add_covered`] must add calls before all of them can be found.
    is_incomplete: bool,
    /// Whether the process resumes at the checkpoint.
    is_skipped: bool,
    /// The requests of the recovery: pending, not covered by the checkpoint, or listed there as unanswered.
    recovered: BTreeMap<RecordId, RequestOrder>,
    /// The requests that the checkpoint lists as unanswered.
    listed: HashSet<RecordId>,
    /// The keys whose covered call is added, or absent.
    settled: HashSet<(String, String)>,
    /// Added and pending requests without a key that were not taken yet. Empty if the process resumes at the checkpoint. Otherwise the
    /// process starts at the run's beginning, and has not received their answers.
    pub(super) keyless: HashMap<RecordId, RequestOrder>,
}

impl Covered {
    pub(super) fn new(recovery: &Recovery, recovered: &BTreeMap<RecordId, RequestOrder>) -> Self {
        let Some(checkpoint) = recovery.checkpoint.as_ref().filter(|of| of.covers_journal_seq != JournalSeq::ZERO)
        else {
            return Self::default();
        };
        let covers = checkpoint.covers_journal_seq;
        let (position, listed) = (Some(recovery.position.clone()), checkpoint.unanswered.iter().cloned().collect());
        let recovered = recovered.clone();
        Self { covers, position, is_incomplete: true, recovered, listed, ..Self::default() }
    }

    /// Whether the checkpoint covers a pending request without a key as answered. The journal refused its result later, or a skip
    /// voids it.
    fn has_answered(&self, pending: &Pending) -> bool {
        pending_key(pending).is_none() && pending.journal_seq <= self.covers && !self.listed.contains(&pending.id)
    }

    /// Notes a request that is added as pending: a list of covered calls adds it no second time.
    pub(super) fn note_recovered(&mut self, pending: &Pending) {
        self.recovered.entry(pending.id.clone()).or_insert(pending.into());
    }

    /// Whether this process resumes at the checkpoint and has the answer of a pending request in its messages.
    pub(super) fn holds_answer(&self, pending: &Pending) -> bool {
        self.is_skipped && self.has_answered(pending)
    }
}

impl Replay {
    /// Marks the pending requests that the checkpoint covers as answered.
    pub(super) fn mark_covered(&mut self, pending: &[Pending]) {
        for pending in pending {
            if self.covered.has_answered(pending) {
                self.covered.keyless.extend(self.unanswered.remove_entry(&pending.id));
            }
        }
    }

    /// Resumes at the checkpoint: from now on, covered requests answer no call without a key.
    pub(crate) fn resume_at_checkpoint(&mut self) {
        self.covered.is_skipped = true;
        let covered = std::mem::take(&mut self.covered.keyless);
        if !covered.is_empty() {
            self.keyless.values_mut().for_each(|queue| queue.retain(|recorded| !covered.contains_key(&recorded.id)));
        }
    }

    /// Whether a covered call that is not added yet may answer a call: a key identifies its call forever, and a process may
    /// start at the run's beginning.
    pub(crate) fn needs_covered(&self, key: &CallKey) -> bool {
        self.covered.is_incomplete
            && match key {
                Some(key) => !self.covered.settled.contains(key),
                None => !self.covered.is_skipped,
            }
    }

    /// The last `journal_seq` that the checkpoint covers, inclusive; 0 without a checkpoint.
    pub(crate) fn covers(&self) -> JournalSeq {
        self.covered.covers
    }

    /// The position that a lookup must include: the index has all covered calls there, and their ends.
    pub(crate) fn covered_up_to(&self) -> Option<&Position> {
        self.covered.position.as_ref()
    }

    /// Adds the covered call with a key, by the first request with that key in the log. `None` is a key without a request at
    /// [`Replay::covered_up_to`]. Returns `false` if only the list of all covered calls shows which call answers.
    pub(crate) fn add_looked_up(&mut self, key: &(String, String), first: Option<&Lookup>) -> bool {
        let is_settled = first.is_none_or(|first| self.add_first(key, first));
        if is_settled {
            self.covered.settled.insert(key.clone());
        }
        is_settled
    }

    fn add_first(&mut self, key: &(String, String), first: &Lookup) -> bool {
        let Some(id) = first.request_record_id.clone() else { return false };
        let has_ended = matches!(first.status, OrOther::Known(LookupStatus::Completed | LookupStatus::Failed));
        if let Some(order) = self.covered.recovered.get(&id) {
            // A pending request that the checkpoint covers may precede a covered one that has ended.
            return has_ended || order.journal_seq > self.covered.covers;
        }
        // A later end may be another process's: this handle must notice that it lost the run.
        let is_after = |end: &Position| self.covered.position.as_ref().is_none_or(|last| end.offset > last.offset);
        if !has_ended || first.position.as_ref().is_none_or(is_after) {
            return false;
        }
        let call = RecordedCall { id, fingerprint: first.fingerprint.clone(), pending: None };
        self.keyed.insert(key.clone(), call);
        true
    }

    /// Adds all covered calls, from a list of the run's ended calls. They precede the others.
    pub(crate) fn add_covered(&mut self, ended: &[Done]) {
        self.covered.is_incomplete = false;
        let mut keyed: HashMap<(String, String), &Done> = HashMap::new();
        let mut keyless: HashMap<&Fingerprint, Vec<&Done>> = HashMap::new();
        let mut ended: Vec<&Done> = ended.iter().filter(|done| self.is_covered(done)).collect();
        ended.sort_by_key(|done| RequestOrder::from(*done));
        for done in ended {
            match done_key(done) {
                Some(key) => drop(keyed.entry(key).or_insert(done)),
                None if self.covered.is_skipped => {}
                None => keyless.entry(&done.fingerprint).or_default().push(done),
            }
        }
        for (key, done) in keyed {
            if !self.covered.settled.contains(&key) && self.precedes(done, self.keyed.get(&key)) {
                self.keyed.insert(key, RecordedCall::from_done(done));
            }
        }
        for (fingerprint, all) in keyless {
            self.covered.keyless.extend(all.iter().map(|done| (done.id.clone(), RequestOrder::from(*done))));
            let queue = self.keyless.entry(fingerprint.clone()).or_default();
            queue.extend(all.into_iter().map(RecordedCall::from_done));
            let order = |recorded: &RecordedCall| {
                self.covered.keyless.get(&recorded.id).or_else(|| self.unanswered.get(&recorded.id)).copied()
            };
            queue.make_contiguous().sort_by_key(order);
        }
    }

    fn is_covered(&self, done: &Done) -> bool {
        done.journal_seq <= self.covered.covers && !self.covered.recovered.contains_key(&done.id)
    }

    /// Whether a covered call answers before the known request with its key.
    fn precedes(&self, done: &Done, known: Option<&RecordedCall>) -> bool {
        let Some(known) = known else { return true };
        let first = self.covered.recovered.get(&known.id);
        known.pending.is_some() || first.is_none_or(|first| *first > RequestOrder::from(done))
    }
}

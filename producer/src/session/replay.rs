//! Decides which recorded call answers a call that an agent makes, and so whether an effect runs again. Pure.
//!
//! A call without a key takes the earliest request without a key that has its fingerprint and was not taken yet. A
//! process that resumes at the checkpoint takes no request that the checkpoint covers. A call with a key takes the
//! request with that key in its tool. Without a matching request, the call is new.
//!
//! A request is identified by its record id alone. After a skip, void calls and an applied call can have one
//! `journal_seq`. Requests of one fingerprint are therefore ordered by their occurrence, too ([`RequestOrder`]).
//!
//! The calls that the checkpoint covers are added later, before a call that one of them may answer ([`covered`]).

use covered::Covered;
use expected::Expected;
use runlog_schemas::{
    answer::{Done, Pending, Recovery},
    id::{Fingerprint, JournalSeq, RecordId},
    judge::Class,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

mod covered;
mod expected;

/// The tool and the idempotency key of a call that has one.
pub(crate) type CallKey = Option<(String, String)>;

/// The key of a recorded call. An empty key, which older clients wrote, counts as no key.
fn call_key(tool: &str, key: Option<&str>) -> CallKey {
    key.filter(|key| !key.is_empty()).map(|key| (tool.to_owned(), key.to_owned()))
}

/// The key of a pending call.
pub(crate) fn pending_key(pending: &Pending) -> CallKey {
    call_key(&pending.tool_name, pending.idempotency_key.as_deref())
}

/// The key of a call that has ended.
fn done_key(done: &Done) -> CallKey {
    call_key(&done.tool_name, done.idempotency_key.as_deref())
}

/// Orders requests of one fingerprint as the log has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RequestOrder {
    journal_seq: JournalSeq,
    /// Which request of the fingerprint, from 1. Void calls can have one `journal_seq`.
    occurrence: u32,
}

impl RequestOrder {
    /// The order of a request that this handle appended. Void calls with its number precede it in the log.
    fn of_appended(journal_seq: JournalSeq) -> Self {
        Self { journal_seq, occurrence: u32::MAX }
    }
}

impl From<&Done> for RequestOrder {
    fn from(&Done { journal_seq, occurrence, .. }: &Done) -> Self {
        Self { journal_seq, occurrence }
    }
}

impl From<&Pending> for RequestOrder {
    fn from(&Pending { journal_seq, occurrence, .. }: &Pending) -> Self {
        Self { journal_seq, occurrence }
    }
}

/// A request in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedCall {
    pub(crate) id: RecordId,
    pub(crate) fingerprint: Fingerprint,
    /// `None` once it has ended.
    pub(crate) pending: Option<PendingCall>,
}

/// A request whose end is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingCall {
    /// The effect may run again.
    pub(crate) retry_safe: bool,
    pub(crate) reason: String,
    /// How often the effect was started.
    pub(crate) attempts: u32,
}

impl RecordedCall {
    /// A call that has ended.
    fn from_done(done: &Done) -> Self {
        Self { id: done.id.clone(), fingerprint: done.fingerprint.clone(), pending: None }
    }

    /// A pending effect of the journal. `None` for an effect without a fingerprint, which no call of an agent can match.
    pub(crate) fn from_pending(pending: &Pending) -> Option<Self> {
        let Pending { id, fingerprint, .. } = pending.clone();
        Some(Self { id, fingerprint: fingerprint?, pending: Some(pending.into()) })
    }
}

impl From<&Pending> for PendingCall {
    fn from(Pending { class, reason, attempts, .. }: &Pending) -> Self {
        Self { retry_safe: *class == Class::RetrySafe, reason: reason.clone(), attempts: *attempts }
    }
}

/// The recorded call that answers a call, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// No recorded call answers it.
    New,
    /// This recorded call answers it, completed or pending.
    Recorded(RecordedCall),
    /// The key belongs to this request, which has other arguments.
    Conflict(RecordId),
}

/// The recorded calls of a run that a resumed agent has not requested yet.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    keyless: HashMap<Fingerprint, VecDeque<RecordedCall>>,
    keyed: HashMap<(String, String), RecordedCall>,
    /// Requests whose answer this agent has not received.
    unanswered: BTreeMap<RecordId, RequestOrder>,
    /// Requests that were answered in the busy period `period`, which a message list of that period may lack. With `receipts`, requests
    /// that were answered and whose answers the agent has not confirmed.
    answered: BTreeMap<RecordId, RequestOrder>,
    covered: Covered,
    expected: Expected,
    /// See [`shared`](super::shared).
    period: u64,
    /// Whether `answered` keeps each request until [`Replay::mark_received`], not only until the busy period ends.
    receipts: bool,
    /// Pending requests whose effect may have happened and must not run again before that is decided.
    unresolved: BTreeSet<RecordId>,
    /// Requests without a key that have answered a call of this agent. They answer no other call, even if the journal refuses their
    /// result or a skip voids it, so that they are pending again.
    used: HashMap<RecordId, Option<RequestOrder>>,
}

impl Replay {
    /// Builds the replay from a recovery with all pages merged, without the calls that its checkpoint covers.
    pub(crate) fn new(recovery: &Recovery) -> Self {
        let mut all: Vec<(RequestOrder, CallKey, RecordedCall)> = Vec::new();
        for done in &recovery.completed {
            all.push((done.into(), done_key(done), RecordedCall::from_done(done)));
        }
        let mut replay = Self::default();
        for pending in &recovery.pending {
            // Possibly no call can match it, and no new effect runs until it is decided.
            replay.mark_uncertain(pending.id.borrow(), pending.class == Class::RetrySafe);
            if let Some(recorded) = RecordedCall::from_pending(pending) {
                all.push((pending.into(), pending_key(pending), recorded));
            }
        }
        // Of several requests with one key, an ended one answers: its effect does not run again.
        all.sort_by_key(|(order, key, recorded)| (key.is_some() && recorded.pending.is_some(), *order));
        for (order, key, recorded) in all {
            replay.unanswered.insert(recorded.id.clone(), order);
            match key {
                Some(key) => {
                    replay.keyed.entry(key).or_insert(recorded);
                }
                None => replay.keyless.entry(recorded.fingerprint.clone()).or_default().push_back(recorded),
            }
        }
        replay.covered = Covered::new(recovery, &replay.unanswered);
        replay.mark_covered(&recovery.pending);
        replay.expected = Expected::new(recovery);
        replay
    }

    /// Sets whether answers need receipts.
    pub(crate) fn with_receipts(self, receipts: bool) -> Self {
        Self { receipts, ..self }
    }

    /// Finds the recorded call that answers a call. Removes a recorded call without a key, since it answers only one
    /// call.
    pub(crate) fn take(&mut self, tool: &str, key: Option<&str>, fingerprint: Fingerprint<&str>) -> Decision {
        let recorded = match key {
            Some(key) => self.keyed.get(&(tool.to_owned(), key.to_owned())).cloned(),
            None => self.keyless.get_mut(fingerprint.as_str()).and_then(VecDeque::pop_front),
        };
        if let Some(taken) = recorded.as_ref().and_then(|recorded| self.covered.keyless.remove_entry(&recorded.id)) {
            self.unanswered.extend([taken]);
        }
        match recorded {
            None => Decision::New,
            Some(recorded) if recorded.fingerprint != fingerprint => Decision::Conflict(recorded.id),
            Some(recorded) => {
                self.expected.mark_requested(&recorded.id);
                Decision::Recorded(recorded)
            }
        }
    }

    /// Puts back a request that was taken and whose answer did not reach the agent. It answers a call again, in the order of the
    /// log.
    pub(crate) fn put_back(&mut self, key: CallKey, recorded: RecordedCall) {
        if let Some(order) = self.used.remove(&recorded.id).flatten() {
            self.answered.remove(&recorded.id);
            self.unanswered.insert(recorded.id.clone(), order);
        }
        let Some(key) = key else { return self.insert_keyless(recorded) };
        self.keyed.insert(key, recorded);
    }

    fn insert_keyless(&mut self, recorded: RecordedCall) {
        let order_of = |id: &RecordId| self.unanswered.get(id).or_else(|| self.covered.keyless.get(id)).copied();
        let order = order_of(&recorded.id);
        let queue = self.keyless.entry(recorded.fingerprint.clone()).or_default();
        let at = queue.iter().position(|other| order_of(&other.id) > order).unwrap_or(queue.len());
        queue.insert(at, recorded);
    }

    /// As [`Replay::put_back`], whether or not the request was taken before.
    pub(crate) fn restore(&mut self, key: CallKey, recorded: RecordedCall) {
        if let Some(queue) = self.keyless.get_mut(&recorded.fingerprint) {
            queue.retain(|other| other.id != recorded.id);
        }
        match &recorded.pending {
            Some(open) if !open.retry_safe => drop(self.unresolved.insert(recorded.id.clone())),
            _ => drop(self.unresolved.remove(&recorded.id)),
        }
        self.put_back(key, recorded);
    }

    /// Removes a request that is not in the journal: it was refused, or never appended.
    pub(crate) fn forget(&mut self, id: &RecordId) {
        self.unanswered.remove(id);
        self.answered.remove(id);
        self.unresolved.remove(id);
        self.keyed.retain(|_, recorded| recorded.id != *id);
        self.keyless.values_mut().for_each(|queue| queue.retain(|recorded| recorded.id != *id));
    }

    /// Whether the request can answer a call.
    fn contains(&self, key: Option<&(String, String)>, pending: &RecordedCall) -> bool {
        match key {
            Some(key) => self.keyed.contains_key(key),
            None => {
                let queue = self.keyless.get(&pending.fingerprint);
                queue.is_some_and(|queue| queue.iter().any(|recorded| recorded.id == pending.id))
            }
        }
    }

    /// Adds requests that are pending in the journal and missing here, unless `busy` says that a call is working on them: their
    /// append succeeded, but its acknowledgement was lost. A request whose answer the agent has only blocks new effects.
    pub(crate) fn adopt(&mut self, recovery: &Recovery, busy: impl Fn(&RecordId) -> bool) {
        for pending in recovery.pending.iter().filter(|pending| !busy(&pending.id)) {
            let is_used = self.used.contains_key(&pending.id) || self.covered.holds_answer(pending);
            let Some(recorded) = RecordedCall::from_pending(pending).filter(|_| !is_used) else {
                self.mark_uncertain(pending.id.borrow(), pending.class == Class::RetrySafe);
                continue;
            };
            self.covered.note_recovered(pending);
            if !self.covered.keyless.contains_key(&pending.id) {
                self.unanswered.entry(pending.id.clone()).or_insert(pending.into());
            }
            let key = pending_key(pending);
            if !self.contains(key.as_ref(), &recorded) {
                self.restore(key, recorded);
            }
        }
    }

    /// Adds a new request.
    pub(crate) fn add(&mut self, journal_seq: JournalSeq, tool: &str, key: Option<&str>, recorded: RecordedCall) {
        self.unanswered.insert(recorded.id.clone(), RequestOrder::of_appended(journal_seq));
        if let Some(key) = key {
            self.keyed.insert((tool.to_owned(), key.to_owned()), recorded);
        }
    }

    /// Marks that the agent receives the request's answer in this busy period.
    pub(crate) fn mark_answered(&mut self, id: RecordId<&str>, period: u64) {
        self.begin_period(period);
        let order = self.unanswered.remove(id.as_str());
        self.answered.extend(order.map(|order| (id.to_owned(), order)));
        self.unresolved.remove(id.as_str());
        match self.keyed.values_mut().find(|recorded| recorded.id == id) {
            Some(recorded) => recorded.pending = None,
            None => drop(self.used.entry(id.to_owned()).or_insert(order)),
        }
    }

    /// Marks an effect that may have happened and whose end is not recorded. Unless it is `retry_safe`, no new effect
    /// runs before it is decided.
    pub(crate) fn mark_uncertain(&mut self, id: RecordId<&str>, retry_safe: bool) {
        if !retry_safe {
            self.unresolved.insert(id.to_owned());
        }
    }

    /// Requests whose answer a message list of this busy period may lack, oldest first. Of different calls with one
    /// `journal_seq`, the order is arbitrary and stable.
    pub(crate) fn unanswered(&mut self, period: u64) -> Vec<RecordId> {
        self.begin_period(period);
        let all = self.unanswered.iter().chain(&self.answered).chain(&self.covered.keyless);
        let ordered: BTreeSet<_> = all.map(|(id, order)| (order, id)).collect();
        ordered.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// Starts a busy period. No call was in flight between two periods, so the agent has received all answers of
    /// earlier periods.
    fn begin_period(&mut self, period: u64) {
        if self.period != period {
            self.period = period;
            if !self.receipts {
                self.answered.clear();
            }
        }
    }

    /// Marks that the agent has received the request's answer: checkpoints no longer list it.
    pub(crate) fn mark_received(&mut self, id: RecordId<&str>) {
        self.answered.remove(id.as_str());
    }

    /// A pending request that blocks new effects, if any.
    pub(crate) fn unresolved(&self) -> Option<RecordId<&str>> {
        self.unresolved.first().map(RecordId::borrow)
    }

    /// Whether a pending request may run again only by a decision, which evidence can revoke.
    pub(crate) fn has_revocable(&self) -> bool {
        let is_safe = |recorded: &RecordedCall| recorded.pending.as_ref().is_some_and(|pending| pending.retry_safe);
        self.keyless.values().flatten().any(is_safe)
    }

    /// Updates requests from the journal: decisions and evidence may have been recorded in the meantime, and a skip may have voided
    /// an end.
    pub(crate) fn refresh(&mut self, recovery: &Recovery) {
        let still: BTreeMap<&str, &Pending> =
            recovery.pending.iter().map(|pending| (pending.id.as_str(), pending)).collect();
        self.unresolved.retain(|id| still.get(id.as_str()).is_some_and(|pending| pending.class != Class::RetrySafe));
        for recorded in self.keyless.values_mut().flatten().chain(self.keyed.values_mut()) {
            recorded.pending = still.get(recorded.id.as_str()).map(|pending| PendingCall::from(*pending));
            if recorded.pending.as_ref().is_some_and(|pending| !pending.retry_safe) {
                self.unresolved.insert(recorded.id.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;

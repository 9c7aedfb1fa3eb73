//! Which recorded call answers a call that an agent makes. Pure.
//!
//! A call without key takes the earliest request of its fingerprint that the checkpoint does not cover, that has no key
//! and that was not taken yet. A call with a key takes what the key stands for in its tool. Where there is nothing, it is
//! a new call.

use runlog_schemas::{
    answer::{Done, Pending, Recovery},
    id::{Fingerprint, JournalSeq, RecordId},
};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// A request as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) id: RecordId,
    pub(crate) fingerprint: Fingerprint,
    /// None once it has ended.
    pub(crate) pending: Option<Open>,
}

/// A pending request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) retry_safe: bool,
    pub(crate) reason: String,
    /// How often the effect was started.
    pub(crate) attempts: u32,
}

impl Recorded {
    /// As the journal tells it; none for a contract's own effect, which no call of an agent answers.
    pub(crate) fn pending(pending: &Pending) -> Option<Self> {
        let Pending { id, fingerprint, reason, attempts, .. } = pending.clone();
        let open = Open { retry_safe: pending.class == "retry_safe", reason, attempts };
        Some(Self { id, fingerprint: fingerprint?, pending: Some(open) })
    }
}

/// What a call comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// Nothing recorded answers it.
    New,
    /// This request is its own.
    Taken(Recorded),
    /// The key stands for a call with other arguments.
    Conflict(RecordId),
}

/// What is recorded and not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    keyless: HashMap<Fingerprint, VecDeque<Recorded>>,
    keyed: HashMap<(String, String), Recorded>,
    /// Requests whose answer this agent has not received, oldest first by `journal_seq`.
    unanswered: BTreeMap<JournalSeq, RecordId>,
    /// Pending requests that nobody may run again without finding out first.
    unresolved: BTreeSet<RecordId>,
}

impl Resume {
    /// From a recovery whose pages were all read, and from ended calls of which those with a key count even where a
    /// checkpoint covers them.
    pub(crate) fn new(recovery: &Recovery, ended: &[Done]) -> Self {
        let mut all: Vec<(JournalSeq, String, Option<String>, Recorded)> = Vec::new();
        for Done { id, fingerprint, tool_name, journal_seq, idempotency_key, .. } in recovery.completed.iter().cloned()
        {
            all.push((journal_seq, tool_name, idempotency_key, Recorded { id, fingerprint, pending: None }));
        }
        let mut resume = Self::default();
        for pending in &recovery.pending {
            // Where no call can answer it, nothing new runs until somebody decides.
            resume.uncertain(pending.id.borrow(), pending.class == "retry_safe");
            if let Some(recorded) = Recorded::pending(pending) {
                let Pending { tool_name, journal_seq, idempotency_key, .. } = pending.clone();
                all.push((journal_seq, tool_name, idempotency_key, recorded));
            }
        }
        all.sort_by_key(|(journal_seq, ..)| *journal_seq);
        for done in ended {
            if let Some(key) = &done.idempotency_key {
                let recorded = Recorded { id: done.id.clone(), fingerprint: done.fingerprint.clone(), pending: None };
                resume.keyed.entry((done.tool_name.clone(), key.clone())).or_insert(recorded);
            }
        }
        for (journal_seq, tool, key, recorded) in all {
            resume.unanswered.insert(journal_seq, recorded.id.clone());
            match key {
                Some(key) => {
                    resume.keyed.entry((tool, key)).or_insert(recorded);
                }
                None => resume.keyless.entry(recorded.fingerprint.clone()).or_default().push_back(recorded),
            }
        }
        resume
    }

    /// Takes what answers the call, or nothing.
    pub(crate) fn take(&mut self, tool: &str, key: Option<&str>, fingerprint: Fingerprint<&str>) -> Match {
        let found = match key {
            Some(key) => self.keyed.get(&(tool.to_owned(), key.to_owned())).cloned(),
            None => self.keyless.get_mut(fingerprint.as_str()).and_then(VecDeque::pop_front),
        };
        match found {
            None => Match::New,
            Some(recorded) if recorded.fingerprint != fingerprint => Match::Conflict(recorded.id),
            Some(recorded) => Match::Taken(recorded),
        }
    }

    /// A request that was taken and whose answer did not come stands there again for the next call, under the tool and
    /// the key that it was made with.
    pub(crate) fn put_back(&mut self, key: Option<(String, String)>, recorded: Recorded) {
        match key {
            Some(key) => drop(self.keyed.insert(key, recorded)),
            None => self.keyless.entry(recorded.fingerprint.clone()).or_default().push_front(recorded),
        }
    }

    /// A request stands there for the next call, wherever it stood before.
    pub(crate) fn restore(&mut self, key: Option<(String, String)>, recorded: Recorded) {
        if let Some(queue) = self.keyless.get_mut(&recorded.fingerprint) {
            queue.retain(|other| other.id != recorded.id);
        }
        match &recorded.pending {
            Some(open) if !open.retry_safe => drop(self.unresolved.insert(recorded.id.clone())),
            _ => drop(self.unresolved.remove(&recorded.id)),
        }
        self.put_back(key, recorded);
    }

    /// The request is not in the journal: it was refused, or never landed.
    pub(crate) fn forget(&mut self, id: &RecordId) {
        self.unanswered.retain(|_, unanswered| unanswered != id);
        self.unresolved.remove(id);
        self.keyed.retain(|_, recorded| recorded.id != *id);
        self.keyless.values_mut().for_each(|queue| queue.retain(|recorded| recorded.id != *id));
    }

    /// Whether the request stands there, taken with a key or not taken yet.
    fn has(&self, key: Option<&(String, String)>, pending: &Recorded) -> bool {
        match key {
            Some(key) => self.keyed.contains_key(key),
            None => {
                let queue = self.keyless.get(&pending.fingerprint);
                queue.is_some_and(|queue| queue.iter().any(|recorded| recorded.id == pending.id))
            }
        }
    }

    /// Takes in what is pending in the journal and is nowhere here, unless `busy` says that somebody is at it: a call whose
    /// record landed though nobody was told.
    pub(crate) fn adopt(&mut self, recovery: &Recovery, busy: impl Fn(&RecordId) -> bool) {
        for pending in recovery.pending.iter().filter(|pending| !busy(&pending.id)) {
            let Some(recorded) = Recorded::pending(pending) else {
                self.uncertain(pending.id.borrow(), pending.class == "retry_safe");
                continue;
            };
            self.unanswered.entry(pending.journal_seq).or_insert_with(|| pending.id.clone());
            let key = pending.idempotency_key.clone().map(|key| (pending.tool_name.clone(), key));
            if !self.has(key.as_ref(), &recorded) {
                self.restore(key, recorded);
            }
        }
    }

    /// A new request was made.
    pub(crate) fn asked(&mut self, journal_seq: JournalSeq, tool: &str, key: Option<&str>, recorded: Recorded) {
        self.unanswered.insert(journal_seq, recorded.id.clone());
        if let Some(key) = key {
            self.keyed.insert((tool.to_owned(), key.to_owned()), recorded);
        }
    }

    /// The agent has received the request's answer.
    pub(crate) fn answered(&mut self, id: RecordId<&str>) {
        self.unanswered.retain(|_, unanswered| *unanswered != id);
        self.unresolved.remove(id.as_str());
        if let Some(recorded) = self.keyed.values_mut().find(|recorded| recorded.id == id) {
            recorded.pending = None;
        }
    }

    /// The effect may have happened and its end is not recorded.
    pub(crate) fn uncertain(&mut self, id: RecordId<&str>, retry_safe: bool) {
        if !retry_safe {
            self.unresolved.insert(id.to_owned());
        }
    }

    /// Requests whose answer the agent has not received, in request order.
    pub(crate) fn unanswered(&self) -> Vec<RecordId> {
        self.unanswered.values().cloned().collect()
    }

    /// A pending request that blocks new effects, if there is one.
    pub(crate) fn unresolved(&self) -> Option<RecordId<&str>> {
        self.unresolved.first().map(RecordId::borrow)
    }

    /// Brings what was pending up to date: decisions may have been recorded meanwhile.
    pub(crate) fn refresh(&mut self, recovery: &Recovery) {
        let still: BTreeMap<&str, &Pending> =
            recovery.pending.iter().map(|pending| (pending.id.as_str(), pending)).collect();
        self.unresolved
            .retain(|id| still.get(id.as_str()).is_some_and(|pending| pending.class == "reconcile_required"));
        for recorded in self.keyless.values_mut().flatten().chain(self.keyed.values_mut()) {
            if recorded.pending.is_some() {
                recorded.pending = still.get(recorded.id.as_str()).map(|pending| Open {
                    retry_safe: pending.class == "retry_safe",
                    reason: pending.reason.clone(),
                    attempts: pending.attempts,
                });
            }
        }
    }
}

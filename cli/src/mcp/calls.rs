//! Which call a request is. Pure; one table per run.
//!
//! ```text
//!   request ─▶ the client's id of a call seen before              ─▶ that call
//!           ─▶ an equal call runs, and no request waits for it    ─▶ that call (also if one waits, with `one_at_a_time`)
//!           ─▶ an equal call ended, and the client lacks its answer ─▶ that call
//!           ─▶ otherwise: the producer's gate, which knows the calls of earlier processes
//!
//!   running ─▶ written ─▶ flushed ─▶ received: the client sent a message after it, or closed its end
//!      └ the client cancelled its request: parked ◀┘ (also if the cancellation arrives after the answer was written)
//! ```
//!
//! Bounded: `running` by the permits of the gate, `written` by the requests between two messages of the client, `parked` and `known`
//! by constants.

use super::message::Id;
use runlog_schemas::id::{Fingerprint, RecordId};
use std::collections::{HashMap, VecDeque};

/// Ended calls whose answer the client lacks. A repeat of an older one is a new call.
const PARKED_MAX: usize = 1000;
/// Ids of the client's calls that are remembered. A checkpoint has them, so that they outlive the process.
const KNOWN_MAX: usize = 100;

/// A call that runs.
#[derive(Debug)]
struct Running {
    nth: u64,
    fingerprint: Fingerprint,
    call_id: Option<String>,
    /// The requests that wait for it.
    waiters: Vec<Id>,
}

/// An answer that was written to the client.
#[derive(Debug)]
struct Written {
    fingerprint: Fingerprint,
    call: RecordId,
    is_flushed: bool,
}

/// A call with an id of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) call_id: String,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) call: RecordId,
}

/// The treatment of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// A call that runs answers it.
    Joined,
    /// This call has ended: the journal has its answer.
    Ended(RecordId),
    /// The producer's gate decides; the running call has this number.
    Begun(u64),
}

/// The calls of a run, as this process knows them.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    next: u64,
    running: Vec<Running>,
    written: HashMap<Id, Written>,
    parked: VecDeque<(Fingerprint, RecordId)>,
    known: VecDeque<Known>,
    received: Vec<RecordId>,
    /// Keys of calls that are not answered, by fingerprint, oldest first.
    keys: HashMap<Fingerprint, VecDeque<String>>,
}

impl Calls {
    pub(crate) fn new(known: Vec<Known>) -> Self {
        Self { known: known.into(), ..Self::default() }
    }

    /// Decides which call a request is.
    pub(crate) fn admit(
        &mut self,
        id: &Id,
        fingerprint: &Fingerprint,
        call_id: Option<String>,
        joins: bool,
    ) -> Admission {
        let is_same = |running: &Running| call_id.is_some() && running.call_id == call_id;
        let is_equal = |running: &Running| running.fingerprint == *fingerprint && (joins || running.waiters.is_empty());
        let joined = self.running.iter().position(|one| is_same(one) && one.fingerprint == *fingerprint);
        if let Some(at) = joined {
            self.running[at].waiters.push(id.clone());
            return Admission::Joined;
        }
        let is_known = |known: &&Known| Some(&known.call_id) == call_id.as_ref() && known.fingerprint == *fingerprint;
        if let Some(call) = self.known.iter().rev().find(is_known).map(|known| known.call.clone()) {
            self.parked.retain(|(_, parked)| *parked != call);
            return Admission::Ended(call);
        }
        if let Some(running) = self.running.iter_mut().find(|one| is_equal(one)) {
            running.waiters.push(id.clone());
            running.call_id = running.call_id.take().or(call_id);
            return Admission::Joined;
        }
        if let Some(at) = self.parked.iter().position(|(parked, _)| parked == fingerprint)
            && let Some((_, call)) = self.parked.remove(at)
        {
            self.know(call_id, fingerprint, &call);
            return Admission::Ended(call);
        }
        let nth = self.next;
        self.next += 1;
        self.running.push(Running { nth, fingerprint: fingerprint.clone(), call_id, waiters: vec![id.clone()] });
        Admission::Begun(nth)
    }

    /// Ends a running call, and returns the requests that wait for it. If it has an end and no request waits, the client lacks it.
    pub(crate) fn end(&mut self, nth: u64, call: Option<&RecordId>) -> Vec<Id> {
        let Some(at) = self.running.iter().position(|running| running.nth == nth) else { return Vec::new() };
        let Running { fingerprint, call_id, waiters, .. } = self.running.swap_remove(at);
        if let Some(call) = call {
            self.know(call_id, &fingerprint, call);
            if waiters.is_empty() {
                self.park(fingerprint, call.clone());
            }
        }
        waiters
    }

    /// Notes that the answer to a request is about to be written.
    pub(crate) fn write(&mut self, id: &Id, fingerprint: &Fingerprint, call: &RecordId) {
        let written = Written { fingerprint: fingerprint.clone(), call: call.clone(), is_flushed: false };
        self.written.insert(id.clone(), written);
    }

    /// Notes that the answer to a request was written.
    pub(crate) fn flushed(&mut self, id: &Id) {
        if let Some(written) = self.written.get_mut(id) {
            written.is_flushed = true;
        }
    }

    /// Notes that the client no longer waits for a request: it lacks the answer, even if that was written.
    pub(crate) fn cancel(&mut self, id: &Id) {
        self.running.iter_mut().for_each(|running| running.waiters.retain(|waiter| waiter != id));
        if let Some(Written { fingerprint, call, .. }) = self.written.remove(id) {
            let has_other = self.written.values().any(|other| other.call == call);
            if !has_other {
                self.park(fingerprint, call);
            }
        }
    }

    /// Keeps an ended call for the next equal request.
    pub(crate) fn park(&mut self, fingerprint: Fingerprint, call: RecordId) {
        if self.parked.len() == PARKED_MAX {
            self.received.extend(self.parked.pop_front().map(|(_, oldest)| oldest));
        }
        self.parked.push_back((fingerprint, call));
    }

    /// The client sent a message, or closed its end: it has all answers that were written. Returns their requests.
    pub(crate) fn confirm(&mut self) -> Vec<Id> {
        let flushed: Vec<Id> =
            self.written.iter().filter(|(_, written)| written.is_flushed).map(|(id, _)| id.clone()).collect();
        let calls = flushed.iter().filter_map(|id| Some(self.written.remove(id)?.call));
        self.received.extend(calls);
        flushed
    }

    /// Takes the calls whose receipt is not recorded yet.
    pub(crate) fn take_received(&mut self) -> Vec<RecordId> {
        std::mem::take(&mut self.received)
    }

    /// Returns receipts that were not recorded.
    pub(crate) fn put_back(&mut self, received: Vec<RecordId>) {
        self.received.extend(received);
    }

    fn know(&mut self, call_id: Option<String>, fingerprint: &Fingerprint, call: &RecordId) {
        let Some(call_id) = call_id else { return };
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(Known { call_id, fingerprint: fingerprint.clone(), call: call.clone() });
    }

    pub(crate) fn identified(&self) -> impl Iterator<Item = &Known> {
        self.known.iter()
    }

    /// Adds the key of a call of an earlier process.
    pub(crate) fn add_key(&mut self, fingerprint: &Fingerprint, key: String) {
        self.keys.entry(fingerprint.clone()).or_default().push_back(key);
    }

    /// Takes the key of the oldest equal call that is not answered.
    pub(crate) fn take_key(&mut self, fingerprint: &Fingerprint) -> Option<String> {
        self.keys.get_mut(fingerprint).and_then(VecDeque::pop_front)
    }

    /// Returns the key of a call that has no answer yet.
    pub(crate) fn put_back_key(&mut self, fingerprint: &Fingerprint, key: String) {
        self.keys.entry(fingerprint.clone()).or_default().push_front(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::message::Message;

    fn id(n: u32) -> Id {
        Message::parse(&format!(r#"{{"id":{n}}}"#)).unwrap().id.unwrap()
    }

    fn record(text: &str) -> RecordId {
        RecordId::new(text.to_owned()).unwrap()
    }

    fn pay() -> Fingerprint {
        Fingerprint::of_hashed_call("pay", "x")
    }

    /// Begins a call and ends it, with its answer on the way to the client.
    fn written(calls: &mut Calls, request: u32, call: &str) {
        let Admission::Begun(nth) = calls.admit(&id(request), &pay(), None, false) else { panic!("not new") };
        assert_eq!(calls.end(nth, Some(&record(call))), [id(request)]);
        calls.write(&id(request), &pay(), &record(call));
    }

    #[test]
    fn a_repeat_of_a_cancelled_request_is_its_call_and_a_repeat_of_an_answered_one_is_new() {
        let mut calls = Calls::default();
        assert_eq!(calls.admit(&id(1), &pay(), None, false), Admission::Begun(0));
        assert_eq!(calls.admit(&id(2), &pay(), None, false), Admission::Begun(1), "both may be meant");
        calls.cancel(&id(1));
        assert_eq!(calls.admit(&id(3), &pay(), None, false), Admission::Joined);
        assert_eq!(calls.end(0, Some(&record("a"))), [id(3)]);
        calls.write(&id(3), &pay(), &record("a"));
        calls.flushed(&id(3));
        assert_eq!(calls.confirm(), [id(3)]);
        assert_eq!(calls.admit(&id(4), &pay(), None, false), Admission::Begun(2));
        assert_eq!(calls.take_received(), [record("a")]);
    }

    #[test]
    fn an_answer_that_the_client_cancelled_as_it_was_written_answers_the_next_equal_request_once() {
        let mut calls = Calls::default();
        written(&mut calls, 1, "a");
        calls.flushed(&id(1));
        calls.cancel(&id(1));
        assert!(calls.confirm().is_empty());
        assert_eq!(calls.admit(&id(2), &pay(), None, false), Admission::Ended(record("a")));
        assert_eq!(calls.admit(&id(3), &pay(), None, false), Admission::Begun(1));
        calls.cancel(&id(3));
        assert_eq!(calls.end(1, Some(&record("b"))), [] as [Id; 0]);
        assert_eq!(
            calls.admit(&id(4), &pay(), None, false),
            Admission::Ended(record("b")),
            "it ended without a waiter"
        );
    }

    #[test]
    fn an_answer_in_the_queue_is_not_received_by_a_message_that_came_before() {
        let mut calls = Calls::default();
        written(&mut calls, 1, "a");
        assert!(calls.confirm().is_empty());
        calls.flushed(&id(1));
        assert_eq!(calls.confirm(), [id(1)]);
    }

    #[test]
    fn the_clients_id_of_a_call_is_that_call_unless_the_arguments_differ() {
        let mut calls = Calls::default();
        let given = || Some("tool use 1".to_owned());
        assert_eq!(calls.admit(&id(1), &pay(), given(), false), Admission::Begun(0));
        assert_eq!(calls.admit(&id(2), &pay(), given(), false), Admission::Joined);
        calls.end(0, Some(&record("a")));
        let mut next = Calls::new(calls.identified().cloned().collect());
        assert_eq!(next.admit(&id(3), &pay(), given(), false), Admission::Ended(record("a")));
        let other = Fingerprint::of_hashed_call("pay", "y");
        assert_eq!(next.admit(&id(4), &other, given(), false), Admission::Begun(0));
    }

    #[test]
    fn with_one_at_a_time_an_equal_request_joins_a_call_that_another_request_waits_for() {
        let mut calls = Calls::default();
        assert_eq!(calls.admit(&id(1), &pay(), None, true), Admission::Begun(0));
        assert_eq!(calls.admit(&id(2), &pay(), None, true), Admission::Joined);
        assert_eq!(calls.end(0, Some(&record("a"))), [id(1), id(2)]);
    }
}

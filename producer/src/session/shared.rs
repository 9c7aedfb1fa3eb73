//! The state that a handle's operations share with its calls in flight. One lock guards it.
//!
//! ```text
//!   the session's lock: one operation at a time ─▶ appender, replay, checkpoint base, intents
//!   this lock: calls and operations, briefly    ─▶ outbox, unjudged results, order of the calls, activity
//! ```
//!
//! The lock is synchronous and never held across an await: dropped calls change the state, and calls read it while an
//! operation waits for the journal. No value whose `Drop` takes the lock is dropped while it is held.
//!
//! Calls have an order: an effect runs only after the effects of all earlier open calls are allowed to run. If an effect may
//! not run, the effects of later calls that exist at that time do not run either.
//!
//! A checkpoint knows by the busy period which answers its message list may lack:
//!
//! ```text
//!   call a     ────answered
//!   call b       ──────────────────answered
//!   checkpoint         ──────             ──────
//!   period     0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 1
//! ```
//!
//! The first checkpoint lists `a` as unanswered: its list may be older than the answer. The second one covers both. A
//! checkpoint in flight extends a period as a call does, since calls may be answered before it is numbered.

use super::{outbox::Outbox, unjudged::UnjudgedResults};
use crate::error::{Action, Error, SideEffect};
use runlog_schemas::{answer::ErrorKind, id::RecordId};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// The shared state of a handle.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Wakes the calls that wait for earlier calls.
    order: Notify,
}

/// The state that the lock guards.
#[derive(Debug)]
pub(crate) struct State {
    /// Results and calls that operations must settle.
    pub(crate) outbox: Outbox,
    /// Results whose outcomes the next read-back requests.
    pub(crate) results: UnjudgedResults,
    order: CallOrder,
    /// The number of calls and checkpoints in flight.
    busy: usize,
    /// How often the last call or checkpoint in flight has ended.
    period: u64,
    /// Whether the process resumes at the checkpoint.
    pub(crate) resumes_at_checkpoint: bool,
}

impl Shared {
    /// An empty state whose outbox holds up to `held_bytes_max`.
    pub(crate) fn new(held_bytes_max: usize) -> Self {
        let state = State {
            outbox: Outbox::new(held_bytes_max),
            results: UnjudgedResults::default(),
            order: CallOrder::default(),
            busy: 0,
            period: 0,
            resumes_at_checkpoint: false,
        };
        Self(Arc::new(Inner { state: Mutex::new(state), order: Notify::new() }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call or a checkpoint in flight, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Busy(Shared);

impl Busy {
    /// Begins a call or a checkpoint, which ends when the value is dropped.
    pub(crate) fn begin(shared: &Shared) -> Self {
        shared.lock().busy += 1;
        Self(shared.clone())
    }

    /// The busy period, which lasts as long as this does.
    pub(crate) fn period(&self) -> u64 {
        self.0.lock().period
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy -= 1;
        state.period += u64::from(state.busy == 0);
    }
}

/// The open calls of a handle, in order: their intents wait or are appended, and their effects have not started.
#[derive(Debug, Default)]
struct CallOrder {
    next: u64,
    verdicts: BTreeMap<u64, Verdict>,
}

#[derive(Debug)]
enum Verdict {
    Open,
    /// The effect of this call may not run, because this call or another one failed.
    Failed(Error),
}

impl CallOrder {
    /// Opens a call after all others, and returns its number.
    fn open(&mut self) -> u64 {
        let nth = self.next;
        self.next += 1;
        self.verdicts.insert(nth, Verdict::Open);
        nth
    }

    /// Closes a call. Returns whether it was the last open call before later ones.
    fn close(&mut self, nth: u64) -> bool {
        let own = self.verdicts.remove(&nth);
        matches!(own, Some(Verdict::Open)) && !self.is_open_before(nth)
    }

    /// Why the effect of this call may not run, if that is known.
    fn failure(&self, nth: u64) -> Option<Error> {
        match self.verdicts.get(&nth)? {
            Verdict::Failed(error) => Some(error.clone()),
            Verdict::Open => None,
        }
    }

    fn is_open_before(&self, nth: u64) -> bool {
        self.verdicts.range(..nth).any(|(_, verdict)| matches!(verdict, Verdict::Open))
    }

    /// Whether the effect of this call may run, and if not, why. `None` while that depends on earlier calls.
    fn verdict(&self, nth: u64) -> Option<Result<(), Error>> {
        match self.failure(nth) {
            Some(error) => Some(Err(error)),
            None => (!self.is_open_before(nth)).then_some(Ok(())),
        }
    }

    /// Marks this call and all existing later calls as failed. Returns `false` if another call made it fail: then the
    /// later calls of that time have failed, too.
    fn fail(&mut self, nth: u64, error: &Error) -> bool {
        let is_first = self.failure(nth).is_none();
        if is_first {
            self.fail_from(nth, error);
        }
        is_first
    }

    /// Marks all open calls from `first` on as failed.
    fn fail_from(&mut self, first: u64, error: &Error) {
        for (_, verdict) in self.verdicts.range_mut(first..) {
            if matches!(verdict, Verdict::Open) {
                *verdict = Verdict::Failed(error.clone());
            }
        }
    }
}

/// A call's place among the calls of its handle. After it is dropped, the call no longer blocks others: its effect may
/// run, it has failed, its intent was not appended, or it was cancelled.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Shared,
    nth: u64,
}

impl Place {
    /// Makes the place after all others, for the call whose intent is pushed next.
    pub(crate) fn last(shared: &Shared) -> Self {
        let nth = shared.lock().order.open();
        Self { shared: shared.clone(), nth }
    }

    /// Waits until the effects of all earlier calls may run, or this call's effect may not. Returns the reason for the
    /// latter.
    pub(crate) async fn earlier_failed(&self) -> Option<Error> {
        loop {
            // Before the check, so that no change between the check and the wait is missed.
            let changed = self.shared.0.order.notified();
            let verdict = self.shared.lock().order.verdict(self.nth);
            match verdict {
                Some(verdict) => return verdict.err(),
                None => changed.await,
            }
        }
    }

    /// Why the call's effect may not run, if that is known.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.shared.lock().order.failure(self.nth)
    }

    /// Marks this call and all existing later calls as failed.
    pub(crate) fn fail(&self, error: &Error) {
        let is_first = self.shared.lock().order.fail(self.nth, error);
        if is_first {
            self.shared.0.order.notify_waiters();
        }
    }

    /// As [`Self::fail`], even if this call has already failed.
    pub(crate) fn fail_later(&self, error: &Error) {
        self.fail_from(self.nth, error);
    }

    /// As [`Self::fail`], but also marks the earlier open calls as failed: such a call may never be polled.
    pub(crate) fn fail_with_earlier(&self, error: &Error) {
        self.fail_from(0, error);
    }

    fn fail_from(&self, first: u64, error: &Error) {
        self.shared.lock().order.fail_from(first, error);
        self.shared.0.order.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_last = self.shared.lock().order.close(self.nth);
        if is_last {
            self.shared.0.order.notify_waiters();
        }
    }
}

/// Makes the error of a call whose effect does not run because another call failed.
pub(crate) fn not_started(id: &RecordId, other: &Error) -> Error {
    let message = format!("call {id} was not started, because another one failed: {other}");
    let error = Error::new(other.kind(), other.action(), message);
    error.about_record(id.borrow()).with_side_effect(SideEffect::Unknown)
}

/// Makes the error of a call that waited too long for an earlier call.
pub(crate) fn earlier_late(id: &RecordId, deadline: Duration) -> Error {
    let message = format!(
        "call {id} was not started: after {} it is not known whether the effect of an earlier call of this handle may run; \
         reopen the run",
        humantime::format_duration(deadline)
    );
    Error::new(ErrorKind::Stale, Action::Reopen, message).about_record(id.borrow())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, future::join};

    fn late() -> Error {
        Error::new(ErrorKind::Stale, Action::Reopen, "late".to_owned())
    }

    fn failed(place: &Place) -> Option<ErrorKind> {
        place.earlier_failed().now_or_never().expect("it is known").map(|error| error.kind())
    }

    #[test]
    fn a_cancelled_call_hides_no_failure_of_an_earlier_one() {
        let shared = Shared::new(0);
        let [first, cancelled, last] = [0; 3].map(|_| Place::last(&shared));
        drop(cancelled);
        assert!(last.earlier_failed().now_or_never().is_none(), "the first one may still fail");
        first.fail(&late());
        assert_eq!(failed(&last), Some(ErrorKind::Stale));
    }

    #[test]
    fn a_failure_concerns_no_call_that_is_made_after_it() {
        let shared = Shared::new(0);
        let [first, second] = [0; 2].map(|_| Place::last(&shared));
        first.fail(&late());
        let next = Place::last(&shared);
        second.fail(&not_started(&RecordId::new("second".to_owned()).unwrap(), &late()));
        assert_eq!((failed(&second), failed(&next)), (Some(ErrorKind::Stale), None));
    }

    #[test]
    fn a_call_that_nobody_polls_holds_up_no_call_after_the_one_that_waited_too_long() {
        let shared = Shared::new(0);
        let [unpolled, late_one] = [0; 2].map(|_| Place::last(&shared));
        late_one.fail_with_earlier(&late());
        assert_eq!((failed(&Place::last(&shared)), failed(&unpolled)), (None, Some(ErrorKind::Stale)));
    }

    #[tokio::test]
    async fn a_call_is_woken_once_all_earlier_ones_may_run() {
        let shared = Shared::new(0);
        let failed_before = Place::last(&shared);
        failed_before.fail(&late());
        let [first, second, last] = [0; 3].map(|_| Place::last(&shared));
        // Polled after the waiting call, so that only a wake-up makes it check again.
        let others = async {
            tokio::task::yield_now().await;
            drop(second);
            tokio::task::yield_now().await;
            drop(first);
        };
        let both = join(last.earlier_failed(), others);
        let (failure, ()) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("it is woken");
        assert!(failure.is_none());
    }
}

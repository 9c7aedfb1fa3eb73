//! Orders a handle's calls: decides in this order whether their effects may run.
//!
//! An effect runs only after the effects of all earlier open calls are allowed to run. If an effect may not run, the
//! effects of later calls that exist at that time do not run either.

use crate::error::{Action, Error, SideEffect};
use runlog_schemas::{answer::ErrorKind, id::RecordId};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::watch;

/// The open calls of a handle, in order: their intents wait or are appended, and their effects have not started.
#[derive(Debug, Default)]
struct Calls {
    next: u64,
    verdicts: BTreeMap<u64, Verdict>,
}

#[derive(Debug)]
enum Verdict {
    Open,
    /// The effect of this call may not run, because this call or another one failed.
    Failed(Error),
}

impl Calls {
    fn failure(&self, nth: u64) -> Option<&Error> {
        match self.verdicts.get(&nth)? {
            Verdict::Failed(error) => Some(error),
            Verdict::Open => None,
        }
    }

    fn is_open_before(&self, nth: u64) -> bool {
        self.verdicts.range(..nth).any(|(_, verdict)| matches!(verdict, Verdict::Open))
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

/// The places of a handle's calls.
#[derive(Debug, Default)]
pub(crate) struct Places(Arc<watch::Sender<Calls>>);

impl Places {
    /// Makes the place after all others, for the call whose intent is pushed next.
    pub(crate) fn next(&self) -> Place {
        let mut nth = 0;
        self.0.send_if_modified(|calls| {
            nth = calls.next;
            calls.next += 1;
            calls.verdicts.insert(nth, Verdict::Open);
            // No other call waits for the new one.
            false
        });
        Place { calls: Arc::clone(&self.0), nth }
    }
}

/// A call's place among the calls of its handle. After it is dropped, the call no longer blocks others: its effect may
/// run, it has failed, its intent was not appended, or it was cancelled.
#[derive(Debug)]
pub(crate) struct Place {
    calls: Arc<watch::Sender<Calls>>,
    nth: u64,
}

impl Place {
    /// Waits until the effects of all earlier calls may run, or this call's effect may not. Returns the reason for the
    /// latter.
    pub(crate) async fn earlier_failed(&self) -> Option<Error> {
        let mut calls = self.calls.subscribe();
        let current =
            calls.wait_for(|calls| calls.failure(self.nth).is_some() || !calls.is_open_before(self.nth)).await;
        current.ok().and_then(|calls| calls.failure(self.nth).cloned())
    }

    /// Why the call's effect may not run, if that is known.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.calls.borrow().failure(self.nth).cloned()
    }

    /// Marks this call and all existing later calls as failed.
    pub(crate) fn fail(&self, error: &Error) {
        self.calls.send_if_modified(|calls| {
            // If another call made it fail, the later calls of that time have failed, too.
            let is_first = calls.failure(self.nth).is_none();
            if is_first {
                calls.fail_from(self.nth, error);
            }
            is_first
        });
    }

    /// As [`Self::fail`], even if this call has already failed.
    pub(crate) fn fail_later(&self, error: &Error) {
        self.calls.send_modify(|calls| calls.fail_from(self.nth, error));
    }

    /// As [`Self::fail`], but also marks the earlier open calls as failed: such a call may never be polled.
    pub(crate) fn fail_with_earlier(&self, error: &Error) {
        self.calls.send_modify(|calls| calls.fail_from(0, error));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.calls.send_if_modified(|calls| {
            let own = calls.verdicts.remove(&self.nth);
            // Wakes later calls if this was the last open call before them.
            matches!(own, Some(Verdict::Open)) && !calls.is_open_before(self.nth)
        });
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
        let places = Places::default();
        let [first, cancelled, last] = [0; 3].map(|_| places.next());
        drop(cancelled);
        assert!(last.earlier_failed().now_or_never().is_none(), "the first one may still fail");
        first.fail(&late());
        assert_eq!(failed(&last), Some(ErrorKind::Stale));
    }

    #[test]
    fn a_failure_concerns_no_call_that_is_made_after_it() {
        let places = Places::default();
        let [first, second] = [0; 2].map(|_| places.next());
        first.fail(&late());
        let next = places.next();
        second.fail(&not_started(&RecordId::new("second".to_owned()).unwrap(), &late()));
        assert_eq!((failed(&second), failed(&next)), (Some(ErrorKind::Stale), None));
    }

    #[test]
    fn a_call_that_nobody_polls_holds_up_no_call_after_the_one_that_waited_too_long() {
        let places = Places::default();
        let [unpolled, late_one] = [0; 2].map(|_| places.next());
        late_one.fail_with_earlier(&late());
        assert_eq!((failed(&places.next()), failed(&unpolled)), (None, Some(ErrorKind::Stale)));
    }

    #[tokio::test]
    async fn a_call_is_woken_once_all_earlier_ones_may_run() {
        let places = Places::default();
        let failed_before = places.next();
        failed_before.fail(&late());
        let [first, second, last] = [0; 3].map(|_| places.next());
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

//! The order of a handle's calls, in which it becomes known whether their effects may run.
//!
//! An effect runs once it is known that those of the earlier calls that are under way may run. Where one may not, the later
//! ones that exist by then do not run either.

use crate::error::{Action, Error, SideEffect};
use runlog_schemas::{answer::ErrorKind, id::RecordId};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::watch;

/// The calls of a handle whose intents wait or are appended, and that have not gone on, by their order.
#[derive(Debug, Default)]
struct Calls {
    next: u64,
    verdicts: BTreeMap<u64, Verdict>,
}

#[derive(Debug)]
enum Verdict {
    Open,
    /// The effect of this call may not run, because of this call or of another one.
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

    /// Those from `first` on do not run, unless they have failed already.
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
    /// The place after all others: of the call whose intent is pushed next.
    pub(crate) fn next(&self) -> Place {
        let mut nth = 0;
        self.0.send_if_modified(|calls| {
            nth = calls.next;
            calls.next += 1;
            calls.verdicts.insert(nth, Verdict::Open);
            // No other call waits for it.
            false
        });
        Place { calls: Arc::clone(&self.0), nth }
    }
}

/// A call's place among the calls of its handle. Dropped, its call does not concern the others: its effect may run, it has
/// failed, its intent was not appended, or it was cancelled.
#[derive(Debug)]
pub(crate) struct Place {
    calls: Arc<watch::Sender<Calls>>,
    nth: u64,
}

impl Place {
    /// Waits until the effects of all earlier calls may run or this one's may not, and returns why.
    pub(crate) async fn earlier_failed(&self) -> Option<Error> {
        let mut calls = self.calls.subscribe();
        let known = calls.wait_for(|calls| calls.failure(self.nth).is_some() || !calls.is_open_before(self.nth)).await;
        known.ok().and_then(|calls| calls.failure(self.nth).cloned())
    }

    /// Why its effect may not run, where that is known.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.calls.borrow().failure(self.nth).cloned()
    }

    /// The call's effect does not run, nor do those of the later calls that there are now.
    pub(crate) fn fail(&self, error: &Error) {
        self.calls.send_if_modified(|calls| {
            // If it has failed because of another one, the later calls of that time have, too.
            let is_first = calls.failure(self.nth).is_none();
            if is_first {
                calls.fail_from(self.nth, error);
            }
            is_first
        });
    }

    /// As [`Self::fail`], also of a call that has failed.
    pub(crate) fn fail_later(&self, error: &Error) {
        self.calls.send_modify(|calls| calls.fail_from(self.nth, error));
    }

    /// As [`Self::fail`]. The effects of the earlier calls that are still open do not run either: such a call may never be polled.
    pub(crate) fn fail_with_earlier(&self, error: &Error) {
        self.calls.send_modify(|calls| calls.fail_from(0, error));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.calls.send_if_modified(|calls| {
            let own = calls.verdicts.remove(&self.nth);
            // Later calls may go on if this was the last one that they waited for.
            matches!(own, Some(Verdict::Open)) && !calls.is_open_before(self.nth)
        });
    }
}

/// The error of a call whose effect does not run because that of another one may not.
pub(crate) fn not_started(id: &RecordId, other: &Error) -> Error {
    let message = format!("call {id} was not started, because another one failed: {other}");
    let error = Error::new(other.kind(), other.action(), message);
    error.about_record(id.borrow()).with_side_effect(SideEffect::Unknown)
}

/// The error of a call for which it is not known in time whether the effects of the earlier ones may run.
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
        // Polled after the one that waits, so that only a wake-up makes that look again.
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

//! A process's reaction to errors, and the faults of its own operations.

use super::{Next, OPERATION, Process, TRIES_MAX};
use crate::{guard::Guard, plan::Event, trouble, world::claim};
use runlog_producer::{Action, Error, Run};
use runlog_schemas::answer::ErrorKind;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::{Instant, sleep};

impl Process {
    /// Takes the action that an error names.
    pub(super) async fn failed(&self, run: &Run, step: u32, error: &Error) -> Next {
        let (kind, action, effect) = (error.kind(), error.action(), error.side_effect());
        self.tell(|| format!("step {step}: {kind:?} {action:?} {effect:?}: {error}"));
        match action {
            Action::Retry => {
                sleep(Duration::from_millis(700)).await;
                if kind == ErrorKind::Overloaded {
                    return Next::NoRoom;
                }
            }
            Action::Reopen => return self.reopen(run).await,
            Action::Stop => {
                self.stage.ledger().reported_lost(self.life.run, self.life.id, error);
                return Next::Leave;
            }
            Action::Operator => {
                self.stage.count("waits for an operator");
                sleep(Duration::from_secs(4)).await;
                if kind != ErrorKind::ReconcileRequired {
                    // The cause that stopped the handle may be over.
                    return self.reopen(run).await;
                }
                return Next::Waits;
            }
            // A call that this handle requested.
            Action::FixTheInput if kind == ErrorKind::NotFound && self.stage.ledger().deposed_since().0 > 0 => {
                self.stage.count("known: a call is not found through a deposed leader");
                sleep(Duration::from_secs(1)).await;
            }
            Action::FixTheInput => return self.leave(&format!("step {step} is refused"), error),
        }
        Next::Again
    }

    pub(super) async fn reopen(&self, run: &Run) -> Next {
        for _ in 0..TRIES_MAX {
            let step = self.reopens.fetch_add(1, Ordering::Relaxed);
            self.stage.count("reopen");
            match self.guarded("reopen", step, (0, None), run.reopen()).await {
                None => {
                    self.stage.count("reopen cancelled");
                    self.tell(|| "the reopening is dropped".to_owned());
                    // Meanwhile its other calls continue.
                    sleep(Duration::from_millis(u64::from(step % 8) * 300)).await;
                }
                Some(Ok(done)) => {
                    self.holds(run);
                    self.tell(|| format!("reopened: {done:?}"));
                    return Next::Again;
                }
                Some(Err(error)) => {
                    self.tell(|| format!("reopen: {:?} {:?}: {error}", error.kind(), error.action()));
                    match error.action() {
                        Action::Stop => {
                            self.stage.ledger().reported_lost(self.life.run, self.life.id, &error);
                            return Next::Leave;
                        }
                        Action::FixTheInput => return self.leave("the handle cannot be reopened", &error),
                        _ => sleep(Duration::from_secs(1)).await,
                    }
                }
            }
        }
        if self.last {
            self.fail("the handle cannot be reopened".to_owned());
        }
        Next::Leave
    }

    /// Leaves the run, as it may if the run has ended: a call without an answer does not run any more.
    fn leave(&self, what: &str, error: &Error) -> Next {
        let has_ended = error.kind() == ErrorKind::Conflict && self.stage.ledger().has_run_ended(self.life.run);
        if !has_ended && !self.is_excused() {
            self.fail(format!("{what}: {error}"));
        }
        Next::Leave
    }

    /// Whether a skip took records of the run away since the process opened it.
    pub(super) fn is_excused(&self) -> bool {
        self.stage.ledger().is_excused(self.life.run, self.life.id)
    }

    /// Results that the process knows are in the log, or the handle holds them.
    pub(super) fn holds(&self, run: &Run) {
        let (unsaved, held) = (self.stage.ledger().unsaved_results(self.life.id), run.held().0);
        if unsaved > held && !self.is_excused() {
            self.fail(format!("{unsaved} results are not in the log, and the handle holds {held}"));
        }
    }

    /// Waits until the handle holds no result.
    pub(super) async fn drain(&self, run: &Run) {
        let mut tries = 0;
        while run.held().0 > 0 {
            // As long as the faults last, and then for a while.
            tries += u32::from(self.stage.is_healed());
            if tries > TRIES_MAX {
                if self.is_excused() {
                    return;
                }
                return self.fail(format!("{} results stay held", run.held().0));
            }
            let reopened = run.reopen().await;
            self.tell(|| format!("holds {} results: {reopened:?}", run.held().0));
            if reopened.is_ok() {
                drop(run.flush().await);
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Runs an operation with the plan's faults for it, and checks that it ends in time. Its effect, if any, takes
    /// `ms` milliseconds once it has begun.
    pub(super) async fn guarded<T>(
        &self,
        what: &str,
        step: u32,
        (ms, begun): (u64, Option<&AtomicBool>),
        operation: impl Future<Output = T> + Send,
    ) -> Option<T> {
        let (mut cut, mut cut_in_effect, mut pauses, mut claimed) = (None, None, Vec::new(), None);
        for event in &self.stage.plan.events {
            match *event {
                Event::Cut { life, step: at, polls } if (life, at) == (self.life.id, step) => cut = Some(polls),
                Event::Pause { life, step: at, polls, ms } if (life, at) == (self.life.id, step) => {
                    pauses.push((polls, ms));
                }
                Event::ClaimedInPause { life, step: at, polls, ms, after } if (life, at) == (self.life.id, step) => {
                    pauses.push((polls, ms));
                    claimed = Some((polls, after));
                }
                Event::CutInEffect { life, step: at, polls } if (life, at) == (self.life.id, step) => {
                    cut_in_effect = begun.map(|begun| (begun, polls));
                }
                Event::DeposedAt { server, life, step: at, ms } if (life, at) == (self.life.id, step) => {
                    self.stage.count("server reads from a deposed leader since a step");
                    tokio::spawn(trouble::depose(self.stage.clone(), server, ms));
                }
                _ => {}
            }
        }
        let began = Instant::now();
        let mut guard = Guard::new(operation, cut, cut_in_effect, pauses);
        if let Some((polls, after)) = claimed {
            guard = guard.when_paused(polls, move || {
                let (run, stage, network) = (self.life.run, self.stage.clone(), self.network.clone());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(after)).await;
                    stage.count("run claimed while its process was paused");
                    claim(run, &stage, &network).await;
                });
            });
        }
        let came = (&mut guard).await;
        if guard.paused > 0 {
            self.stage.count("pause");
            self.tell(|| format!("{what} {step} was paused for {} ms", guard.paused));
        }
        // Before the effect and after it.
        let limit = 2 * OPERATION + Duration::from_millis(ms + guard.paused) + Duration::from_secs(1);
        if began.elapsed() > limit {
            self.fail(format!("{what} {step} took {:?}", began.elapsed()));
        }
        came
    }
}

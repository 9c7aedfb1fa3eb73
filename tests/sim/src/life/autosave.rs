//! Checkpoints of a state that is older than the answers of calls in flight, as an autosave in another task takes them.

use super::{Process, state_of};
use crate::plan::{Event, Step};
use runlog_producer::Run;
use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::sleep;

/// A call in flight.
pub(super) struct Calling<'a>(&'a Process);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.calls().0 -= 1;
    }
}

impl Process {
    fn calls(&self) -> MutexGuard<'_, (u32, BTreeSet<u32>)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call is in flight until this is dropped.
    pub(super) fn calling(&self) -> Calling<'_> {
        let mut calls = self.calls();
        if calls.0 == 0 {
            calls.1.clone_from(&self.done());
        }
        calls.0 += 1;
        Calling(self)
    }

    /// Saves the state as of before the calls in flight, if there are any and the plan says so for one of these steps.
    pub(super) async fn autosave(&self, run: &Run, group: &[Step]) {
        let of_group = |event: &Event| match *event {
            Event::Autosave { life, step, after } if life == self.life.id && group.len() > 1 => {
                group.iter().any(|of| of.id == step).then_some((step, after))
            }
            _ => None,
        };
        let Some((step, after)) = self.stage.plan.events.iter().find_map(of_group) else { return };
        sleep(Duration::from_millis(after)).await;
        let (in_flight, done) = self.calls().clone();
        if in_flight == 0 {
            return;
        }
        let state = state_of(&done);
        let saved = run.checkpoint(&state).await;
        self.stage.count("checkpoint of a state older than answers");
        self.tell(|| format!("step {step}: autosaved {done:?}: {:?}", saved.map(|at| at.offset)));
    }
}

//! Bookings that the desk holds back on request, once per customer.

use super::protocol::Moment;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The progress of a held booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The booking has not arrived yet.
    Awaited,
    /// The booking is held.
    Held,
    /// Its customer hung up, which ends it.
    HungUp,
}

#[derive(Debug)]
struct Hold {
    moment: Moment,
    stage: watch::Sender<Stage>,
}

/// The customers whose next booking is held back.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<HashMap<String, Hold>>);

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the customer's next booking.
    pub(super) fn expect(&self, customer: String, moment: Moment) {
        self.lock().insert(customer, Hold { moment, stage: watch::Sender::new(Stage::Awaited) });
    }

    /// Returns the moment at which the customer's booking must be held, if at all. Only the first booking is held.
    pub(super) fn moment_to_hold(&self, customer: &str) -> Option<Moment> {
        let holds = self.lock();
        let hold = holds.get(customer)?;
        // A later booking of the customer is answered at once.
        (*hold.stage.borrow() == Stage::Awaited).then_some(hold.moment)
    }

    /// Records that the customer's booking reached the stage.
    pub(super) fn set_stage(&self, customer: &str, stage: Stage) {
        if let Some(hold) = self.lock().get(customer) {
            hold.stage.send_replace(stage);
        }
    }

    /// Waits until the customer's booking reaches the stage. False if no booking is expected.
    pub(super) async fn wait(&self, customer: &str, stage: Stage) -> bool {
        let Some(mut progress) = self.lock().get(customer).map(|hold| hold.stage.subscribe()) else { return false };
        // An error means that another hold took this one's place.
        progress.wait_for(|current| *current >= stage).await.is_ok()
    }
}

//! Bookings that the desk holds back on request, once per customer.

use super::protocol::Moment;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// How far a held booking has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It is waited for.
    Awaited,
    /// It is held.
    Held,
    /// Its customer hung up: nothing more will come of it.
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

    /// The customer's next booking is held.
    pub(super) fn expect(&self, customer: String, moment: Moment) {
        self.lock().insert(customer, Hold { moment, stage: watch::Sender::new(Stage::Awaited) });
    }

    /// Where the customer's booking is to be held; none where it is not. Asked by one booking only.
    pub(super) fn begin(&self, customer: &str) -> Option<Moment> {
        let holds = self.lock();
        let hold = holds.get(customer)?;
        // The booking that is held is the first: a later one goes its way.
        (*hold.stage.borrow() == Stage::Awaited).then_some(hold.moment)
    }

    /// The customer's booking has come as far as that.
    pub(super) fn reached(&self, customer: &str, stage: Stage) {
        if let Some(hold) = self.lock().get(customer) {
            hold.stage.send_replace(stage);
        }
    }

    /// Waits until the customer's booking has come as far as that. False where none is expected.
    pub(super) async fn wait(&self, customer: &str, wanted: Stage) -> bool {
        let Some(mut stage) = self.lock().get(customer).map(|hold| hold.stage.subscribe()) else { return false };
        // An error means that another hold took this one's place.
        stage.wait_for(|stage| *stage >= wanted).await.is_ok()
    }
}

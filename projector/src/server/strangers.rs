//! Connections whose client has not shown yet that it is let in: no more than a bound, so that they take no connections from
//! others.
//!
//! ```text
//!   accepted ──▶ TLS handshake ──▶ first request with a valid token ──▶ counts for its principal (limit `connections`)
//!   └───────────── a stranger: [`STRANGERS_MAX`] at a time ────────┘
//! ```
//!
//! Where no tokens are asked for, it ends with the handshake.

use super::auth::{Caller, Held};
use crate::Error;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::oneshot;

/// Strangers at the same time. A further one ends the oldest, since an honest client is one for milliseconds.
const STRANGERS_MAX: usize = 1024;

/// The strangers of a listener.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    next: u64,
    /// By age. What is dropped ends.
    live: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(super) struct Stranger {
    number: u64,
    all: Arc<Strangers>,
}

/// Resolves when too many others came after a stranger, and at the end of the server. Never where it is none any more.
#[derive(Debug)]
pub(super) struct Crowded(oneshot::Receiver<()>);

impl Strangers {
    /// Another one; ends the oldest if there are too many.
    pub(super) fn begin(self: &Arc<Self>) -> (Stranger, Crowded) {
        let (end, ended) = oneshot::channel();
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = pending.next;
        pending.next += 1;
        pending.live.insert(number, end);
        if pending.live.len() > STRANGERS_MAX {
            pending.live.pop_first();
        }
        (Stranger { number, all: Arc::clone(self) }, Crowded(ended))
    }

    /// Ends all of them.
    pub(super) fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).live.clear();
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let known = self.all.0.lock().unwrap_or_else(PoisonError::into_inner).live.remove(&self.number);
        // So that it is not taken for one that was crowded out.
        if let Some(end) = known {
            end.send(()).ok();
        }
    }
}

impl Crowded {
    /// Waits for it.
    pub(super) async fn out(&mut self) {
        if (&mut self.0).await.is_ok() {
            std::future::pending().await
        }
    }
}

/// Whose connection it is, as its requests know it: nobody's, or that of the principal that asked last.
#[derive(Clone, Debug)]
pub(super) struct Peer(Arc<Mutex<Side>>);

#[derive(Debug)]
enum Side {
    Stranger(#[expect(dead_code, reason = "it is one until this is dropped")] Stranger),
    Principal(Held),
}

impl Peer {
    pub(super) fn new(stranger: Stranger) -> Self {
        Self(Arc::new(Mutex::new(Side::Stranger(stranger))))
    }

    /// Counts the connection for whoever asks.
    ///
    /// Errors: `Overloaded` where the caller has as many as it may; the connection stays whose it was, and should be closed.
    pub(super) fn belongs_to(&self, caller: &Caller) -> Result<(), Error> {
        let mut side = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*side, Side::Principal(held) if held.is_of(caller)) {
            return Ok(());
        }
        if let Some(held) = caller.connection()? {
            *side = Side::Principal(held);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{pin::pin, task::Poll};

    async fn is_out(crowded: &mut Crowded) -> bool {
        let mut out = pin!(crowded.out());
        std::future::poll_fn(|context| Poll::Ready(out.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn a_stranger_that_is_one_too_many_ends_the_oldest_and_nobody_who_is_known() {
        let all = Arc::new(Strangers::default());
        let (known, mut never) = all.begin();
        let (_first, mut oldest) = all.begin();
        let (_second, mut next) = all.begin();
        drop(known);
        let others: Vec<_> = (2..STRANGERS_MAX).map(|_| all.begin()).collect();
        assert!(!is_out(&mut oldest).await);
        // One that ended makes room.
        drop(others);
        let _more = [all.begin(), all.begin()];
        let crowd: Vec<_> = (0..STRANGERS_MAX - 3).map(|_| all.begin()).collect();
        assert!(is_out(&mut oldest).await, "the oldest was ended");
        assert!(!is_out(&mut next).await);
        drop(crowd);
        all.end();
        assert!(is_out(&mut next).await && !is_out(&mut never).await);
    }
}

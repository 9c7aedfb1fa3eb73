//! Bounds connections whose client has not authenticated yet, so that they cannot use up the connections of
//! authenticated clients.
//!
//! ```text
//!   accepted ──▶ TLS handshake ──▶ first request with a valid token ──▶ counts for its principal (limit `connections`)
//!   └───────────── a stranger: [`STRANGERS_MAX`] at a time ────────┘
//! ```
//!
//! Without tokens, a client stops being a stranger after the TLS handshake.

use super::auth::{Caller, Held};
use crate::Error;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::oneshot;

/// Strangers at the same time. One more ends the oldest, since an honest client authenticates within milliseconds.
const STRANGERS_MAX: usize = 1024;

/// The strangers of a listener.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    next: u64,
    /// By age. Dropping a sender ends its connection.
    live: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A stranger's connection; dropping this removes it from the count.
#[derive(Debug)]
pub(super) struct Stranger {
    number: u64,
    all: Arc<Strangers>,
}

/// Resolves when too many newer strangers connect, and when the server ends. Never resolves once the client is no
/// longer a stranger.
#[derive(Debug)]
pub(super) struct Crowded(oneshot::Receiver<()>);

impl Strangers {
    /// Counts another stranger. Ends the oldest if there are too many.
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
        let sender = self.all.0.lock().unwrap_or_else(PoisonError::into_inner).live.remove(&self.number);
        // Tells `Crowded` that the stranger was not crowded out.
        if let Some(sender) = sender {
            sender.send(()).ok();
        }
    }
}

impl Crowded {
    /// Waits until the stranger is crowded out.
    pub(super) async fn out(&mut self) {
        if (&mut self.0).await.is_ok() {
            std::future::pending().await
        }
    }
}

/// The owner of a connection: a stranger, or the principal of its last request.
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

    /// Counts the connection against the caller's limit.
    ///
    /// Errors: `Overloaded` if the caller is at its limit. The connection keeps its owner, and should be closed.
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
        let (authenticated, mut never) = all.begin();
        let (_first, mut oldest) = all.begin();
        let (_second, mut next) = all.begin();
        drop(authenticated);
        let others: Vec<_> = (2..STRANGERS_MAX).map(|_| all.begin()).collect();
        assert!(!is_out(&mut oldest).await);
        // An ended stranger frees its place.
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

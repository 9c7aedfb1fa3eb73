//! Bounds connections whose client has not authenticated yet, so that they cannot use up the connections of
//! authenticated clients.
//!
//! ```text
//!   accepted ──▶ TLS handshake ──▶ first request with a valid token ──▶ counts for its principal (limit `connections`)
//!   └── unauthenticated: [`UNAUTHENTICATED_MAX`] at a time ───────────┘
//! ```
//!
//! Without tokens, a client counts as authenticated after the TLS handshake.

use super::auth::{caller::Caller, usage::CountedConnection};
use runlog_projector::index::error::Error;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::oneshot;

/// Maximum number of unauthenticated connections. A further connection ends the oldest, since an honest client
/// authenticates within milliseconds.
const UNAUTHENTICATED_MAX: usize = 1024;

/// The unauthenticated connections of a listener.
#[derive(Debug, Default)]
pub(super) struct UnauthenticatedConnections(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    next: u64,
    /// By age. Dropping a sender ends its connection.
    live: BTreeMap<u64, oneshot::Sender<()>>,
}

/// An unauthenticated connection. Dropping this removes it from the count.
#[derive(Debug)]
pub(super) struct Unauthenticated {
    number: u64,
    all: Arc<UnauthenticatedConnections>,
}

/// The end of an unauthenticated connection, if too many newer connections are accepted or the server ends.
#[derive(Debug)]
pub(super) struct Eviction(oneshot::Receiver<()>);

impl UnauthenticatedConnections {
    /// Adds a connection. Ends the oldest connection if there are too many.
    pub(super) fn add(self: &Arc<Self>) -> (Unauthenticated, Eviction) {
        let (end, ended) = oneshot::channel();
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = pending.next;
        pending.next += 1;
        pending.live.insert(number, end);
        if pending.live.len() > UNAUTHENTICATED_MAX {
            pending.live.pop_first();
        }
        (Unauthenticated { number, all: Arc::clone(self) }, Eviction(ended))
    }

    /// Ends all unauthenticated connections.
    pub(super) fn close_all(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).live.clear();
    }
}

impl Drop for Unauthenticated {
    fn drop(&mut self) {
        let sender = self.all.0.lock().unwrap_or_else(PoisonError::into_inner).live.remove(&self.number);
        // The client has authenticated, or the connection has ended: `Eviction` never resolves then.
        if let Some(sender) = sender {
            sender.send(()).ok();
        }
    }
}

impl Eviction {
    /// Resolves when the connection must end. Never resolves once the client has authenticated.
    pub(super) async fn evicted(&mut self) {
        if (&mut self.0).await.is_ok() {
            std::future::pending().await
        }
    }
}

/// The owner of a connection: an unauthenticated client, or the principal of its last request.
#[derive(Clone, Debug)]
pub(super) struct Peer(Arc<Mutex<Owner>>);

#[derive(Debug)]
enum Owner {
    Unauthenticated(#[expect(dead_code, reason = "it counts until this is dropped")] Unauthenticated),
    Principal(CountedConnection),
}

impl Peer {
    pub(super) fn new(guard: Unauthenticated) -> Self {
        Self(Arc::new(Mutex::new(Owner::Unauthenticated(guard))))
    }

    /// Counts the connection against the caller's limit.
    ///
    /// Errors: `Overloaded` if the caller is at its limit. The connection keeps its owner, and should be closed.
    pub(super) fn assign_to(&self, caller: &Caller) -> Result<(), Error> {
        let mut owner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*owner, Owner::Principal(counted) if caller.counts(counted)) {
            return Ok(());
        }
        if let Some(counted) = caller.connection()? {
            *owner = Owner::Principal(counted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{pin::pin, task::Poll};

    async fn is_evicted(eviction: &mut Eviction) -> bool {
        let mut evicted = pin!(eviction.evicted());
        std::future::poll_fn(|context| Poll::Ready(evicted.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn one_connection_too_many_ends_only_the_oldest_unauthenticated_connection() {
        let all = Arc::new(UnauthenticatedConnections::default());
        let (authenticated, mut never) = all.add();
        let (_first, mut oldest) = all.add();
        let (_second, mut next) = all.add();
        drop(authenticated);
        let others: Vec<_> = (2..UNAUTHENTICATED_MAX).map(|_| all.add()).collect();
        assert!(!is_evicted(&mut oldest).await);
        // An ended connection no longer counts.
        drop(others);
        let _more = [all.add(), all.add()];
        let crowd: Vec<_> = (0..UNAUTHENTICATED_MAX - 3).map(|_| all.add()).collect();
        assert!(is_evicted(&mut oldest).await, "the oldest was ended");
        assert!(!is_evicted(&mut next).await);
        drop(crowd);
        all.close_all();
        assert!(is_evicted(&mut next).await && !is_evicted(&mut never).await);
    }
}

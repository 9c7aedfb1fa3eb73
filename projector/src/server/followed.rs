//! What a server takes from files that are read again while it runs. Files that cannot be used change nothing.

use crate::index::executor::Executor;
use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// How often files are read.
const RELOAD_EVERY: Duration = Duration::from_secs(2);

/// What is made of the files' content.
#[derive(Debug)]
pub(super) struct Followed<T> {
    now: watch::Sender<Arc<T>>,
    last: Mutex<Last>,
}

/// What was read last.
#[derive(Debug)]
struct Last {
    /// Of the content that is used.
    sha256: [u8; 32],
    /// Why the files are not used as they are now.
    failure: Option<String>,
}

/// What came of reading the files again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// They are as before, or unusable for the reason that was told before.
    Same,
    /// They could not be used meanwhile, and are again those that are used.
    Restored,
    Replaced,
    /// They cannot be used, with the reason. What was made before stays.
    Unusable(String),
}

impl<T> Followed<T> {
    /// A value, and the SHA-256 of the content that it was made of.
    pub(super) fn new(sha256: [u8; 32], value: T) -> Self {
        let last = Mutex::new(Last { sha256, failure: None });
        Self { now: watch::Sender::new(Arc::new(value)), last }
    }

    pub(super) fn now(&self) -> Arc<T> {
        Arc::clone(&self.now.borrow())
    }

    /// Told when the value is replaced.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<T>> {
        self.now.subscribe()
    }

    /// Why the files are not used as they are now; none if they are.
    pub(super) fn failure(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    /// Takes what was read, and the SHA-256 of it. `make` gets it, with the value that is used now.
    pub(super) fn take<R, E: Error>(
        &self,
        read: Result<([u8; 32], R), E>,
        make: impl FnOnce(R, &T) -> Result<T, E>,
    ) -> Read {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match read {
            Ok((sha256, _)) if sha256 == last.sha256 => {
                return if last.failure.take().is_some() { Read::Restored } else { Read::Same };
            }
            Ok((sha256, read)) => make(read, &self.now()).map(|value| (sha256, value)),
            Err(error) => Err(error),
        };
        match made {
            Ok((sha256, value)) => {
                *last = Last { sha256, failure: None };
                self.now.send_replace(Arc::new(value));
                Read::Replaced
            }
            Err(error) => {
                let why = runlog_schemas::answer::with_causes(&error);
                if last.failure.replace(why.clone()).is_some_and(|before| before == why) {
                    Read::Same
                } else {
                    Read::Unusable(why)
                }
            }
        }
    }
}

/// Reads files every 2 s, until it is dropped.
pub(super) async fn follow(executor: Executor, reload: impl Fn() + Clone + Send + 'static) {
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        if executor.run(reload.clone()).await.is_err() {
            return;
        }
    }
}

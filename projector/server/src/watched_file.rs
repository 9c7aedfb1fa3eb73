//! Values from files that the server re-reads while it runs. Unusable files leave the value unchanged.

use runlog_projector::index::executor::Executor;
use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// How often files are read.
const RELOAD_EVERY: Duration = Duration::from_secs(2);

/// The value made from the files' content.
#[derive(Debug)]
pub(super) struct WatchedFile<T> {
    current: watch::Sender<Arc<T>>,
    last: Mutex<Last>,
}

/// The result of the last read.
#[derive(Debug)]
struct Last {
    /// The hash of the content in use.
    sha256: [u8; 32],
    /// Why the current files are not used.
    failure: Option<String>,
}

/// The result of reading the files again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// The files are unchanged, or unusable for the same reason as before.
    Same,
    /// The files were unusable, and now have the content in use again.
    Restored,
    Replaced,
    /// The files are unusable, with the reason. The old value stays.
    Unusable(String),
}

impl<T> WatchedFile<T> {
    /// Starts with a value and the SHA-256 of its content.
    pub(super) fn new(sha256: [u8; 32], value: T) -> Self {
        let last = Mutex::new(Last { sha256, failure: None });
        Self { current: watch::Sender::new(Arc::new(value)), last }
    }

    pub(super) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.borrow())
    }

    /// Notifies when the value is replaced.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<T>> {
        self.current.subscribe()
    }

    /// Why the current files are not used; `None` if they are used.
    pub(super) fn failure(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    /// Replaces the value if the read content changed. `make` gets the content and the current value; `read` has the
    /// content with its SHA-256.
    pub(super) fn update<R, E: Error>(
        &self,
        read: Result<([u8; 32], R), E>,
        make: impl FnOnce(R, &T) -> Result<T, E>,
    ) -> Reload {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match read {
            Ok((sha256, _)) if sha256 == last.sha256 => {
                return if last.failure.take().is_some() { Reload::Restored } else { Reload::Same };
            }
            Ok((sha256, read)) => make(read, &self.current()).map(|value| (sha256, value)),
            Err(error) => Err(error),
        };
        match made {
            Ok((sha256, value)) => {
                *last = Last { sha256, failure: None };
                self.current.send_replace(Arc::new(value));
                Reload::Replaced
            }
            Err(error) => {
                let why = runlog_schemas::answer::with_causes(&error);
                if last.failure.replace(why.clone()).is_some_and(|before| before == why) {
                    Reload::Same
                } else {
                    Reload::Unusable(why)
                }
            }
        }
    }
}

/// Reads files every 2 s, until the future is dropped.
pub(super) async fn reload_periodically(executor: Executor, reload: impl Fn() + Clone + Send + 'static) {
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        if executor.run(reload.clone()).await.is_err() {
            return;
        }
    }
}

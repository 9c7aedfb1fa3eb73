//! Runs the projector's loop, its reads and its appends: on threads, or on the caller's thread, one step at a time.
//!
//! ```text
//!              Threads                        Caller
//!   loop       its own threads                Projector::step
//!   reads      tokio's blocking threads,      the calling task, after one yield
//!              some on a few of their own;
//!              only from memory: the task
//!   appends    tokio::spawn                   the caller's function
//!   waits      block the thread               none; waiting tasks sleep on tokio's clock
//! ```

#![allow(clippy::disallowed_methods, reason = "this is where threads and tasks are started")]

use std::{
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
    task::JoinError,
};

/// A future that its executor runs to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the work of a projector, and of the server over it. Default: threads.
#[derive(Clone, Default)]
pub enum Executor {
    /// The projector's own threads and the tokio runtime's.
    #[default]
    Threads,
    /// The caller, so that one thread can run several servers in an order that it chooses. The projector starts no thread
    /// and blocks none. The caller calls [`Projector::step`](crate::Projector::step) for each iteration of the loop, and
    /// polls each task that the function receives. Dropping such a task has the effect of killing the process in the middle
    /// of it.
    ///
    /// With tokio's `current_thread` runtime and a paused clock, the same calls have the same results. This needs a log
    /// that does not block (`MemoryLog`), no registry and no content store.
    Caller(Arc<dyn Fn(Task) + Send + Sync>),
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_caller() { "Caller" } else { "Threads" })
    }
}

/// The reason why started work has no result.
#[derive(Debug, thiserror::Error)]
pub enum NoResult {
    /// The runtime cancelled it, or it panicked.
    #[error(transparent)]
    Joined(#[from] JoinError),
    /// The caller dropped its task.
    #[error("the task was dropped before its end")]
    Dropped,
}

impl NoResult {
    /// Whether the work was cancelled; otherwise it panicked.
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Joined(error) => error.is_cancelled(),
            Self::Dropped => true,
        }
    }
}

impl Executor {
    /// Whether the caller runs everything.
    pub fn is_caller(&self) -> bool {
        matches!(self, Self::Caller(_))
    }

    /// Runs a read that may block a thread. A cancelled read does not start, or it finishes and its result is dropped.
    pub async fn run<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> Result<T, NoResult> {
        match self {
            Self::Threads => Ok(tokio::task::spawn_blocking(read).await?),
            Self::Caller(_) => {
                // Lets other tasks run, as they may while a thread reads.
                tokio::task::yield_now().await;
                Ok(read())
            }
        }
    }

    /// Starts a task that continues when the returned future is dropped.
    pub fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        task: F,
    ) -> impl Future<Output = Result<T, NoResult>> + Send + use<T, F> {
        let started = match self {
            Self::Threads => Ok(tokio::spawn(task)),
            Self::Caller(spawn) => {
                let (send, result) = oneshot::channel();
                spawn(Box::pin(async move { drop(send.send(task.await)) }));
                Err(result)
            }
        };
        async move {
            match started {
                Ok(task) => Ok(task.await?),
                Err(result) => result.await.map_err(|_| NoResult::Dropped),
            }
        }
    }

    /// Runs work that may block a thread, without waiting for it.
    pub(crate) fn detach(&self, work: impl FnOnce() + Send + 'static) {
        match (self, Handle::try_current()) {
            (Self::Threads, Ok(runtime)) => drop(runtime.spawn_blocking(work)),
            (Self::Threads, Err(_)) | (Self::Caller(_), _) => work(),
        }
    }

    /// Runs `work` on a thread named `name`.
    pub(crate) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.into()).spawn(work)
    }

    /// Runs `work` for each item, with up to `threads` threads, and returns the results in the order of the items. A panic is
    /// resumed after all threads have ended.
    pub(crate) fn each<T: Send, R: Send>(&self, items: Vec<T>, threads: usize, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let threads = if self.is_caller() { 1 } else { threads.min(items.len()) };
        let (items, results) = (Mutex::new(items.into_iter().enumerate()), Mutex::new(Vec::new()));
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        let worker = || {
            while let Some((nth, item)) = next() {
                let result = work(item);
                results.lock().unwrap_or_else(PoisonError::into_inner).push((nth, result));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // If a thread cannot start, the others do its part.
                drop(std::thread::Builder::new().spawn_scoped(scope, worker));
            }
            worker();
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_unstable_by_key(|(nth, _)| *nth);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// How long a thread may block in a wait of `wait`: not at all if the caller runs everything.
    pub(crate) fn blocking_wait(&self, wait: Duration) -> Duration {
        if self.is_caller() { Duration::ZERO } else { wait }
    }

    /// Blocks the thread for at most `pause`.
    pub(crate) fn block(&self, pause: Duration) {
        if !self.is_caller() {
            std::thread::park_timeout(pause);
        }
    }
}

/// A few threads for reads of one kind. None if the caller runs everything, or if they cannot be started: the executor then
/// runs these reads like all others.
///
/// The allocator keeps freed memory for each thread. Reads that use much memory would leave some of it with every thread of
/// the runtime.
#[derive(Debug)]
pub struct Few(Option<Runtime>);

impl Few {
    /// At most `threads` threads named `name`. A thread ends after 10 s without work.
    pub fn new(executor: &Executor, name: &str, threads: usize) -> Self {
        if executor.is_caller() {
            return Self(None);
        }
        match Builder::new_current_thread().max_blocking_threads(threads).thread_name(name).build() {
            Ok(runtime) => Self(Some(runtime)),
            Err(error) => {
                tracing::warn!("cannot start the threads {name}, using the runtime's threads: {error}");
                Self(None)
            }
        }
    }

    /// Like [`Executor::run`], on one of these threads. Must be called on a runtime, whose timers and tasks `read` may use.
    pub async fn run<T: Send + 'static>(
        &self,
        executor: &Executor,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        match &self.0 {
            Some(runtime) => {
                let caller = Handle::current();
                let read = move || {
                    let _entered = caller.enter();
                    read()
                };
                Ok(runtime.spawn_blocking(read).await?)
            }
            None => executor.run(read).await,
        }
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        // Does not wait for the reads: that would block the dropping thread, which tokio forbids in tasks.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::{collections::BTreeSet, thread};

    #[tokio::test]
    async fn reads_of_one_kind_run_on_no_more_threads_than_they_have() {
        let few = Few::new(&Executor::Threads, "test-few", 2);
        let reads = (0..32).map(|_| few.run(&Executor::Threads, || format!("{:?}", thread::current().id())));
        let threads: BTreeSet<String> = join_all(reads).await.into_iter().map(|id| id.expect("it is run")).collect();
        assert!((1..=2).contains(&threads.len()), "{threads:?}");
    }
}

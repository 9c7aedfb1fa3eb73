//! A face for callers that cannot await: most SDKs' journal traits are synchronous, and are called from inside a runtime.
//!
//! What is asked runs on threads of its own, never on the caller's runtime: the caller's thread waits on a channel, and nothing
//! that it waits for needs that thread. So it may be a worker of a multi-thread runtime, the only thread of a current-thread
//! one, or no runtime's.

use runlog_producer::{Config, Error, Runlog};
use std::{
    future::Future,
    io,
    sync::{Arc, mpsc},
};
use tokio::runtime::{Builder, Runtime};

/// Threads that the journal's own work runs on.
const THREADS: usize = 2;

/// A journal, and the threads on which it is asked. Cheap to clone; the threads end with the last clone.
#[derive(Clone, Debug)]
pub struct Blocking {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runlog: Runlog,
    /// There until the last clone is dropped.
    runtime: Option<Runtime>,
}

/// Why a [`Blocking`] could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unconnected {
    /// The system gives no threads.
    #[error("no threads for the journal")]
    Threads(#[source] io::Error),
    /// The journal was not reached.
    #[error(transparent)]
    Journal(#[from] Error),
}

impl Blocking {
    /// Starts the threads, and connects; see [`Runlog::connect`].
    pub fn connect(config: Config) -> Result<Self, Unconnected> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("runlog-port")
            .enable_all()
            .build()
            .map_err(Unconnected::Threads)?;
        let runlog = wait(&runtime, Runlog::connect(config));
        match runlog {
            Ok(runlog) => Ok(Self { inner: Arc::new(Inner { runlog, runtime: Some(runtime) }) }),
            Err(error) => {
                runtime.shutdown_background();
                Err(error.into())
            }
        }
    }

    /// The journal.
    pub fn runlog(&self) -> &Runlog {
        &self.inner.runlog
    }

    /// Waits for what `asked` comes to, which runs on the journal's threads. The calling thread stands still meanwhile; every
    /// operation of the producer ends by itself ([`Config::operation`]).
    ///
    /// # Panics
    ///
    /// Where `asked` does.
    pub fn wait<T: Send + 'static>(&self, asked: impl Future<Output = T> + Send + 'static) -> T {
        match &self.inner.runtime {
            Some(runtime) => wait(runtime, asked),
            // Only `drop` takes it.
            None => unreachable!("the journal's threads end with its last clone"),
        }
    }
}

impl Drop for Inner {
    /// A runtime must not be waited for inside another one: its threads end by themselves.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn wait<T: Send + 'static>(runtime: &Runtime, asked: impl Future<Output = T> + Send + 'static) -> T {
    let (tell, told) = mpsc::sync_channel(1);
    let task = runtime.spawn(async move {
        // Whoever asked waits for it.
        let _ = tell.send(asked.await);
    });
    match told.recv() {
        Ok(answer) => answer,
        Err(mpsc::RecvError) => {
            // The task ended without an answer: it panicked.
            drop(task);
            panic!("what was asked of the journal panicked; its message stands above");
        }
    }
}

//! Blocking calls for SDKs whose journal traits are synchronous and are called from inside a runtime.
//!
//! ```text
//!   caller's thread      polls the future ─▶ waits to be woken ─▶ polls …
//!   journal's threads    timers, sockets, spawned tasks
//! ```
//!
//! The calling thread drives the future inside the journal's runtime, never in the caller's: nothing that the future waits for
//! needs the calling thread. So that thread may be a worker of a multi-thread runtime, the only thread of a current-thread
//! runtime, or outside any runtime.

use runlog_producer::{Config, Error, Runlog};
use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::coop::unconstrained,
};

/// Threads of the journal's runtime.
const THREADS: usize = 2;

/// A journal with its own runtime. Cheap to clone; the runtime's threads end with the last clone.
#[derive(Clone, Debug)]
pub struct Blocking {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runlog: Runlog,
    /// `None` only while the last clone is dropped.
    runtime: Option<Runtime>,
}

/// Why [`Blocking::connect`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The system refused to start threads.
    #[error("cannot start the journal's threads")]
    Threads(#[source] io::Error),
    /// The journal cannot be reached.
    #[error(transparent)]
    Journal(#[from] Error),
}

impl Blocking {
    /// Starts the threads, and connects; see [`Runlog::connect`].
    pub fn connect(config: Config) -> Result<Self, ConnectError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("runlog-port")
            .enable_all()
            .build()
            .map_err(ConnectError::Threads)?;
        let runlog = wait(&runtime, pin!(Runlog::connect(config)));
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

    /// Drives a future to its end on the calling thread, which is blocked until then. Every operation of the producer has a time
    /// limit ([`Config::operation`]).
    ///
    /// # Panics
    ///
    /// If the future panics.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        match &self.inner.runtime {
            Some(runtime) => wait(runtime, pin!(future)),
            // Only `drop` empties it.
            None => unreachable!("the journal's threads end with its last clone"),
        }
    }
}

impl Drop for Inner {
    /// One runtime must not wait for another: the threads end in the background.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A runtime's own `block_on` refuses a thread that is already inside a runtime. Pinned, because the future is large and should
/// not be moved.
fn wait<F: Future>(runtime: &Runtime, future: Pin<&mut F>) -> F::Output {
    let _inside = runtime.enter();
    // The caller may be a task, whose budget of polls is not renewed by waiting here.
    let mut future = pin!(unconstrained(future));
    let signal = Arc::new(WakeSignal::default());
    let waker = Waker::from(signal.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => signal.wait(),
        }
    }
}

/// Wakes the waiting thread. Each wait has its own, so that other wake-ups of the thread do not interfere.
#[derive(Debug, Default)]
struct WakeSignal {
    woken: Mutex<bool>,
    condition: Condvar,
}

impl WakeSignal {
    /// Returns once it was woken since the last wait.
    fn wait(&self) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        *self.condition.wait_while(woken, |woken| !*woken).unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Wake for WakeSignal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condition.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{Builder, pin, wait};
    use std::{sync::mpsc, thread, time::Duration};
    use tokio::{sync::Semaphore, task, time};

    #[test]
    fn one_poll_of_a_task_may_wait_any_number_of_times() {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let journal = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let future = async {
                let turns = Semaphore::new(1);
                for _ in 0..1000 {
                    turns.acquire().await.unwrap().forget();
                    turns.add_permits(1);
                }
                time::sleep(Duration::from_millis(1)).await;
                task::spawn(async { task::spawn_blocking(|| 7).await.unwrap() }).await.unwrap()
            };
            let one = Builder::new_current_thread().build().unwrap();
            let answer = one.block_on(async { wait(&journal, pin!(future)) });
            one.block_on(async move { journal.shutdown_background() });
            tell.send(answer).unwrap();
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(7));
    }
}

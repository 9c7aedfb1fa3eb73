//! A face for callers that cannot await: most SDKs' journal traits are synchronous, and are called from inside a runtime.
//!
//! ```text
//!   caller's thread      polls what is asked ─▶ waits to be woken ─▶ polls …
//!   journal's threads    timers, sockets, and whatever is spawned
//! ```
//!
//! What is asked is driven by the thread that asks, inside the journal's runtime and never in the caller's: nothing that it
//! waits for needs that thread. So it may be a worker of a multi-thread runtime, the only thread of a current-thread one, or
//! no runtime's.

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

/// Threads that the journal's own work runs on.
const THREADS: usize = 2;

/// A journal, and the threads that its own work runs on. Cheap to clone; the threads end with the last clone.
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

    /// Waits for what `asked` comes to. The calling thread drives it and stands still meanwhile; every operation of the
    /// producer ends by itself ([`Config::operation`]).
    ///
    /// # Panics
    ///
    /// Where `asked` does.
    pub fn wait<F: Future>(&self, asked: F) -> F::Output {
        match &self.inner.runtime {
            Some(runtime) => wait(runtime, pin!(asked)),
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

/// A runtime's own `block_on` refuses a thread that is inside a runtime already. Pinned: what is asked is large, and is moved
/// no more than it must.
fn wait<F: Future>(runtime: &Runtime, asked: Pin<&mut F>) -> F::Output {
    let _inside = runtime.enter();
    // The caller may be a task, with a budget of polls that no wait of ours renews.
    let mut asked = pin!(unconstrained(asked));
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        match asked.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => bell.wait(),
        }
    }
}

/// Wakes the thread that waits. One of its own for each wait: whatever else wakes the thread is none of it, and the other way round.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    /// Returns when it was rung since the last time.
    fn wait(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        *self.ring.wait_while(rung, |rung| !*rung).unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ring.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{Builder, pin, wait};
    use std::{sync::mpsc, thread, time::Duration};
    use tokio::{sync::Semaphore, task, time};

    #[test]
    fn a_task_may_wait_for_as_much_as_it_likes_in_one_poll() {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let journal = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let asked = async {
                let turns = Semaphore::new(1);
                for _ in 0..1000 {
                    turns.acquire().await.unwrap().forget();
                    turns.add_permits(1);
                }
                time::sleep(Duration::from_millis(1)).await;
                task::spawn(async { task::spawn_blocking(|| 7).await.unwrap() }).await.unwrap()
            };
            let one = Builder::new_current_thread().build().unwrap();
            let answer = one.block_on(async { wait(&journal, pin!(asked)) });
            one.block_on(async move { journal.shutdown_background() });
            tell.send(answer).unwrap();
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(7));
    }
}

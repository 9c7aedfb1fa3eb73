//! The threads that run the partitions' jobs: one per core, and one more for each thread that is stuck in a write.
//!
//! A partition with work is in the queue once. A worker takes the first partition, runs one of its jobs, and queues it again
//! at the end if it has more work. So partitions take turns, and a stuck partition delays no other.

use super::partition::Partition;
use crate::index::{executor::Executor, failpoint, shared::Shared};
use runlog_log::PartitionId;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

/// The thread pool. It has no threads if the caller runs everything: then [`Pool::run_all`] runs the jobs.
#[derive(Debug)]
pub(super) struct Pool {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// The maximum number of jobs that run at one time: one per partition, and one per core.
    at_once: usize,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    partitions: BTreeMap<PartitionId, Mutex<Partition>>,
    state: Mutex<State>,
    /// Signals work or the shutdown.
    work: Condvar,
    /// Signals the end of a job or of a thread.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<PartitionId>,
    /// Running threads, including idle ones.
    threads: usize,
    idle: usize,
    /// The wanted number of threads.
    wanted: usize,
    /// Jobs that have ended.
    jobs: u64,
    ending: bool,
}

impl Pool {
    pub(super) fn new(shared: Arc<Shared>, partitions: BTreeMap<PartitionId, Mutex<Partition>>) -> Self {
        let (state, work, ended) = (Mutex::default(), Condvar::new(), Condvar::new());
        // Called once, because the system reads files for it.
        let at_once = std::thread::available_parallelism().map_or(1, usize::from).min(partitions.len());
        Self { inner: Arc::new(Inner { shared, partitions, state, work, ended }), threads: Vec::new(), at_once }
    }

    /// Every partition.
    pub(super) fn ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        self.inner.partitions.keys().copied().collect::<Vec<_>>().into_iter()
    }

    /// Locks a partition; `None` if the pool does not have it.
    pub(super) fn partition(&self, id: PartitionId) -> Option<MutexGuard<'_, Partition>> {
        self.inner.partition(id)
    }

    /// Queues a partition for a worker.
    pub(super) fn queue(&mut self, id: PartitionId) {
        self.inner.state().queue.push_back(id);
        self.inner.work.notify_one();
        self.start_threads();
    }

    /// Sets how many jobs are stuck, each of which occupies a thread.
    pub(super) fn set_stuck(&mut self, stuck: usize) {
        self.inner.state().wanted = self.at_once + stuck;
        self.start_threads();
    }

    /// Starts threads for queued partitions without an idle thread, up to the wanted number.
    fn start_threads(&mut self) {
        if self.inner.shared.config.executor.is_caller() {
            return;
        }
        loop {
            {
                let mut state = self.inner.state();
                if state.queue.len() <= state.idle || state.threads >= state.wanted {
                    return;
                }
                state.threads += 1;
            }
            self.threads.retain(|thread| !thread.is_finished());
            let inner = self.inner.clone();
            match Executor::thread("runlog-fold", move || inner.work()) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    tracing::error!("cannot start a thread that applies records: {error}");
                    self.inner.state().threads -= 1;
                    return;
                }
            }
        }
    }

    /// Runs all queued jobs on this thread if the pool has no threads.
    pub(super) fn run_all(&self) {
        loop {
            let next = {
                let mut state = self.inner.state();
                if state.threads > 0 { None } else { state.queue.pop_front() }
            };
            let Some(id) = next else { return };
            self.inner.run(id);
        }
    }

    /// How many jobs have ended.
    pub(super) fn jobs(&self) -> u64 {
        self.inner.state().jobs
    }

    /// Waits until more than `jobs` have ended, at most `wait`.
    pub(super) fn wait_for_job(&self, jobs: u64, wait: Duration) {
        let waited = self.inner.ended.wait_timeout_while(self.inner.state(), wait, |state| state.jobs == jobs);
        drop(waited);
    }

    /// Ends the threads after their current jobs, and waits for them at most `wait`. Drops queued work and leaves stuck
    /// threads running.
    pub(super) fn end(self, wait: Duration) {
        let mut state = self.inner.state();
        state.ending = true;
        self.inner.work.notify_all();
        let waited = self.inner.ended.wait_timeout_while(state, wait, |state| state.threads > 0);
        let stuck = waited.map_or_else(|error| error.into_inner().0.threads, |(state, _)| state.threads);
        if stuck > 0 {
            tracing::error!("{stuck} index writes do not return; committed rows are intact");
            return;
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread that applies records panicked earlier; its committed state is intact");
            }
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partition(&self, id: PartitionId) -> Option<MutexGuard<'_, Partition>> {
        Some(self.partitions.get(&id)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A thread: runs jobs until the end, or until there are more threads than wanted.
    fn work(&self) {
        while let Some(id) = self.next() {
            self.run(id);
        }
        self.ended.notify_all();
    }

    /// Waits for a partition with work. Returns `None` if the thread must end, and no longer counts it.
    fn next(&self) -> Option<PartitionId> {
        let mut state = self.state();
        loop {
            if state.ending || state.threads > state.wanted {
                state.threads -= 1;
                // Wakes another thread, because this one may have been woken for work.
                self.work.notify_one();
                return None;
            }
            if let Some(id) = state.queue.pop_front() {
                return Some(id);
            }
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Runs one job of a partition, and queues it again if it has more.
    fn run(&self, id: PartitionId) {
        let job = self.partition(id).and_then(|mut partition| partition.take_job());
        let Some(job) = job else { return };
        let result = job.run(&self.shared);
        let after_job = self.partition(id).map(|mut partition| partition.apply_result(&self.shared, result));
        if after_job.is_some_and(|after_job| after_job.reported) {
            self.shared.config.failpoints.reach(failpoint::STOP_REPORTED);
        }
        let mut state = self.state();
        state.jobs += 1;
        if after_job.is_some_and(|after_job| after_job.again) {
            state.queue.push_back(id);
        }
        self.ended.notify_all();
    }
}

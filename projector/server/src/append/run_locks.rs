//! Locks for runs, for claims and for the checks of effects. This process numbers a run's records under the run's lock, so the
//! appends of one run are sequential. The copies with one claim are sequential under the claim's lock.
//!
//! ```text
//!   record that this server numbers       run's lock
//!   attempt or decision that is checked   run's lock ─▶ effects' lock, exclusive
//!   record with its own numbers           effects' lock, shared, until the log has it
//! ```
//!
//! A record with its own numbers may be the result of the effect that an attempt or a decision is about. Without the effects' lock
//! it could land between the check and the checked record.

use runlog_projector::index::error::Error;
use runlog_schemas::{answer::ErrorKind, id::RunId, partition::murmur2};
use std::time::Duration;
use tokio::{
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Instant,
};

/// The number of locks, and so of ids that can be locked at the same time.
const LOCKS: usize = 1024;

/// How long a run's records are numbered at `latest` after a conflict: another record already had the number. Every
/// conflict leaves a refused record in the log, so the pause grows for a run that several servers keep writing.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// The time after which a conflict starts with the first pause again. It is longer than the longest pause, so that records
/// are numbered early in between.
const FORGET: Duration = Duration::from_secs(2 * 3600);

/// Locks by a hash of an id: several ids may share a lock.
#[derive(Debug)]
pub(crate) struct Locks<T>(Vec<Mutex<T>>);

/// The state under a lock of runs. Several runs may share a lock: `numbered` is the last numbered run among them, `taken`
/// applies to all.
#[derive(Debug, Default)]
pub(crate) struct LockState {
    /// The run whose last record this server numbered, unless this server has since appended a record of it that is not
    /// judged. The index then has the run's next numbers, unless another process has appended to the run.
    pub(crate) numbered: Option<RunId>,
    taken: Option<NumberTaken>,
}

/// A conflict: this server gave a record a number that the log had already given to another record.
#[derive(Debug)]
struct NumberTaken {
    at: Instant,
    /// How long records are numbered at `latest` after it.
    pause: Duration,
}

impl LockState {
    /// Whether the last conflict is so recent that records are numbered at `latest`.
    pub(crate) fn is_contended(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.at.elapsed() < taken.pause)
    }

    /// Records a conflict of a record that was numbered `early`, without a request for the log's end, or at `latest`.
    pub(crate) fn number_taken(&mut self, early: bool) {
        let lately = self.taken.as_ref().filter(|taken| taken.at.elapsed() < FORGET);
        let pause = match lately.map(|taken| taken.pause) {
            None => PAUSE,
            Some(pause) if early => pause.saturating_mul(2).min(PAUSE_MAX),
            Some(pause) => pause,
        };
        self.taken = Some(NumberTaken { at: Instant::now(), pause });
    }
}

impl<T: Default> Default for Locks<T> {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Mutex::default()).collect())
    }
}

impl<T> Locks<T> {
    /// Waits until the lock of this id is free, and locks it. `earlier` describes the current holder, for the error.
    ///
    /// Errors: `Overloaded` after `wait`.
    pub(crate) async fn lock(
        &self,
        id: &str,
        wait: Duration,
        earlier: impl FnOnce() -> String,
    ) -> Result<MutexGuard<'_, T>, Error> {
        tokio::time::timeout(wait, self.mutex(id).lock()).await.map_err(|_| overloaded(wait, &earlier()))
    }

    fn mutex(&self, id: &str) -> &Mutex<T> {
        &self.0[nth_lock(id)]
    }
}

/// Locks that keep records with their own numbers out while an attempt or a decision is checked and appended. Several runs may
/// share a lock.
#[derive(Debug)]
pub(crate) struct EffectLocks(Vec<RwLock<()>>);

impl Default for EffectLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| RwLock::default()).collect())
    }
}

impl EffectLocks {
    /// Waits until no effect of the run is checked. Records with their own numbers do not wait for each other.
    ///
    /// Errors: `Overloaded` after `wait`.
    pub(crate) async fn share(&self, run_id: RunId<&str>, wait: Duration) -> Result<RwLockReadGuard<'_, ()>, Error> {
        let lock = &self.0[nth_lock(run_id.as_str())];
        let checked = || format!("an attempt or a decision of run {run_id}");
        tokio::time::timeout(wait, lock.read()).await.map_err(|_| overloaded(wait, &checked()))
    }

    /// Waits until the log has answered all earlier records of the run, and keeps further records out.
    ///
    /// Errors: `Overloaded` after `wait`.
    pub(crate) async fn exclude(&self, run_id: RunId<&str>, wait: Duration) -> Result<RwLockWriteGuard<'_, ()>, Error> {
        let lock = &self.0[nth_lock(run_id.as_str())];
        let earlier = || format!("an earlier append to run {run_id}");
        tokio::time::timeout(wait, lock.write()).await.map_err(|_| overloaded(wait, &earlier()))
    }
}

fn nth_lock(id: &str) -> usize {
    murmur2(id.as_bytes()) as usize % LOCKS
}

fn overloaded(wait: Duration, earlier: &str) -> Error {
    let wait = humantime::format_duration(wait);
    Error::new(ErrorKind::Overloaded, format!("timed out after {wait} waiting for {earlier}; nothing was appended"))
}

impl Locks<LockState> {
    /// Forgets that this server numbered the run's last record. Records with their own numbers are being appended, and may
    /// not be judged before the next record is numbered.
    pub(crate) fn forget_numbered(&self, run_id: RunId<&str>) {
        // An append that holds the lock is numbering a record now. If these records take its number, the append numbers it
        // again.
        if let Ok(mut locked) = self.mutex(run_id.as_str()).try_lock() {
            locked.numbered = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_further_conflict_doubles_the_pause_until_two_hours_pass_without_a_conflict() {
        let mut run = LockState::default();
        assert!(!run.is_contended());
        // Whether the number was given early, the seconds of the pause after it, and the seconds from then to the next
        // number.
        let taken = [
            (true, 60, 0),
            (true, 120, 0),
            (false, 120, 0),
            (true, 240, 3600),
            (true, 480, 0),
            (true, 960, 0),
            (true, 1920, 0),
            (true, 3600, 0),
            (true, 3600, 3600),
            (true, 60, 0),
        ];
        for (early, pause, later) in taken {
            run.number_taken(early);
            tokio::time::advance(Duration::from_secs(pause - 1)).await;
            assert!(run.is_contended(), "{pause} s");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(!run.is_contended(), "{pause} s");
            tokio::time::advance(Duration::from_secs(later)).await;
        }
    }

    #[tokio::test]
    async fn the_last_numbered_record_is_forgotten_only_for_its_own_run() {
        let (locks, [run, other]) =
            (Locks::<LockState>::default(), ["run-1", "run-2"].map(|id| RunId::new(id).unwrap()));
        let wait = Duration::from_secs(1);
        for run_id in [run, other] {
            locks.lock(run_id.as_str(), wait, String::new).await.unwrap().numbered = Some(run_id.to_owned());
        }
        locks.forget_numbered(run);
        assert_eq!(locks.lock(run.as_str(), wait, String::new).await.unwrap().numbered, None);
        assert_eq!(locks.lock(other.as_str(), wait, String::new).await.unwrap().numbered, Some(other.to_owned()));
    }
}

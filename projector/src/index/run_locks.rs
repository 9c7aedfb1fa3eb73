//! Locks of runs, under which this process numbers their records, and of claims: appends of one run, and copies of one claim,
//! follow one another.

use super::error::Error;
use runlog_schemas::{answer::ErrorKind, id::RunId, partition::murmur2};
use std::time::Duration;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

/// Ids that can be locked at the same time.
const LOCKS: usize = 1024;

/// How long records are numbered at `latest` after a number was taken. Every number that is taken leaves a refused record in
/// the log, so a run that keeps being written through several servers is left at `latest` for longer and longer.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// When the first pause is as short again. Longer than the longest pause: after that a record has to be numbered early.
const FORGET: Duration = Duration::from_secs(2 * 3600);

/// Locks by a hash of an id: several ids may share a lock.
#[derive(Debug)]
pub(crate) struct Locks<T>(Vec<Mutex<T>>);

/// What is guarded by the lock of a run: `numbered` is the run that was numbered last of those that share the lock, `taken` is of
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct OfLockedRun {
    /// The run of which this server numbered the last record, and of which it has appended none since that is not judged. The
    /// index then has the run's next numbers, unless somebody else has appended to the run.
    pub(crate) numbered: Option<RunId>,
    taken: Option<NumberTaken>,
}

/// A number that this server gave out, and that the log had given to another record.
#[derive(Debug)]
struct NumberTaken {
    at: Instant,
    /// How long records are numbered at `latest` since then.
    pause: Duration,
}

impl OfLockedRun {
    /// Whether a number was taken so recently that records are numbered at `latest`.
    pub(crate) fn is_contended(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.at.elapsed() < taken.pause)
    }

    /// A number was taken: of a record that was numbered `early`, without asking the log for its end, or at `latest`.
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
    /// Waits until nobody else holds the lock of this id. `earlier` names what holds it.
    ///
    /// Errors: `Overloaded` after `wait`.
    pub(crate) async fn lock(
        &self,
        id: &str,
        wait: Duration,
        earlier: impl FnOnce() -> String,
    ) -> Result<MutexGuard<'_, T>, Error> {
        tokio::time::timeout(wait, self.of(id).lock()).await.map_err(|_| {
            let (wait, earlier) = (humantime::format_duration(wait), earlier());
            let message = format!("timed out after {wait} waiting for {earlier}; nothing was appended");
            Error::new(ErrorKind::Overloaded, message)
        })
    }

    fn of(&self, id: &str) -> &Mutex<T> {
        &self.0[murmur2(id.as_bytes()) as usize % self.0.len()]
    }
}

impl Locks<OfLockedRun> {
    /// Records of this run that bring their own numbers are appended, and may not be judged yet when the next one is numbered.
    pub(crate) fn forget_numbered(&self, run_id: RunId<&str>) {
        // Where another append holds the lock, it is numbering a record now. If these records take that number, it is numbered again.
        if let Ok(mut locked) = self.of(run_id.as_str()).try_lock() {
            locked.numbered = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_number_that_is_taken_early_again_doubles_the_pause_until_two_hours_pass_without_one() {
        let mut run = OfLockedRun::default();
        assert!(!run.is_contended());
        // Whether the number was given early, the seconds of the pause after it, and those from there to the next one.
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
    async fn what_a_server_numbered_last_is_forgotten_for_its_own_run() {
        let (locks, [run, other]) =
            (Locks::<OfLockedRun>::default(), ["run-1", "run-2"].map(|id| RunId::new(id).unwrap()));
        let wait = Duration::from_secs(1);
        for run_id in [run, other] {
            locks.lock(run_id.as_str(), wait, String::new).await.unwrap().numbered = Some(run_id.to_owned());
        }
        locks.forget_numbered(run);
        assert_eq!(locks.lock(run.as_str(), wait, String::new).await.unwrap().numbered, None);
        assert_eq!(locks.lock(other.as_str(), wait, String::new).await.unwrap().numbered, Some(other.to_owned()));
    }
}

//! Runs all agents concurrently: most as tasks of this process, some as separate processes. Some of the processes are killed.

use crate::{
    agent::{self, Conversation},
    demo::Demo,
    desk::Moment::{AfterBooking, BeforeBooking},
    error::Error,
    model::Trip,
    takeover::{self, Takeover},
};
use runlog_schemas::answer::ErrorKind;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet};

/// Number of agents in separate processes.
pub(crate) const PROCESSES: u32 = 12;
/// Number of these agents that are killed: in turn before and after the desk books, and with and without a key.
const KILLED: u32 = 8;
/// Largest number of concurrent tasks. The limit on open files may reduce it.
const TASKS_AT_ONCE: u64 = 320;
/// Largest number of open files of a task: two concurrent calls, each with both ends of its connection in this process.
const FILES_PER_TASK: u64 = 4;
/// Open files for everything else: log, indices, the desk.
const FILES_OTHERWISE: u64 = 400;
/// Time limit of the wait for the next finished agent.
const NEXT_WAIT: Duration = Duration::from_secs(150);

/// The conversation of an agent that has finished its trip, and how another process took it over.
type Ended = (Conversation, Option<Takeover>);

/// The running agents.
#[derive(Debug)]
pub(crate) struct Fleet(JoinSet<Result<Ended, Error>>);

impl Fleet {
    /// Starts `agents` agents. Dropping the fleet stops them.
    pub(crate) async fn send_out(demo: &Arc<Demo>, agents: u32, open_files: u64) -> Result<Self, Error> {
        let at_once = (open_files.saturating_sub(FILES_OTHERWISE) / FILES_PER_TASK).clamp(1, TASKS_AT_ONCE);
        let mut fleet = JoinSet::new();
        for number in 1..=agents.min(PROCESSES) {
            let demo = Arc::clone(demo);
            fleet.spawn(async move { run_in_processes(&demo, number).await });
        }
        let runlog = agent::connect(&demo.url).await?;
        let permits = Arc::new(Semaphore::new(at_once as usize));
        for number in PROCESSES + 1..=agents {
            let (demo, runlog, permits) = (Arc::clone(demo), runlog.clone(), Arc::clone(&permits));
            fleet.spawn(async move {
                // The semaphore is never closed.
                let _permit = permits.acquire().await;
                Ok((agent::run_trip(&runlog, &demo.desk, &Trip::new(demo.seed, number, None)).await?, None))
            });
        }
        Ok(Self(fleet))
    }

    /// Waits for the next agent to end and returns its outcome; `None` once all have ended.
    ///
    /// Errors: a timeout or an unavailable server. They neither prove nor disprove the demo's claims.
    pub(crate) async fn next(&mut self) -> Result<Option<Result<Ended, Error>>, Error> {
        let Ok(next) = tokio::time::timeout(NEXT_WAIT, self.0.join_next()).await else {
            let (working, wait) = (self.0.len(), NEXT_WAIT.as_secs());
            let what = format!("{working} agents are at work, but no agent finished within {wait} s");
            return Err(Error::unavailable(what));
        };
        match next.transpose().map_err(|error| Error::internal("an agent panicked").because(error))? {
            Some(Err(error))
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Stale | ErrorKind::Overloaded) =>
            {
                Err(error)
            }
            ended => Ok(ended),
        }
    }
}

async fn run_in_processes(demo: &Demo, number: u32) -> Result<Ended, Error> {
    if number > KILLED {
        let trip = Trip::new(demo.seed, number, Some(number.is_multiple_of(2)));
        return Ok((takeover::run_in_one_process(demo, &trip).await?, None));
    }
    let moment = if matches!(number % 4, 1 | 2) { AfterBooking } else { BeforeBooking };
    let trip = Trip::new(demo.seed, number, Some(!number.is_multiple_of(2)));
    let (conversation, takeover) = takeover::run_in_several_processes(demo, &trip, moment).await?;
    Ok((conversation, Some(takeover)))
}

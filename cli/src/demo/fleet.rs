//! Runs all agents concurrently: most as tasks of this process, some as separate processes. Some of the processes are killed.

use super::{
    agent::{self, Life},
    crash::{self, Takeover},
    desk::Moment,
    model::Trip,
    site::Site,
};
use crate::{Error, limits};
use runlog_producer::Runlog;
use runlog_schemas::answer::ErrorKind;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet};

/// Number of agents in separate processes.
pub(super) const PROCESSES: u32 = 12;
/// For the first of these agents: the moment at which it is killed, and whether its bookings have a key. The others survive.
const DEATHS: [(Moment, bool); 8] = [
    (Moment::AfterBooking, true),
    (Moment::AfterBooking, false),
    (Moment::BeforeBooking, true),
    (Moment::BeforeBooking, false),
    (Moment::AfterBooking, true),
    (Moment::AfterBooking, false),
    (Moment::BeforeBooking, true),
    (Moment::BeforeBooking, false),
];
/// Largest number of concurrent tasks. The limit on open files may reduce it.
const TASKS_AT_ONCE: u64 = 320;
/// Largest number of open files of a task: two concurrent calls, each with both ends of its connection in this process.
const FILES_PER_TASK: u64 = 4;
/// Open files for everything else: log, indices, the desk.
const FILES_OTHERWISE: u64 = 400;
/// Time limit of the wait for the next finished agent.
const NEXT_WAIT: Duration = Duration::from_secs(150);

/// An agent that has finished its trip.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) life: Life,
    pub(super) takeover: Option<Takeover>,
}

/// The running agents.
#[derive(Debug)]
pub(super) struct Fleet(JoinSet<Result<Ended, Error>>);

impl Fleet {
    /// Starts `agents` agents. Dropping the fleet stops them.
    pub(super) async fn send_out(site: &Arc<Site>, agents: u32) -> Result<Self, Error> {
        let files = limits::raise_open_files();
        let at_once = (files.saturating_sub(FILES_OTHERWISE) / FILES_PER_TASK).clamp(1, TASKS_AT_ONCE);
        let mut fleet = JoinSet::new();
        for number in 1..=agents.min(PROCESSES) {
            fleet.spawn(run_in_processes(Arc::clone(site), number));
        }
        let runlog = agent::connect(&site.url).await?;
        let places = Arc::new(Semaphore::new(at_once as usize));
        for number in PROCESSES + 1..=agents {
            let (site, runlog, places) = (Arc::clone(site), runlog.clone(), Arc::clone(&places));
            fleet.spawn(async move { as_task(&site, &runlog, &places, number).await });
        }
        Ok(Self(fleet))
    }

    /// Waits for the next agent to end and returns its outcome; `None` once all have ended.
    ///
    /// Errors: a timeout or an unavailable server. They neither prove nor disprove the demo's claims.
    pub(super) async fn next(&mut self) -> Result<Option<Result<Ended, Error>>, Error> {
        let next = tokio::time::timeout(NEXT_WAIT, self.0.join_next()).await;
        let waited = || {
            let what =
                format!("{} agents are at work, but no agent finished within {} s", self.0.len(), NEXT_WAIT.as_secs());
            Error::new(ErrorKind::Unavailable, what)
        };
        match next.map_err(|_| waited())? {
            None => Ok(None),
            Some(Ok(Err(error)))
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Stale | ErrorKind::Overloaded) =>
            {
                Err(error)
            }
            Some(Ok(ended)) => Ok(Some(ended)),
            Some(Err(error)) => Err(Error::new(ErrorKind::Internal, "an agent panicked").because(error)),
        }
    }
}

async fn as_task(site: &Site, runlog: &Runlog, places: &Semaphore, number: u32) -> Result<Ended, Error> {
    let _place = places.acquire().await.map_err(|error| Error::new(ErrorKind::Internal, "no place").because(error))?;
    let life = agent::live(runlog, &site.desk, &Trip::new(site.seed, number, None)).await?;
    Ok(Ended { life, takeover: None })
}

async fn run_in_processes(site: Arc<Site>, number: u32) -> Result<Ended, Error> {
    match DEATHS.get(number as usize - 1) {
        Some((moment, keyed)) => {
            let trip = Trip::new(site.seed, number, Some(*keyed));
            let (life, takeover) = crash::run_in_several_processes(&site, &trip, *moment).await?;
            Ok(Ended { life, takeover: Some(takeover) })
        }
        None => {
            let trip = Trip::new(site.seed, number, Some(number.is_multiple_of(2)));
            let life = crash::run_in_one_process(&site, &trip).await?;
            Ok(Ended { life, takeover: None })
        }
    }
}

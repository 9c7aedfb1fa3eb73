//! A journal within this process: a log in memory, and a projector whose indices are in memory.

use std::sync::Arc;

use runlog_log::memory::MemoryLog;
use runlog_producer::{Config, Error, Journal, Runlog};
use runlog_projector::{
    Projector,
    index::store::{MemoryFolders, Storage},
};

/// One run has one partition; a second one lets runs be apart.
const PARTITIONS: u32 = 2;

/// An empty journal within this process. Cheap to clone; it is gone with its last clone and the connections to it.
///
/// It applies the same rules as a server, because it uses the same projector. It uses no disk and no socket.
#[derive(Clone, Debug)]
pub struct InProcess {
    log: MemoryLog,
    projector: Arc<Projector>,
}

impl InProcess {
    /// Starts an empty journal. It starts threads, which end with it; connections are used within a Tokio runtime with time.
    ///
    /// Errors: `Unavailable` if this process cannot have another thread.
    pub async fn start() -> Result<Self, Error> {
        let Config { clock, ids, .. } = config("runlog-testing");
        let storage = Storage::Memory(MemoryFolders::default());
        let config = runlog_projector::Config { storage, ..runlog_projector::Config::new("", clock, ids) };
        let log = MemoryLog::new(PARTITIONS);
        let projector = Projector::start(config, Arc::new(log.clone())).await.map_err(|error| error.problem())?;
        Ok(Self { log, projector: Arc::new(projector) })
    }

    /// A connection of an agent, with the defaults. Each connection is as one of another process.
    pub fn connect(&self, agent_id: &str) -> Runlog {
        self.connect_with(config(agent_id))
    }

    /// A connection with a configuration, whose `journal` is ignored.
    pub fn connect_with(&self, config: Config) -> Runlog {
        Runlog::embedded(config, self.projector.clone())
    }

    /// The log, to make it fail at will: [`MemoryLog::fail_next`] loses an answer, [`MemoryLog::hold`] delays reads.
    pub fn log(&self) -> &MemoryLog {
        &self.log
    }
}

fn config(agent_id: &str) -> Config {
    Config::new(Journal::Local("".into()), agent_id)
}

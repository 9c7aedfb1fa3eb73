//! The writers of a port's runs: one per run, opened by the first write.

use runlog_producer::{Error, Runlog, Writer, answer::ErrorKind, id::RunId};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::{Mutex, OnceCell};

/// The most runs that are kept open; of those that nobody writes just now the one that was written longest ago makes room.
const OPEN_MAX: usize = 1024;

/// Writers by run. Each run is claimed by its first write and stays this process's until another one takes it over: from then
/// on its writes fail as [`ErrorKind::ClaimLost`] or [`ErrorKind::Fenced`], and do not claim it again by themselves. Only a run whose
/// first claim was lost, or whose writer made room for others since, is claimed anew by the next write.
#[derive(Debug)]
pub struct Desks {
    runlog: Runlog,
    open: Mutex<Open>,
}

/// A run's writer, once it is there.
type Cell = Arc<OnceCell<Arc<Writer>>>;

#[derive(Debug, Default)]
struct Open {
    writers: BTreeMap<RunId, (u64, Cell)>,
    /// How often a writer was asked for.
    uses: u64,
}

impl Desks {
    /// None is open.
    pub fn new(runlog: Runlog) -> Self {
        Self { runlog, open: Mutex::default() }
    }

    /// The journal.
    pub fn runlog(&self) -> &Runlog {
        &self.runlog
    }

    /// The run's writer, in a cell that [`Desks::writer`] has filled.
    async fn cell(&self, run_id: &RunId) -> Cell {
        let mut open = self.open.lock().await;
        let nth = open.uses;
        open.uses += 1;
        if let Some((used, cell)) = open.writers.get_mut(run_id) {
            *used = nth;
            return cell.clone();
        }
        if open.writers.len() >= OPEN_MAX {
            let idle = open.writers.iter().filter(|(_, (_, cell))| is_idle(cell));
            let first = idle.min_by_key(|(_, (used, _))| *used).map(|(run_id, _)| run_id.clone());
            first.map(|first| open.writers.remove(&first));
        }
        let cell = Cell::default();
        open.writers.insert(run_id.clone(), (nth, cell.clone()));
        cell
    }

    /// The run's writer; the run is claimed where it is not yet. Errors: those of [`Runlog::writer`].
    pub async fn writer(&self, run_id: &RunId) -> Result<Arc<Writer>, Error> {
        let cell = self.cell(run_id).await;
        // Boxed: of all writes the first alone needs the room.
        let open = || async { Box::pin(self.runlog.writer(run_id.clone())).await.map(Arc::new) };
        cell.get_or_try_init(open).await.cloned()
    }

    /// Lets go of the run's writer, which ends nothing: the next write claims the run again, from whoever has it by then.
    pub async fn forget(&self, run_id: &RunId) {
        self.open.lock().await.writers.remove(run_id);
    }
}

/// Whether nobody has the writer in hand.
fn is_idle(cell: &Cell) -> bool {
    Arc::strong_count(cell) == 1 && cell.get().is_none_or(|writer| Arc::strong_count(writer) == 1)
}

/// Whether an error says that another process has the run.
pub fn taken_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ClaimLost | ErrorKind::Fenced)
}

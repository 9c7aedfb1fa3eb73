//! The writers of a port's runs: one per run, opened by its first write.

use runlog_producer::{Error, Runlog, Writer, answer::ErrorKind, id::RunId};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::{Mutex, OnceCell};

/// The maximum number of writers that are kept open. The least recently used idle writer is evicted.
const OPEN_MAX: usize = 1024;

/// Writers by run. The first write of a run claims it for this process. After another process has taken it over, writes fail as
/// [`ErrorKind::ClaimLost`] or [`ErrorKind::Fenced`] and do not claim it again. Only a run whose first claim was lost, or whose
/// writer was evicted, is claimed again by the next write.
#[derive(Debug)]
pub struct WriterPool {
    runlog: Runlog,
    open: Mutex<Open>,
}

/// A run's writer, once it is open.
type Cell = Arc<OnceCell<Arc<Writer>>>;

#[derive(Debug, Default)]
struct Open {
    writers: BTreeMap<RunId, (u64, Cell)>,
    /// Counts the uses of all writers.
    uses: u64,
}

impl WriterPool {
    /// An empty pool.
    pub fn new(runlog: Runlog) -> Self {
        Self { runlog, open: Mutex::default() }
    }

    /// The journal.
    pub fn runlog(&self) -> &Runlog {
        &self.runlog
    }

    /// The run's cell, which [`WriterPool::writer`] fills.
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

    /// The run's writer. Claims the run if it is not open here. Errors: as [`Runlog::writer`].
    pub async fn writer(&self, run_id: &RunId) -> Result<Arc<Writer>, Error> {
        let cell = self.cell(run_id).await;
        // Boxed, because only the first write needs it.
        let open = || async { Box::pin(self.runlog.writer(run_id.clone())).await.map(Arc::new) };
        cell.get_or_try_init(open).await.cloned()
    }

    /// Removes the run's writer, which does not end the run. The next write claims the run again, from any other process.
    pub async fn forget(&self, run_id: &RunId) {
        self.open.lock().await.writers.remove(run_id);
    }
}

/// Whether the writer is not in use.
fn is_idle(cell: &Cell) -> bool {
    Arc::strong_count(cell) == 1 && cell.get().is_none_or(|writer| Arc::strong_count(writer) == 1)
}

/// Whether an error says that another process has the run.
pub fn taken_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ClaimLost | ErrorKind::Fenced)
}

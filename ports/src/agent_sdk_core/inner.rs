//! The state of a [`Journal`](super::Journal): its connection, its writers, and the numbers of its runs.

use super::{numbers::Numbers, record, sdk_error::sdk_error};
use crate::{blocking::Blocking, writer_pool::WriterPool};
use ::agent_sdk_core::{AgentError, RunId};
use runlog_producer::{RecordFilter, Writer, id};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

/// The maximum number of runs whose numbers are cached; an idle run is evicted.
const RUNS_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) blocking: Blocking,
    pub(super) writers: WriterPool,
    pub(super) prefix: String,
    pub(super) patience: Duration,
    pub(super) runs: Mutex<BTreeMap<id::RunId, RunNumbers>>,
    /// The greatest number that was written, or tried, for any run.
    pub(super) tried: Mutex<Option<u64>>,
}

/// A run's numbers, once they are read. Locked while the run is written.
pub(super) type RunNumbers = Arc<tokio::sync::Mutex<Option<CachedNumbers>>>;

/// A run's numbers, and the writer whose claim they were read after.
#[derive(Debug)]
pub(super) struct CachedNumbers {
    pub(super) claim: Weak<Writer>,
    pub(super) numbers: Numbers,
}

impl Inner {
    pub(super) fn run_id(&self, run_id: &RunId) -> Result<id::RunId, AgentError> {
        id::RunId::new(format!("{}{}", self.prefix, run_id.as_str()))
            .map_err(|illegal| AgentError::contract_violation(illegal.to_string()))
    }

    pub(super) fn numbers(&self, run_id: &id::RunId) -> RunNumbers {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if !runs.contains_key(run_id)
            && runs.len() >= RUNS_MAX
            && let Some(idle) =
                runs.iter().find(|(_, numbers)| Arc::strong_count(numbers) == 1).map(|(idle, _)| idle.clone())
        {
            runs.remove(&idle);
        }
        runs.entry(run_id.clone()).or_default().clone()
    }

    /// All records of a run that match `filter`, in log order.
    pub(super) async fn read(
        &self,
        run_id: &id::RunId,
        filter: &RecordFilter,
    ) -> Result<Vec<runlog_producer::JournalRecord>, AgentError> {
        let (mut records, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = self.writers.runlog().records(run_id.clone(), filter, cursor.as_deref(), record::PAGE);
            let page = page.await.map_err(|error| sdk_error(&error, false))?;
            for read in page.records {
                records.push(read.record.map_err(|error| sdk_error(&error, false))?);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(records);
            }
        }
    }
}

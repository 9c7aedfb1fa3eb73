//! Starts and ends a run. A run that has ended accepts the same end again, and appends nothing.

use super::Session;
use crate::{
    error::{Error, SideEffect},
    read::{self, Read},
    transport::request::RecordFilter,
};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    payload::{Payload, RunLifecycle},
};

/// Records that are searched for a run's end. A run has one end, and few records of that kind.
const ENDS_MAX: usize = 100;

impl Session {
    /// Appends a `run_lifecycle` record and waits until it is applied. Any status but `started` ends the run.
    pub(crate) async fn lifecycle(&self, status: &str) -> Result<Position, Error> {
        let lifecycle = RunLifecycle { status: status.to_owned(), reason: String::new() };
        let mut state = self.lock().await?;
        let ready = self.make_ready(&mut state).await;
        if let Some(ended) = state.ended_or(ready)? {
            return self.same_end(&lifecycle, ended).await;
        }
        let record = state.appender.build_record(self.config.record_id()?, lifecycle.into(), None).await?;
        let acked = state.appender.send(record.clone()).await?;
        // Stays set until the run's end is known to be applied or not. If this is cancelled, the handle is stopped.
        state.appender.unacknowledged = Some(record);
        let applied = state.appender.read_back(&acked).await;
        if applied.is_ok()
            && let Err(error) = state.appender.ask_for_results().await
        {
            // Stops the handle until the outcome is known, as after a cancellation.
            return Err(state.appender.stop(error).with_side_effect(SideEffect::Unknown));
        }
        if applied.as_ref().err().is_none_or(|error| matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Fenced)) {
            state.appender.unacknowledged = None;
        }
        applied?;
        state.appender.check_results().map_err(|error| error.with_side_effect(SideEffect::Unknown))?;
        if status != "started" {
            state.end(status);
        }
        Ok(acked.position)
    }

    /// Returns the position of the record that ended the run in the same way. Otherwise returns an error that begins
    /// with `ended`.
    async fn same_end(&self, wanted: &RunLifecycle, ended: Error) -> Result<Position, Error> {
        let (family, kind) = (Some("run".to_owned()), Some(wanted.status.clone()));
        let filter = RecordFilter { family, kind, ..RecordFilter::default() };
        let ends = self.transport.records(self.run_id.borrow(), &filter, None, ENDS_MAX).await?;
        let same = |read: &Read| match &read.record {
            Ok(record) => matches!(&record.payload, Payload::RunLifecycle(found) if found == wanted),
            // Retention removed the reason.
            Err(removed) => removed.kind() == ErrorKind::NotFound,
        };
        let position =
            ends.map(read::page).unwrap_or_default().records.into_iter().find(same).map(|read| read.position);
        position.ok_or_else(|| {
            ended.map_message(|ended| format!("{ended}; it did not end as {} without a reason", wanted.status))
        })
    }
}

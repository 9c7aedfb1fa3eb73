//! The role of a server at its start, for operators: whether it reads the journal's home or a mirror.

use crate::error::Error;
use runlog_projector::{
    Projector,
    index::home::{READ_UNCOMMITTED, Role},
};
use runlog_schemas::{
    answer::{ErrorKind, LogRole},
    id::PartitionId,
};

/// Waits until this server has to start again: it learned that its log began as a mirror, and has read records of aborted transactions.
/// It refuses appends until then.
pub(super) async fn until_outdated(projector: &Projector) -> Error {
    projector.home().await_role(Role::Uncommitted).await;
    Error::new(ErrorKind::Unavailable, format!("{READ_UNCOMMITTED}; start it again: it then builds its index anew"))
}

/// Logs why this server is read-only, or why a mirror of its log would not be. Returns the role, unless it is the home.
pub(super) fn report(projector: &Projector) -> Option<LogRole> {
    let (home, log, journal_id) = (projector.home(), projector.log(), &projector.journal().journal_id);
    let topic = log.topic();
    match home.role() {
        Role::Home => None,
        Role::Mirror | Role::Uncommitted => {
            tracing::warn!(topic, journal_id, "the log is a mirror: claims, appends and reads at latest are refused");
            Some(LogRole::Mirror)
        }
        Role::Contested => {
            tracing::warn!(topic, journal_id, "two logs are the home: claims, appends and reads at latest are refused");
            Some(LogRole::Contested)
        }
        Role::Unknown => {
            let mut partitions = PartitionId::all(projector.journal().partitions);
            // A local log has no mirror. Records that are not applied yet may name a home.
            let is_known = log.clock_millis().is_none() && !partitions.any(|at| home.can_be_mirror(at));
            if is_known && log.id().is_some() {
                tracing::warn!(
                    topic,
                    journal_id,
                    "the journal has no home, so a server on a mirror accepts claims too; runlog doctor has the command"
                );
            }
            Some(LogRole::Unknown)
        }
    }
}

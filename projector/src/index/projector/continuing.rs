//! The calls by which a process continues a run: the wait before it reads the run, and the append. Both refuse a run in doubt, for
//! the server's routes as for a producer in this process.

use super::{Consistency, Projector};
use crate::index::{
    doubt::{self, Author},
    error::Error,
};
use runlog_log::{Entry, Kind};
use runlog_schemas::{
    answer::ErrorKind,
    id::{LogId, Offset, PartitionId, RunId},
};
use std::time::Duration;

/// A failed append.
#[derive(Debug)]
pub struct NotAppended {
    /// The reason.
    pub error: Error,
    /// Whether no record was appended. Otherwise each of them may be in the log.
    pub had_no_effect: bool,
}

impl Projector {
    /// Waits as [`Projector::wait`] does, for an answer by which a process continues the run. Returns the run's partition.
    ///
    /// Errors: as [`Projector::wait`]; `ReconcileRequired` for a run in doubt ([`Projector::check_doubt`]).
    pub async fn wait_to_continue(
        &self,
        run_id: RunId<&str>,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<PartitionId, Error> {
        let partition = self.partition_of(run_id);
        self.wait(partition, consistency, deadline).await?;
        self.check_continued(run_id).await?;
        Ok(partition)
    }

    /// Appends records of a run, which `author` wrote. Returns their offsets after the acknowledgement.
    ///
    /// Errors: `ReconcileRequired`, with nothing appended, for a writer's records of a run in doubt; as
    /// [`Projector::append_to_partition`].
    pub async fn append(
        &self,
        run_id: RunId<&str>,
        author: Author,
        entries: Vec<Entry>,
    ) -> Result<Vec<Offset>, NotAppended> {
        self.check_author(run_id, author).await.map_err(|error| NotAppended { error, had_no_effect: true })?;
        self.append_to_partition(self.partition_of(run_id), entries).await
    }

    /// Checks whether `author` may append to the run, without an append.
    ///
    /// Errors: `ReconcileRequired` for a writer of a run in doubt.
    pub async fn check_author(&self, run_id: RunId<&str>, author: Author) -> Result<(), Error> {
        match author {
            Author::Operator => Ok(()),
            Author::Writer => self.check_continued(run_id).await,
        }
    }

    /// Appends records of a partition. Returns their offsets after the acknowledgement.
    ///
    /// Errors: `Unavailable`, with the reason `not_here` if this server does not hold the partition, and with the reason `mirror` if the
    /// log is not the journal's home; the log's errors; as [`Projector::check_still_home`].
    pub async fn append_to_partition(
        &self,
        partition: PartitionId,
        entries: Vec<Entry>,
    ) -> Result<Vec<Offset>, NotAppended> {
        self.check_held(partition).map_err(|not_here| NotAppended { error: not_here.into(), had_no_effect: true })?;
        let offsets = self.shared.log.append(partition, entries).await.map_err(|failed| {
            let kind = failed.kind();
            let error = match self.home().check_home("an append") {
                Err(not_home) if kind == Kind::NotHome => not_home.about(failed.subject().clone()),
                _ => Error::of_append(failed),
            };
            NotAppended { error, had_no_effect: matches!(kind, Kind::Retry | Kind::Invalid | Kind::NotHome) }
        })?;
        self.check_still_home().map_err(|error| NotAppended { error, had_no_effect: false })?;
        Ok(offsets)
    }

    /// Fails if the log has become a mirror during an append: its records are in this log, and the home lacks them.
    ///
    /// Errors: `Unavailable`.
    pub fn check_still_home(&self) -> Result<(), Error> {
        self.home().check_home("an append").map_err(|refused| {
            let home = refused.home().map_or("unknown", LogId::as_str);
            let message = format!(
                "this server learned during the append that its log is a mirror, and the home is {home}: the home lacks the records; \
                 send them again to a server of the home"
            );
            Error::new(ErrorKind::Unavailable, message)
        })
    }

    /// Checks as [`Projector::check_doubt`] does, on a thread that may block.
    async fn check_continued(&self, run_id: RunId<&str>) -> Result<(), Error> {
        if self.shared.home.takeover().is_none() {
            return Ok(());
        }
        let (shared, partition, run_id) = (self.shared.clone(), self.partition_of(run_id), run_id.to_owned());
        let check = move || doubt::check(&shared.store(partition)?.view(), &shared.home, run_id.borrow());
        let checked = self.read(check).await;
        checked.map_err(|error| Error::new(ErrorKind::Unavailable, "the index was not read").because(error))?
    }

    /// Whether there is a partition whose unknown runs are all in doubt. Blocking.
    pub fn doubts_unknown_runs(&self) -> Result<bool, Error> {
        let Some(home) = self.shared.home.takeover() else { return Ok(false) };
        for partition in PartitionId::all(self.journal().partitions) {
            if doubt::doubts_unknown_runs(&self.store(partition)?.view(), &home)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fails if the run may have done more than this journal knows, because its home was lost. The answer may be out of date only
    /// while an operator accepts the run: it then still fails.
    ///
    /// Errors: `ReconcileRequired` with the reason `doubt`.
    pub fn check_doubt(&self, run_id: RunId<&str>) -> Result<(), Error> {
        doubt::check(&self.store(self.partition_of(run_id))?.view(), &self.shared.home, run_id)
    }
}

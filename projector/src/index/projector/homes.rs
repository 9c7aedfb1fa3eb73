//! Decisions about the journal's home: the first home of an older journal, and the accepts after a takeover.
//!
//! Each is a genesis record of the journal with a header ([`home`](crate::index::home)), which older servers ignore.

use super::Projector;
use crate::index::{
    error::Error,
    home::{Accept, Carried, Home},
    journal::genesis_entry,
    store::{Rows, meta},
};
use runlog_log::{Entry, LogId};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    id::{Offset, PartitionId, RecordId, RunId},
    record::JournalRecord,
};
use std::time::Duration;
use tokio::time::Instant;

/// The author of a decision and the reason.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The author.
    pub who: String,
    /// The reason.
    pub why: String,
}

/// Sets the principal of a record and the proof of it.
pub type Sign<'a> = &'a (dyn Fn(&mut JournalRecord) + Send + Sync);

/// What [`Projector::init_home`] has to append.
#[derive(Clone, Debug)]
pub struct HomePlan {
    /// The home of the journal, if it has one: this log.
    known: Option<Home>,
    /// The partitions without its record.
    lacking: Vec<PartitionId>,
}

impl HomePlan {
    /// Whether the journal has no home.
    pub fn is_first(&self) -> bool {
        self.known.is_none()
    }

    /// The number of the home within the journal.
    pub fn epoch(&self) -> u32 {
        self.known.as_ref().map_or(1, |home| home.epoch)
    }

    /// Whether every partition has the record of the home.
    pub fn is_complete(&self) -> bool {
        self.lacking.is_empty()
    }
}

impl Projector {
    /// Finds out what a first home needs, from all records of the log: one of them may name a home.
    ///
    /// Errors: as [`Projector::wait`] at `latest`.
    pub async fn plan_home(&self, deadline: Duration) -> Result<HomePlan, Error> {
        let until = Instant::now() + deadline;
        for partition in PartitionId::all(self.journal().partitions) {
            self.wait(partition, super::Consistency::Latest, left(until)).await?;
        }
        self.home().check_home("a home")?;
        let known = self.home().known().and_then(|row| row.home());
        let lacking = self.lacking_home(known.as_ref().map_or(1, |home| home.epoch))?;
        Ok(HomePlan { known, lacking })
    }

    /// Makes the log the home of a journal without a home. Partition 0 decides; the other partitions follow. If the log is the home
    /// already, completes the partitions that lack the record. Returns the positions of the new records, which are applied.
    ///
    /// Errors: `Invalid` if the log has no id; as [`Projector::wait`] on a mirror. After another error, some partitions may have the
    /// record; repeat both calls.
    pub async fn init_home(
        &self,
        plan: HomePlan,
        decision: Decision,
        sign: Sign<'_>,
        deadline: Duration,
    ) -> Result<Vec<Position>, Error> {
        let until = Instant::now() + deadline;
        let Decision { who, why } = decision;
        let home = match plan.known {
            Some(known) => known,
            None => Home { epoch: 1, log: self.own_log()?, from: None, who, why },
        };
        let mut positions = Vec::new();
        for partition in plan.lacking {
            let entry = self.carrier(&Carried::Home(home.clone()), sign)?;
            let offset = self.appended(self.shared.log.append(partition, vec![entry]).await, positions.is_empty())?;
            positions.push(self.applied_at(partition, offset, until).await?);
        }
        Ok(positions)
    }

    /// Records that an operator has checked a run, or all runs that are unknown here, after a takeover. Returns the positions of the
    /// records, which are applied.
    ///
    /// Errors: `Invalid` without a takeover; `Conflict` if a partition lacks the record of the takeover, because an accept must follow
    /// it; as [`Projector::wait`] on a mirror.
    pub async fn accept(
        &self,
        run: Option<RunId>,
        decision: Decision,
        sign: Sign<'_>,
        deadline: Duration,
    ) -> Result<Vec<Position>, Error> {
        let until = Instant::now() + deadline;
        self.home().check_home("an accept")?;
        let Some(home) = self.home().known().filter(|home| home.epoch > 1) else {
            let message =
                format!("journal {} has lost no home, so no run waits for an accept", self.journal().journal_id);
            return Err(Error::new(ErrorKind::Invalid, message));
        };
        let partitions: Vec<_> = match &run {
            Some(run_id) => vec![self.partition_of(run_id.borrow())],
            None => PartitionId::all(self.journal().partitions).collect(),
        };
        for partition in &partitions {
            self.running(*partition)?;
            if self.lacks_home(*partition, home.epoch)? {
                let message = format!(
                    "partition {partition} lacks the record of the takeover: start the server with --take-home {} again first",
                    home.from
                );
                return Err(Error::new(ErrorKind::Conflict, message).in_partition(*partition));
            }
        }
        let Decision { who, why } = decision;
        let mut positions = Vec::new();
        for partition in partitions {
            let carried = Carried::Accept(Accept { run: run.clone(), who: who.clone(), why: why.clone() });
            let appended = self.shared.log.append(partition, vec![self.carrier(&carried, sign)?]).await;
            let offset = self.appended(appended, positions.is_empty())?;
            positions.push(self.applied_at(partition, offset, until).await?);
        }
        Ok(positions)
    }

    /// The id of the log.
    fn own_log(&self) -> Result<LogId, Error> {
        self.home().own().cloned().ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "these brokers give no topic ids, so no log can be named as the journal's home",
            )
        })
    }

    /// The partitions that have not applied the home of this epoch.
    fn lacking_home(&self, epoch: u32) -> Result<Vec<PartitionId>, Error> {
        let mut lacking = Vec::new();
        for partition in PartitionId::all(self.journal().partitions) {
            if self.lacks_home(partition, epoch)? {
                lacking.push(partition);
            }
        }
        Ok(lacking)
    }

    /// Whether a partition has not applied the home of this epoch.
    fn lacks_home(&self, partition: PartitionId, epoch: u32) -> Result<bool, Error> {
        let row: Option<meta::HomeRow> = self.store(partition).get(&meta::home())?;
        Ok(row.is_none_or(|row| row.epoch < epoch))
    }

    /// A genesis record of the journal with a header.
    fn carrier(&self, carried: &Carried, sign: Sign<'_>) -> Result<Entry, Error> {
        let record_id = RecordId::new(format!("home:{}", (self.config().ids)()))?;
        genesis_entry(self.config(), self.journal(), record_id, Some(carried), sign)
    }

    /// The offset of an append of one record. `is_first` if no append precedes it in the same call.
    fn appended(&self, appended: Result<Vec<Offset>, runlog_log::Error>, is_first: bool) -> Result<Offset, Error> {
        let offsets = appended.map_err(Error::of_append);
        let offsets = offsets.map_err(|error| if is_first { error } else { error.after_a_part() })?;
        Ok(offsets.first().copied().unwrap_or_default())
    }

    /// The position of an appended record, after its partition has applied it.
    async fn applied_at(&self, partition: PartitionId, offset: Offset, until: Instant) -> Result<Position, Error> {
        self.wait(partition, super::Consistency::AtLeast(partition, offset), left(until)).await?;
        Ok(self.position(partition, offset, 0))
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

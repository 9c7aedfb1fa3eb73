//! Decisions about the journal's home: the first home of an older journal, the takeover by a mirror, and the accepts after it.
//!
//! Each is a genesis record of the journal with a header ([`home`](crate::index::home)), which older servers ignore.

use super::Projector;
use crate::index::{
    error::Error,
    failpoint,
    held::NotHere,
    home::{self, Accept, Carried, Home, READ_UNCOMMITTED, Role},
    journal::genesis_entry,
    store::{
        Rows,
        meta::{self, HomeRow},
    },
};
use runlog_log::{Entry, Log, LogId};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    id::{Offset, PartitionId, RecordId, RunId},
    record::JournalRecord,
    shell,
};
use std::time::Duration;
use tokio::time::Instant;

/// How long a takeover waits for an answer of the log, and before it reports again which partition it waits for.
const LOG_WAIT: Duration = Duration::from_secs(30);

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

/// The result of [`Projector::take_home`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This log became the home. The positions of its records.
    Now(Vec<Position>),
    /// This log had taken over before. The positions of the records for partitions that lacked one.
    Before(Vec<Position>),
    /// Nothing was changed, because a record arrived: the home is alive, or MirrorMaker is not stopped.
    RecordsArrive {
        /// The partition.
        partition: PartitionId,
        /// The offset of the record.
        offset: Offset,
    },
}

impl Projector {
    /// Plans a first home, from all records of the log: one of them may name a home.
    ///
    /// Errors: as [`Projector::wait`] at `latest`; `Unavailable` with the reason `not_here` if this server does not hold all partitions.
    pub async fn plan_home(&self, deadline: Duration) -> Result<HomePlan, Error> {
        let until = Instant::now() + deadline;
        self.check_all_held()?;
        for partition in PartitionId::all(self.journal().partitions) {
            self.wait(partition, super::Consistency::Latest, left(until)).await?;
        }
        self.home().check_home("a home")?;
        let home = self.home().known().and_then(|row| row.home());
        let lacking = self.lacking_home(home.as_ref().map_or(1, |home| home.epoch))?;
        Ok(HomePlan { known: home, lacking })
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
        let (carried, mut positions) = (Carried::Home(home), Vec::new());
        for partition in plan.lacking {
            let entry = self.carrier(&carried, sign)?;
            let offset = append_carrier(&*self.shared.log, partition, entry, !positions.is_empty()).await?;
            positions.push(self.applied_at(partition, offset, until).await?);
        }
        Ok(positions)
    }

    /// Records that an operator has checked a run, or all runs that are unknown here, after a takeover. Returns the positions of the
    /// records, which are applied.
    ///
    /// Errors: `Unavailable` with the reason `not_here`, with nothing appended, if this server does not hold one of the partitions.
    /// `Invalid` without a takeover; `PartitionStopped`, and `Conflict` if a partition lacks the record of the takeover, because an
    /// accept must follow it. The other partitions have the record then; repeat the call later, which keeps the earlier records in
    /// force. As [`Projector::wait`] on a mirror.
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
        // Before the first record is appended: the call would succeed for some of the partitions only.
        partitions.iter().try_for_each(|partition| self.check_held(*partition))?;
        let Decision { who, why } = decision;
        let (mut positions, mut refused, mut appended) = (Vec::new(), None, false);
        let carried = Carried::Accept(Accept { epoch: home.epoch, run, who, why });
        for partition in partitions {
            // A stopped partition does not keep the others from beginning runs.
            if let Err(error) = self.can_accept(partition, &home) {
                refused = Some(error);
                continue;
            }
            let entry = self.carrier(&carried, sign)?;
            let offset = append_carrier(&*self.shared.log, partition, entry, appended).await?;
            appended = true;
            match self.applied_at(partition, offset, until).await {
                Ok(position) => positions.push(position),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if appended => Err(error.after_a_part()),
            Some(error) => Err(error),
            None => Ok(positions),
        }
    }

    /// Whether an accept can follow the takeover in a partition.
    fn can_accept(&self, partition: PartitionId, home: &HomeRow) -> Result<(), Error> {
        self.running(partition)?;
        if !self.lacks_home(partition, home.epoch)? {
            return Ok(());
        }
        let message = format!(
            "partition {partition} has not applied the record of the takeover: if it is not stopped, and its lag does not end, start the \
             server with {} again",
            shell::flag("--take-home", &home.from)
        );
        Err(Error::new(ErrorKind::Conflict, message).in_partition(partition))
    }

    /// Makes this mirror the home of the journal, because its home `from` is lost. Every run that was open then, or is unknown here, is
    /// in doubt from then on ([`Projector::check_doubt`]).
    ///
    /// Waits without a deadline until every partition has applied the log's end or is stopped, and no record has arrived for
    /// [`Config::takeover_quiet`](crate::index::config::Config::takeover_quiet).
    /// Appends the record to partition 0 first. After a crash or an error, repeat the call: it completes the other partitions. Until
    /// then, every open run of a partition without the record is in doubt. A stopped partition cannot apply the record and gets it
    /// again with each call; only the first one counts.
    ///
    /// Errors: `Invalid` if the journal's home is not `from`, or this log has no id; `Unavailable` if the log was read uncommitted,
    /// until a restart.
    pub async fn take_home(&self, from: &LogId, decision: Decision) -> Result<Taken, Error> {
        let own = self.own_log()?;
        self.check_all_held()?;
        if self.paused() {
            return Err(Error::new(ErrorKind::Invalid, "a paused server reads no records, so it cannot take over"));
        }
        let ends = self.reach_ends().await?;
        if let Some(home) = self.home_from(&own, from) {
            return Ok(Taken::Before(self.append_home(&home, &ends).await?));
        }
        self.check_lost(&own, from)?;
        if self.log().reads_uncommitted() {
            let message = format!(
                "{READ_UNCOMMITTED}; it has not taken over; start it again with the same flags, it then builds its index again"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        tokio::time::sleep(self.config().takeover_quiet).await;
        let ends_now = self.reach_ends().await?;
        // Another server of this log may have been faster.
        if let Some(home) = self.home_from(&own, from) {
            return Ok(Taken::Before(self.append_home(&home, &ends_now).await?));
        }
        let partitions = PartitionId::all(self.journal().partitions);
        for (partition, (offset, now)) in partitions.zip(ends.iter().copied().zip(ends_now)) {
            if offset != now {
                return Ok(Taken::RecordsArrive { partition, offset });
            }
        }
        let epoch = self.home().known().map_or(1, |known| known.epoch).saturating_add(1);
        if epoch > home::EPOCH_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("the journal's home has epoch {}, and no greater one is possible", home::EPOCH_MAX),
            ));
        }
        let Decision { who, why } = decision;
        let home = Home { epoch, log: own, from: Some(from.clone()), who, why };
        let positions = self.append_home(&home, &ends).await?;
        if self.home().role() == Role::Home {
            return Ok(Taken::Now(positions));
        }
        let message = "the record of the takeover was appended, but this log is not the home: another log took over too; see `runlog doctor`";
        Err(Error::new(ErrorKind::Conflict, message))
    }

    /// The home in force, if it is the log `own` and took over from the log `from`.
    fn home_from(&self, own: &LogId, from: &LogId) -> Option<Home> {
        let row = self.home().known().filter(|row| row.rival.is_empty())?;
        row.home().filter(|home| home.log == *own && home.from.as_ref() == Some(from))
    }

    /// Refuses to take over from another log than the journal's home. A journal without a home does not name the log that was lost, and
    /// its home could be this very log.
    fn check_lost(&self, own: &LogId, from: &LogId) -> Result<(), Error> {
        let journal_id = &self.journal().journal_id;
        let message = match self.home().known() {
            _ if own == from => format!("log {from} is this server's own log, so it is not lost"),
            Some(home) if home.log == own.as_str() && home.rival.is_empty() => {
                let took_over =
                    if home.from.is_empty() { String::new() } else { format!(", and took over from {}", home.from) };
                format!("this log, {own}, is the home of journal {journal_id}{took_over}; remove --take-home")
            }
            Some(home) if [home.log.as_str(), home.rival.as_str()].contains(&from.as_str()) => return Ok(()),
            Some(home) if home.rival.is_empty() => {
                format!("the home of journal {journal_id} is {}, not {from}", home.log)
            }
            Some(HomeRow { log, rival, .. }) => {
                format!("journal {journal_id} has homes of two logs, {log} and {rival}; name the lost one")
            }
            None => {
                format!("journal {journal_id} has no home; set it by `runlog home init` at the log where agents write")
            }
        };
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Waits until each partition has applied the log's end or is stopped. Returns the ends.
    async fn reach_ends(&self) -> Result<Vec<Offset>, Error> {
        let mut ends = Vec::new();
        for partition in PartitionId::all(self.journal().partitions) {
            let end = self.bounds(partition, LOG_WAIT).await?.end;
            self.wait_reporting(partition, end).await?;
            ends.push(end);
        }
        Ok(ends)
    }

    /// Waits until a partition has applied all records below `end` or is stopped, and logs from time to time that it waits.
    async fn wait_reporting(&self, partition: PartitionId, end: Offset) -> Result<(), NotHere> {
        let reached = |progress: &super::Progress| progress.applied >= end || progress.stopped.is_some();
        loop {
            if let Ok(reached) = tokio::time::timeout(LOG_WAIT, self.wait_until(partition, reached)).await {
                return reached.map(drop);
            }
            let applied = self.progress(partition)?.applied;
            tracing::warn!(
                %partition, %applied, %end,
                "the takeover waits for a partition to apply the log. An open transaction may hold it up, until its producer or the broker ends it"
            );
        }
    }

    /// Appends the home of this log to the partitions that lack it, partition 0 first, beside the guard, which refuses the appends of a
    /// mirror. Learns the home from the first acknowledgement, because a stopped partition cannot apply it. Then waits until the
    /// running partitions have applied it. `ends` are the ends of the log that the partitions have applied.
    async fn append_home(&self, home: &Home, ends: &[Offset]) -> Result<Vec<Position>, Error> {
        let (carried, mut positions) = (Carried::Home(home.clone()), Vec::<Position>::new());
        for partition in self.lacking_home(home.epoch)? {
            let entry = self.carrier(&carried, &|_| {})?;
            let offset = append_carrier(&*self.shared.unguarded, partition, entry, !positions.is_empty()).await?;
            positions.push(self.position(partition, offset, 0));
            if ends.get(partition.index()).is_some_and(|end| *end != offset) {
                tracing::error!(
                    %partition, %offset,
                    "records precede the takeover that this server has not applied: MirrorMaker still writes to this log, or was killed in a \
                     transaction; make sure that it is stopped"
                );
            }
            if let Some(row) = home::advance(self.home().known().as_ref(), home, offset, self.log_now()) {
                self.home().learn(&row);
            }
            self.config().failpoints.reach(failpoint::HOME_APPENDED);
        }
        for at in &positions {
            self.wait_reporting(at.partition, at.offset.saturating_add(1)).await?;
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
        let row: Option<HomeRow> = self.store(partition)?.get(&meta::home())?;
        Ok(row.is_none_or(|row| row.epoch < epoch))
    }

    /// A genesis record of the journal with a header.
    fn carrier(&self, carried: &Carried, sign: Sign<'_>) -> Result<Entry, Error> {
        let record_id = RecordId::new(format!("home:{}", (self.config().ids)()))?;
        let entry = genesis_entry(self.config(), self.journal(), record_id, Some(carried), sign)?;
        let bytes = entry.headers.iter().filter(|(name, _)| name == home::HEADER).map(|(_, value)| value.len()).max();
        if bytes.is_some_and(|bytes| bytes > home::BYTES_MAX) {
            let message =
                format!("the name and the reason have more than {} bytes in all; shorten them", home::BYTES_MAX);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(entry)
    }

    /// The position of an appended record, after its partition has applied it.
    async fn applied_at(&self, partition: PartitionId, offset: Offset, until: Instant) -> Result<Position, Error> {
        self.wait(partition, super::Consistency::AtLeast(partition, offset), left(until)).await?;
        Ok(self.position(partition, offset, 0))
    }
}

/// Appends a record. Returns its offset. `is_later` if the same call has appended a record before, which its error then says.
async fn append_carrier(log: &dyn Log, partition: PartitionId, entry: Entry, is_later: bool) -> Result<Offset, Error> {
    let offsets = log.append(partition, vec![entry]).await.map_err(Error::of_append);
    let offsets = offsets.map_err(|error| if is_later { error.after_a_part() } else { error })?;
    Ok(offsets.first().copied().unwrap_or_default())
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

//! The outcomes of appended records, from the index.

use crate::index::{
    Consistency, Error, Projector,
    query::{self, TopicPartition},
    store::{self, Rows, runs::RunRow},
};
use runlog_schemas::{
    answer::{Appended, Disposition, ErrorKind, Outcome, Position, ReadBack, Writer},
    id::{Offset, OrEmpty, PartitionId, RecordId, RunId},
};
use std::{sync::Arc, time::Duration};

/// Most outcomes that a network thread reads itself. The rows of so few records were just written and are in memory.
pub(in crate::server) const READ_HERE_MAX: usize = 16;

/// When an append answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum AnswerAt {
    /// When the log has acknowledged the records. The records are not judged yet, so they must bring all their numbers.
    Acknowledged,
    /// When the records are judged and the index has this consistency, measured after the acknowledgement.
    Judged(Consistency),
}

impl Projector {
    /// Returns the outcomes of records that the log has acknowledged at these offsets.
    pub(super) async fn landed_at(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        landed: Vec<(Offset, OrEmpty<RecordId>)>,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let partition = self.partition_of(run_id);
        let AnswerAt::Judged(consistency) = at else {
            return Ok(landed.into_iter().map(|(offset, id)| self.unjudged(partition, offset, id)).collect());
        };
        let (count, last) = (landed.len(), landed.last().map(|(offset, _)| *offset).unwrap_or_default());
        self.wait_past(partition, last, consistency, deadline).await?;
        let read = move |projector: &Self, run_id: RunId<&str>| {
            let outcome = |(offset, id): &(Offset, OrEmpty<RecordId>)| {
                projector.outcome(run_id, partition, (*offset, 0), id.borrow())
            };
            landed.iter().map(outcome).collect()
        };
        if count <= READ_HERE_MAX { read(self, run_id) } else { self.blocking(run_id, read).await }
    }

    /// Makes the outcome of a record that is not judged.
    pub(super) fn unjudged(&self, partition: PartitionId, offset: Offset, record_id: OrEmpty<RecordId>) -> Outcome {
        let position = self.position(partition, offset, 0);
        let (outcome, reason) = (Disposition::Appended.into(), None);
        Outcome { position, outcome, reason, record_id, journal_seq: None, record_writer: None }
    }

    /// Returns the outcome of the record at an applied place.
    pub fn outcome(
        &self,
        run_id: RunId<&str>,
        partition: PartitionId,
        place: (Offset, u32),
        record_id: Option<RecordId<&str>>,
    ) -> Result<Outcome, Error> {
        let store = self.store(partition);
        let at = TopicPartition { topic: self.log().topic(), partition };
        query::outcome::get(&store.view(), at, run_id, place, record_id)?.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!(
                    "no record {} of run {run_id} is at partition {partition}, offset {}",
                    OrEmpty::from(record_id),
                    place.0
                ),
            )
            .at(&self.position(partition, place.0, place.1))
            .about_record(record_id)
        })
    }

    /// Returns the outcomes of the run's records at `position` and at the positions `also`, and the run's current
    /// writer. All come from one view, which has at least this consistency and all of the positions.
    ///
    /// At `latest` the answer proves that the log had no claim after the record when the request arrived.
    ///
    /// Errors: `NotFound` if `position` has no record of the run; `Unavailable` if the log's end at `latest` is not
    /// beyond the position.
    pub async fn read_back(
        &self,
        run_id: RunId<&str>,
        position: &Position,
        record_id: Option<RecordId<&str>>,
        also: &[Position],
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<ReadBack, Error> {
        let partition = position.partition;
        let last = also.iter().map(|also| also.offset).max().unwrap_or_default().max(position.offset);
        if partition == self.partition_of(run_id) {
            self.wait_past(partition, last, consistency, deadline).await?;
        } else {
            // Another partition has no record of the run: the answer is `NotFound`.
            self.wait(partition, Consistency::AtLeast(partition, last), deadline).await?;
        }
        let store = self.store(partition);
        let at = TopicPartition { topic: self.log().topic(), partition };
        let place = |position: &Position| (position.offset, position.index);
        let places: Vec<_> = also.iter().map(place).collect();
        query::outcome::read_back(&store.view(), at, run_id, place(position), record_id, &places)?
            .ok_or_else(|| self.no_record_at(run_id, position, record_id))
    }

    /// Waits until positions of the run's partition are applied, and returns the outcomes there. A position without a
    /// record of the run has no outcome.
    pub(in crate::server) async fn outcomes(
        &self,
        run_id: RunId<&str>,
        positions: &[Position],
        deadline: Duration,
    ) -> Result<Vec<Option<Outcome>>, Error> {
        let Some(last) = positions.iter().map(|position| position.offset).max() else { return Ok(Vec::new()) };
        let partition = self.partition_of(run_id);
        self.wait(partition, Consistency::AtLeast(partition, last), deadline).await?;
        let store = self.store(partition);
        let at = TopicPartition { topic: self.log().topic(), partition };
        let places: Vec<_> = positions.iter().map(|position| (position.offset, position.index)).collect();
        query::outcome::each(&store.view(), at, run_id, &places)
    }

    /// Makes the error for a position that does not have this record of the run.
    pub(in crate::server) fn no_record_at(
        &self,
        run_id: RunId<&str>,
        position: &Position,
        record_id: Option<RecordId<&str>>,
    ) -> Error {
        let place = format!("partition {}, offset {}", position.partition, position.offset);
        let message = format!("no record {:?} of run {run_id} is at {place}", OrEmpty::from(record_id).as_str());
        let error = Error::new(ErrorKind::NotFound, message);
        error.at(&self.position(position.partition, position.offset, position.index)).about_record(record_id)
    }

    /// Returns the outcome of the first record with this id, and the run's current writer, from one view of this
    /// consistency. Returns no outcome if no record with the id was applied or refused for its content.
    pub async fn landed(
        &self,
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<Option<ReadBack>, Error> {
        let partition = self.partition_of(run_id);
        self.wait(partition, consistency, deadline).await?;
        let store = self.store(partition);
        let at = TopicPartition { topic: self.log().topic(), partition };
        query::outcome::by_id(&store.view(), at, run_id, record_id)
    }

    /// Adds to each outcome the number of its applied record and the run's current writer.
    pub(in crate::server) fn answers(
        &self,
        run_id: RunId<&str>,
        outcomes: Vec<Outcome>,
        planned: bool,
    ) -> Result<Vec<Appended>, Error> {
        let store = self.store(self.partition_of(run_id));
        let view = store.view();
        let row: RunRow = view.get(&store::runs::key(run_id))?.unwrap_or_default();
        let writer = Writer { writer_id: row.head.writer_id, epoch: row.head.epoch };
        let answer = |mut outcome: Outcome| {
            // A planned record has no position yet.
            if outcome.journal_seq.is_none() && outcome.reason.is_none() && !planned {
                let at = (outcome.position.offset, outcome.position.index);
                outcome.journal_seq = query::outcome::number(&view, run_id, at)?;
            }
            Ok(Appended::new(outcome, Some(writer.clone())))
        };
        outcomes.into_iter().map(answer).collect()
    }
}

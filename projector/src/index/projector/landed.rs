//! Reads back the outcomes of a run's records, for its writer: their places are applied, and the run is not in doubt.

use super::{Consistency, Projector};
use crate::index::{doubt, error::Error, query};
use runlog_schemas::{
    answer::{ErrorKind, Outcome, Position, ReadBack},
    id::{Offset, OrEmpty, PartitionId, RecordId, RunId},
};
use std::time::Duration;

impl Projector {
    /// Returns the outcome of the run's record at an applied place.
    ///
    /// Errors: `NotFound` if an operator skipped the record before it was judged.
    pub fn outcome(
        &self,
        run_id: RunId<&str>,
        partition: PartitionId,
        place: (Offset, u32),
        record_id: Option<RecordId<&str>>,
    ) -> Result<Outcome, Error> {
        let store = self.store(partition)?;
        let at = self.place(partition);
        query::outcome::get(&store.view(), at, run_id, place, record_id)?.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!(
                    "record {} of run {run_id} was appended at partition {partition}, offset {}, and an operator skipped it: it is \
                     not applied; read the run before you continue",
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
    /// beyond the position; `ReconcileRequired` for a run in doubt ([`Projector::check_doubt`]).
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
        let store = self.store(partition)?;
        let (view, at) = (store.view(), self.place(partition));
        doubt::check(&view, &self.shared.home, run_id)?;
        let place = |position: &Position| (position.offset, position.index);
        let places: Vec<_> = also.iter().map(place).collect();
        query::outcome::read_back(&view, at, run_id, place(position), record_id, &places)?
            .ok_or_else(|| self.no_record_at(run_id, position, record_id))
    }

    /// Makes the error for a position that does not have this record of the run.
    pub fn no_record_at(&self, run_id: RunId<&str>, position: &Position, record_id: Option<RecordId<&str>>) -> Error {
        let place = format!("partition {}, offset {}", position.partition, position.offset);
        let message = format!("no record {:?} of run {run_id} is at {place}", OrEmpty::from(record_id).as_str());
        let error = Error::new(ErrorKind::NotFound, message);
        error.at(&self.position(position.partition, position.offset, position.index)).about_record(record_id)
    }

    /// Returns the outcome of the first record with this id, and the run's current writer, from one view of this
    /// consistency. Returns no outcome if no record with the id was applied or refused for its content.
    ///
    /// Errors: `ReconcileRequired` for a run in doubt ([`Projector::check_doubt`]).
    pub async fn landed(
        &self,
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<Option<ReadBack>, Error> {
        let partition = self.partition_of(run_id);
        self.wait(partition, consistency, deadline).await?;
        let store = self.store(partition)?;
        let (view, at) = (store.view(), self.place(partition));
        doubt::check(&view, &self.shared.home, run_id)?;
        query::outcome::by_id(&view, at, run_id, record_id)
    }
}

//! How records get into the log and answers out of a projector: one interface over the three ways of `Journal`.

use crate::{
    Config, Error, Journal,
    read::Select,
    room::{Room, Taken},
};
use runlog_content::Store;
use runlog_schemas::{
    answer::{Checkpoint, Lines, Lookup, Outcome, Position, ReadBack, Recovery, Run},
    id::{JournalSeq, RecordId, RunId},
    record::JournalRecord,
    trace::is_traceparent,
};
use std::time::Duration;

mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "embedded")]
mod local;

/// What an acknowledged append is known to have come to.
#[derive(Clone, Debug)]
pub(crate) struct Appended {
    pub(crate) position: Position,
    /// Its outcome, where the way told it along with the acknowledgement.
    pub(crate) outcome: Option<Outcome>,
}

/// What of a recovery is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// As if there were no checkpoint.
    pub(crate) from_start: bool,
    /// Whether the run's content is there.
    pub(crate) content: bool,
}

/// The content store that a producer was given.
pub(crate) fn content(config: &Config) -> Result<Option<Store>, Error> {
    Ok(config.content.as_ref().map(Store::open).transpose()?)
}

/// Whether a failed append may have landed.
#[derive(Debug)]
pub(crate) struct AppendFailed {
    pub(crate) error: Error,
    /// Nothing was appended: the numbers can be used again.
    pub(crate) untouched: bool,
}

/// The run of a record, which a producer writes no other records than.
#[cfg(any(feature = "kafka", feature = "embedded"))]
pub(crate) fn run_of(record: &JournalRecord) -> Result<RunId<&str>, AppendFailed> {
    record.body.run_id.borrow().ok_or_else(|| {
        let message = format!("record {} belongs to no run", record.body.record_id);
        let error = Error::new(runlog_schemas::answer::ErrorKind::Invalid, crate::Action::FixTheInput, message);
        AppendFailed { error, untouched: true }
    })
}

/// A way to a journal, and how much may be on it.
#[derive(Debug)]
pub(crate) struct Transport {
    way: Way,
    room: Room,
}

#[derive(Debug)]
enum Way {
    Http(http::Http),
    #[cfg(feature = "kafka")]
    Kafka(Box<kafka::Kafka>),
    #[cfg(feature = "embedded")]
    Local(Box<local::Local>),
}

/// The same call on whichever way it is.
macro_rules! each {
    ($self:expr, $way:ident => $call:expr) => {
        match &$self.way {
            Way::Http($way) => $call,
            #[cfg(feature = "kafka")]
            Way::Kafka($way) => $call,
            #[cfg(feature = "embedded")]
            Way::Local($way) => $call,
        }
    };
}

impl Transport {
    pub(crate) async fn connect(config: &Config) -> Result<Self, Error> {
        let way = match &config.journal {
            Journal::Http(server) => {
                http::Http::connect(server, config.deadline, content(config)?).await.map(Way::Http)
            }
            #[cfg(feature = "kafka")]
            Journal::Kafka { brokers, server } => {
                kafka::Kafka::connect(brokers, server, config).await.map(|kafka| Way::Kafka(Box::new(kafka)))
            }
            #[cfg(feature = "embedded")]
            Journal::Local(dir) => local::Local::open(dir, config).await.map(|local| Way::Local(Box::new(local))),
            #[allow(unreachable_patterns, reason = "reachable where a feature is off")]
            other => Err(Error::new(
                runlog_schemas::answer::ErrorKind::Usage,
                crate::Action::FixTheInput,
                format!("{other:?} needs a feature of runlog-producer that is off: kafka, or embedded for local:"),
            )),
        };
        Ok(Self { way: way?, room: Room::new(config) })
    }

    #[cfg(feature = "embedded")]
    pub(crate) fn embedded(projector: std::sync::Arc<runlog_projector::Projector>, config: &Config) -> Self {
        Self { way: Way::Local(Box::new(local::Local::new(projector, config.deadline))), room: Room::new(config) }
    }

    /// Waits for room for a record; see [`Room::take`].
    pub(crate) async fn room(&self, record: &JournalRecord) -> Result<Taken, Error> {
        self.room.take(record).await
    }

    /// The record, its payload in the content store if it is too large and this side has the store. A server does the same
    /// for what is sent to it whole.
    pub(crate) async fn stow(&self, record: JournalRecord) -> Result<JournalRecord, Error> {
        match each!(self, way => way.content()) {
            Some(store) => Ok(store.stow(record).await?),
            None => Ok(record),
        }
    }

    /// Appends one record, with the trace that it belongs to, and waits until it is acknowledged.
    pub(crate) async fn append(&self, record: &JournalRecord, trace: Option<&str>) -> Result<Appended, AppendFailed> {
        let trace = trace.filter(|text| is_traceparent(text));
        each!(self, way => way.append(record, trace).await)
    }

    /// What became of an acknowledged record and who writes the run, at `latest`: a claim that was in the log when this
    /// was called is seen.
    pub(crate) async fn read_back(
        &self,
        run_id: RunId<&str>,
        position: &Position,
        record_id: Option<RecordId<&str>>,
        deadline: Duration,
    ) -> Result<ReadBack, Error> {
        each!(self, way => way.read_back(run_id, position, record_id, deadline).await)
    }

    /// What became of a record, by its id alone, and who writes the run, at `latest`; none where no record of that id was
    /// applied, or refused for its content.
    pub(crate) async fn landed(
        &self,
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
    ) -> Result<Option<ReadBack>, Error> {
        each!(self, way => way.landed(run_id, record_id).await)
    }

    /// The run at `latest`; none for a run without records.
    pub(crate) async fn run(&self, run_id: RunId<&str>) -> Result<Option<Run>, Error> {
        each!(self, way => way.run(run_id).await)
    }

    /// One page of the run's recovery at `latest`; none for a run without records.
    pub(crate) async fn recovery(
        &self,
        run_id: RunId<&str>,
        ask: Ask,
        cursor: Option<&str>,
    ) -> Result<Option<Recovery>, Error> {
        each!(self, way => way.recovery(run_id, ask, cursor).await)
    }

    /// A page of a run's records, whole, at `latest`; none for a run without records.
    pub(crate) async fn records(
        &self,
        run_id: RunId<&str>,
        which: &Select,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<Lines>, Error> {
        each!(self, way => way.records(run_id, which, cursor, limit).await)
    }

    /// The latest valid checkpoint that covers no more than `at_or_before`, at `latest`.
    pub(crate) async fn checkpoint(
        &self,
        run_id: RunId<&str>,
        at_or_before: Option<JournalSeq>,
    ) -> Result<Option<Checkpoint>, Error> {
        each!(self, way => way.checkpoint(run_id, at_or_before).await)
    }

    /// A call by its request's record id, at `latest`.
    pub(crate) async fn call(&self, run_id: RunId<&str>, id: RecordId<&str>) -> Result<Lookup, Error> {
        each!(self, way => way.call(run_id, id).await)
    }
}

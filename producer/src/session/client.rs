//! A run on its journal, as its handle's operations and calls see it: builds records, and reads outcomes back. Needs no turn
//! of the handle.

use super::{
    outcome::{AckedRecord, refused, too_late, took_effect},
    sent_at::SentAt,
    shared::Shared,
};
use crate::{
    config::{Config, failpoint},
    error::{Action, Error},
    metrics::metric,
    transport::{Transport, run_without_records},
};
use runlog_schemas::{
    answer::{ErrorKind, Position, ReadBack, Recovery},
    depth,
    id::{RecordId, RunId},
    payload::Payload,
    record::JournalRecord,
};
use std::sync::Arc;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

/// A run on its journal. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct RunClient {
    pub(crate) transport: Arc<Transport>,
    pub(crate) config: Arc<Config>,
    pub(crate) run_id: RunId,
    pub(crate) shared: Shared,
}

impl RunClient {
    pub(crate) fn new(transport: Arc<Transport>, config: Arc<Config>, run_id: RunId<&str>) -> Self {
        let shared = Shared::new(config.held_bytes_max);
        Self { transport, config, run_id: run_id.to_owned(), shared }
    }

    pub(crate) fn id(&self) -> RunId<&str> {
        self.run_id.borrow()
    }

    /// Locks the state of a handle, after its earlier operations.
    ///
    /// Errors: `Unavailable` after [`Config::deadline`].
    pub(crate) async fn lock<'a, T>(&self, state: &'a Mutex<T>) -> Result<MutexGuard<'a, T>, Error> {
        let deadline = self.config.deadline;
        timeout(deadline, state.lock()).await.map_err(|_| {
            let (waited, run_id) = (humantime::format_duration(deadline), self.id());
            let message = format!("timed out after {waited} waiting for an earlier operation on run {run_id}");
            Error::new(ErrorKind::Unavailable, Action::Retry, message)
        })
    }

    /// Builds a record without numbers, with the call's key if it has one. A payload that is too large goes to the content
    /// store.
    pub(crate) async fn build_record(
        &self,
        record_id: RecordId,
        payload: Payload,
        key: Option<&str>,
    ) -> Result<JournalRecord, Error> {
        let mut record = JournalRecord::new(self.id(), record_id, &self.config.agent_id, payload);
        record.body.idempotency_key = key.map(str::to_owned);
        if let Some(redaction) = &self.config.redaction {
            redaction.policy_id().clone_into(&mut record.body.redaction_policy_id);
        }
        self.offload_payload(record).await
    }

    /// Moves a payload that is too large for its record into the content store.
    pub(super) async fn offload_payload(&self, record: JournalRecord) -> Result<JournalRecord, Error> {
        let (id, run_id) = (&record.body.record_id, &record.body.run_id);
        let deep = |why: &str| format!("record {id} of run {run_id} could not be read whole: {why}");
        depth::check(&record).map_err(|too_deep| Error::from(too_deep).map_message(deep).about_record(id.borrow()))?;
        let record = self.transport.offload_payload(record).await?;
        if matches!(record.payload, Payload::StoredPayload(_)) {
            (self.config.failpoints)(failpoint::CONTENT_STORED);
        }
        Ok(record)
    }

    /// Reads the run, which has records, with all its pending effects.
    pub(crate) async fn pending_recovery(&self) -> Result<Recovery, Error> {
        let recovery = self.transport.pending_recovery(self.id()).await?;
        recovery.ok_or_else(|| run_without_records(self.id()))
    }

    /// Reads back an acknowledged record. A refusal is an error. So is an answer after the deadline, which reveals a pause
    /// of this process.
    pub(crate) async fn read_back(&self, acked: &AckedRecord) -> Result<ReadBack, Error> {
        let answer = self.outcome_of(acked).await?;
        if took_effect(&answer.outcome) {
            return Ok(answer);
        }
        // For a result, the error names the call.
        let result = self.shared.lock().results.take_refused_record(&acked.record_id);
        let result = result.map(|result| result.error(self.id()));
        Err(result.unwrap_or_else(|| refused(self.id(), Some(acked.record_id.borrow()), &answer.outcome)))
    }

    /// As [`RunClient::read_back`], but a refusal is a normal outcome. Also requests the outcomes of acknowledged results.
    pub(crate) async fn outcome_of(&self, acked: &AckedRecord) -> Result<ReadBack, Error> {
        let (begun, deadline, also) = (SentAt::now(&self.config), self.config.read_back, self.unjudged());
        let ask = self.transport.read_back(self.id(), &acked.position, Some(acked.record_id.borrow()), &also, deadline);
        let answer = timeout(deadline, ask).await;
        (self.config.failpoints)(failpoint::READ_BACK_ANSWERED);
        self.config.observe(metric::READ_BACK_SECONDS, begun.instant);
        match answer {
            Ok(Ok(answer)) if begun.age() <= deadline => {
                self.shared.lock().results.apply_outcomes(&also, &answer.also);
                Ok(answer)
            }
            Ok(Err(error)) => Err(error),
            _ => Err(too_late(self.id(), acked, deadline)),
        }
    }

    /// The positions of the oldest results without an outcome, for a request.
    pub(crate) fn unjudged(&self) -> Vec<Position> {
        self.shared.lock().results.positions()
    }

    /// Requests the outcomes of all acknowledged results.
    pub(crate) async fn ask_for_results(&self) -> Result<(), Error> {
        while let [first, rest @ ..] = &self.unjudged()[..] {
            let before = self.shared.lock().results.len();
            let answer = self.transport.read_back(self.id(), first, None, rest, self.config.read_back).await;
            let also = match answer {
                Ok(answer) => [vec![Some(answer.outcome)], answer.also].concat(),
                Err(error) if error.kind() == ErrorKind::NotFound => vec![None],
                Err(error) => return Err(error),
            };
            let positions = [std::slice::from_ref(first), rest].concat();
            self.shared.lock().results.apply_outcomes(&positions, &also);
            let has_no_record = self.shared.lock().results.len() == before;
            if has_no_record {
                self.ask_by_id().await?;
            }
        }
        self.ask_by_id().await
    }

    /// Requests by id the outcomes of results that the journal does not have at their positions. Usually there are none.
    pub(crate) async fn ask_by_id(&self) -> Result<(), Error> {
        loop {
            let Some((record_id, position)) = self.shared.lock().results.next_by_id() else { return Ok(()) };
            let read_back = self.config.read_back;
            let answer = self.transport.read_back(self.id(), &position, Some(record_id.borrow()), &[], read_back).await;
            let outcome = match answer {
                Ok(answer) => Some(answer.outcome),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            self.shared.lock().results.settle_record(&record_id, outcome.as_ref());
        }
    }

    /// Requests the outcomes of all results if one request cannot cover them, which bounds their number.
    pub(crate) async fn ask_if_many(&self) -> Result<(), Error> {
        let are_many = self.shared.lock().results.are_many();
        if are_many { self.ask_for_results().await } else { Ok(()) }
    }
}

//! Appends to the log and queries a projector: one interface over the three kinds of `Journal`.

use crate::{
    config::{Config, Journal},
    error::{Action, Error},
};
use in_flight::{InFlightLimit, Permit};
use request::{AppendAsk, AppendFailed, Appended, RecordFilter, RecoveryQuery, ToAppend};
use runlog_schemas::{
    answer::{Checkpoint, ErrorKind, Feature, Lines, Lookup, Position, ReadBack, Recovery, Run},
    id::{Epoch, JournalSeq, RecordId, RunId},
    record::JournalRecord,
};
use serde_json::Value;
use std::time::Duration;

mod http;
pub(crate) mod in_flight;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "embedded")]
mod local;
mod receipts;
pub(crate) mod request;

/// A connection to a journal, with the limit on its unacknowledged records.
#[derive(Debug)]
pub(crate) struct Transport {
    backend: Backend,
    in_flight: InFlightLimit,
}

#[derive(Debug)]
enum Backend {
    Http(Box<http::Http>),
    #[cfg(feature = "kafka")]
    Kafka(Box<kafka::Kafka>),
    #[cfg(feature = "embedded")]
    Local(Box<local::Local>),
}

/// Runs the same query on each kind of backend. With Kafka, its query server answers.
macro_rules! query {
    ($self:expr, $backend:ident => $call:expr) => {
        match &$self.backend {
            Backend::Http($backend) => $call,
            #[cfg(feature = "kafka")]
            Backend::Kafka(kafka) => {
                let $backend = &kafka.http;
                $call
            }
            #[cfg(feature = "embedded")]
            Backend::Local($backend) => $call,
        }
    };
}

impl Transport {
    pub(crate) async fn connect(config: &Config) -> Result<Self, Error> {
        let backend = match &config.journal {
            Journal::Http(server) => {
                http::Http::connect(server, config).await.map(|http| Backend::Http(Box::new(http)))
            }
            #[cfg(feature = "kafka")]
            Journal::Kafka { brokers, server } => {
                kafka::Kafka::connect(brokers, server, config).await.map(|kafka| Backend::Kafka(Box::new(kafka)))
            }
            #[cfg(feature = "embedded")]
            Journal::Local(dir) => local::Local::open(dir, config).await.map(|local| Backend::Local(Box::new(local))),
            #[allow(unreachable_patterns, reason = "reachable where a feature is off")]
            other => Err(Error::new(
                ErrorKind::Usage,
                Action::FixTheInput,
                format!(
                    "no support for {other} in this build: enable `kafka` or, for local:, `embedded` of runlog-producer"
                ),
            )),
        };
        Ok(Self { backend: backend?, in_flight: InFlightLimit::new(config) })
    }

    #[cfg(feature = "embedded")]
    pub(crate) fn embedded(projector: std::sync::Arc<runlog_projector::Projector>, config: &Config) -> Self {
        let local = local::Local::new(projector, config.deadline);
        Self { backend: Backend::Local(Box::new(local)), in_flight: InFlightLimit::new(config) }
    }

    /// Waits until the record may be sent; see [`InFlightLimit::acquire`].
    pub(crate) async fn permit(&self, record: &JournalRecord) -> Result<Permit, Error> {
        self.in_flight.acquire(record).await.map_err(|error| error.about_record(record.body.record_id.borrow()))
    }

    /// Returns a permit if the record may be sent now.
    pub(crate) fn try_permit(&self, record: &JournalRecord) -> Option<Permit> {
        self.in_flight.try_acquire(record)
    }

    /// Whether two records of a run can be appended at once. A request has one `traceparent`.
    pub(crate) fn go_together(&self, first: ToAppend<'_>, next: ToAppend<'_>) -> bool {
        match &self.backend {
            Backend::Http(http) => http.has(Feature::ReadBack) && first.trace == next.trace,
            #[cfg(any(feature = "kafka", feature = "embedded"))]
            _ => true,
        }
    }

    /// Moves a payload that is too large for a record into the content store, if this side has one. A server does the same
    /// with records that it receives whole.
    pub(crate) async fn offload_payload(&self, record: JournalRecord) -> Result<JournalRecord, Error> {
        let store = match &self.backend {
            Backend::Http(http) => http.content(),
            #[cfg(feature = "kafka")]
            Backend::Kafka(kafka) => kafka.http.content(),
            #[cfg(feature = "embedded")]
            Backend::Local(local) => local.content(),
        };
        let Some(store) = store else { return Ok(record) };
        let id = record.body.record_id.clone();
        // Boxed, because the future of each tool call contains this one: it would be 30 kB larger, and overflow the stack of a
        // thread in a build without optimisation.
        let stowed = match &self.backend {
            Backend::Http(http) => Box::pin(http.offload(store, record)).await,
            #[cfg(any(feature = "kafka", feature = "embedded"))]
            _ => Box::pin(store.stow(record)).await.map_err(Error::from),
        };
        stowed.map_err(|error| error.about_record(id.borrow()))
    }

    /// Whether the journal's server had a feature when this connected.
    pub(crate) fn has(&self, feature: Feature) -> bool {
        query!(self, backend => backend.has(feature))
    }

    /// Appends records of one run in order, and waits until all are acknowledged. A server also waits for the event in
    /// `ask`, and then reports the other outcomes. Returns one answer per record, in order.
    pub(crate) async fn append(&self, all: &[ToAppend<'_>], ask: AppendAsk<'_>) -> Result<Vec<Appended>, AppendFailed> {
        let appended = match &self.backend {
            Backend::Http(http) => http.append(all, ask).await,
            #[cfg(feature = "kafka")]
            Backend::Kafka(kafka) => kafka.append(all).await,
            #[cfg(feature = "embedded")]
            Backend::Local(local) => local.append(all).await,
        };
        let appended = appended.and_then(|appended| {
            if appended.len() == all.len() {
                return Ok(appended);
            }
            let message = format!("{} records were appended, and the answer is about {}", all.len(), appended.len());
            let error = Error::new(ErrorKind::Internal, Action::Operator, message);
            Err(AppendFailed { error, untouched: false })
        });
        appended.map_err(|failed| match all {
            [only] => {
                let error = failed.error.about_record(only.record.body.record_id.borrow());
                AppendFailed { error, ..failed }
            }
            _ => failed,
        })
    }

    /// Whether the journal's server accepts [`Transport::claim_conditionally`]. Claims through Kafka and in this process are records
    /// without a condition.
    pub(crate) fn has_conditional_claims(&self) -> bool {
        match &self.backend {
            Backend::Http(http) => http.has(Feature::OnlyIf),
            #[cfg(any(feature = "kafka", feature = "embedded"))]
            _ => false,
        }
    }

    /// Claims a run if it has the hash in the claim's `only_if`.
    pub(crate) async fn claim_conditionally(&self, run_id: RunId<&str>, claim: &Value) -> Result<(), Error> {
        let claimed = match &self.backend {
            Backend::Http(http) => http.claim(run_id, claim).await,
            #[cfg(any(feature = "kafka", feature = "embedded"))]
            _ => {
                let message =
                    format!("run {run_id} was not claimed: only a server compares a claim with the run's hash");
                Err(Error::new(ErrorKind::Internal, Action::Operator, message))
            }
        };
        claimed.map_err(|error| error.about_run(run_id))
    }

    /// As [`Transport::append`], for one record.
    pub(crate) async fn append_one(&self, one: ToAppend<'_>, ask: AppendAsk<'_>) -> Result<Appended, AppendFailed> {
        let mut appended = self.append(std::slice::from_ref(&one), ask).await?;
        appended.pop().ok_or_else(|| {
            let error = Error::new(ErrorKind::Internal, Action::Operator, "an append without an answer".to_owned());
            AppendFailed { error, untouched: false }
        })
    }

    /// Reads the outcomes of an acknowledged record and of the run's records at the positions `also`, and the run's
    /// current writer, at `latest`: the answer includes every claim that was in the log at the time of the call.
    pub(crate) async fn read_back(
        &self,
        run_id: RunId<&str>,
        position: &Position,
        record_id: Option<RecordId<&str>>,
        also: &[Position],
        deadline: Duration,
    ) -> Result<ReadBack, Error> {
        let answer = query!(self, backend => backend.read_back(run_id, position, record_id, also, deadline).await);
        answer.map_err(|error| error.about_run(run_id).about_position(position))
    }

    /// Reads the outcome of the record with this id and the run's current writer: at least as of the position
    /// `at_least` (inclusive) of the run's partition, or at `latest`. `None` if no record with that id was applied, or
    /// refused because of its content.
    ///
    /// At `latest`, a server that reads from a deposed leader may not know the record. As of a position it fails with `Stale`.
    pub(crate) async fn landed(
        &self,
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
        at_least: Option<&Position>,
    ) -> Result<Option<ReadBack>, Error> {
        let answer = query!(self, backend => backend.landed(run_id, record_id, at_least).await);
        answer.map_err(|error| error.about_run(run_id).about_record(record_id))
    }

    /// The run at `latest`. `None` for a run without records.
    pub(crate) async fn run(&self, run_id: RunId<&str>) -> Result<Option<Run>, Error> {
        query!(self, backend => backend.run(run_id).await).map_err(|error| error.about_run(run_id))
    }

    /// One page of the run's recovery at `latest`. `None` for a run without records.
    pub(crate) async fn recovery(
        &self,
        run_id: RunId<&str>,
        query: RecoveryQuery,
        cursor: Option<&str>,
    ) -> Result<Option<Recovery>, Error> {
        query!(self, backend => backend.recovery(run_id, query, cursor).await).map_err(|error| error.about_run(run_id))
    }

    /// Reads the run's head and all its pending effects. `None` for a run without records. All pages are needed: a missing
    /// pending effect would look as if it had been decided.
    pub(crate) async fn pending_recovery(&self, run_id: RunId<&str>) -> Result<Option<Recovery>, Error> {
        let query = RecoveryQuery::PENDING;
        let Some(mut recovery) = self.recovery(run_id, query, None).await? else { return Ok(None) };
        let mut lists_others = has_others(&recovery);
        while !lists_others && let Some(cursor) = recovery.next_cursor.take() {
            let Some(page) = self.recovery(run_id, query, Some(&cursor)).await? else { return Ok(None) };
            check_page(&recovery, &page)?;
            lists_others = has_others(&page);
            recovery.pending.extend(page.pending);
            recovery.next_cursor = page.next_cursor;
        }
        Ok(Some(recovery))
    }

    /// The run's recovery, all pages merged. `None` for a run without records.
    pub(crate) async fn whole_recovery(
        &self,
        run_id: RunId<&str>,
        query: RecoveryQuery,
    ) -> Result<Option<Recovery>, Error> {
        let Some(mut recovery) = self.recovery(run_id, query, None).await? else { return Ok(None) };
        while let Some(cursor) = recovery.next_cursor.take() {
            let page = self.recovery(run_id, query, Some(&cursor)).await?.ok_or_else(|| run_without_records(run_id))?;
            // All pages are of one state: after our claim, no other writer's record changes the run.
            check_page(&recovery, &page)?;
            recovery.pending.extend(page.pending);
            recovery.completed.extend(page.completed);
            recovery.approvals.extend(page.approvals);
            recovery.wakes.extend(page.wakes);
            recovery.messages.extend(page.messages);
            recovery.write_backs.extend(page.write_backs);
            recovery.missing_content.extend(page.missing_content);
            recovery.resumable &= page.resumable;
            recovery.reason = recovery.reason.or(page.reason);
            recovery.next_cursor = page.next_cursor;
        }
        recovery.pending.sort_by_key(|pending| (pending.journal_seq, pending.occurrence));
        recovery.unclaimed = recovery.completed.len() as u64;
        Ok(Some(recovery))
    }

    /// A page of a run's records, with their content, at `latest`. `None` for a run without records.
    pub(crate) async fn records(
        &self,
        run_id: RunId<&str>,
        which: &RecordFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<Lines>, Error> {
        query!(self, backend => backend.records(run_id, which, cursor, limit).await)
            .map_err(|error| error.about_run(run_id))
    }

    /// The latest valid checkpoint with `covers_journal_seq` up to `at_or_before` (inclusive), at `latest`.
    pub(crate) async fn checkpoint(
        &self,
        run_id: RunId<&str>,
        at_or_before: Option<JournalSeq>,
    ) -> Result<Option<Checkpoint>, Error> {
        query!(self, backend => backend.checkpoint(run_id, at_or_before).await).map_err(|error| error.about_run(run_id))
    }

    /// The call with this request record id, at `latest`.
    pub(crate) async fn call(&self, run_id: RunId<&str>, id: RecordId<&str>) -> Result<Lookup, Error> {
        let answer = query!(self, backend => backend.call(run_id, id).await);
        answer.map_err(|error| error.about_run(run_id).about_record(id))
    }

    /// The first call of a tool in the log with an idempotency key, at least as of the position `at_least` (inclusive) of the
    /// run's partition. `None` if there is none. The journal has the feature `call_keys`; a server without it fails with `Usage`.
    ///
    /// Not at `latest`: a server that reads from a deposed leader may not know the call. As of a position it fails with `Stale`.
    pub(crate) async fn call_with_key(
        &self,
        run_id: RunId<&str>,
        call: (&str, &str),
        at_least: &Position,
    ) -> Result<Option<Lookup>, Error> {
        let answer = query!(self, backend => backend.call_with_key(run_id, call, at_least).await);
        answer.map_err(|error| error.about_run(run_id))
    }
}

/// Whether a page lists anything else than pending effects. Pages list these first, so no pending effect follows.
fn has_others(page: &Recovery) -> bool {
    let Recovery { completed, approvals, wakes, messages, write_backs, .. } = page;
    !completed.is_empty() || [approvals, wakes, messages, write_backs].into_iter().any(|open| !open.is_empty())
}

/// Checks that a page of a recovery is not older than the first page: another server at the same address may read
/// an old state of the log.
fn check_page(first: &Recovery, page: &Recovery) -> Result<(), Error> {
    let state = |recovery: &Recovery| (recovery.epoch, recovery.next_journal_seq);
    if state(page) >= state(first) { Ok(()) } else { Err(old_answer(first.run_id.borrow(), state(first), state(page))) }
}

/// Makes the error for an answer as of the epoch and the next `journal_seq` in `seen`, if later ones are known.
pub(crate) fn old_answer(run_id: RunId<&str>, known: (Epoch, JournalSeq), seen: (Epoch, JournalSeq)) -> Error {
    let message = format!(
        "an answer about run {run_id} is of epoch {} and next journal_seq {}, older than {} and {}, which are known: the \
         server reads an old state of the log; try again",
        seen.0, seen.1, known.0, known.1
    );
    Error::new(ErrorKind::Stale, Action::Reopen, message).about_run(run_id)
}

/// Makes the error for a run without records in the index, although it was claimed.
pub(crate) fn run_without_records(run_id: RunId<&str>) -> Error {
    let message = format!("run {run_id} was claimed, but the index has no record of it: the index is not of this log");
    Error::new(ErrorKind::Internal, Action::Operator, message)
}

#[cfg(all(test, feature = "embedded"))]
mod tests;

//! Appends through a server: fills in the numbers that a client left out, then applies the log's own rules.

use super::auth::{Caller, limits::Limit};
use crate::index::{Consistency, Error, Projector, entry};
use runlog_content::Store;
use runlog_log::Entry;
use runlog_schemas::{
    answer::{ErrorKind, Outcome},
    draft::{self, Draft},
    headers,
    id::{ContentHash, Offset, PartitionId, RecordId, RunId},
    payload::Payload,
    record::JournalRecord,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

pub(super) mod attribution;
mod basis;
mod batch;
mod claims;
mod decisions;
mod of_partition;
mod outcomes;
mod own;
mod plan;
mod renumber;

pub(super) use claims::ClaimBody;
pub(super) use decisions::{Seen, is_own_decision};
pub(super) use outcomes::{AnswerAt, READ_HERE_MAX};
pub(super) use plan::PLANNED_HERE_BYTES_MAX;
use plan::{Planned, given, is_numbered};

/// How much longer than its deadline the server waits for an append, so that the append's own error arrives first.
const ANSWER_SLACK: Duration = Duration::from_millis(500);

/// Records in one request.
pub(crate) const RECORDS_MAX: usize = 1024;

/// Where a request to append comes from.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Origin {
    /// The request's `traceparent`, which every appended record carries as a header.
    pub(in crate::server) traceparent: Option<String>,
    /// The caller. Its principal is written to decisions and to other records that name a person. Content that the
    /// request adds to the content store counts against its quota.
    pub(in crate::server) caller: Caller,
    /// Whether its body is at most [`PLANNED_HERE_BYTES_MAX`] long.
    pub(in crate::server) is_small: bool,
    /// The basis that a decision's author saw, if the record itself may not contain it.
    pub(in crate::server) basis: Option<ContentHash>,
    /// Whether a decision is appended although the effect's process may still be running the effect.
    pub(in crate::server) force: bool,
}

impl From<&Caller> for Origin {
    fn from(caller: &Caller) -> Self {
        Self { caller: caller.clone(), ..Self::default() }
    }
}

impl Projector {
    /// Encodes a record for the log.
    ///
    /// Errors: `TooLarge`; `Unavailable` while the schema registry has not assigned an id to the schema.
    pub fn entry(&self, record: &JournalRecord) -> Result<Entry, Error> {
        entry::entry(record, &*self.shared.config.schemas)
    }

    /// Appends records of one run, in order, and waits for their outcomes.
    ///
    /// Skips a record that the index already judged under the same id and with the same content. Exception: the record
    /// has the writer's next number, which only an append can consume. Refused records are appended too, as with any
    /// producer. `Overloaded` means that nothing was appended. After `Unavailable` the outcome is unknown: send the
    /// records again with the same record ids.
    ///
    /// If a record of another server took a number that this server filled in, the record is numbered and appended
    /// again. This repeats until the deadline, at most 32 times; the last try gives the outcome. A record that is
    /// numbered again may end up after the records that follow it in the request.
    ///
    /// Payloads that are too large for a record go to the content store first; if that fails, nothing is appended.
    /// Nothing is appended to a stopped partition either, since its index could not report the outcome.
    ///
    /// Errors: `Invalid` for a decision with neither the effect's revision nor its writer's epoch, unless the run has
    /// the record already; `ReconcileRequired` for an attempt on a call that must be decided first.
    pub async fn append(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: Vec<Draft>,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let judged = AnswerAt::Judged(Consistency::Eventual);
        self.append_from(run_id, drafts, Origin::default(), judged, deadline).await
    }

    /// Appends as [`append`](Self::append) does, for the caller of `origin`, and answers when `at` says.
    ///
    /// Errors: `Invalid`, with nothing appended, if `at` is the acknowledgement and a record lacks a number.
    ///
    /// Cancellation: the append continues in its own task, and the run stays locked until the log has answered.
    pub(in crate::server) async fn append_from(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: Vec<Draft>,
        origin: Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let unnumbered = drafts.iter().position(|draft| !is_numbered(draft));
        if let Some(index) = unnumbered.filter(|_| at == AnswerAt::Acknowledged) {
            let message = format!(
                "record {index}: it does not bring all its numbers, and the server can fill them in only for records whose \
                 judgement it waits for; leave return=ack out, or send writer_seq and journal_seq"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let (projector, run_id) = (Arc::clone(self), run_id.to_owned());
        let late = format!(
            "timed out after {} waiting for the log to acknowledge records of run {run_id}: they may be in the log; send \
             them again with the same record ids",
            humantime::format_duration(deadline)
        );
        let append = async move { projector.append_locked(run_id.borrow(), drafts, origin, at, deadline).await };
        self.detached(append, deadline, late).await
    }

    /// Appends in its own task, which continues if the caller is dropped. After the deadline, `late` is the error.
    async fn detached<T: Send + 'static>(
        self: &Arc<Self>,
        append: impl Future<Output = Result<T, Error>> + Send + 'static,
        deadline: Duration,
        late: String,
    ) -> Result<T, Error> {
        let permit = self.appends.clone().try_acquire_owned().map_err(|_| {
            let max = self.shared.config.appends_max;
            Error::new(ErrorKind::Overloaded, format!("{max} appends are in progress; nothing was appended"))
        })?;
        let append = self.shared.config.executor.spawn(async move {
            let _permit = permit;
            append.await
        });
        match tokio::time::timeout(deadline.saturating_add(ANSWER_SLACK), append).await {
            Ok(Ok(appended)) => appended,
            Ok(Err(error)) if error.is_cancelled() => {
                Err(Error::new(ErrorKind::Unavailable, "the server is shutting down").because(error))
            }
            Ok(Err(error)) => Err(Error::new(ErrorKind::Internal, "an append panicked").because(error)),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, late)),
        }
    }

    /// Numbers and appends records while the run is locked, if they need numbers.
    async fn append_locked(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: Vec<Draft>,
        origin: Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let started = Instant::now();
        self.running(self.partition_of(run_id))?;
        let mut drafts = self.stowed(drafts, &origin.caller, deadline).await?;
        for draft in drafts.iter_mut().filter(|draft| !draft.has_record_id) {
            draft.name(RecordId::new((self.shared.config.ids)())?);
        }
        let left = || deadline.saturating_sub(started.elapsed());
        let drafts = Arc::new(drafts);
        if drafts.iter().all(given) {
            let all: Vec<usize> = (0..drafts.len()).collect();
            let planned = self.planned(run_id, &drafts, &all, &origin).await?;
            let landed = self.append_planned(run_id, planned, &origin, at, left()).await;
            if at == AnswerAt::Acknowledged || landed.is_err() {
                self.run_locks.forget_numbered(run_id);
            }
            return Ok(landed?.into_iter().map(|(_, outcome)| outcome).collect());
        }
        let earlier = || format!("an earlier append to run {run_id}");
        let mut locked = self.run_locks.lock(run_id.as_str(), left(), earlier).await?;
        self.append_numbered(run_id, &mut locked, &drafts, &origin, at, left()).await
    }

    /// Appends the planned records that the log needs, and waits until `at`. Returns the expected and the actual
    /// outcome of each planned record.
    async fn append_planned(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        planned: Vec<Planned>,
        origin: &Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<(Outcome, Outcome)>, Error> {
        let (started, partition) = (Instant::now(), self.partition_of(run_id));
        let (mut outcomes, mut entries, mut ids) = (Vec::with_capacity(planned.len()), Vec::new(), Vec::new());
        for Planned { mut entry, outcome, wanted, repeats } in planned {
            if wanted {
                entry.headers.extend(headers::trace(origin.traceparent.as_deref()));
                entries.push(entry);
                ids.push(outcome.record_id.clone());
            }
            outcomes.push((outcome, wanted, repeats));
        }
        let left = || deadline.saturating_sub(started.elapsed());
        let landed = if entries.is_empty() {
            if let AnswerAt::Judged(consistency) = at {
                self.wait(partition, consistency, left()).await?;
            }
            Vec::new()
        } else {
            // The partition may have stopped since the request arrived.
            self.running(partition)?;
            let offsets = self.append_entries(partition, entries).await?;
            self.landed_at(run_id, offsets.into_iter().zip(ids).collect(), at, left()).await?
        };
        let mut landed = landed.into_iter();
        let mut settled: Vec<(Outcome, Outcome)> = Vec::with_capacity(outcomes.len());
        for (expected, wanted, repeats) in outcomes {
            let mut outcome = if wanted {
                landed.next().ok_or_else(|| Error::new(ErrorKind::Internal, "an appended record without an outcome"))?
            } else {
                expected.clone()
            };
            if let Some((first, index)) = repeats.and_then(|(nth, index)| Some((&settled.get(nth)?.1, index)))
                && !wanted
            {
                // The plan could not know the position of the first record.
                (outcome.position, outcome.reason) = (first.position.clone(), first.reason.clone());
                outcome.position.index = index.max(outcome.position.index);
            }
            settled.push((expected, outcome));
        }
        Ok(settled)
    }

    /// Appends to a partition.
    ///
    /// Errors: `Unavailable` also if the new offsets are below the applied offset: the end of the partition was
    /// truncated.
    async fn append_entries(&self, partition: PartitionId, entries: Vec<Entry>) -> Result<Vec<Offset>, Error> {
        let applied = self.progress(partition).applied;
        let offsets = self.log().append(partition, entries).await.map_err(Error::of_append)?;
        let Some(first) = offsets.first().filter(|first| **first < applied) else { return Ok(offsets) };
        let message = format!(
            "the records were appended at offset {first} of partition {partition}, but the index has already applied all records \
             below offset {applied}: the end of the partition was truncated, as by an unclean leader election, or the topic was \
             deleted and created again; restart the server if this error repeats"
        );
        Err(Error::new(ErrorKind::Unavailable, message).at(&self.position(partition, *first, 0)))
    }

    /// Runs a read of the index on a thread that may block.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        read: impl FnOnce(&Self, RunId<&str>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (projector, run_id) = (Arc::clone(self), run_id.to_owned());
        let read = self.shared.read(move || read(&projector, run_id.borrow()));
        read.await.map_err(|error| Error::new(ErrorKind::Internal, "a read of the index panicked").because(error))?
    }

    /// Dry-runs an append. The position of a new record is the position of the run's last record.
    pub(in crate::server) async fn check(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        mut drafts: Vec<Draft>,
        origin: Origin,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        if let Some(store) = self.content() {
            for draft in &mut drafts {
                draft.record.detach(store.inline_bytes_max());
            }
        }
        self.wait(self.partition_of(run_id), Consistency::Latest, deadline).await?;
        for draft in drafts.iter_mut().filter(|draft| !draft.has_record_id) {
            draft.name(RecordId::new((self.shared.config.ids)())?);
        }
        let plan = move |projector: &Self, run_id: RunId<&str>| {
            let store = projector.store(projector.partition_of(run_id));
            projector.plan(run_id, &store.view(), &drafts.iter().enumerate().collect::<Vec<_>>(), &origin, true)
        };
        let planned = self.blocking(run_id, plan).await?;
        Ok(planned.into_iter().map(|planned| planned.outcome).collect())
    }

    /// Moves large payloads into the content store. A draft that names stored content is accepted if the content exists
    /// and fits the record's facts, since the judge and the statuses only ever read the facts.
    ///
    /// The bytes count against the caller's quota first, also if the store has them already.
    async fn stowed(&self, drafts: Vec<Draft>, caller: &Caller, deadline: Duration) -> Result<Vec<Draft>, Error> {
        let started = Instant::now();
        let inline_bytes_max = self.content().map(Store::inline_bytes_max);
        let detach = |mut draft: Draft| {
            let content = inline_bytes_max.and_then(|max| draft.record.detach(max));
            (draft, content)
        };
        let drafts: Vec<_> = drafts.into_iter().map(detach).collect();
        let bytes: usize = drafts.iter().filter_map(|(_, content)| Some(content.as_ref()?.len())).sum();
        if bytes > 0 {
            caller.take(Limit::ContentBytesPerDay, bytes as u64)?;
        }
        let mut stowed = Vec::with_capacity(drafts.len());
        for (draft, content) in drafts {
            let Payload::StoredPayload(reference) = &draft.record.payload else {
                stowed.push(draft);
                continue;
            };
            let record_id = draft.record.body.record_id.borrow();
            let Some(store) = self.content() else {
                let message = "a record names content, and no content store is configured (--content)";
                return Err(Error::new(ErrorKind::Invalid, message).about_record(record_id));
            };
            let store = store.within(deadline.saturating_sub(started.elapsed()));
            let failed = |error| Error::from(error).about_record(record_id);
            if let Some(content) = content {
                store.put(content).await.map_err(failed)?;
            } else {
                let payload = store.resolve(reference).await.map_err(failed)?;
                draft::fits(&draft.record, &payload).map_err(|error| {
                    Error::new(ErrorKind::Invalid, format!("record {record_id}: {error}")).about_record(record_id)
                })?;
            }
            stowed.push(draft);
        }
        Ok(stowed)
    }

    async fn append_made(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        record: JournalRecord,
        origin: Origin,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let mut outcomes = self
            .append_from(run_id, vec![made(record)], origin, AnswerAt::Judged(Consistency::Eventual), deadline)
            .await?;
        outcomes.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "an append without an outcome"))
    }
}

/// Wraps a record that the server makes in a draft without numbers.
fn made(record: JournalRecord) -> Draft {
    Draft {
        record,
        has_record_id: true,
        has_journal_seq: false,
        has_writer_seq: false,
        has_writer_epoch: false,
        has_writer_id: false,
        has_timestamp: false,
    }
}

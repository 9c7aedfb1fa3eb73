//! Appending through a server: numbers are filled in where a client left them out, then the log's own rules apply.

use super::auth::{Caller, limits::Limit};
use crate::index::{
    Consistency, Error, Projector, entry,
    project::{self, Changes, Effect, RecordContext, RunRecord},
    query,
    store::{self, Rows, View, runs::RunRow},
};
use runlog_content::Store;
use runlog_log::Entry;
use runlog_schemas::{
    answer::{Claim, Disposition, ErrorKind, Outcome},
    codec,
    draft::{self, Draft},
    headers,
    id::{Offset, PartitionId, RecordId, RunId, WriterId},
    judge::Head,
    payload::{Payload, RunClaim},
    record::JournalRecord,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

pub(super) mod attribution;
mod batch;
mod decisions;
mod of_partition;
mod outcomes;
mod renumber;

pub(super) use decisions::Seen;
use decisions::{no_revision, says_what_was_seen};
pub(super) use outcomes::{AnswerAt, READ_HERE_MAX};

/// How much longer than its deadline an append is waited for, so that what it says itself comes first.
const ANSWER_SLACK: Duration = Duration::from_millis(500);

/// The longest body whose records are numbered and judged on a network thread.
pub(super) const PLANNED_HERE_BYTES_MAX: usize = 64 << 10;

/// Records in one request.
pub(crate) const RECORDS_MAX: usize = 1024;

/// Where a request to append comes from.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Origin {
    /// The `traceparent` of whoever asked, which goes with every record as a header.
    pub(in crate::server) traceparent: Option<String>,
    /// Whoever asked. Its principal is written to decisions and to whatever else names a person, and content that goes to the
    /// content store is charged to it.
    pub(in crate::server) caller: Caller,
    /// Whether its body is at most [`PLANNED_HERE_BYTES_MAX`] long.
    pub(in crate::server) is_small: bool,
}

impl From<&Caller> for Origin {
    fn from(caller: &Caller) -> Self {
        Self { caller: caller.clone(), ..Self::default() }
    }
}

impl Projector {
    /// A framed record, ready for the log.
    ///
    /// Errors: `TooLarge`; `Unavailable` while the registry has not given the schema its id.
    pub fn entry(&self, record: &JournalRecord) -> Result<Entry, Error> {
        entry::entry(record, &*self.shared.config.schemas)
    }

    /// Appends records of one run, in order, and waits for their outcomes.
    ///
    /// A record whose id was judged before with the same content, as this server's index knows, is not appended again, unless it
    /// was given the writer's next number, which only the log can consume. Refused records are in the log all the same, as with
    /// any producer. After `Overloaded` nothing was appended. After `Unavailable` it is not known which landed: send them again, with
    /// the same record ids.
    ///
    /// A record whose number is filled in here, and was taken by a record of another server, is numbered and appended again
    /// within the deadline, at most 32 times; its outcome is that of the last time. Of several
    /// records, it may then stand after those that follow it.
    ///
    /// Payloads that are too large for a record go to the content store first; where that fails, nothing is appended.
    /// To a stopped partition nothing is appended: nobody could say what became of it.
    ///
    /// Errors: `Invalid` for a decision that does not say the revision that it was made at, nor its writer's epoch, unless the
    /// run has it already.
    pub async fn append(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: Vec<Draft>,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let judged = AnswerAt::Judged(Consistency::Eventual);
        self.append_from(run_id, drafts, Origin::default(), judged, deadline).await
    }

    /// The same on behalf of somebody, answered when `at` says.
    ///
    /// Errors: `Invalid` if a record is to be answered at its acknowledgement and does not bring all its numbers: nothing was
    /// appended.
    ///
    /// Cancellation: the append goes on in a task of its own, and the run stays locked until the log has answered.
    pub(in crate::server) async fn append_from(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: Vec<Draft>,
        origin: Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let unnumbered = drafts.iter().position(|draft| !given(draft));
        if let Some(index) = unnumbered.filter(|_| at == AnswerAt::Acknowledged) {
            let message = format!(
                "record {index}: it does not bring all its numbers, and the server can fill them in only for records whose \
                 judgement it waits for; leave return=ack out, or send writer_seq and journal_seq"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let permit = self.appends.clone().try_acquire_owned().map_err(|_| {
            let max = self.shared.config.appends_max;
            Error::new(ErrorKind::Overloaded, format!("{max} appends are in progress; nothing was appended"))
        })?;
        let (projector, run_id) = (Arc::clone(self), run_id.to_owned());
        let late = format!(
            "timed out after {} waiting for the log to acknowledge records of run {run_id}: they may be in the log; send \
             them again with the same record ids",
            humantime::format_duration(deadline)
        );
        let append = self.shared.config.executor.spawn(async move {
            let _permit = permit;
            projector.append_locked(run_id.borrow(), drafts, origin, at, deadline).await
        });
        match tokio::time::timeout(deadline.saturating_add(ANSWER_SLACK), append).await {
            Ok(Ok(outcomes)) => outcomes,
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
        let begun = Instant::now();
        self.running(self.partition_of(run_id))?;
        let mut drafts = self.stowed(drafts, &origin.caller, deadline).await?;
        for draft in drafts.iter_mut().filter(|draft| !draft.has_record_id) {
            draft.name(RecordId::new((self.shared.config.ids)())?);
        }
        let drafts = Arc::new(drafts);
        let left = || deadline.saturating_sub(begun.elapsed());
        if drafts.iter().all(given) {
            let all: Vec<usize> = (0..drafts.len()).collect();
            let planned = self.planned(run_id, &drafts, &all, &origin).await?;
            let landed = self.append_planned(run_id, planned, &origin, at, left()).await?;
            return Ok(landed.into_iter().map(|(_, outcome)| outcome).collect());
        }
        let mut locked = self.lock_run(run_id, left()).await?;
        self.append_numbered(run_id, &mut locked, &drafts, &origin, at, left()).await
    }

    /// Numbers and judges some of the drafts by the run as the index has it now: on this thread where the request is small and
    /// memtables and cached blocks have all that it needs.
    async fn planned(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: &Arc<Vec<Draft>>,
        which: &[usize],
        origin: &Origin,
    ) -> Result<Vec<Planned>, Error> {
        let (all, some, caller) = (Arc::clone(drafts), which.to_vec(), origin.caller.clone());
        let plan = move |projector: &Self, run_id: RunId<&str>, view: &View<'_>| {
            let some: Vec<_> = some.iter().filter_map(|index| Some((*index, all.get(*index)?))).collect();
            projector.plan(run_id, view, &some, &caller, false)
        };
        let store = self.store(self.partition_of(run_id));
        if origin.is_small
            && !self.shared.config.executor.is_caller()
            && let Some(cached) = store.cached_view()
            && let Ok(planned) = plan(self, run_id, &cached)
        {
            return Ok(planned);
        }
        self.blocking(run_id, move |projector, run_id| plan(projector, run_id, &store.view())).await
    }

    /// Appends what of the plan the log has to have, and waits until `at`: of each record the outcome that was expected, and the
    /// one that it has by then.
    async fn append_planned(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        planned: Vec<Planned>,
        origin: &Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<(Outcome, Outcome)>, Error> {
        let (begun, partition) = (Instant::now(), self.partition_of(run_id));
        let (mut outcomes, mut entries, mut ids) = (Vec::with_capacity(planned.len()), Vec::new(), Vec::new());
        for Planned { mut entry, outcome, wanted } in planned {
            if wanted {
                entry.headers.extend(headers::trace(origin.traceparent.as_deref()));
                entries.push(entry);
                ids.push(outcome.record_id.clone());
            }
            outcomes.push((outcome, wanted));
        }
        let left = || deadline.saturating_sub(begun.elapsed());
        let landed = if entries.is_empty() {
            if let AnswerAt::Judged(consistency) = at {
                self.wait(partition, consistency, left()).await?;
            }
            Vec::new()
        } else {
            // It may have stopped since the request came.
            self.running(partition)?;
            let offsets = self.append_entries(partition, entries).await?;
            self.landed_at(run_id, offsets.into_iter().zip(ids).collect(), at, left()).await?
        };
        let mut landed = landed.into_iter();
        let settled = outcomes.into_iter().map(|(expected, wanted)| {
            let outcome = if wanted { landed.next() } else { Some(expected.clone()) };
            outcome.map(|outcome| (expected, outcome))
        });
        let missing = || Error::new(ErrorKind::Internal, "an appended record without an outcome");
        settled.collect::<Option<_>>().ok_or_else(missing)
    }

    /// Appends to a partition.
    ///
    /// Errors: `Unavailable`, too, where the records are in the log at offsets that the index has other records of: the log has
    /// lost its end.
    async fn append_entries(&self, partition: PartitionId, entries: Vec<Entry>) -> Result<Vec<Offset>, Error> {
        let applied = self.progress(partition).applied;
        let offsets = self.log().append(partition, entries).await.map_err(Error::of_append)?;
        let Some(first) = offsets.first().filter(|first| **first < applied) else { return Ok(offsets) };
        let message = format!(
            "the records were appended at offset {first} of partition {partition}, of which records up to {applied} were applied \
             before: the log has lost its end, or the topic was deleted and created again; restart the server if it stays so"
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

    /// What appending would come to, without appending. Positions are those of the run's last record.
    pub(in crate::server) async fn check(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        mut drafts: Vec<Draft>,
        caller: Caller,
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
            projector.plan(run_id, &store.view(), &drafts.iter().enumerate().collect::<Vec<_>>(), &caller, true)
        };
        let planned = self.blocking(run_id, plan).await?;
        Ok(planned.into_iter().map(|planned| planned.outcome).collect())
    }

    /// The drafts with their large payloads in the content store. One that names content itself is taken if that is there
    /// and is what the record says: its facts are all that judge and statuses ever see of it.
    ///
    /// What is to be stored is charged to the caller first, whether the store has it already or not.
    async fn stowed(&self, drafts: Vec<Draft>, caller: &Caller, deadline: Duration) -> Result<Vec<Draft>, Error> {
        let begun = Instant::now();
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
            let store = store.within(deadline.saturating_sub(begun.elapsed()));
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

    /// Numbers drafts, each with its index in the request, and judges them against the run as it is, each after the one before
    /// it. Where all bring their numbers and none is known, that would change nothing of what is appended: then they are judged
    /// only if `judged`.
    fn plan(
        &self,
        run_id: RunId<&str>,
        view: &View<'_>,
        drafts: &[(usize, &Draft)],
        caller: &Caller,
        judged: bool,
    ) -> Result<Vec<Planned>, Error> {
        let partition = self.partition_of(run_id);
        let mut changes = Changes::new(view);
        let proofs = caller.proofs(&self.journal().journal_id);
        let seen = |draft: &Draft, changes: &Changes<'_, _>| {
            store::seen(run_id, draft.record.body.record_id.borrow(), |key| changes.get(key))
        };
        let mut judged = judged || !drafts.iter().all(|(_, draft)| given(draft));
        for (_, draft) in drafts {
            judged = judged || seen(draft, &changes)?.is_some();
        }
        let mut planned = Vec::new();
        for (index, draft) in drafts {
            let row: Option<RunRow> = if judged { changes.get(&store::runs::key(run_id))? } else { None };
            let (row, first) = (row.unwrap_or_default(), if judged { seen(draft, &changes)? } else { None });
            let again = first.as_ref().filter(|first| renumber::is_due(draft, first));
            let known = first.is_some() && again.is_none();
            if !known && !says_what_was_seen(&draft.record) {
                let facts = &draft.record.body.facts;
                let message =
                    format!("record {index}: {}", no_revision(run_id, facts.answers.as_ref().map(RecordId::borrow)));
                return Err(Error::new(ErrorKind::Invalid, message).about_record(draft.record.body.record_id.borrow()));
            }
            let mut record = self.number(draft, &row.head, known)?;
            let facts = &record.body.facts;
            if (facts.principal.is_some() || facts.principal_proof.is_some()) && !known {
                let message = format!("record {} names a principal; only a server may", record.body.record_id);
                return Err(Error::new(ErrorKind::Invalid, message).about_record(record.body.record_id.borrow()));
            }
            if let Some(principal) = caller.principal() {
                let first = first.as_ref().map(|first| first.content_hash);
                attribution::attribute(&mut record, principal, proofs.as_ref(), first);
            }
            if record.body.run_id.borrow() != Some(run_id) {
                let message = format!("record {} names run {}", record.body.record_id, record.body.run_id);
                let error = Error::new(ErrorKind::Invalid, format!("{message}, the request names {run_id}"));
                return Err(error.about_record(record.body.record_id.borrow()));
            }
            let schemas = &*self.shared.config.schemas;
            let entry =
                if again.is_some() { entry::renumbered(&record, schemas)? } else { entry::entry(&record, schemas)? };
            // As a fold keeps it.
            let version = if again.is_some() { entry::renumbered_version(&record) } else { record.version() };
            let framed = codec::reframe_as(&entry.value, version);
            let envelope = query::envelope(&framed)?;
            if !judged {
                let outcome = self.unjudged(partition, row.offset, record.body.record_id.into());
                planned.push(Planned { entry, outcome, wanted: true });
                continue;
            }
            let at =
                RecordContext { partition, offset: row.offset, index: row.index, logged_at_millis: 0, framed: &framed };
            let of_run = RunRecord::new(&envelope)
                .ok_or_else(|| Error::new(ErrorKind::Invalid, "a record of a partition does not belong to a run"))?;
            let mut effect = project::record(of_run, at, self.journal().partitions, &mut changes)?;
            if let (Some(first), Effect::Refused(reason)) = (again, &effect)
                && renumber::is_for_numbers(*reason)
            {
                // Other numbers do not help: what was refused is a record of the batch, or a number that the client gave.
                effect = Effect::Repeat { first: first.clone(), numbered: false };
            }
            let (name, reason, position) = match &effect {
                Effect::Applied => (Disposition::Applied, None, (row.offset, row.index)),
                Effect::Repeat { first, .. } => (Disposition::Repeat, first.refused, (first.offset, first.index)),
                Effect::Refused(reason) => (Disposition::Refused, Some(*reason), (row.offset, row.index)),
            };
            let journal_seq = match &effect {
                Effect::Repeat { first, .. } if first.refused.is_none() => {
                    query::outcome::number(view, run_id, (first.offset, first.index))?
                }
                _ => None,
            };
            let outcome = Outcome {
                position: self.position(partition, position.0, position.1),
                outcome: name.into(),
                reason: reason.map(Into::into),
                record_id: record.body.record_id.clone().into(),
                journal_seq,
            };
            let behind: RunRow = changes.get(&store::runs::key(run_id))?.unwrap_or_default();
            let consumes = again.is_none() && behind.head.next_writer_seq != row.head.next_writer_seq;
            let wanted = consumes || !matches!(effect, Effect::Repeat { .. });
            planned.push(Planned { entry, outcome, wanted });
        }
        Ok(planned)
    }

    /// Fills in what the client left out, from the run's head. A `known` id is a repeat or a conflict, and takes no number
    /// that the client did not give it.
    fn number(&self, given: &Draft, head: &Head, known: bool) -> Result<JournalRecord, Error> {
        let mut record = given.record.clone();
        if !given.has_timestamp {
            record.place.timestamp_millis = (self.shared.config.clock)();
        }
        let kind = record.body.record_kind;
        if let Payload::RunClaim(claim) = &record.payload {
            // A claim's place is what it says.
            record.place.writer_id = claim.writer_id.clone().into();
            record.place.writer_epoch = claim.epoch;
            return Ok(record);
        }
        // Who wrote it is never filled in from the run: an old writer that says nothing would pass for the new one. It is
        // of epoch 0, and fenced where the run was claimed.
        if !given.has_writer_id {
            record.place.writer_id = WriterId::new("runlog")?.to_owned().into();
        }
        if !given.has_writer_seq && !kind.unclaimed() && !known {
            record.place.writer_seq = head.next_writer_seq;
        }
        if !given.has_journal_seq && kind.numbered() && !known {
            record.place.journal_seq = head.next_journal_seq;
        }
        batch::number(&mut record, head, known);
        Ok(record)
    }

    /// Takes a run over in the name of a new writer.
    pub async fn claim(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        claimed_by: &str,
        deadline: Duration,
    ) -> Result<Claim, Error> {
        let partition = self.partition_of(run_id);
        self.wait(partition, Consistency::Latest, deadline).await?;
        let row: Option<RunRow> = self.store(partition).get(&store::runs::key(run_id))?;
        let head = row.map(|row| row.head).unwrap_or_default();
        let writer_id = WriterId::new((self.shared.config.ids)())?;
        let epoch = head.epoch.next().ok_or_else(|| {
            Error::new(ErrorKind::Conflict, format!("run {run_id} was claimed as often as can be counted"))
        })?;
        let claim = RunClaim { writer_id: writer_id.clone(), epoch, claimed_by: claimed_by.to_owned() };
        let outcome = self.append_own(run_id, Payload::RunClaim(claim), deadline).await?;
        if outcome.outcome != Disposition::Applied {
            let message = format!("another writer claimed run {run_id} first");
            return Err(Error::new(ErrorKind::ClaimLost, message));
        }
        let row: Option<RunRow> = self.store(partition).get(&store::runs::key(run_id))?;
        let head = row.map(|row| row.head).unwrap_or_default();
        Ok(Claim {
            writer_id,
            epoch,
            position: outcome.position,
            next_journal_seq: head.next_journal_seq,
            hash: head.hash,
        })
    }

    async fn append_own(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        payload: Payload,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let record_id = RecordId::new((self.shared.config.ids)())?;
        self.append_made(run_id, JournalRecord::new(run_id, record_id, "runlog", payload), Origin::default(), deadline)
            .await
    }

    async fn append_made(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        record: JournalRecord,
        origin: Origin,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let draft = Draft {
            record,
            has_record_id: true,
            has_journal_seq: false,
            has_writer_seq: false,
            has_writer_epoch: false,
            has_writer_id: false,
            has_timestamp: false,
        };
        let mut outcomes =
            self.append_from(run_id, vec![draft], origin, AnswerAt::Judged(Consistency::Eventual), deadline).await?;
        outcomes.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "an append without an outcome"))
    }
}

struct Planned {
    entry: Entry,
    outcome: Outcome,
    /// Whether the log has to have it.
    wanted: bool,
}

/// Whether a draft needs nothing of the run as it is: no number, and no knowledge of whether it was appended before.
fn given(draft: &Draft) -> bool {
    let kind = draft.record.body.record_kind;
    if !says_what_was_seen(&draft.record) {
        return false;
    }
    matches!(draft.record.payload, Payload::RunClaim(_))
        || ((draft.has_writer_seq || kind.unclaimed())
            && (draft.has_journal_seq || !kind.numbered())
            && batch::given(&draft.record))
}

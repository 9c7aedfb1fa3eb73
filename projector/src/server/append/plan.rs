//! What an append is to come to: numbers, and the judgement as the index has the run.

use super::{
    Origin, attribution,
    basis::{self, is_checked},
    batch,
    decisions::{no_revision, says_what_was_seen},
    renumber,
};
use crate::index::{
    Error, Projector, entry,
    project::{self, Changes, Effect, RecordContext, RunRecord},
    query,
    store::{self, View, runs::RunRow},
};
use runlog_log::Entry;
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome, Writer},
    codec,
    draft::Draft,
    id::{RecordId, RunId, WriterId},
    judge::Head,
    payload::Payload,
    record::JournalRecord,
};
use std::sync::Arc;

/// The longest body whose records are numbered and judged on a network thread.
pub(in crate::server) const PLANNED_HERE_BYTES_MAX: usize = 64 << 10;

impl Projector {
    /// Numbers and judges some of the drafts by the run as the index has it now: on this thread where the request is small and
    /// memtables and cached blocks have all that it needs.
    pub(super) async fn planned(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: &Arc<Vec<Draft>>,
        which: &[usize],
        origin: &Origin,
    ) -> Result<Vec<Planned>, Error> {
        let store = self.store(self.partition_of(run_id));
        if origin.is_small
            && !self.shared.config.executor.is_caller()
            && let Some(cached) = store.cached_view()
            && let Ok(planned) = self.plan_some(run_id, &cached, drafts, which, origin)
        {
            return Ok(planned);
        }
        let (drafts, which, origin) = (Arc::clone(drafts), which.to_vec(), origin.clone());
        let plan = move |projector: &Self, run_id: RunId<&str>| {
            projector.plan_some(run_id, &store.view(), &drafts, &which, &origin)
        };
        self.blocking(run_id, plan).await
    }

    fn plan_some(
        &self,
        run_id: RunId<&str>,
        view: &View<'_>,
        drafts: &[Draft],
        which: &[usize],
        origin: &Origin,
    ) -> Result<Vec<Planned>, Error> {
        let some: Vec<_> = which.iter().filter_map(|index| Some((*index, drafts.get(*index)?))).collect();
        self.plan(run_id, view, &some, origin, false)
    }

    /// Numbers drafts, each with its index in the request, and judges them against the run as it is, each after the one before
    /// it. Where all bring their numbers and none is known, that would change nothing of what is appended: then they are judged
    /// only if `judged`.
    pub(super) fn plan(
        &self,
        run_id: RunId<&str>,
        view: &View<'_>,
        drafts: &[(usize, &Draft)],
        origin: &Origin,
        judged: bool,
    ) -> Result<Vec<Planned>, Error> {
        let partition = self.partition_of(run_id);
        let mut changes = Changes::new(view);
        let proofs = origin.caller.proofs(&self.journal().journal_id);
        let writes_basis = self.shared.config.writes_basis();
        let seen = |draft: &Draft, changes: &Changes<'_, _>| {
            store::seen(run_id, draft.record.body.record_id.borrow(), |key| changes.get(key))
        };
        let mut judged = judged || !drafts.iter().all(|(_, draft)| given(draft));
        for (_, draft) in drafts {
            judged = judged || seen(draft, &changes)?.is_some();
        }
        let (mut planned, mut bases) = (Vec::new(), basis::Bases::default());
        for (index, draft) in drafts {
            let row: Option<RunRow> = if judged { changes.get(&store::runs::key(run_id))? } else { None };
            let (row, first) = (row.unwrap_or_default(), if judged { seen(draft, &changes)? } else { None });
            let draft = &*bases.as_first(draft, run_id, first.as_ref(), view)?;
            let again = first.as_ref().filter(|first| renumber::is_due(draft, first));
            let known = first.is_some() && again.is_none();
            if !known && !says_what_was_seen(&draft.record) {
                let facts = &draft.record.body.facts;
                let message =
                    format!("record {index}: {}", no_revision(run_id, facts.answers.as_ref().map(RecordId::borrow)));
                return Err(Error::new(ErrorKind::Invalid, message).about_record(draft.record.body.record_id.borrow()));
            }
            let mut record = self.number(draft, &row.head, known)?;
            if !known || renumber::is_judged_anew(&record, first.as_ref()) {
                basis::check_batch(&record)?;
                // Other content than that of the first record under the id would be a conflict.
                let writes_basis = writes_basis && first.is_none();
                let check = basis::Check { origin, writes_basis, run: &row, now: self.log_now() };
                check.check(&mut record, run_id, &changes)?;
                bases.fill(&record);
            }
            let facts = &record.body.facts;
            if (facts.principal.is_some() || facts.principal_proof.is_some()) && !known {
                let message = format!("record {} names a principal; only a server may", record.body.record_id);
                return Err(Error::new(ErrorKind::Invalid, message).about_record(record.body.record_id.borrow()));
            }
            if !known {
                self.may_write(&record)?;
            }
            if let Some(principal) = origin.caller.principal() {
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
            let version = if again.is_some() { record.renumbered_version() } else { record.version() };
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
            let sent_before =
                |planned: &&Planned| planned.outcome.record_id.borrow() == Some(record.body.record_id.borrow());
            let (journal_seq, record_writer) = match &effect {
                Effect::Repeat { first, .. } => match planned.iter().rfind(sent_before) {
                    // The first one is in this request, and has no place yet.
                    Some(before) => (before.outcome.journal_seq, before.outcome.record_writer.clone()),
                    None => query::outcome::first_one(view, run_id, first)?,
                },
                _ => {
                    let (writer_id, epoch) = (record.place.writer_id.clone(), record.place.writer_epoch);
                    (None, Some(Writer { writer_id, epoch }))
                }
            };
            let outcome = Outcome {
                position: self.position(partition, position.0, position.1),
                outcome: name.into(),
                reason: reason.map(Into::into),
                record_id: record.body.record_id.clone().into(),
                journal_seq,
                record_writer,
            };
            let behind: RunRow = changes.get(&store::runs::key(run_id))?.unwrap_or_default();
            let consumes = again.is_none() && behind.head.next_writer_seq != row.head.next_writer_seq;
            let wanted = consumes || !matches!(effect, Effect::Repeat { .. });
            if wanted {
                self.may_write(&record)?;
            }
            planned.push(Planned { entry, outcome, wanted });
        }
        Ok(planned)
    }

    /// Refuses a record that needs a later schema version than servers may write.
    fn may_write(&self, record: &JournalRecord) -> Result<(), Error> {
        let (version, written) = (record.version().number, self.shared.config.write_schema);
        if version <= written {
            return Ok(());
        }
        let record_id = &record.body.record_id;
        let message = format!(
            "record {record_id} needs schema version {version}, and this server writes at most version {written} (--write-schema)"
        );
        Err(Error::new(ErrorKind::Invalid, message).about_record(record_id.borrow()))
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
}

/// A record that is numbered and judged, and not appended.
pub(super) struct Planned {
    pub(super) entry: Entry,
    pub(super) outcome: Outcome,
    /// Whether the log has to have it.
    pub(super) wanted: bool,
}

/// Whether a draft needs nothing of the run as it is: no number, and no knowledge of whether it was appended before.
pub(super) fn given(draft: &Draft) -> bool {
    if !says_what_was_seen(&draft.record) || is_checked(&draft.record) {
        return false;
    }
    is_numbered(draft)
}

/// Whether a draft brings all its numbers.
pub(super) fn is_numbered(draft: &Draft) -> bool {
    let kind = draft.record.body.record_kind;
    matches!(draft.record.payload, Payload::RunClaim(_))
        || ((draft.has_writer_seq || kind.unclaimed())
            && (draft.has_journal_seq || !kind.numbered())
            && batch::given(&draft.record))
}

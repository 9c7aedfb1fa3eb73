//! Dry-runs an append: assigns numbers and judges the records against the index.

use super::{
    attribution,
    basis::{self, is_checked},
    batch,
    blocking::blocking,
    claimants,
    decisions::{names_its_basis, no_revision},
    numbers,
    origin::Origin,
    outcomes::unjudged,
    own,
};
use crate::auth::permissions::Scope;
use runlog_log::Entry;
use runlog_projector::index::{
    claimant, entry,
    error::Error,
    principal::Proofs,
    project::{self, Changes, Effect, RecordContext, RunRecord},
    projector::{Author, Projector},
    query,
    store::{self, View, runs::RunRow},
};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome, Writer},
    codec,
    draft::Draft,
    id::{JournalSeq, RecordId, RunId, WriterId},
    judge::{FirstJudgement, Head},
    payload::Payload,
    record::JournalRecord,
};
use std::{collections::HashMap, sync::Arc};

/// The longest body whose records are numbered and judged on a network thread.
pub(crate) const PLANNED_HERE_BYTES_MAX: usize = 64 << 10;

/// Numbers and judges some of the drafts against the index. Runs on this thread if the request is small and
/// memtables and cached blocks have all rows that it needs.
pub(super) async fn plan_drafts(
    projector: &Arc<Projector>,
    run_id: RunId<&str>,
    drafts: &Arc<Vec<Draft>>,
    which: &[usize],
    origin: &Origin,
) -> Result<Vec<Planned>, Error> {
    let store = projector.store(projector.partition_of(run_id))?;
    if origin.is_small
        && !projector.executor().is_caller()
        && let Some(cached) = store.cached_view()
        && let Ok(planned) = plan_some(projector, run_id, &cached, drafts, which, origin)
    {
        return Ok(planned);
    }
    let (drafts, which, origin) = (Arc::clone(drafts), which.to_vec(), origin.clone());
    let plan = move |projector: &Projector, run_id: RunId<&str>| {
        plan_some(projector, run_id, &store.view(), &drafts, &which, &origin)
    };
    blocking(projector, run_id, plan).await
}

fn plan_some(
    projector: &Projector,
    run_id: RunId<&str>,
    view: &View<'_>,
    drafts: &[Draft],
    which: &[usize],
    origin: &Origin,
) -> Result<Vec<Planned>, Error> {
    let some: Vec<_> = which.iter().filter_map(|index| Some((*index, drafts.get(*index)?))).collect();
    plan(projector, run_id, view, &some, origin, false)
}

/// Numbers drafts and judges them in order against the run; each draft comes with its index in the request. Without
/// `judged`, the judgement is skipped if all drafts have their numbers and no draft is known: it would not change the
/// append.
pub(super) fn plan(
    projector: &Projector,
    run_id: RunId<&str>,
    view: &View<'_>,
    drafts: &[(usize, &Draft)],
    origin: &Origin,
    judged: bool,
) -> Result<Vec<Planned>, Error> {
    let (changes, bases) = (Changes::new(view), basis::Bases::default());
    let proofs = origin.caller.proofs(&projector.journal().journal_id);
    let now = projector.log_now();
    let mut plan = Plan {
        projector,
        run_id,
        view,
        origin,
        now,
        proofs,
        changes,
        bases,
        planned: vec![],
        has_more: drafts.len() > 1,
        places: HashMap::new(),
    };
    let mut judged = judged || !drafts.iter().all(|(_, draft)| is_independent_of_run(draft));
    for (_, draft) in drafts {
        judged = judged || plan.first(draft)?.is_some();
    }
    for (index, draft) in drafts {
        plan.add(*index, draft, judged)?;
    }
    Ok(plan.planned)
}

/// Refuses a record that needs a later schema version than servers may write.
fn may_write(projector: &Projector, record: &JournalRecord) -> Result<(), Error> {
    let (version, written) = (record.version().number, projector.config().write_schema);
    if version <= written {
        return Ok(());
    }
    let record_id = &record.body.record_id;
    let message = format!(
        "record {record_id} needs schema version {version}, and this server writes at most version {written} (--write-schema)"
    );
    Err(Error::new(ErrorKind::Invalid, message).about_record(record_id.borrow()))
}

/// Fills in the numbers that the client left out, from the run's head. A draft with a `known` id is a repeat or a
/// conflict, and gets no number that the client did not send.
fn number(
    projector: &Projector,
    given: &Draft,
    head: &Head,
    known: bool,
    is_repeat: impl Fn(RecordId<&str>) -> Result<bool, Error>,
) -> Result<JournalRecord, Error> {
    let mut record = given.record.clone();
    if !given.has_timestamp {
        record.place.timestamp_millis = (projector.config().clock)();
    }
    let kind = record.body.record_kind;
    if let Payload::RunClaim(claim) = &record.payload {
        // A claim's payload names its writer and epoch.
        record.place.writer_id = claim.writer_id.clone().into();
        record.place.writer_epoch = claim.epoch;
        return Ok(record);
    }
    // The writer's epoch is never filled in from the run: an old writer that omits it would pass for the new one.
    // Without an epoch the record has epoch 0, and is fenced if the run was claimed.
    if !given.has_writer_id {
        record.place.writer_id = WriterId::new("runlog")?.to_owned().into();
    }
    if !given.has_writer_seq && !kind.unclaimed() && !known {
        record.place.writer_seq = head.next_writer_seq;
    }
    if !given.has_journal_seq && kind.numbered() && !known {
        record.place.journal_seq = head.next_journal_seq;
    }
    batch::number(&mut record, head, known, is_repeat)?;
    Ok(record)
}

/// The records of a request that are planned so far.
struct Plan<'a> {
    projector: &'a Projector,
    run_id: RunId<&'a str>,
    view: &'a View<'a>,
    origin: &'a Origin,
    /// The log's time, milliseconds since the Unix epoch.
    now: i64,
    proofs: Option<Proofs>,
    changes: Changes<'a, View<'a>>,
    bases: basis::Bases,
    planned: Vec<Planned>,
    /// Whether the request has several records, so that one can repeat another.
    has_more: bool,
    /// Where the request has each record that the log gets: its number in the plan, and its index in a batch.
    places: HashMap<RecordId, (usize, u32)>,
}

/// How a draft relates to the record that was judged first under its id.
#[derive(Clone, Copy)]
enum Sent<'a> {
    /// No record was judged under the id.
    New,
    /// The first record has the same content and was refused for numbers that the server filled in: the draft gets
    /// other numbers.
    Renumbered(&'a FirstJudgement),
    /// The first record was refused for its numbers, and the draft has new numbers: the judge judges it again.
    Again,
    /// The draft is a repeat or a conflict.
    Known,
}

impl<'a> Sent<'a> {
    fn compare(draft: &Draft, first: Option<&'a FirstJudgement>) -> Self {
        match first {
            None => Self::New,
            Some(first) if numbers::is_due(draft, first) => Self::Renumbered(first),
            Some(first) if numbers::is_judged_again(&draft.record, first) => Self::Again,
            Some(_) => Self::Known,
        }
    }

    /// Whether the server builds a new record from the draft: it fills in numbers, and must find the record valid.
    fn is_made_here(self) -> bool {
        matches!(self, Self::New | Self::Renumbered(_))
    }

    fn is_renumbered(self) -> bool {
        matches!(self, Self::Renumbered(_))
    }
}

impl Plan<'_> {
    fn first(&self, draft: &Draft) -> Result<Option<FirstJudgement>, Error> {
        Ok(store::seen(self.run_id, draft.record.body.record_id.borrow(), |key| self.changes.get(key))?)
    }

    fn run(&self) -> Result<RunRow, Error> {
        Ok(self.changes.get(&store::runs::key(self.run_id))?.unwrap_or_default())
    }

    /// Plans the next draft, the request's `index`th.
    fn add(&mut self, index: usize, draft: &Draft, judged: bool) -> Result<(), Error> {
        let (row, first) = if judged { (self.run()?, self.first(draft)?) } else { Default::default() };
        let draft = &*self.bases.as_first(draft, self.run_id, first.as_ref(), self.view)?;
        let sent = Sent::compare(draft, first.as_ref());
        let record = self.record(index, draft, sent, first.as_ref(), &row)?;
        let schemas = &*self.projector.config().schemas;
        let mut entry =
            if sent.is_renumbered() { entry::renumbered(&record, schemas)? } else { entry::entry(&record, schemas)? };
        if let Some(principal) = claimants::to_record(self.origin, &record) {
            claimant::mark(&mut entry, principal);
        }
        let partition = self.projector.partition_of(self.run_id);
        if !judged {
            let outcome = unjudged(self.projector, partition, row.offset, record.body.record_id.clone().into());
            return self.push(&record, entry, outcome, true, None);
        }
        let effect = self.judge(&record, &entry, sent, &row)?;
        let here = (row.offset, row.index);
        let (name, reason, position, repeats) = match &effect {
            Effect::Applied => (Disposition::Applied, None, here, None),
            Effect::Refused(reason) => (Disposition::Refused, Some(*reason), here, None),
            Effect::Repeat { first, .. } => {
                let repeats = self.places.get(&record.body.record_id).copied();
                (Disposition::Repeat, first.refused, (first.offset, first.index), repeats)
            }
        };
        let (journal_seq, record_writer) = self.first_one(&record, &effect, repeats)?;
        let outcome = Outcome {
            position: self.projector.position(partition, position.0, position.1),
            outcome: name.into(),
            reason: reason.map(Into::into),
            record_id: record.body.record_id.clone().into(),
            journal_seq,
            record_writer,
        };
        let consumes = !sent.is_renumbered() && self.run()?.head.next_writer_seq != row.head.next_writer_seq;
        let wanted = consumes || !matches!(effect, Effect::Repeat { .. });
        self.push(&record, entry, outcome, wanted, repeats)
    }

    fn push(
        &mut self,
        record: &JournalRecord,
        entry: Entry,
        outcome: Outcome,
        wanted: bool,
        repeats: Option<(usize, u32)>,
    ) -> Result<(), Error> {
        if wanted {
            may_write(self.projector, record)?;
        }
        if wanted && self.has_more {
            let nth = self.planned.len();
            self.places.entry(record.body.record_id.clone()).or_insert((nth, 0));
            if let Payload::Batch(batch) = &record.payload {
                for (index, member) in (0..).zip(&batch.records) {
                    self.places.entry(member.body.record_id.clone()).or_insert((nth, index));
                }
            }
        }
        self.planned.push(Planned { entry, outcome, wanted, repeats, author: Author::of([record]) });
        Ok(())
    }

    /// Builds the record of a draft: numbers it, checks it and adds the principal.
    fn record(
        &mut self,
        index: usize,
        draft: &Draft,
        sent: Sent<'_>,
        first: Option<&FirstJudgement>,
        row: &RunRow,
    ) -> Result<JournalRecord, Error> {
        let (run_id, record_id) = (self.run_id, draft.record.body.record_id.borrow());
        let invalid = |message| Err(Error::new(ErrorKind::Invalid, message).about_record(record_id));
        if sent.is_made_here() && !names_its_basis(&draft.record) {
            let effect = draft.record.body.facts.answers.as_ref().map(RecordId::borrow);
            return invalid(format!("record {index}: {}", no_revision(run_id, effect)));
        }
        let is_repeat = |id: RecordId<&str>| {
            let first = store::seen(run_id, id, |key| self.changes.get(key))?;
            Ok(first.is_some_and(|first| first.refused.is_none()))
        };
        let mut record = number(self.projector, draft, &row.head, !sent.is_made_here(), is_repeat)?;
        claimants::check(self.origin, run_id, &record, &self.changes)?;
        if !matches!(sent, Sent::Known) {
            basis::check_batch(&record)?;
            // A basis that the first record under the id lacks would make this record a conflict.
            let writes_basis = first.is_none() && self.projector.config().writes_basis();
            let check = basis::Check { origin: self.origin, writes_basis, run: row, now: self.now };
            check.check(&mut record, run_id, &self.changes)?;
            self.bases.note(&record);
        }
        if sent.is_made_here() && attribution::names_principal(&record) {
            return invalid(format!("record {record_id} names a principal; only a server may add it"));
        }
        let writes_version_3 = self.projector.config().writes_basis();
        if let Some(principal) = self.origin.caller.principal() {
            if writes_version_3 {
                attribution::attribute_approvals(&mut record, principal, self.proofs.as_ref());
            }
            attribution::attribute(&mut record, principal, self.proofs.as_ref(), first.map(|first| first.content_hash));
        }
        if writes_version_3 && !self.origin.caller.has(Scope::Resolve) {
            own::limit(&mut record);
        }
        if record.body.run_id.borrow() != Some(run_id) {
            let run = &record.body.run_id;
            return invalid(format!("record {record_id} names run {run}, the request names {run_id}"));
        }
        Ok(record)
    }

    /// Judges a record as a fold does, and keeps its changes for the records after it.
    fn judge(&mut self, record: &JournalRecord, entry: &Entry, sent: Sent<'_>, row: &RunRow) -> Result<Effect, Error> {
        let version = if sent.is_renumbered() { record.renumbered_version() } else { record.version() };
        let framed = codec::reframe_as(&entry.value, version);
        let envelope = query::envelope(&framed)?;
        let partition = self.projector.partition_of(self.run_id);
        // A process that writes is alive: a decision later in the request has to find that out.
        let at = RecordContext {
            partition,
            // The record will be after all that is applied, skips included.
            offset: row.offset.max(self.projector.progress(partition)?.applied),
            index: row.index,
            logged_at_millis: self.now,
            framed: &framed,
            claimant: claimants::to_record(self.origin, record),
        };
        let of_run = RunRecord::new(&envelope)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "a record of a partition does not belong to a run"))?;
        let effect = project::record(of_run, at, self.projector.journal().partitions, &mut self.changes)?;
        Ok(match (sent, effect) {
            // Other numbers do not help: the judge refused a record of the batch, or a number that the client gave.
            (Sent::Renumbered(first), Effect::Refused(reason)) if numbers::is_for_numbers(reason) => {
                Effect::Repeat { first: first.clone(), numbered: false }
            }
            (_, effect) => effect,
        })
    }

    /// Returns the number and the writer of the record that an outcome describes.
    fn first_one(
        &self,
        record: &JournalRecord,
        effect: &Effect,
        repeats: Option<(usize, u32)>,
    ) -> Result<(Option<JournalSeq>, Option<Writer>), Error> {
        let Effect::Repeat { first, .. } = effect else {
            let (writer_id, epoch) = (record.place.writer_id.clone(), record.place.writer_epoch);
            return Ok((None, Some(Writer { writer_id, epoch })));
        };
        match repeats.and_then(|(nth, _)| self.planned.get(nth)) {
            // The first record is in this request, and has no position yet.
            Some(before) => Ok((before.outcome.journal_seq, before.outcome.record_writer.clone())),
            None => query::outcome::first_one(self.view, self.run_id, first),
        }
    }
}

/// A record that is numbered and judged, but not appended yet.
pub(super) struct Planned {
    pub(super) entry: Entry,
    pub(super) outcome: Outcome,
    /// Whether the record must be appended.
    pub(super) wanted: bool,
    /// The earlier record of the same request that it repeats: its number in the plan, and its index in a batch.
    pub(super) repeats: Option<(usize, u32)>,
    pub(super) author: Author,
}

/// Whether a draft can be appended without reading the run: it has all its numbers, and needs no check against an
/// effect.
pub(super) fn is_independent_of_run(draft: &Draft) -> bool {
    if !names_its_basis(&draft.record) || is_checked(&draft.record) {
        return false;
    }
    is_numbered(draft)
}

/// Whether a draft is checked against the state of its effect before it is appended.
pub(super) fn is_checked_draft(draft: &Draft) -> bool {
    is_checked(&draft.record)
}

/// Whether a draft has all its numbers.
pub(super) fn is_numbered(draft: &Draft) -> bool {
    let kind = draft.record.body.record_kind;
    matches!(draft.record.payload, Payload::RunClaim(_))
        || ((draft.has_writer_seq || kind.unclaimed())
            && (draft.has_journal_seq || !kind.numbered())
            && batch::has_all_numbers(&draft.record))
}

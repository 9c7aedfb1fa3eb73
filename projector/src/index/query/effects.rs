//! Lists effects. A pending effect may have happened outside the journal.

use super::{
    Content, Order, Span, TopicPartition,
    claims::Claims,
    timeline::{BYTES_MAX, Budget, Show, arguments, masked_payload, result_and_error},
    visible::Visible,
};
use crate::index::{
    content::Contents,
    error::Error,
    store::{
        self, Parts, Rows,
        effects::{self, EffectKind, EffectRow, EvidenceRow, all_contradicted, pending_of, prefix},
        horizons::Horizons,
        records::RecordRow,
        runs::RunRow,
    },
};
use runlog_schemas::{
    answer::{Effect, EffectRun, EffectState, Evidence, OrOther, Pending, PendingState},
    id::{RecordId, RunId},
    judge::{
        Class,
        lifecycle::{EffectStatus, LifecycleStatus},
    },
    payload::{Payload, RunClaim},
    record::Sequencing,
};
use std::{ops::ControlFlow, rc::Rc};

/// A page of a run's pending effects, by request within the page, with the content of their evidence unmasked. One seek, a
/// step each, a decode per piece of evidence, and two gets for each epoch of evidence. With `contents`, evidence is also read from the content store.
///
/// The page ends after the effect whose evidence reaches [`BYTES_MAX`]. Evidence from the content store uses the rest of
/// these bytes, exceeded by at most one content; further evidence is shown as its claim check. `now` is the log's time,
/// milliseconds since the Unix epoch; without it, the state of effects is unknown.
///
/// Errors: `Usage` for a cursor of another list.
pub fn pending<R: Rows>(
    rows: &R,
    contents: Option<&Contents>,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    (cursor, limit): (Option<&[u8]>, usize),
    now: Option<i64>,
) -> Result<(Vec<Pending>, Option<Vec<u8>>), Error> {
    let budget = Budget::new(BYTES_MAX);
    let run = rows.get::<RunRow>(&store::runs::key(run_id))?.unwrap_or_default();
    let horizons = Horizons::read(|key| rows.get(key))?;
    let claims = Claims::new(rows, &horizons);
    let shown = ShownEvidence { place, horizons: &horizons, claims, show: Show::Raw, contents, budget: &budget };
    let (mut effects, next) = bounded_page(rows, &pending_of(run_id), (cursor, limit, &budget), |key, row| {
        let mut parts = Parts::new(key);
        let (Some(_), Some(_), Some(id)) = (parts.text(), parts.u8(), parts.id::<RecordId>()) else { return Ok(None) };
        let row: EffectRow = store::decode(key, row)?;
        budget.take(shown.bytes(run_id, &row)?);
        Ok(Some((id, row)))
    })?;
    let answer = |(id, row): (RecordId, EffectRow)| {
        let (class, reason) = row.class();
        let state = now.map(|now| state(rows, (run_id, &run), &row, now)).transpose()?.map(Into::into);
        Ok(Pending {
            kind: row.kind.into(),
            evidence: shown.evidence(run_id, &row, true)?,
            evidence_dropped: row.evidence_dropped,
            id,
            tool_name: row.tool_name,
            fingerprint: row.fingerprint,
            occurrence: row.occurrence,
            state,
            class: class.into(),
            reason: reason.into(),
            revision: row.revision,
            basis: Some(row.newest),
            attempts: row.attempts,
            journal_seq: row.journal_seq,
            idempotency_key: row.idempotency_key,
            dedupe_key: row.dedupe_key,
        })
    };
    effects.sort_by_key(|(_, row)| (row.journal_seq, row.offset, row.index));
    Ok((effects.into_iter().map(answer).collect::<Result<Vec<_>, Error>>()?, next))
}

/// Whether a run has a `reconcile_required` effect. One seek, and a step per pending effect up to the first such one.
pub fn any_unsafe<R: Rows>(rows: &R, run_id: RunId<&str>) -> Result<bool, Error> {
    any(rows, run_id, |row| row.class().0 == Class::ReconcileRequired)
}

/// Whether a pending effect is `reconcile_required`, and its process does not run it at the log's time `now`.
pub(super) fn waits<R: Rows>(
    rows: &R,
    run: (RunId<&str>, &RunRow),
    effect: &EffectRow,
    now: i64,
) -> Result<bool, Error> {
    let is_unsafe = effect.class().0 == Class::ReconcileRequired;
    Ok(is_unsafe && state(rows, run, effect, now)? == PendingState::Waiting)
}

/// Whether a run has a pending effect. One seek.
pub fn any_pending<R: Rows>(rows: &R, run_id: RunId<&str>) -> Result<bool, Error> {
    any(rows, run_id, |_| true)
}

/// Whether a run has a pending effect that fits.
fn any<R: Rows>(rows: &R, run_id: RunId<&str>, fits: impl Fn(&EffectRow) -> bool) -> Result<bool, Error> {
    let (prefix, mut found) = (pending_of(run_id), false);
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        found = fits(&store::decode(key, row)?);
        Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// The status of the effect that a decision on `id` concerns: the first kind that has the id decides. Two gets per kind.
pub fn status<R: Rows>(
    rows: &R,
    run_id: RunId<&str>,
    id: RecordId<&str>,
) -> Result<Option<OrOther<LifecycleStatus>>, Error> {
    for kind in EffectKind::ALL {
        if rows.row(effects::pending(run_id, *kind, id).bytes())?.is_some() {
            return Ok(Some(LifecycleStatus::Pending.into()));
        }
    }
    for kind in EffectKind::ALL {
        if let Some(row) = rows.get::<EffectRow>(&effects::ended(run_id, *kind, id))? {
            return Ok(Some(row.status));
        }
    }
    Ok(None)
}

/// The effects that a page lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// All effects, pending before ended.
    All,
    /// Effects without a recorded end.
    Pending,
    /// Pending effects that must not run again before a decision.
    Unsafe,
    /// Ended effects that a later result contradicts.
    Contradicted,
}

/// The conditions for listed effects.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// Which effects.
    pub listed: Listed,
    /// The beginning of their runs' ids.
    pub prefix: &'a str,
    /// Their tool.
    pub tool: Option<&'a str>,
}

impl From<Listed> for Filter<'_> {
    fn from(listed: Listed) -> Self {
        Self { listed, prefix: "", tool: None }
    }
}

impl Filter<'_> {
    fn matches(&self, row: &EffectRow) -> bool {
        let is_wanted = self.listed != Listed::Unsafe || row.class().0 == Class::ReconcileRequired;
        is_wanted && self.tool.is_none_or(|tool| tool == row.tool_name)
    }
}

/// A page of this partition's effects of visible runs, pending before ended, with evidence and arguments as `show` says.
/// The page ends after the effect whose evidence and records exceed the budget. `now` is the log's time, milliseconds since
/// the Unix epoch. A seek per list, of ended effects a seek per run that begins with the prefix; a step for each effect, two or
/// three gets, and two for each epoch of the run and of evidence.
///
/// Errors: `Usage` for a cursor of another list.
pub fn page<'f, R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    visible: &Visible,
    filter: impl Into<Filter<'f>>,
    (show, budget): (Show, &Budget),
    (cursor, limit): (Option<&[u8]>, usize),
    now: i64,
) -> Result<(Vec<Effect>, Option<Vec<u8>>), Error> {
    let filter = filter.into();
    let lists = match filter.listed {
        Listed::All => vec![prefix(false), prefix(true)],
        Listed::Pending | Listed::Unsafe => vec![prefix(false)],
        Listed::Contradicted => vec![all_contradicted()],
    };
    // Every list begins with the run's id.
    let lists: Vec<_> = lists.into_iter().map(|list| list.text_prefix(filter.prefix)).collect();
    let has_ended = |at: usize| filter.listed == Listed::Contradicted || at > 0;
    let list = |cursor: &[u8]| lists.iter().position(|list| cursor.starts_with(list.bytes()));
    let from = cursor.map_or(Ok(0), |cursor| list(cursor).ok_or_else(super::foreign_cursor))?;
    let horizons = Horizons::read(|key| rows.get(key))?;
    let claims = Claims::new(rows, &horizons);
    let shown = ShownEvidence { place, horizons: &horizons, claims, show, contents: None, budget };
    let mut page = Vec::new();
    for (at, list) in lists.iter().enumerate().skip(from) {
        let cursor = cursor.filter(|_| at == from);
        let bounds = (cursor, limit - page.len(), budget);
        let (effects, next) = bounded_page(rows, list, bounds, |key, row| {
            let mut parts = Parts::new(key);
            let (Some(run_id), Some(kind), Some(id)) = (parts.id::<RunId>(), parts.u8(), parts.id::<RecordId>()) else {
                return Ok(None);
            };
            if !visible.contains(run_id.borrow()) {
                return Ok(None);
            }
            let row: EffectRow = if filter.listed == Listed::Contradicted {
                let Some(kind) = EffectKind::ALL.get(usize::from(kind)) else { return Ok(None) };
                let Some(row) = rows.get(&effects::ended(run_id.borrow(), *kind, id.borrow()))? else {
                    return Ok(None);
                };
                row
            } else {
                store::decode(key, row)?
            };
            if !filter.matches(&row) {
                return Ok(None);
            }
            let records = EffectRecords::read((rows, &shown.claims), run_id.borrow(), &row)?;
            budget.take(shown.bytes(run_id.borrow(), &row)? + records.bytes());
            answer(&shown, (run_id, id), row, records, (!has_ended(at), now)).map(Some)
        })?;
        page.extend(effects);
        if next.is_some() {
            return Ok((page, next));
        }
        if let Some(next) = lists.get(at + 1)
            && (page.len() == limit || budget.is_spent())
        {
            // The page is full after the last pending effect: the next one begins with the first ended effect.
            return Ok((page, Some(next.bytes().to_vec())));
        }
    }
    Ok((page, None))
}

/// The state of a pending effect.
pub(super) fn state<R: Rows>(
    rows: &R,
    (run_id, run): (RunId<&str>, &RunRow),
    row: &EffectRow,
    now: i64,
) -> Result<PendingState, store::Error> {
    let is_running = store::runs::runs_effects_of(run_id, run, row.last_started_in, now, |key| rows.get(key))?;
    Ok(if is_running { PendingState::Running } else { PendingState::Waiting })
}

/// An effect's run with its claim, and the records that requested the effect and started it last.
struct EffectRecords {
    run: Option<RunRow>,
    claim: Option<Rc<RunClaim>>,
    request: Option<RecordRow>,
    /// None if the request is the last start.
    start: Option<RecordRow>,
}

impl EffectRecords {
    fn read<R: Rows>(
        (rows, claims): (&R, &Claims<'_, R>),
        run_id: RunId<&str>,
        row: &EffectRow,
    ) -> Result<Self, Error> {
        let record = |at| super::record_row(rows, run_id, at);
        let (request, start) = ((row.offset, row.index), (row.start_offset, row.start_index));
        let run: Option<RunRow> = rows.get(&store::runs::key(run_id))?;
        let claim = match &run {
            Some(RunRow { head, .. }) => claims.claim(run_id, head.epoch, head.writer_id.borrow())?,
            None => None,
        };
        Ok(Self { run, claim, request: record(request)?, start: if start == request { None } else { record(start)? } })
    }

    fn bytes(&self) -> u64 {
        let records = [&self.request, &self.start].into_iter().flatten().map(|row| row.framed.0.len());
        let claimed_by = self.claim.iter().map(|claim| claim.claimed_by.len());
        records.chain(claimed_by).sum::<usize>() as u64
    }
}

/// The answer about an effect, pending or ended, at the log's time `now`.
fn answer<R: Rows>(
    shown: &ShownEvidence<'_, R>,
    (run_id, id): (RunId, RecordId),
    row: EffectRow,
    EffectRecords { run, claim, request, start }: EffectRecords,
    (pending, now): (bool, i64),
) -> Result<Effect, Error> {
    let (place, (class, reason)) = (shown.place, row.class());
    let stored = request.as_ref().map(|request| super::decode(request, row.offset, shown.horizons)).transpose()?;
    let arguments = stored.as_ref().map(|stored| arguments(stored, place, shown.show)).transpose()?.flatten();
    let started = match &start {
        Some(start) => Some(super::summary(start)?),
        None => stored.map(|stored| (stored.place, stored.body)),
    };
    let (writer, agent_id) = started.map(|(writer, body)| (writer, body.agent_id)).unzip();
    let logged_at_millis = start.or(request).map(|start| start.logged_at_millis);
    let of_run = |run: &RunRow| state(shown.claims.rows, (run_id.borrow(), run), &row, now);
    let state = run.as_ref().map(of_run).transpose()?.unwrap_or(PendingState::Waiting);
    Ok(Effect {
        position: place.position(row.offset, row.index),
        evidence: shown.evidence(run_id.borrow(), &row, pending)?,
        evidence_dropped: row.evidence_dropped,
        contradicting: shown.contradicting(run_id.borrow(), &row)?,
        contradictions: row.contradictions,
        since: logged_at_millis.filter(|at| *at > 0).map(|at| super::time(at.cast_unsigned())),
        age_millis: logged_at_millis.and_then(|at| super::age_millis(at, now)),
        agent_id,
        epoch: writer.as_ref().map(|writer| writer.writer_epoch),
        writer_id: writer.map(|writer| writer.writer_id),
        attempts: Some(row.attempts),
        idempotency_key: row.idempotency_key,
        dedupe_key: row.dedupe_key,
        arguments,
        run: run.map(|run| EffectRun {
            status: run.head.status.into(),
            epoch: run.head.epoch,
            age_millis: super::age_millis(run.wrote_at_millis, now),
            writer_id: run.head.writer_id,
            claimed_by: claim.map(|claim| claim.claimed_by.clone()),
        }),
        run_id,
        pending: EffectState {
            kind: row.kind.into(),
            id,
            tool_name: row.tool_name,
            fingerprint: row.fingerprint,
            occurrence: row.occurrence,
            status: if pending { EffectStatus::Pending.into() } else { OrOther::of(row.status.as_str()) },
            state: pending.then(|| state.into()),
            class: pending.then(|| class.into()),
            reason: pending.then(|| reason.into()),
            revision: pending.then_some(row.revision),
            basis: pending.then_some(row.newest),
        },
    })
}

/// Like [`super::page`], but ends when the budget is exceeded. `take` must take the bytes of its rows from it.
fn bounded_page<R: Rows, T>(
    rows: &R,
    prefix: &store::Key,
    (cursor, limit, budget): (Option<&[u8]>, usize, &Budget),
    take: impl FnMut(&[u8], &[u8]) -> Result<Option<T>, Error>,
) -> Result<(Vec<T>, Option<Vec<u8>>), Error> {
    let span = Span { prefix, end: None, cursor, order: Order::Asc };
    super::page_of(rows, span, |items| items == limit || budget.is_over(), take)
}

/// How evidence is shown.
struct ShownEvidence<'a, R> {
    place: TopicPartition<'a>,
    horizons: &'a Horizons,
    claims: Claims<'a, R>,
    show: Show,
    /// None if evidence in the content store is shown as its claim check.
    contents: Option<&'a Contents>,
    /// The budget of the page, for evidence from the content store too.
    budget: &'a Budget,
}

impl<R: Rows> ShownEvidence<'_, R> {
    /// The bytes of an effect's refused results in the index, and of the names of their claimants.
    fn bytes(&self, run_id: RunId<&str>, row: &EffectRow) -> Result<u64, Error> {
        let mut bytes = 0;
        for EvidenceRow { framed, .. } in row.evidence.iter().chain(&row.contradicting) {
            let record = super::envelope(&framed.0)?;
            let claim = self.claims.claim(run_id, record.writer_epoch, record.writer_id)?;
            // The answer contains a result twice.
            bytes += 2 * framed.0.len() + claim.map_or(0, |claim| claim.claimed_by.len());
        }
        Ok(bytes as u64)
    }

    /// An effect's evidence, oldest first. Reads the newest from the content store first, because a decision depends on it.
    fn evidence(&self, run_id: RunId<&str>, row: &EffectRow, pending: bool) -> Result<Vec<Evidence>, Error> {
        let adoptable = row.adoptable(false).filter(|_| pending);
        let is_adoptable = |evidence| adoptable.is_some_and(|adoptable| std::ptr::eq(adoptable, evidence));
        let newest_first =
            row.evidence.iter().rev().map(|evidence| self.answer(run_id, evidence, is_adoptable(evidence)));
        let mut all = newest_first.collect::<Result<Vec<_>, Error>>()?;
        all.reverse();
        Ok(all)
    }

    /// The results that contradict an effect's end, oldest first.
    fn contradicting(&self, run_id: RunId<&str>, row: &EffectRow) -> Result<Vec<Evidence>, Error> {
        row.contradicting.iter().map(|result| self.answer(run_id, result, false)).collect()
    }

    fn answer(&self, run_id: RunId<&str>, row: &EvidenceRow, adoptable: bool) -> Result<Evidence, Error> {
        let (position, logged_at_millis) = (self.place.position(row.offset, row.index), row.logged_at_millis);
        let mut record = super::decode_framed(&row.framed.0, logged_at_millis, row.offset, self.horizons)?;
        let (mut missing_content, mut is_read) = (None, false);
        if let (Some(contents), Content::Available(Payload::StoredPayload(stored))) = (self.contents, &record.payload)
            && self.budget.take(stored.bytes)
        {
            let claim_check = Payload::StoredPayload(stored.clone());
            match contents.open(self.place, row.record_id.borrow(), (row.offset, row.index), claim_check) {
                Ok(payload) => (record.payload, is_read) = (Content::Available(payload), true),
                Err(lost) => missing_content = Some(lost.missing),
            }
        }
        let Sequencing { writer_epoch, writer_id, .. } = record.place;
        let claim = self.claims.claim(run_id, writer_epoch, writer_id.borrow())?;
        let (payload, privacy) = (&record.payload, record.body.privacy);
        // The budget counts a content of the content store once.
        let (result, error) = if is_read { (None, None) } else { result_and_error(payload, privacy, self.show) };
        Ok(Evidence {
            record_id: row.record_id.clone(),
            status: OrOther::of(row.status.as_str()),
            reason: row.reason.into(),
            position,
            content_hash: Some(row.content_hash),
            logged_at: Some(super::time(logged_at_millis.max(0).cast_unsigned())),
            epoch: Some(writer_epoch),
            writer_id: Some(writer_id),
            claimed_by: claim.map(|claim| claim.claimed_by.clone()),
            adoptable,
            payload: Some(masked_payload(payload, privacy, self.place, self.show)?),
            result,
            error,
            missing_content,
        })
    }
}

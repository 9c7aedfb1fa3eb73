//! Effects: pending ones may have happened outside the journal.

use super::{TopicPartition, visible::Visible};
use crate::index::{
    Error,
    store::{
        self, Parts, Rows,
        effects::{EffectKind, EffectRow, EvidenceRow, pending_of, prefix},
        runs::RunRow,
    },
};
use runlog_schemas::{
    answer::{Effect, EffectState, Evidence, OrOther, Pending, PendingState},
    id::{RecordId, RunId},
    judge::{
        Class,
        lifecycle::{EffectStatus, LifecycleStatus},
    },
};
use std::ops::ControlFlow;

/// A page of a run's pending effects, by request within the page. One seek, a step each.
///
/// Errors: `Usage` for a cursor of another list.
pub fn pending<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Pending>, Option<Vec<u8>>), Error> {
    let (mut found, next) = super::page(rows, &pending_of(run_id), cursor, limit, |key, row| {
        let mut parts = Parts::new(key);
        let (Some(_), Some(_), Some(id)) = (parts.text(), parts.u8(), parts.id()) else { return Ok(None) };
        let row: EffectRow = store::decode(key, row)?;
        let (class, reason) = row.class();
        Ok(Some(Pending {
            kind: row.kind.into(),
            id,
            tool_name: row.tool_name,
            fingerprint: row.fingerprint,
            occurrence: row.occurrence,
            class: class.into(),
            reason: reason.into(),
            evidence: row.evidence.iter().map(|row| evidence(place, row)).collect(),
            revision: row.revision,
            basis: Some(row.newest),
            attempts: row.attempts,
            journal_seq: row.journal_seq,
            idempotency_key: row.idempotency_key,
            dedupe_key: row.dedupe_key,
        }))
    })?;
    found.sort_by_key(|pending| pending.journal_seq);
    Ok((found, next))
}

/// Whether a run has a `reconcile_required` effect. One seek, and a step per pending effect up to the first such one.
pub fn any_unsafe<R: Rows>(rows: &R, run_id: RunId<&str>) -> Result<bool, Error> {
    let (prefix, mut found) = (pending_of(run_id), false);
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        let row: EffectRow = store::decode(key, row)?;
        found = row.class().0 == Class::ReconcileRequired;
        Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// The status of the effect that a decision on `id` is about: of the first kind that has the id. Two gets per kind.
pub fn status<R: Rows>(
    rows: &R,
    run_id: RunId<&str>,
    id: RecordId<&str>,
) -> Result<Option<OrOther<LifecycleStatus>>, Error> {
    for kind in EffectKind::ALL {
        if rows.row(store::effects::pending(run_id, *kind, id).bytes())?.is_some() {
            return Ok(Some(LifecycleStatus::Pending.into()));
        }
        if let Some(row) = rows.get::<EffectRow>(&store::effects::ended(run_id, *kind, id))? {
            return Ok(Some(row.status));
        }
    }
    Ok(None)
}

/// A page of this partition's effects of visible runs, pending before ended. `now` is the log's time, milliseconds since the Unix
/// epoch. A seek and a step for each effect, and a get for each pending one.
///
/// Errors: `Usage` for a cursor of another list.
pub fn page<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    visible: &Visible,
    (only_pending, only_unsafe): (bool, bool),
    cursor: Option<&[u8]>,
    limit: usize,
    now: i64,
) -> Result<(Vec<Effect>, Option<Vec<u8>>), Error> {
    let lists: &[bool] = if only_pending || only_unsafe { &[false] } else { &[false, true] };
    let list = |cursor: &[u8]| lists.iter().position(|ended| cursor.starts_with(prefix(*ended).bytes()));
    let from = cursor.map_or(Ok(0), |cursor| list(cursor).ok_or_else(super::foreign_cursor))?;
    let mut found = Vec::new();
    for (at, ended) in lists.iter().copied().enumerate().skip(from) {
        let cursor = cursor.filter(|_| at == from);
        let (effects, next) = super::page(rows, &prefix(ended), cursor, limit - found.len(), |key, row| {
            let mut parts = Parts::new(key);
            let (Some(run_id), Some(_), Some(id)) = (parts.id::<RunId>(), parts.u8(), parts.id()) else {
                return Ok(None);
            };
            if !visible.contains(run_id.borrow()) {
                return Ok(None);
            }
            let row: EffectRow = store::decode(key, row)?;
            if only_unsafe && row.class().0 != Class::ReconcileRequired {
                return Ok(None);
            }
            let state = if ended { None } else { Some(state(rows, run_id.borrow(), &row, now)?) };
            Ok(Some(answer(place, run_id, id, row, state)))
        })?;
        found.extend(effects);
        if next.is_some() {
            return Ok((found, next));
        }
        if at + 1 < lists.len() && found.len() == limit {
            // The page is full after the last pending effect: the next one begins with the first ended effect.
            return Ok((found, Some(prefix(true).into_bytes())));
        }
    }
    Ok((found, None))
}

/// What a pending effect is doing.
fn state<R: Rows>(rows: &R, run_id: RunId<&str>, row: &EffectRow, now: i64) -> Result<PendingState, store::Error> {
    let run: RunRow = rows.get(&store::runs::key(run_id))?.unwrap_or_default();
    let is_running = run.runs_effects_of(row.last_started_in, now);
    Ok(if is_running { PendingState::Running } else { PendingState::Waiting })
}

/// The answer about an effect; one without a state has ended.
fn answer(
    place: TopicPartition<'_>,
    run_id: RunId,
    id: RecordId,
    row: EffectRow,
    state: Option<PendingState>,
) -> Effect {
    let (pending, (class, reason)) = (state.is_some(), row.class());
    Effect {
        run_id,
        position: place.position(row.offset, row.index),
        pending: EffectState {
            kind: row.kind.into(),
            id,
            tool_name: row.tool_name,
            fingerprint: row.fingerprint,
            occurrence: row.occurrence,
            status: if pending { EffectStatus::Pending.into() } else { OrOther::of(row.status.as_str()) },
            state: state.map(Into::into),
            class: pending.then(|| class.into()),
            reason: pending.then(|| reason.into()),
            evidence: row.evidence.iter().map(|row| evidence(place, row)).collect(),
            revision: pending.then_some(row.revision),
            basis: pending.then_some(row.newest),
        },
    }
}

fn evidence(place: TopicPartition<'_>, row: &EvidenceRow) -> Evidence {
    Evidence {
        record_id: row.record_id.clone(),
        status: OrOther::of(row.status.as_str()),
        reason: row.reason.into(),
        position: place.position(row.offset, row.index),
    }
}

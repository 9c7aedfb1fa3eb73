//! All that a process needs to go on with a run, from one view.

use super::{Place, checkpoint, effects};
use crate::{
    Error,
    store::{
        self, Rows,
        runs::RunRow,
        tool_calls::{CallRow, key, order_prefix},
    },
};
use runlog_schemas::{
    answer::{Done, Recovery},
    datum::hex,
    judge::{CallStatus, RunStatus},
};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The checkpoint with its messages.
    pub full: bool,
    /// As if there were no checkpoint: for an agent that starts over.
    pub from_start: bool,
    /// Completed calls in one page.
    pub limit: usize,
}

/// What is known of a run; none where nothing was applied to it.
///
/// Cost: one get for the run, the checkpoint's seek, a step per pending effect, and a seek plus two gets per call that
/// the checkpoint does not cover, `limit` at the most.
pub fn one<R: Rows>(
    rows: &R,
    place: Place<'_>,
    run_id: &str,
    ask: Ask,
    cursor: Option<&[u8]>,
) -> Result<Option<Recovery>, Error> {
    let Ask { full, from_start, limit } = ask;
    let Some(run) = rows.get::<RunRow>(&store::runs::key(run_id))?.filter(|run| run.head.records > 0) else {
        return Ok(None);
    };
    let latest = if from_start { None } else { checkpoint::latest(rows, run_id, None)? };
    let covers = latest.as_ref().map_or(0, |(row, _)| row.covers_journal_seq);
    let unanswered = latest.as_ref().map(|(_, checkpoint)| checkpoint.unanswered.clone()).unwrap_or_default();
    // What the checkpoint lists comes with the first page.
    let unanswered = if cursor.is_none() { unanswered } else { Vec::new() };
    let mut completed = unanswered_calls(rows, place, run_id, covers, &unanswered)?;
    let (behind, next) = completed_behind(rows, place, run_id, covers, cursor, limit)?;
    completed.extend(behind);
    let pending = effects::pending(rows, place, run_id)?;
    let head = &run.head;
    let reason = not_resumable(head.status, pending.iter().any(|effect| effect.class == "reconcile_required"));
    Ok(Some(Recovery {
        run_id: run_id.to_owned(),
        status: head.status.as_str().into(),
        position: place.at(run.offset, run.index),
        records_after: latest.as_ref().map_or(head.records, |(row, _)| head.records.saturating_sub(row.records)),
        checkpoint: latest.map(|(row, checkpoint)| checkpoint::answer(place, &row, checkpoint, full)),
        unclaimed: completed.len() as u64,
        completed,
        pending,
        approvals: Vec::new(),
        wakes: Vec::new(),
        messages: Vec::new(),
        write_backs: Vec::new(),
        missing_content: Vec::new(),
        next_journal_seq: head.next_journal_seq,
        next_writer_seq: head.next_writer_seq,
        next_checkpoint_seq: head.checkpoint_seq + 1,
        epoch: head.epoch,
        writer_id: head.writer_id.clone(),
        hash: head.hash.to_string(),
        resumable: reason.is_none(),
        reason,
        next_cursor: next.map(|key| hex(&key)),
    }))
}

fn not_resumable(status: RunStatus, unsafe_pending: bool) -> Option<String> {
    if status != RunStatus::Open {
        return Some(format!("the run is {}", status.as_str()));
    }
    unsafe_pending.then(|| {
        "an effect may have happened and nobody recorded its end: reconcile_required, see pending; \
         `runlog effects resolve` records a decision"
            .to_owned()
    })
}

/// Calls ended that the checkpoint covers but whose answer its agent had not received.
fn unanswered_calls<R: Rows>(
    rows: &R,
    place: Place<'_>,
    run_id: &str,
    covers: u64,
    ids: &[String],
) -> Result<Vec<Done>, Error> {
    let mut found = Vec::new();
    for id in ids {
        let row: Option<CallRow> = rows.get(&key(run_id, id))?;
        found.extend(row.filter(|row| row.journal_seq <= covers).and_then(|row| done(place, id, row)));
    }
    found.sort_by_key(|done: &Done| done.journal_seq);
    Ok(found)
}

fn completed_behind<R: Rows>(
    rows: &R,
    place: Place<'_>,
    run_id: &str,
    covers: u64,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Done>, Option<Vec<u8>>), Error> {
    let prefix = order_prefix(run_id);
    let start = prefix.clone().u64(covers);
    let cursor = cursor.map_or_else(|| start.into_bytes(), <[u8]>::to_vec);
    super::page(rows, &prefix, Some(&cursor), limit, |order, row| {
        let id: String = store::decode(order, row)?;
        let call: Option<CallRow> = rows.get(&key(run_id, &id))?;
        Ok(call.and_then(|call| done(place, &id, call)))
    })
}

fn done(place: Place<'_>, id: &str, row: CallRow) -> Option<Done> {
    (row.status != CallStatus::Pending).then(|| Done {
        tool_name: row.tool_name,
        fingerprint: row.fingerprint,
        occurrence: row.occurrence,
        status: row.status.as_str().into(),
        position: place.at(row.status_offset, row.status_index),
        id: id.to_owned(),
        journal_seq: row.journal_seq,
        idempotency_key: row.idempotency_key,
    })
}

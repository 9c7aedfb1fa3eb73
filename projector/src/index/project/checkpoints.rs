//! `checkpoints`: by rank and by id, and their message lists.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    self, Rows,
    checkpoints::{ArrayRow, CheckpointRow, HeldAt, List, MessageRow, RankRow, array, by_id, key, message, prefix},
    runs::RunRow,
};
use runlog_schemas::{
    id::RunId,
    judge::RunStatus,
    messages,
    payload::Payload,
    record::{Facts, PRESERVE_LATEST_TERMINAL, RecordKind},
};

mod list;

pub(super) use list::bytes_of;

/// Projects a checkpoint or a prune of checkpoints. Must follow `runs`, which counts the record.
pub fn project<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let facts = &record.facts;
    match record.kind {
        RecordKind::CheckpointPrune => return prune(record.run_id, facts, changes),
        RecordKind::LoopCheckpoint => {}
        // The contract's own checkpoints contain no messages to resume from, so they need no row here.
        _ => return Ok(()),
    }
    let (Some(id), Some(covers)) = (&facts.checkpoint_id, facts.covers_journal_seq) else { return Ok(()) };
    let run: RunRow = changes.get(&store::runs::key(record.run_id))?.unwrap_or_default();
    let mut end: ArrayRow = changes.get(&array(record.run_id))?.unwrap_or_default();
    let own_from = end.messages;
    append_messages(record, at, &mut end, changes);
    let list = make_list(record.run_id, facts, own_from, &mut end, changes)?;
    let row = CheckpointRow {
        checkpoint_id: id.clone(),
        covers_journal_seq: covers,
        checkpoint_seq: facts.checkpoint_seq.unwrap_or_default(),
        created_at_millis: facts.created_at_millis.unwrap_or_default(),
        offset: at.offset,
        index: at.index,
        logged_at_millis: at.logged_at_millis,
        records: run.head.records,
        pruned: false,
        own_from,
        list,
    };
    let rank = RankRow { checkpoint_id: id.clone(), terminal: run.head.status != RunStatus::Open };
    changes.put(array(record.run_id), &end);
    changes.put(key(record.run_id, &row), &rank);
    changes.put(by_id(record.run_id, id), &row);
    Ok(())
}

/// Adds a checkpoint's own messages to the run's array. The facts contain their number and their sizes. A text of another
/// size is not stored, and a list with that message is never valid. If the payload is in the content store, which is not
/// read here, the rows name the record and the message within it.
fn append_messages<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    end: &mut ArrayRow,
    changes: &mut Changes<'_, R>,
) {
    if record.facts.message_bytes.is_empty() {
        return;
    }
    let stored = record.stored().is_some();
    let texts = match record.payload() {
        Ok(Payload::LoopCheckpoint(checkpoint)) => checkpoint.messages,
        _ => Vec::new(),
    };
    let mut texts = texts.into_iter();
    for (nth, size) in (0..).zip(record.facts.message_bytes.iter().copied().map(u64::from)) {
        let text = texts.next().filter(|text| text.as_str().len() as u64 == size);
        let held_at = stored.then_some(HeldAt { offset: at.offset, index: at.index, nth });
        let (offset, logged_at_millis) = (at.offset, at.logged_at_millis);
        let row = MessageRow { bytes_before: end.bytes, text, held: held_at, offset, logged_at_millis };
        changes.put(message(record.run_id, end.messages), &row);
        end.messages += 1;
        end.bytes += size;
    }
}

/// The list that a checkpoint's spans describe. The judge has checked that they are within its base and its own messages.
fn make_list<R: Rows>(
    run_id: RunId<&str>,
    facts: &Facts,
    own_from: u64,
    end: &mut ArrayRow,
    changes: &mut Changes<'_, R>,
) -> Result<List, store::Error> {
    let base = match &facts.base {
        Some(base) => changes.get::<CheckpointRow>(&by_id(run_id, base))?.map(|row| row.list).unwrap_or_default(),
        None => List::default(),
    };
    let own = facts.message_bytes.len() as u64;
    let mut maker = list::Maker::new(run_id, end, changes);
    for span in messages::resolve(base.messages, own, &facts.spans).unwrap_or_default() {
        if span.from_base {
            maker.keep(&base, span.from, span.count)?;
        } else {
            let bytes = span.slice(&facts.message_bytes).iter().copied().map(u64::from).sum();
            maker.add(store::checkpoints::Range { from: own_from + span.from, count: span.count, bytes });
        }
    }
    Ok(maker.finish())
}

/// Hides the checkpoints that cover less than the prune's `covers_journal_seq`, except the latest terminal one if the prune
/// preserves it. Their rows by id remain, because the ids stay in use. Pages and messages remain too, because other lists
/// may share them.
fn prune<R: Rows>(run_id: RunId<&str>, facts: &Facts, changes: &mut Changes<'_, R>) -> Result<(), store::Error> {
    let before = prefix(run_id).u64(facts.covers_journal_seq.unwrap_or_default().get());
    let mut ranks = Vec::new();
    for (key, row) in changes.rows_with_prefix(&prefix(run_id))? {
        let rank: RankRow = store::decode(&key, &row)?;
        ranks.push((key, rank));
    }
    let preserve = facts.status.as_deref() == Some(PRESERVE_LATEST_TERMINAL);
    let preserved = if preserve { ranks.iter().rposition(|(_, rank)| rank.terminal) } else { None };
    for (at, (key, rank)) in ranks.into_iter().enumerate() {
        if key.as_slice() >= before.bytes() || Some(at) == preserved {
            continue;
        }
        changes.remove(store::Key::from_bytes(key));
        let id = by_id(run_id, &rank.checkpoint_id);
        if let Some(row) = changes.get::<CheckpointRow>(&id)? {
            changes.put(id, &CheckpointRow { pruned: true, ..row });
        }
    }
    Ok(())
}

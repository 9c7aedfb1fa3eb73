//! The order of judgement: repeat, fenced, gap, conflict, content, applied.

use crate::{
    content,
    record::{inner, needs_claim, number, payload_type, text},
    rule::{Rule, Rules},
    run::{Entry, Place, Reason, Run, Verdict},
};
use serde_json::Value;
use std::sync::Arc;

/// Judges one record and adds it to its run, along with the records within.
pub(crate) fn take(rules: &Rules, run: &mut Run, mut entry: Entry) {
    run.at = entry.offset;
    if entry.kind == "batch" {
        return take_batch(rules, run, entry);
    }
    entry.verdict = verdict(rules, run, &entry.record, entry.version);
    run.entries.push(entry);
}

fn verdict(rules: &Rules, run: &Run, record: &Value, version: u16) -> Verdict {
    match by_place(rules, run, record, version) {
        Some(verdict) => verdict,
        None => content::refusal(rules, run, record).map_or(Verdict::Applied, Verdict::Refused),
    }
}

/// Rules 1 to 4; `None` if only the content remains to judge.
fn by_place(rules: &Rules, run: &Run, record: &Value, version: u16) -> Option<Verdict> {
    let anew = rules.fires(Rule::Renumbered, run.judges_anew(record, version));
    if let Some(first) = run.same(record).filter(|_| !anew) {
        let rule = match run.entries[first].verdict {
            Verdict::Applied => Rule::RepeatOfApplied,
            _ => Rule::RepeatOfRefused,
        };
        if rules.fires(rule, true) {
            return Some(Verdict::Repeat(first));
        }
    }
    let other_content = !anew && run.knows(text(record, "/record_id"));
    let refused = |reason| Some(Verdict::Refused(reason));
    let (writer, unclaimed) = (run.writer(), run.unclaimed(rules));
    if payload_type(record) == "run_claim" {
        let legal = number(record, "/writer_epoch") == writer.epoch + 1 && number(record, "/writer_seq") == 0;
        if unclaimed || rules.fires(Rule::ClaimLost, !legal) {
            return refused(Reason::Fenced);
        }
        if rules.fires(Rule::ClaimReusesId, other_content) {
            return refused(Reason::Conflict);
        }
        // With the rule off, no claim is applied.
        return if rules.fires(Rule::ClaimApplied, true) { Some(Verdict::Applied) } else { refused(Reason::Fenced) };
    }
    if rules.fires(Rule::UnclaimedKind, !needs_claim(record)) {
        let epoch = crate::record::value_at(record, "/facts/epoch").and_then(Value::as_u64);
        let fenced = epoch.is_some_and(|epoch| epoch != writer.epoch || !writer.wrote(record));
        if (unclaimed && epoch.is_some()) || rules.fires(Rule::DecisionFenced, fenced) {
            return refused(Reason::Fenced);
        }
        return rules.fires(Rule::ConflictId, other_content).then_some(Verdict::Refused(Reason::Conflict));
    }
    let fence = if writer.id.is_some() { Rule::FencedWriter } else { Rule::FencedUnclaimed };
    if unclaimed || rules.fires(fence, !writer.wrote(record)) {
        return refused(Reason::Fenced);
    }
    let (given, next) = (number(record, "/writer_seq"), run.next_writer_seq(rules));
    if rules.fires(Rule::Gap, given > next) {
        return refused(Reason::Gap);
    }
    if rules.fires(Rule::ConflictId, other_content) || rules.fires(Rule::ConflictNumber, given < next && !other_content)
    {
        return refused(Reason::Conflict);
    }
    None
}

/// A batch is one record: refused as one, or each record within is judged after the earlier records.
fn take_batch(rules: &Rules, run: &mut Run, mut batch: Entry) {
    let refused = by_place(rules, run, &batch.record, batch.version).or_else(|| {
        rules.fires(Rule::BatchShape, !well_formed(&batch.record)).then_some(Verdict::Refused(Reason::Batch))
    });
    if let Some(verdict) = refused {
        batch.verdict = verdict;
        run.entries.push(batch);
        return;
    }
    let mut with = run.clone();
    let envelope = Entry { verdict: Verdict::Applied, envelope: true, place: Place::default(), ..batch.clone() };
    with.entries.push(envelope.clone());
    for (index, record) in (0..).zip(inner(&batch.record)) {
        let verdict = verdict(rules, &with, record, batch.version);
        let reason = match verdict {
            Verdict::Refused(reason) => Some(reason),
            Verdict::Repeat(first) => match with.entries[first].verdict {
                Verdict::Refused(reason) => Some(reason),
                _ => None,
            },
            Verdict::Applied | Verdict::Skipped { .. } => None,
        };
        if let Some(reason) = reason
            && rules.fires(Rule::BatchRefused, true)
        {
            // The entry's index names the refused record.
            batch.index = index;
            batch.verdict = Verdict::Refused(reason);
            run.entries.push(batch);
            return;
        }
        with.entries.push(Entry {
            index,
            record: Arc::new(record.clone()),
            place: Place::from_record(record),
            kind: payload_type(record).to_owned(),
            id: text(record, "/record_id").to_owned(),
            datums: batch.datums.get(index as usize).cloned().into_iter().collect(),
            contents: batch.contents.get(index as usize).cloned().into_iter().collect(),
            claimant: None,
            verdict,
            envelope: false,
            ..batch
        });
    }
    // With the rule off, records within a batch have no effect.
    if rules.fires(Rule::BatchApplied, true) {
        *run = with;
    } else {
        run.entries.push(envelope);
    }
}

/// Whether a batch is valid: not empty, all records of one run and writer, without batches, claims and partition
/// records, and with `writer_seq`s that follow the envelope's.
fn well_formed(batch: &Value) -> bool {
    let records = inner(batch);
    let first = number(batch, "/writer_seq");
    let fits = |(index, record): (usize, &Value)| {
        number(record, "/writer_seq") == first + index as u64
            && ["/run_id", "/writer_id"].iter().all(|field| text(record, field) == text(batch, field))
            && number(record, "/writer_epoch") == number(batch, "/writer_epoch")
            && payload_type(record) != "batch"
            && !crate::record::of_partition(record)
            && needs_claim(record)
    };
    !records.is_empty() && number(batch, "/journal_seq") == 0 && records.iter().enumerate().all(fits)
}

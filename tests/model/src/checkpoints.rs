//! Checkpoints: the records they cover, their message lists, and which of them are pruned or invalid.

use crate::{
    hashes,
    record::{list, number, payload_member, payload_type, text},
    rule::{Rule, Rules},
    run::{Reason, Run},
};
use serde_json::Value;

/// The newest schema version of a loop checkpoint that is known.
const SCHEMA_VERSION_KNOWN: u64 = 1;

/// One applied checkpoint of a run.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    /// The entry.
    pub(crate) at: usize,
    pub(crate) id: String,
    pub(crate) covers: u64,
    /// The whole message list; `None` if the base or a span is missing.
    pub(crate) messages: Option<Vec<Value>>,
    /// The entries that contain the messages, one for each message.
    pub(crate) brought: Vec<usize>,
    pub(crate) pruned: bool,
    /// Whether it is a loop checkpoint. The contract's own checkpoints have no list and are never returned.
    pub(crate) of_loop: bool,
    behind_end: bool,
}

/// All checkpoints of a run, in log order.
pub(crate) fn run_checkpoints(rules: &Rules, run: &Run) -> Vec<Checkpoint> {
    let mut checkpoints: Vec<Checkpoint> = Vec::new();
    let end = run.end(rules);
    for (at, entry) in run.entries.iter().enumerate().filter(|(_, entry)| entry.counts()) {
        let record = &entry.record;
        match entry.kind.as_str() {
            kind @ ("loop_checkpoint" | "checkpoint") => {
                let base = text(record, "/payload/base");
                let base = checkpoints.iter().rev().find(|other| other.of_loop && other.id == base);
                checkpoints.push(Checkpoint {
                    at,
                    id: text(record, "/payload/checkpoint_id").to_owned(),
                    covers: number(record, "/payload/covers_journal_seq"),
                    messages: messages(record, base),
                    brought: brought(record, base, at),
                    pruned: false,
                    of_loop: kind == "loop_checkpoint",
                    behind_end: end.is_some_and(|end| end < at),
                });
            }
            "checkpoint_prune" => prune(rules, run, &mut checkpoints, record),
            _ => {}
        }
    }
    checkpoints
}

fn prune(rules: &Rules, run: &Run, checkpoints: &mut [Checkpoint], record: &Value) {
    let before = number(record, "/payload/prune_covered_before");
    let flag = crate::record::value_at(record, "/payload/preserve_latest_terminal") == Some(&Value::Bool(true));
    // Considers only checkpoints that can be returned, so not the contract's own. The latest one has the highest
    // rank.
    let returnable = |checkpoint: &Checkpoint| checkpoint.of_loop && checkpoint.behind_end && !checkpoint.pruned;
    let later = |(_, checkpoint): &(usize, &Checkpoint)| rank(run, checkpoint);
    let terminal =
        checkpoints.iter().enumerate().filter(|(_, one)| returnable(one)).max_by_key(later).map(|(at, _)| at);
    for (at, checkpoint) in checkpoints.iter_mut().enumerate() {
        let covered = checkpoint.covers < before && !checkpoint.pruned;
        let preserved = covered && flag && terminal == Some(at);
        if covered && !rules.fires(Rule::PrunePreserves, preserved) && rules.fires(Rule::PruneHides, true) {
            checkpoint.pruned = true;
        }
    }
}

/// The part of a list that a span names; `None` if the span exceeds the list.
fn part<'a, T>(span: &Value, base: &'a [T], own: &'a [T]) -> Option<&'a [T]> {
    let whole = if span["from_base"] == Value::Bool(true) { base } else { own };
    let from = usize::try_from(number(span, "/from")).ok()?;
    let end = from.checked_add(usize::try_from(number(span, "/count")).ok()?)?;
    whole.get(from..end)
}

fn messages(record: &Value, base: Option<&Checkpoint>) -> Option<Vec<Value>> {
    let based = !text(record, "/payload/base").is_empty();
    let base = match base {
        Some(base) => base.messages.as_deref()?,
        None if based => return None,
        None => &[],
    };
    resolve(record, base, list(record, "/payload/messages"))
}

/// The entries that contain a checkpoint's messages; its own entry may be among them.
fn brought(record: &Value, base: Option<&Checkpoint>, at: usize) -> Vec<usize> {
    let own = vec![at; list(record, "/payload/messages").len()];
    resolve(record, base.map(|base| base.brought.as_slice()).unwrap_or_default(), &own).unwrap_or_default()
}

/// Resolves a checkpoint's spans against its base's list and its own; `None` if a span exceeds them.
fn resolve<T: Clone>(record: &Value, base: &[T], own: &[T]) -> Option<Vec<T>> {
    let spans = list(record, "/payload/spans");
    if spans.is_empty() {
        return Some(base.iter().chain(own).cloned().collect());
    }
    let parts: Option<Vec<&[T]>> = spans.iter().map(|span| part(span, base, own)).collect();
    Some(parts?.concat())
}

/// Refuses a checkpoint that refers to something the run lacks.
pub(crate) fn refusal(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    if !matches!(payload_type(record), "loop_checkpoint" | "checkpoint") {
        return None;
    }
    let before = run_checkpoints(rules, run);
    let head = run.next_journal_seq(rules) - 1;
    let uncovered = number(record, "/payload/covers_journal_seq") > head;
    if payload_type(record) == "checkpoint" {
        // The contract's own checkpoints hold no messages, so no process resumes from one, regardless of its id.
        return rules.fires(Rule::CheckpointCovers, uncovered).then_some(Reason::Checkpoint);
    }
    let base_id = text(record, "/payload/base");
    let base = before.iter().rev().find(|other| other.of_loop && other.id == base_id);
    let base_missing = !base_id.is_empty() && base.is_none_or(|base| base.pruned);
    let spans_outside = !base_missing && messages(record, base).is_none();
    let id = text(record, "/payload/checkpoint_id");
    let wrong = rules.fires(Rule::CheckpointCovers, uncovered)
        || rules.fires(Rule::CheckpointIdTaken, before.iter().any(|other| other.of_loop && other.id == id))
        || rules.fires(Rule::CheckpointBase, base_missing)
        || rules.fires(Rule::CheckpointSpans, spans_outside);
    wrong.then_some(Reason::Checkpoint)
}

/// The latest valid checkpoint that covers at most `covers`: by coverage, number, writer's time and log position.
///
/// `gone` returns whether the content of an entry was removed.
pub(crate) fn latest(rules: &Rules, run: &Run, covers: u64, gone: impl Fn(usize) -> bool) -> Option<Checkpoint> {
    let mut valid: Vec<Checkpoint> = run_checkpoints(rules, run)
        .into_iter()
        .filter(|checkpoint| checkpoint.of_loop && !checkpoint.pruned && checkpoint.covers <= covers)
        .filter(|checkpoint| is_valid(rules, run, checkpoint) && !gone(checkpoint.at))
        .filter(|checkpoint| {
            let lost = checkpoint.brought.iter().any(|at| *at != checkpoint.at && gone(*at));
            !rules.fires(Rule::RetentionOfMessages, lost)
        })
        .collect();
    valid.sort_by_key(|checkpoint| rank(run, checkpoint));
    valid.pop()
}

/// Ranks checkpoints by coverage, number, writer's time and log position.
fn rank(run: &Run, checkpoint: &Checkpoint) -> ([u64; 3], usize) {
    let record = &run.entries[checkpoint.at].record;
    let by = ["/payload/covers_journal_seq", "/payload/checkpoint_seq", "/payload/created_at_millis"];
    (by.map(|pointer| number(record, pointer)), checkpoint.at)
}

fn is_valid(rules: &Rules, run: &Run, checkpoint: &Checkpoint) -> bool {
    let record = &run.entries[checkpoint.at].record;
    let version = number(record, "/payload/schema_version");
    if rules.fires(Rule::CheckpointVersion, version > SCHEMA_VERSION_KNOWN) {
        return false;
    }
    let given = text(record, "/payload/state_hash");
    let right = checkpoint.messages.as_ref().is_some_and(|messages| {
        // An omitted hash is computed on append, so it is always right.
        given.is_empty() || hashes::state_hash(messages, &payload_member(record, "state")) == given
    });
    !rules.fires(Rule::CheckpointHash, !right)
}

/// The highest `checkpoint_seq` of a run's applied checkpoints, including hidden checkpoints.
pub(crate) fn highest_seq(run: &Run) -> u64 {
    run.of_type("loop_checkpoint").map(|entry| number(&entry.record, "/payload/checkpoint_seq")).max().unwrap_or(0)
}

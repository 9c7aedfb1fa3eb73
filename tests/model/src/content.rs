//! Rule 5, the content: its parts in the order in which the specification names them.

use crate::{
    checkpoints, effects, lifecycles,
    record::{number, numbered, payload_type, text},
    rule::{Rule, Rules},
    run::{Reason, Run},
};
use serde_json::Value;

/// Why the content of a record is refused; none where it is applied.
pub(crate) fn refusal(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    sequence(rules, run, record)
        .or_else(|| check_end(rules, run, record))
        .or_else(|| check_start(rules, run, record))
        .or_else(|| effects::refusal(rules, run, record))
        .or_else(|| checkpoints::refusal(rules, run, record))
        .or_else(|| lifecycles::refusal(rules, run, record))
}

fn sequence(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let given = number(record, "/journal_seq");
    let wrong = if numbered(record) {
        rules.fires(Rule::SequenceNext, given != run.next_journal_seq(rules))
    } else {
        rules.fires(Rule::SequenceUnnumbered, given != 0)
    };
    wrong.then_some(Reason::Sequence)
}

fn check_start(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let starts =
        |record: &Value| payload_type(record) == "run_lifecycle" && text(record, "/payload/status") == "started";
    let again = starts(record) && run.applied_entries().any(|entry| starts(&entry.record));
    rules.fires(Rule::StartedOnce, again).then_some(Reason::Transition)
}

fn check_end(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    if !numbered(record) || run.end(rules).is_none() {
        return None;
    }
    let turn_ends =
        payload_type(record) == "turn_lifecycle" && matches!(text(record, "/payload/status"), "completed" | "failed");
    let may_follow =
        matches!(payload_type(record), "checkpoint" | "recovery") || rules.fires(Rule::TurnEndsLater, turn_ends);
    rules.fires(Rule::Ended, !may_follow).then_some(Reason::Ended)
}

//! Valid time: the facts that hold at a time, according to the applied records at the model's position.

use crate::{
    effects::{Effect, KINDS, run_effects},
    fold::Model,
    record::{answers, hidden, number, payload_type, text, value_at},
    rule::{Rule, Rules},
    run::{Entry, Run},
};
use serde_json::{Value, json};

/// The statement of a record: the fact's key, its valid time, and whether it holds.
struct Statement<'a> {
    family: &'static str,
    key: String,
    at: i64,
    holds: bool,
    entry: &'a Entry,
}

/// The family and the key of the fact that an applied record concerns.
fn fact(rules: &Rules, run: &Run, entry: &Entry) -> Option<(&'static str, String)> {
    let record = &entry.record;
    let key = |path: &str| match hidden(record) {
        true => value_at(record, "/facts/key").and_then(Value::as_str).map(str::to_owned),
        false => Some(text(record, path).to_owned()),
    };
    Some(match payload_type(record) {
        "tool_call_requested" => ("tool_call", entry.id.clone()),
        "tool_call_completed" | "tool_call_failed" if is_of_call(rules, run, entry) => {
            ("tool_call", answers(record).to_owned())
        }
        // A decision that ends a call. Decisions about other effects state no fact.
        "effect_resolution" if matches!(text(record, "/payload/decision"), "done" | "adopt" | "give_up") => {
            let of_call = ends_call(rules, run, entry);
            rules.fires(Rule::DecisionStates, of_call).then(|| ("tool_call", answers(record).to_owned()))?
        }
        "conversation_turn" => ("conversation_turn", key("/payload/message_id")?),
        "code_edit_proposal" => ("code_edit_proposal", key("/payload/request_id")?),
        _ => return None,
    })
}

/// Whether a decision ended a call of the run: it may be about an effect of another kind with the same id.
fn ends_call(rules: &Rules, run: &Run, entry: &Entry) -> bool {
    let effects = run_effects(rules, run);
    let ended = |effect: &&Effect| effect.kind == KINDS[0] && effect.id == answers(&entry.record) && !effect.pending();
    let call = effects.iter().find(ended).map(|call| &run.entries[call.set_by]);
    call.is_some_and(|by| (by.offset, by.index) == (entry.offset, entry.index))
}

/// Whether a record is about a call of the run, whose request precedes it.
fn is_of_call(rules: &Rules, run: &Run, entry: &Entry) -> bool {
    let calls = run_effects(rules, run);
    let call = calls.iter().find(|call| call.kind == KINDS[0] && call.id == answers(&entry.record));
    let request = call.map(|call| call.entry(run, call.request));
    request.is_some_and(|request| (request.offset, request.index) < (entry.offset, entry.index))
}

/// The applied records before an entry.
fn records_before<'a>(run: &'a Run, entry: &Entry) -> impl Iterator<Item = &'a Entry> {
    let place = (entry.offset, entry.index);
    run.applied_entries().take_while(move |other| (other.offset, other.index) < place)
}

fn statement<'a>(model: &Model, run: &Run, entry: &'a Entry) -> Option<Statement<'a>> {
    let (rules, record) = (&model.rules, &entry.record);
    let retraction = payload_type(record) == "retraction";
    let (family, key) = if retraction {
        let id = text(record, "/payload/retracted_record_id");
        let named = |other: &&Entry| other.id == id && fact(rules, run, other).is_some();
        let retracted = records_before(run, entry).find(named);
        let later = run.applied_entries().find(named).filter(|_| retracted.is_none());
        // With the rule off, it holds for later records, too.
        let retracted = if rules.fires(Rule::RetractionOfLater, later.is_some()) { None } else { retracted.or(later) };
        if !rules.fires(Rule::Retraction, retracted.is_some()) {
            return None;
        }
        fact(rules, run, retracted?)?
    } else {
        fact(rules, run, entry)?
    };
    let stated = value_at(record, "/validity/at").and_then(Value::as_i64);
    let written = i64::try_from(number(record, "/timestamp_millis")).unwrap_or(i64::MAX);
    let holds = !retraction && value_at(record, "/validity/is_valid") != Some(&Value::Bool(false));
    Some(Statement { family, key, at: stated.unwrap_or(written), holds, entry })
}

impl Model {
    /// The facts of a run that hold at a time (milliseconds, inclusive): for each tool call, turn and proposal the
    /// latest assertion, unless it was retracted since. At a tie the assertion wins, then the later record in the
    /// log. Ordered by the place of the stating record.
    pub fn facts(&self, run_id: &str, at_millis: i64) -> Value {
        let Some(seen) = self.run(run_id) else { return json!({"facts": []}) };
        let stated: Vec<Statement<'_>> = seen
            .run
            .applied_entries()
            .filter_map(|entry| statement(self, seen.run, entry))
            .filter(|statement| statement.at <= at_millis)
            .collect();
        let mut rows = Vec::new();
        for (index, first) in stated.iter().enumerate() {
            let same = |other: &&Statement<'_>| other.family == first.family && other.key == first.key;
            if stated[..index].iter().any(|other| same(&other)) {
                continue;
            }
            if let Some(last) = self.latest_statement(stated.iter().filter(same))
                && last.holds
            {
                let place = (last.entry.offset, last.entry.index);
                rows.push((
                    place,
                    json!({"family": first.family, "key": first.key, "at_millis": last.at,
                    "position": seen.position(last.entry), "payload_type": payload_type(&last.entry.record),
                    "record_id": last.entry.id, "journal_seq": number(&last.entry.record, "/journal_seq")}),
                ));
            }
        }
        rows.sort_by_key(|(place, _)| *place);
        json!({"facts": rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>()})
    }

    /// Times to ask about: at and before each statement, and the end of time.
    pub fn times(&self, run_id: &str) -> Vec<i64> {
        let stated = self.fact_times(run_id);
        let mut times: Vec<i64> = stated.iter().take(2).chain(stated.last()).flat_map(|at| [at - 1, *at]).collect();
        times.push(i64::MAX);
        times.dedup();
        times
    }

    /// The valid times of a run's statements, each once.
    fn fact_times(&self, run_id: &str) -> Vec<i64> {
        let Some(seen) = self.run(run_id) else { return Vec::new() };
        let stated = seen.run.applied_entries().filter_map(|entry| statement(self, seen.run, entry));
        let mut times: Vec<i64> = stated.map(|statement| statement.at).collect();
        times.sort_unstable();
        times.dedup();
        times
    }

    fn latest_statement<'a, 'b: 'a>(&self, all: impl Iterator<Item = &'a Statement<'b>>) -> Option<&'a Statement<'b>> {
        let mut latest: Option<&Statement<'_>> = None;
        for next in all {
            let replaces = latest.is_none_or(|latest| {
                // In log order, so at a tie the later statement wins, unless it retracts an asserted one.
                let tie = next.at == latest.at && latest.holds && !next.holds;
                next.at >= latest.at && !self.rules.fires(Rule::AssertWins, tie)
            });
            if replaces {
                latest = Some(next);
            }
        }
        latest
    }
}

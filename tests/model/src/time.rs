//! Valid time: which facts hold at a time, as the applied records say it at the model's position.

use crate::{
    fold::Model,
    record::{number, payload_type, text},
    rule::Rule,
    run::{Entry, Run},
};
use serde_json::{Value, json};

/// What a record states: the fact's key, from when on, and whether it holds.
struct Statement<'a> {
    family: &'static str,
    key: String,
    at: i64,
    holds: bool,
    entry: &'a Entry,
}

/// The family and the key of the fact that a record asserts.
fn fact(record: &Value) -> Option<(&'static str, String)> {
    Some(match payload_type(record) {
        "tool_call_requested" => ("tool_call", text(record, "/record_id").to_owned()),
        "tool_call_completed" | "tool_call_failed" => ("tool_call", crate::record::answers(record).to_owned()),
        "conversation_turn" => ("conversation_turn", text(record, "/payload/message_id").to_owned()),
        "code_edit_proposal" => ("code_edit_proposal", text(record, "/payload/request_id").to_owned()),
        _ => return None,
    })
}

fn statement<'a>(model: &Model, run: &Run, entry: &'a Entry) -> Option<Statement<'a>> {
    let record = &entry.record;
    let retraction = payload_type(record) == "retraction";
    let about = if retraction {
        let id = text(record, "/payload/retracted_record_id");
        let retracted = run.applied().find(|other| other.id == id && fact(&other.record).is_some());
        if !model.rules.fires(Rule::Retraction, retracted.is_some()) {
            return None;
        }
        &retracted?.record
    } else {
        record
    };
    let (family, key) = fact(about)?;
    let stated = crate::record::at(record, "/validity/at").and_then(Value::as_i64);
    let written = i64::try_from(number(record, "/timestamp_millis")).unwrap_or(i64::MAX);
    let holds = !retraction && crate::record::at(record, "/validity/is_valid") != Some(&Value::Bool(false));
    Some(Statement { family, key, at: stated.unwrap_or(written), holds, entry })
}

impl Model {
    /// The facts of a run that hold at a time (milliseconds, inclusive): of each tool call, turn and proposal the latest
    /// assertion, unless it was retracted since. At a tie the assertion wins, then what stands later in the log.
    pub fn facts(&self, run_id: &str, at_millis: i64) -> Value {
        let Some(seen) = self.run(run_id) else { return json!({"facts": []}) };
        let stated: Vec<Statement<'_>> = seen
            .run
            .applied()
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
                rows.push(json!({"family": first.family, "key": first.key, "at": last.at,
                    "position": seen.position(last.entry), "payload_type": payload_type(&last.entry.record)}));
            }
        }
        json!({"facts": rows})
    }

    fn latest_statement<'a, 'b: 'a>(&self, all: impl Iterator<Item = &'a Statement<'b>>) -> Option<&'a Statement<'b>> {
        let mut latest: Option<&Statement<'_>> = None;
        for next in all {
            let replaces = latest.is_none_or(|latest| {
                // In log order, so at a tie the later one wins, unless it retracts what is asserted.
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

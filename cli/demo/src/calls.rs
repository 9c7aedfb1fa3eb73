//! The agents' own record of their calls. It is independent of every index, so the journal's answers are compared with it.

use crate::{
    agent::Conversation,
    dice::Dice,
    error::Error,
    model::{Heard, Message},
};
use runlog_schemas::{
    answer::{Lookup, LookupStatus},
    id::Fingerprint,
};
use serde_json::Value;
use std::collections::HashMap;

/// A call of an agent, and the answer that the agent got.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentCall {
    pub(crate) run_id: String,
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    pub(crate) fingerprint: Fingerprint,
    /// The number of the call among the run's calls with its fingerprint, from 1.
    pub(crate) occurrence: u32,
    pub(crate) heard: Heard,
}

/// Returns every call of these agents, in the order of its messages.
pub(crate) fn from_conversations(conversations: &[Conversation]) -> Result<Vec<AgentCall>, Error> {
    let mut agent_calls = Vec::new();
    for conversation in conversations {
        let mut occurrences = HashMap::new();
        for message in &conversation.messages {
            let Message::Tool { tool, arguments, heard } = message else { continue };
            let fingerprint = fingerprint(tool, &arguments.to_string())?;
            let occurrence = occurrences.entry(fingerprint.clone()).and_modify(|times| *times += 1).or_insert(1);
            agent_calls.push(AgentCall {
                run_id: conversation.run_id.clone(),
                tool: tool.clone(),
                arguments: arguments.clone(),
                occurrence: *occurrence,
                fingerprint,
                heard: heard.clone(),
            });
        }
    }
    Ok(agent_calls)
}

/// Computes the fingerprint of a call. The spelling of its arguments does not matter.
pub(crate) fn fingerprint(tool: &str, arguments: &str) -> Result<Fingerprint, Error> {
    Fingerprint::of_call(tool, arguments)
        .map_err(|error| Error::internal("arguments have no canonical form").because(error))
}

impl AgentCall {
    /// Returns whether the lookup has the answer that the agent got.
    pub(crate) fn agrees(&self, lookup: &Lookup) -> bool {
        let same = match (&self.heard, &lookup.error) {
            (Heard::Error { kind, message }, Some(error)) => {
                lookup.status == LookupStatus::Failed && *kind == error.kind && *message == error.message
            }
            (Heard::Result(result), None) => {
                lookup.status == LookupStatus::Completed
                    && lookup.result.as_ref().is_some_and(|answer| answer.to_value() == *result)
            }
            _ => false,
        };
        same && lookup.fingerprint == self.fingerprint && lookup.occurrence == Some(self.occurrence)
    }
}

/// Spells the same value differently: with keys in another order and additional white space.
pub(crate) fn respell(value: &Value, dice: &mut Dice) -> String {
    let gap = |dice: &mut Dice| *dice.pick(&["", " ", "\n  "]);
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            dice.shuffle(&mut members);
            let spell = |(name, value): (&String, &Value)| {
                let name = Value::from(name.as_str());
                format!("{}{name}{}:{}{}", gap(dice), gap(dice), gap(dice), respell(value, dice))
            };
            format!("{{{}}}", members.into_iter().map(spell).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let spell = |item: &Value| format!("{}{}", gap(dice), respell(item, dice));
            format!("[{}]", items.iter().map(spell).collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn another_spelling_is_the_same_call() {
        let value = json!({"b": [1, {"z": "ä\n", "a": null}], "a": {"c": 1.5, "b": true}});
        let plain = value.to_string();
        let mut dice = Dice::new(1, 1);
        let spellings: Vec<String> = (0..20).map(|_| respell(&value, &mut dice)).collect();
        assert!(spellings.iter().filter(|spelling| **spelling != plain).count() > 15, "{spellings:?}");
        for spelling in spellings {
            assert_eq!(serde_json::from_str::<Value>(&spelling).unwrap(), value);
            assert_eq!(fingerprint("t", &spelling).unwrap(), fingerprint("t", &plain).unwrap());
        }
    }

    #[test]
    fn a_repeated_call_is_another_occurrence() {
        let heard = || Heard::Result(json!(1));
        let message = |tool: &str| Message::Tool { tool: tool.into(), arguments: json!({"a": 1}), heard: heard() };
        let messages = vec![message("t"), message("u"), message("t")];
        let conversations = [Conversation { run_id: "r".into(), messages }];
        let occurrences: Vec<u32> =
            from_conversations(&conversations).unwrap().iter().map(|call| call.occurrence).collect();
        assert_eq!(occurrences, [1, 1, 2]);
    }
}

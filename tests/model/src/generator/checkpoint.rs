//! Loop checkpoints: whole ones or ones with a base, valid or invalid.

use super::world::World;
use crate::{checkpoints::Checkpoint, hashes};
use serde_json::{Value, json};

#[derive(Clone, Copy)]
enum Fault {
    None,
    Covers,
    IdTaken,
    Base,
    Spans,
    Hash,
    Version,
}

impl World {
    pub(super) fn checkpoint(&mut self, run: usize) -> Value {
        let faults = [
            (72, Fault::None),
            (4, Fault::Covers),
            (4, Fault::IdTaken),
            (5, Fault::Base),
            (5, Fault::Spans),
            (6, Fault::Hash),
            (4, Fault::Version),
        ];
        let fault = self.random.weigh(Fault::None, &faults);
        let checkpoints = self.checkpoints(run);
        let whole: Vec<&Checkpoint> = checkpoints
            .iter()
            .filter(|checkpoint| !checkpoint.pruned && checkpoint.messages.is_some() && checkpoint.of_loop)
            .collect();
        let base = self.random.pick(&whole);
        // Only a list with a base can be wrong: without one, the server computes it.
        let needs_base = matches!(fault, Fault::Spans | Fault::Hash);
        let base = if needs_base || self.random.percent(60) { base } else { None };
        let mut payload = self.fields(run, &checkpoints);
        let (own, spans, list) = self.messages(base);
        let hash = hashes::state_hash(&list, &payload["state"]);
        payload["messages"] = own.into();
        if let Some(base) = base {
            payload["base"] = base.id.clone().into();
            payload["spans"] = spans.into();
        }
        if base.is_some() || self.random.percent(50) {
            payload["state_hash"] = hash.into();
        }
        match fault {
            Fault::None => {}
            Fault::Covers => payload["covers_journal_seq"] = (self.head(run).2 + self.random.below(2)).into(),
            Fault::IdTaken => {
                if let Some(taken) = self.random.pick(&checkpoints) {
                    payload["checkpoint_id"] = taken.id.into();
                }
            }
            Fault::Base => {
                let pruned: Vec<&Checkpoint> = checkpoints.iter().filter(|checkpoint| checkpoint.pruned).collect();
                let gone = self.random.pick(&pruned).map_or("nobody's", |pruned| &pruned.id);
                payload["base"] = gone.into();
                payload["state_hash"] = hashes::state_hash(&[], &Value::Null).into();
            }
            Fault::Spans if base.is_some() => {
                payload["spans"] = json!([{"from_base": self.random.percent(50), "from": 90, "count": 3}]);
            }
            Fault::Hash if base.is_some() => payload["state_hash"] = hashes::state_hash(&[], &"other".into()).into(),
            Fault::Spans | Fault::Hash => {}
            Fault::Version => payload["schema_version"] = 9.into(),
        }
        json!({"payload": payload})
    }

    fn fields(&mut self, run: usize, checkpoints: &[Checkpoint]) -> Value {
        let head = self.head(run).2 - 1;
        let covers = if self.random.percent(60) { head } else { self.random.below(head + 1) };
        let unanswered: Vec<String> = self
            .effects(run)
            .iter()
            .filter(|effect| effect.kind == "tool_call" && self.random.percent(40))
            .map(|effect| effect.id.clone())
            .collect();
        let mut payload = json!({
            "type": "loop_checkpoint",
            "checkpoint_id": self.id("checkpoint"),
            "checkpoint_seq": if self.random.percent(85) { checkpoints.len() as u64 + 1 } else { self.random.below(4) },
            "covers_journal_seq": covers,
            "unanswered": unanswered,
            "schema_version": 1,
            "session_id": "session",
            "turn": 1,
            "tool_calls_count": 0,
            "created_at_millis": self.tick(),
        });
        if self.random.percent(40) {
            payload["state"] = format!("step {}", self.random.below(9)).into();
        }
        payload
    }

    /// New messages, the spans, and the list that they make.
    fn messages(&mut self, base: Option<&Checkpoint>) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
        let own: Vec<Value> = (0..self.random.between(1, 3))
            .map(|_| json!({"content": format!("text {}", self.random.below(100)), "role": "user"}))
            .collect();
        let before = base.and_then(|base| base.messages.clone()).unwrap_or_default();
        if base.is_none() || self.random.percent(40) {
            let list = before.iter().chain(&own).cloned().collect();
            return (own, Vec::new(), list);
        }
        let span =
            |from_base: bool, from: usize, count: usize| json!({"from_base": from_base, "from": from, "count": count});
        let keep = usize::try_from(self.random.below(before.len() as u64 + 1)).unwrap_or(0);
        let rest = before.len() - keep;
        let mut spans = vec![span(false, 0, own.len())];
        let mut list = Vec::new();
        if keep > 0 {
            spans.insert(0, span(true, 0, keep));
            list.extend_from_slice(&before[..keep]);
        }
        list.extend_from_slice(&own);
        if rest > 1 {
            // One message of the base was dropped.
            spans.push(span(true, keep + 1, rest - 1));
            list.extend_from_slice(&before[keep + 1..]);
        }
        (own, spans, list)
    }
}

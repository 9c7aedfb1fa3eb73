//! Operators who skip records that were applied, while the run's writer continues, and records that were refused.

use super::{payloads, world::World};
use crate::{
    record::{payload_type, text},
    run::{Entry, Reason, Verdict},
};
use serde_json::{Value, json};

#[derive(Clone, Copy)]
enum Later {
    Attempt,
    Request,
    Result,
    Intent,
    Batch,
    Anything,
    NotDone,
    Again,
}

impl World {
    /// A writer appends a record and continues, and an operator skips that record: the later records lose their numbers, or their
    /// claim.
    pub(super) fn displace(&mut self) {
        let mut at = self.any_agent();
        self.look_up(at);
        let run = self.agents[at].run;
        let partition = self.partition_of(&self.runs[run]);
        if !self.model.rebuilds(partition) && self.random.percent(90) {
            return;
        }
        let call = self.call_to_displace(at);
        if self.random.percent(60) {
            self.decide(run, &call, "not_done");
        }
        if self.random.percent(30) {
            at = self.take_over(run);
        }
        let victim = self.ends[partition as usize];
        match self.random.below(10) {
            0..4 => {
                let fields = self.conversation_turn();
                self.write_right(at, fields);
            }
            4..6 => at = self.take_over(run),
            6 => {
                let fields = self.checkpoint(run);
                self.write_right(at, fields);
            }
            7 => self.decide(run, &call, "not_done"),
            8 => self.later(at, &call, Later::Attempt),
            _ => self.later(at, &call, Later::Request),
        }
        let later = [
            (5, Later::Attempt),
            (4, Later::Request),
            (2, Later::Result),
            (2, Later::Intent),
            (2, Later::Batch),
            (3, Later::Anything),
            (2, Later::NotDone),
            (2, Later::Again),
        ];
        for _ in 0..self.random.between(1, 4) {
            let next = self.random.weigh(Later::Attempt, &later);
            self.later(at, &call, next);
        }
        self.skip_offset(partition, victim);
        if self.random.percent(40) {
            self.look_up(at);
        }
        for _ in 0..self.random.between(0, 3) {
            let next = self.random.weigh(Later::Attempt, &later);
            self.later(at, &call, next);
        }
        if self.random.percent(40) {
            self.look_up(at);
            let mut fields = self.request();
            fields["facts"] = json!({"unresolved": "refuse"});
            self.write_right(at, fields);
        }
    }

    /// A pending call of the run, requested now if there is none.
    fn call_to_displace(&mut self, at: usize) -> String {
        let run = self.agents[at].run;
        let effects = self.effects(run);
        let pending: Vec<_> = effects.iter().filter(|effect| effect.pending() && effect.key.is_none()).collect();
        match self.random.pick(&pending).filter(|_| self.random.percent(40)) {
            Some(call) => call.id.clone(),
            None => {
                let mut fields = self.request();
                if let Some(fields) = fields.as_object_mut() {
                    fields.remove("idempotency_key");
                    fields.remove("facts");
                }
                text(&self.write_right(at, fields), "/record_id").to_owned()
            }
        }
    }

    /// Another process claims the run, and wins.
    fn take_over(&mut self, run: usize) -> usize {
        let (epoch, _, _) = self.head(run);
        let record_id = self.id("claim");
        self.claim(run, epoch + 1, &record_id);
        self.agents.len() - 1
    }

    fn later(&mut self, at: usize, call: &str, later: Later) {
        let run = self.agents[at].run;
        let fields = match later {
            Later::Attempt => {
                let effect = self.effects(run).iter().find(|effect| effect.id == call).cloned();
                let attempt = effect.as_ref().map_or(2, |effect| effect.starts + 1);
                let payload = json!({"type": "tool_call_attempt", "request_record_id": call, "attempt": attempt, "reason": "again"});
                match effect.filter(|_| self.random.percent(50)) {
                    Some(effect) => json!({"payload": payload, "facts": {"basis": effect.newest}}),
                    None => json!({"payload": payload}),
                }
            }
            Later::Request => self.request(),
            Later::Result => {
                let booking = self.random.below(3);
                let payload =
                    json!({"type": "tool_call_completed", "request_record_id": call, "result": {"booking": booking}});
                let facts = if self.random.percent(40) { json!({"only_own": true}) } else { json!({}) };
                json!({"payload": payload, "facts": facts})
            }
            Later::Intent => {
                let id = self.id("effect");
                match self.random.below(3) {
                    0 => json!({"payload": payloads::effect_intent(&id, None)}),
                    1 => json!({"payload": payloads::tool(&self.runs[run], &id, "intent_recorded", false)}),
                    _ => json!({"payload": payloads::delivery(&id, "requested", "now")}),
                }
            }
            Later::Batch => return self.write_batch(at),
            Later::Anything => self.something_to_say(at),
            Later::NotDone => return self.decide(run, call, "not_done"),
            Later::Again => return self.request_again(at),
        };
        self.write_right(at, fields);
    }

    /// The agent makes a request again under its id, with its next numbers and sometimes with other content.
    fn request_again(&mut self, at: usize) {
        let sent = &self.agents[at].sent;
        let requests: Vec<Value> =
            sent.iter().filter(|value| payload_type(value) == "tool_call_requested").cloned().collect();
        let Some(mut request) = self.random.pick(&requests[requests.len().saturating_sub(3)..]) else { return };
        for member in ["writer_id", "writer_epoch", "writer_seq", "journal_seq"] {
            request.as_object_mut().map(|members| members.remove(member));
        }
        if self.random.percent(20) {
            request["payload"] = self.request()["payload"].clone();
        }
        self.write_right(at, request);
    }

    /// An operator skips a record that was refused and is about an effect, or a malformed batch. Sometimes decisions follow the record.
    pub(super) fn skip_refused(&mut self, batch: bool) {
        let about =
            ["tool_call_attempt", "tool_call_completed", "tool_call_failed", "effect_resolution", "effect_result"];
        let refused = |entry: &&Entry| match entry.verdict {
            Verdict::Refused(Reason::Batch) => batch,
            Verdict::Refused(_) => !batch && about.contains(&entry.kind.as_str()),
            _ => false,
        };
        let offsets = |run: usize| -> Vec<(String, u64)> {
            let entries = self.run(run).map(|run| run.entries.as_slice()).unwrap_or_default();
            let of_run = entries.iter().filter(refused);
            of_run.map(|entry| (text(&entry.record, "/run_id").to_owned(), entry.offset)).collect()
        };
        let all: Vec<(String, u64)> = (0..self.runs.len()).flat_map(offsets).collect();
        let Some((run_id, offset)) = self.random.pick(&all) else { return };
        let partition = self.partition_of(&run_id);
        self.skip_offset(partition, offset);
    }

    /// Appends a record with the agent's next numbers, and remembers it.
    fn write_right(&mut self, at: usize, fields: Value) -> Value {
        let value = self.number_right(at, fields);
        self.append_record(&value, super::AppendFault::None);
        self.remember(at, value.clone(), true);
        value
    }

    fn skip_offset(&mut self, partition: u32, offset: u64) {
        let payload = json!({"type": "skip", "offset": offset, "who": "jo", "why": "poison"});
        self.append_partition_record(partition, payload);
    }
}

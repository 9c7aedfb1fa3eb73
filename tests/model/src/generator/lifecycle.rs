//! The content of an agent's next record: mostly a legal step of a lifecycle, sometimes not.

use super::{payloads, world::World};
use crate::{
    checkpoints::{self, Checkpoint},
    effects::{self, Effect},
    hashes,
    lifecycles::{self, Item},
};
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Topic {
    Run,
    Turn,
    Request,
    Result,
    Attempt,
    Effect,
    Checkpoint,
    ContractCheckpoint,
    Prune,
    Recovery,
    Tool,
    Delivery,
    Marker,
    TurnLifecycle,
    Approval,
    Wake,
    Message,
    Proposal,
    Pool,
    WriteBack,
}

impl World {
    /// The payload of an agent's next record, with the envelope fields that belong to it.
    pub(super) fn something_to_say(&mut self, at: usize) -> Value {
        let run = self.agents[at].run;
        let ended = self.run(run).is_some_and(|run| run.end(&self.model.rules).is_some());
        let open = [
            (6, Topic::Run),
            (9, Topic::Turn),
            (17, Topic::Request),
            (17, Topic::Result),
            (6, Topic::Attempt),
            (10, Topic::Effect),
            (14, Topic::Checkpoint),
            (3, Topic::ContractCheckpoint),
            (3, Topic::Prune),
            (1, Topic::Recovery),
            (7, Topic::Tool),
            (5, Topic::Delivery),
            (2, Topic::Marker),
            (1, Topic::TurnLifecycle),
            (7, Topic::Approval),
            (6, Topic::Wake),
            (6, Topic::Message),
            (7, Topic::Proposal),
            (6, Topic::Pool),
            (13, Topic::WriteBack),
        ];
        let after_end = [
            (32, Topic::Checkpoint),
            (24, Topic::Prune),
            (5, Topic::ContractCheckpoint),
            (4, Topic::Recovery),
            (20, Topic::Result),
            (4, Topic::Turn),
            (3, Topic::Run),
            (6, Topic::WriteBack),
            (2, Topic::Proposal),
            (4, Topic::TurnLifecycle),
            (4, Topic::Effect),
            (3, Topic::Tool),
            (2, Topic::Marker),
        ];
        match self.random.weigh(Topic::Turn, if ended { &after_end } else { &open }) {
            Topic::Run => self.run_lifecycle(run),
            Topic::Turn => self.conversation_turn(),
            Topic::Request => {
                let fields = self.request();
                self.dated(fields)
            }
            Topic::Result => {
                let fields = self.result(run);
                self.dated(fields)
            }
            Topic::Attempt => self.attempt(run),
            Topic::Effect => self.effect(run),
            Topic::Checkpoint => self.checkpoint(run),
            Topic::ContractCheckpoint => self.contract_checkpoint(run),
            Topic::Prune => self.prune(run),
            Topic::Recovery => {
                json!({"payload": {"type": "recovery", "unsafe_pending": [], "recovery_reason": "it died"}})
            }
            Topic::Tool => self.tool(run),
            Topic::Delivery => self.keyed(run, "output_delivery"),
            Topic::Marker => self.marker(run),
            Topic::TurnLifecycle => {
                let status = self.random.pick(&["started", "completed", "failed"]).unwrap_or("started");
                json!({"payload": payloads::turn_lifecycle(&self.runs[run], self.random.below(3), status)})
            }
            Topic::Approval => self.keyed(run, "approval"),
            Topic::Wake => self.keyed(run, "wake"),
            Topic::Message => self.keyed(run, "run_message"),
            Topic::Pool => self.keyed(run, "agent_pool"),
            Topic::Proposal => {
                let mut fields = self.keyed(run, "code_edit_proposal");
                fields["validity"] = json!({"at": self.valid_time(), "is_valid": !self.random.percent(12)});
                fields
            }
            Topic::WriteBack => self.write_back(run),
        }
    }

    /// One of a few times, so that facts meet at the same one.
    pub(super) fn valid_time(&mut self) -> i64 {
        super::world::START_MILLIS + i64::try_from(self.random.below(4)).unwrap_or(0) * 1000
    }

    /// Sometimes with a valid time of its own.
    fn dated(&mut self, mut fields: Value) -> Value {
        if self.random.percent(25) {
            fields["validity"] = json!({"at": self.valid_time(), "is_valid": !self.random.percent(10)});
        }
        fields
    }

    fn run_lifecycle(&mut self, run: usize) -> Value {
        let has_lifecycle = self.run(run).is_some_and(|run| run.of_type("run_lifecycle").next().is_some());
        let ends = self.random.percent(if has_lifecycle { 75 } else { 5 });
        let status = if ends { self.random.pick(&["completed", "failed", "cancelled"]) } else { Some("started") };
        json!({"payload": {"type": "run_lifecycle", "status": status, "reason": "so it went"}})
    }

    pub(super) fn conversation_turn(&mut self) -> Value {
        let message_id = format!("message-{}", self.random.below(4));
        let content = self.random.below(1000);
        let turn = json!({"type": "conversation_turn", "message_id": message_id, "kind": "user", "content": format!("say {content}")});
        let mut fields = json!({"payload": turn});
        if self.random.percent(70) {
            fields["validity"] = json!({"at": self.valid_time(), "is_valid": !self.random.percent(15)});
        }
        if self.random.percent(20) {
            let facts = if self.random.percent(70) { json!({"key": message_id}) } else { json!({}) };
            let hidden = payloads::encrypted(&self.key_id(), "conversation_turn", &facts);
            if let (Some(fields), Some(hidden)) = (fields.as_object_mut(), hidden.as_object()) {
                fields.extend(hidden.clone());
            }
        }
        fields
    }

    pub(super) fn request(&mut self) -> Value {
        let tool_name = self.random.pick(&["book", "poll"]).unwrap_or("book");
        let arguments = json!({"day": self.random.below(2)});
        let (request_id, call_id) = (self.id("request"), format!("call-{}", self.random.below(3)));
        let mut fields = json!({"payload": {
            "type": "tool_call_requested", "request_id": request_id, "call_id": call_id,
            "tool_name": tool_name, "arguments": arguments,
        }});
        if self.random.percent(35) {
            let key = if self.random.percent(8) { String::new() } else { format!("{tool_name}-{}", arguments["day"]) };
            fields["idempotency_key"] = key.into();
        }
        if self.random.percent(4) {
            fields["dedupe_key"] = "dedupe".into();
        }
        if self.random.percent(25) {
            fields["facts"] = match self.random.below(4) {
                0 => json!({"repeatable": true}),
                1 => json!({"unresolved": "allow"}),
                _ => json!({"unresolved": "refuse"}),
            };
        } else if self.random.percent(50) {
            fields["facts"] = json!({"observed": true});
        }
        fields
    }

    pub(super) fn effects(&self, run: usize) -> Arc<Vec<Effect>> {
        self.run(run).map(|run| effects::run_effects(&self.model.rules, run)).unwrap_or_default()
    }

    /// An effect of a kind: mostly a pending one.
    fn any_effect(&mut self, run: usize, kind: &str, pending_percent: u64) -> Option<Effect> {
        let all: Vec<Effect> = self.effects(run).iter().filter(|effect| effect.kind == kind).cloned().collect();
        let pending: Vec<Effect> = all.iter().filter(|effect| effect.pending()).cloned().collect();
        let from = if !pending.is_empty() && self.random.percent(pending_percent) { pending } else { all };
        self.random.pick(&from)
    }

    fn result(&mut self, run: usize) -> Value {
        let call = self.any_effect(run, "tool_call", 92);
        if call.is_none() && self.random.percent(95) {
            return self.request();
        }
        // The same completion again, under another id.
        if let Some(call) = call.as_ref().filter(|call| !call.pending())
            && self.random.percent(60)
            && let Some(first) = self.run(run).and_then(|run| run.entries.get(call.set_by))
        {
            let mut fields = json!({"payload": first.record["payload"]});
            for field in ["facts", "key_id", "record_kind"] {
                if let Some(value) = first.record.get(field) {
                    fields[field] = value.clone();
                }
            }
            let result = crate::record::payload_type(&first.record);
            if result.starts_with("tool_call_") {
                return fields;
            }
        }
        let id = call.map_or_else(|| "nobody's".to_owned(), |call| call.id);
        let failed = self.random.percent(25);
        if !failed && self.random.percent(18) {
            let mut facts = json!({"status": "completed", "answers": id});
            if self.random.percent(40) {
                facts["only_own"] = true.into();
            }
            return payloads::encrypted(&self.key_id(), "tool_call_completed", &facts);
        }
        let number = self.random.below(5);
        let mut fields = json!({"payload": if failed {
            json!({"type": "tool_call_failed", "request_record_id": id, "error_kind": "busy", "error_message": format!("try {number}")})
        } else {
            json!({"type": "tool_call_completed", "request_record_id": id, "result": {"booking": number}})
        }});
        if self.random.percent(60) {
            fields["facts"] = json!({"only_own": true});
        }
        fields
    }

    fn attempt(&mut self, run: usize) -> Value {
        let call = self.any_effect(run, "tool_call", 94);
        if call.is_none() && self.random.percent(95) {
            return self.request();
        }
        let attempt = call.as_ref().map_or(2, |call| call.starts + 1);
        let attempt = if self.random.percent(10) { attempt + 1 } else { attempt };
        let basis = call.as_ref().filter(|_| self.random.percent(60)).map(|call| self.basis(run, call));
        let id = call.map_or_else(|| "nobody's".to_owned(), |call| call.id);
        let mut fields = json!({"payload": {
            "type": "tool_call_attempt", "request_record_id": id, "attempt": attempt, "reason": "again",
        }});
        if let Some(basis) = basis {
            fields["facts"] = json!({"basis": basis});
        }
        fields
    }

    /// The basis of an attempt or a decision: mostly the effect's own, sometimes its last but one, or another record.
    pub(super) fn basis(&mut self, run: usize, effect: &Effect) -> String {
        if self.random.percent(85) {
            return effect.newest.clone();
        }
        if let Some(before) = hashes::basis_before(&effect.newest).filter(|_| self.random.percent(50)) {
            return before.to_owned();
        }
        let entries = self.run(run).map(|run| run.entries.as_slice()).unwrap_or_default();
        let contents: Vec<String> = entries.iter().map(|entry| entry.content(0, &entry.record)).collect();
        self.random.pick(&contents).unwrap_or_else(|| "b".repeat(64))
    }

    fn effect(&mut self, run: usize) -> Value {
        let effect = self.any_effect(run, "effect", 80);
        let intends = effect.as_ref().is_none_or(|effect| !effect.pending()) || self.random.percent(30);
        if intends && self.random.percent(90) {
            let id = match effect {
                Some(effect) if self.random.percent(30) => effect.id,
                _ => match self.any_effect(run, "tool_call", 50).filter(|_| self.random.percent(20)) {
                    Some(call) => call.id,
                    None => self.id("effect"),
                },
            };
            let key = self.random.percent(40).then(|| format!("key-{id}"));
            return json!({"payload": payloads::effect_intent(&id, key.as_deref())});
        }
        let id = effect.filter(|_| !self.random.percent(8)).map_or_else(|| self.id("effect"), |effect| effect.id);
        let statuses =
            ["completed", "failed", "timed_out", "cancelled", "denied_before_execution", "unknown", "unknown"];
        let status = self.random.pick(&statuses).unwrap_or("completed");
        json!({"payload": payloads::effect_result(&id, status)})
    }

    /// The contract's marker: for an effect, mostly with its status, or for the run.
    fn marker(&mut self, run: usize) -> Value {
        let effect = self.any_effect(run, "effect", 15);
        let agrees = effect.as_ref().filter(|effect| !effect.pending()).map(|effect| effect.status.clone());
        let any =
            self.random.pick(&["completed", "timed_out", "timed_out", "failed", "run_completed"]).unwrap_or("failed");
        let status = agrees.filter(|_| self.random.percent(80)).unwrap_or_else(|| any.to_owned());
        let id = effect.map_or_else(|| "effect of the run".to_owned(), |effect| effect.id);
        json!({"payload": payloads::terminal_result(&id, &status)})
    }

    fn tool(&mut self, run: usize) -> Value {
        let states = [
            (2, "requested"),
            (1, "request_modified"),
            (8, "intent_recorded"),
            (2, "unknown"),
            (2, "recovery_required"),
            (4, "completed"),
            (2, "failed"),
            (1, "timed_out"),
            (1, "cancelled"),
            (1, "denied_before_execution"),
            (2, "result_rewritten"),
        ];
        let state = self.random.weigh("requested", &states);
        let key = format!("tool-{}", self.random.below(4));
        let keyed = self.random.percent(30);
        json!({"payload": payloads::tool(&self.runs[run], &key, state, keyed)})
    }

    /// A step of an item with a key: to one of the states, mostly to a state that may follow.
    fn keyed(&mut self, run: usize, family: &str) -> Value {
        let states: &[&str] = match family {
            "approval" => &[
                "requested",
                "requested",
                "dispatch_intent",
                "dispatched",
                "approved",
                "denied",
                "denied by rule",
                "approved_for_session",
                "timed_out",
                "recovery_required",
                "dispatcher_unavailable",
                "of a later version",
            ],
            "wake" => &["registered", "registered", "triggered", "timed_out", "cancelled", "failed"],
            "run_message" => &[
                "accepted",
                "accepted",
                "delivered",
                "delivered",
                "responded",
                "failed",
                "timed_out",
                "expired",
                "cancelled",
            ],
            "output_delivery" => &[
                "requested",
                "requested",
                "reconciliation_needed",
                "completed",
                "failed",
                "deduped",
                "policy_denied",
                "event",
                "skipped_optional",
                "host_configuration_needed",
            ],
            "agent_pool" => &["created", "run_joined", "run_left"],
            _ => &["pending", "pending", "approved", "denied", "applied", "reverted"],
        };
        // Few keys, so that states meet.
        let keys = if family == "agent_pool" { 1 } else { 3 };
        let key = format!("{family}-{}", self.random.below(keys));
        let state = self.random.pick(states).unwrap_or(states[0]);
        // Sometimes the same note again.
        let note = if self.random.percent(40) { "note".to_owned() } else { self.id("note") };
        let run_id = self.runs[run].clone();
        json!({"payload": match family {
            "approval" => payloads::approval(&run_id, &key, state, &note),
            "wake" => payloads::wake(&run_id, &key, state, &note),
            "run_message" => payloads::run_message(&run_id, &key, state, &note),
            "output_delivery" => payloads::delivery(&key, state, &note),
            "agent_pool" => payloads::pool(&key, state, &run_id),
            _ => payloads::proposal(&key, state, &note),
        }})
    }

    /// A phase of one of two transactions, often of a transaction that an earlier epoch left open or that has ended.
    fn write_back(&mut self, run: usize) -> Value {
        let epoch = self.head(run).0;
        let items = self.run(run).map(|run| lifecycles::run_items(&self.model.rules, run)).unwrap_or_default();
        let of = |wanted: &dyn Fn(&Item) -> bool| -> Vec<u64> {
            let write_backs = items.iter().filter(|item| item.family.name == "write_back" && wanted(item));
            write_backs.filter_map(|item| item.key.id.parse().ok()).collect()
        };
        let left = of(&|item| !item.ended() && item.key.epoch < Some(epoch));
        let over = of(&|item| item.ended() && item.key.epoch == Some(epoch));
        let committed = of(&|item| item.state == "committed" && item.key.epoch == Some(epoch));
        let phases = [(8, "staged"), (6, "committed"), (4, "rejected")];
        if let Some(txn) = self.random.pick(&committed).filter(|_| self.random.percent(70)) {
            return json!({"payload": payloads::write_back("rejected", txn)});
        }
        let (txn, phase) = match (self.random.pick(&left), self.random.pick(&over)) {
            (Some(txn), _) if self.random.percent(50) => (txn, "rejected"),
            (_, Some(txn)) if self.random.percent(55) => {
                (txn, self.random.weigh("staged", &[(2, "staged"), (1, "committed"), (4, "rejected")]))
            }
            _ => (self.random.below(2), self.random.weigh("staged", &phases)),
        };
        json!({"payload": payloads::write_back(phase, txn)})
    }

    /// A late result of a superseded writer: mostly of a pending effect, often of an effect with evidence.
    pub(super) fn late_result(&mut self, run: usize) -> Option<Value> {
        let (pending, ended): (Vec<_>, Vec<_>) = self.effects(run).iter().cloned().partition(Effect::pending);
        let with_evidence: Vec<Effect> = pending.iter().filter(|effect| !effect.evidence.is_empty()).cloned().collect();
        let from = if !ended.is_empty() && self.random.percent(20) {
            ended
        } else if !with_evidence.is_empty() && self.random.percent(70) {
            with_evidence
        } else {
            pending
        };
        let effect = self.random.pick(&from)?;
        let status = self.random.pick(&["completed", "failed"]).unwrap_or("failed");
        Some(self.late_result_fields(run, &effect, status))
    }

    pub(super) fn late_result_fields(&mut self, run: usize, effect: &Effect, status: &str) -> Value {
        let number = self.random.below(3);
        let mut fields = json!({"payload": match (effect.kind, status) {
            ("tool_call", "failed") => {
                json!({"type": "tool_call_failed", "request_record_id": effect.id, "error_kind": "busy", "error_message": "late"})
            }
            ("tool_call", _) => {
                json!({"type": "tool_call_completed", "request_record_id": effect.id, "result": {"late": number}})
            }
            ("effect", status) => payloads::effect_result(&effect.id, status),
            ("tool", status) => payloads::tool(&self.runs[run], &effect.id, status, false),
            (_, status) => payloads::delivery(&effect.id, status, "late"),
        }});
        // Processes that name a result after its call give it the same id.
        let earlier_results = [effect.evidence.as_slice(), &effect.contradicting].concat();
        if let Some(earlier) = self.random.pick(&earlier_results)
            && self.random.percent(25)
        {
            fields["record_id"] = crate::record::text(&earlier.result, "/record_id").into();
        }
        fields
    }

    fn contract_checkpoint(&mut self, run: usize) -> Value {
        let head = self.head(run).2 - 1;
        let covers = if self.random.percent(15) { head + 1 } else { self.random.below(head + 1) };
        let id = self.id("checkpoint");
        let created = self.tick();
        json!({"payload": payloads::contract_checkpoint(&self.runs[run], &id, covers, created)})
    }

    fn prune(&mut self, run: usize) -> Value {
        let head = self.head(run).2;
        let before = if self.random.percent(50) { head + 1 } else { self.random.below(head + 2) };
        let flag = self.random.percent(60);
        json!({"payload": {"type": "checkpoint_prune", "prune_covered_before": before, "preserve_latest_terminal": flag}})
    }

    pub(super) fn checkpoints(&self, run: usize) -> Vec<Checkpoint> {
        self.run(run).map(|run| checkpoints::run_checkpoints(&self.model.rules, run)).unwrap_or_default()
    }
}

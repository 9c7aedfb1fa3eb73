//! The operators: they decide about effects, skip records, retract facts and erase content.

use super::{AppendFault, record, world::World};
use crate::{
    delivery::What,
    effects,
    record::{of_partition, payload_type},
};
use serde_json::{Value, json};

#[derive(Clone, Copy)]
enum Act {
    Resolve,
    Retract,
    Erase,
    Horizon,
    Skip,
    SkipRefused,
    Displace,
    WrongPartition,
}

impl World {
    pub(super) fn operator_acts(&mut self) {
        let acts = [
            (56, Act::Resolve),
            (14, Act::Retract),
            (7, Act::Erase),
            (11, Act::Horizon),
            (20, Act::Skip),
            (6, Act::SkipRefused),
            (16, Act::Displace),
            (8, Act::WrongPartition),
        ];
        match self.random.weigh(Act::Resolve, &acts) {
            Act::Resolve => self.resolve(),
            Act::Retract => self.retract(),
            Act::Erase => self.erase(),
            Act::Horizon => self.horizon(),
            Act::Skip => self.skip(),
            Act::SkipRefused => self.skip_refused(false),
            Act::Displace => self.displace(),
            Act::WrongPartition => self.wrong_partition(),
        }
    }

    fn any_run(&mut self) -> usize {
        usize::try_from(self.random.below(self.runs.len() as u64)).unwrap_or(0)
    }

    /// Appends a record outside a claim, sometimes twice, sometimes with another record's id or an unneeded number.
    fn say(&mut self, run: usize, payload: &Value) {
        self.say_at(run, payload, Value::Null);
    }

    /// The same with facts. A decision that names an epoch comes from the run's current or former writer.
    fn say_at(&mut self, run: usize, payload: &Value, facts: Value) {
        let mut value = json!({
            "run_id": self.runs[run],
            "record_id": self.id("said"),
            "agent_id": "desk",
            "writer_id": "desk",
            "writer_epoch": 0,
            "writer_seq": 0,
            "journal_seq": 0,
            "timestamp_millis": self.tick(),
            "payload": payload,
        });
        if let Some(epoch) = facts.get("epoch") {
            value["writer_epoch"] = epoch.clone();
            if let Some(writer) = self.run(run).map(|run| run.writer()).and_then(|writer| writer.id)
                && self.random.percent(80)
            {
                value["writer_id"] = writer.into();
            }
        }
        if facts.as_object().is_some_and(|facts| !facts.is_empty()) {
            value["facts"] = facts;
        }
        if payload["type"] == "retraction" {
            value["validity"] = json!({"at": self.valid_time(), "is_valid": false});
        }
        if self.random.percent(6)
            && let Some(taken) = self.agents.iter().find(|agent| agent.run == run).and_then(|agent| agent.sent.last())
        {
            value["record_id"] = taken["record_id"].clone();
        }
        if self.random.percent(4) {
            value["journal_seq"] = 1.into();
        }
        self.append_record(&value, AppendFault::None);
        if self.random.percent(10) {
            if let Some(proof) = value.pointer_mut("/facts/principal_proof") {
                // The server's key changed in between: the same content.
                *proof = "b".repeat(64).into();
            }
            self.append_record(&value, AppendFault::None);
        }
    }

    /// Decides about an effect that is pending, or that once was.
    fn resolve(&mut self) {
        let run = self.any_run();
        let effects = self.run(run).map(|run| effects::run_effects(&self.model.rules, run)).unwrap_or_default();
        let with_evidence: Vec<_> =
            effects.iter().filter(|effect| effect.pending() && !effect.evidence.is_empty()).collect();
        let pending: Vec<_> = effects.iter().filter(|effect| effect.pending()).collect();
        let all: Vec<_> = effects.iter().collect();
        let choice = self.random.below(100);
        let from = if choice < 70 && !with_evidence.is_empty() {
            with_evidence
        } else if choice < 90 && !pending.is_empty() {
            pending
        } else {
            all
        };
        if from.is_empty() && self.random.percent(90) {
            return;
        }
        let id = self.random.pick(&from).map_or("nobody's".to_owned(), |effect| effect.id.clone());
        let adoptable = effects.iter().any(|effect| effect.id == id && !effect.evidence.is_empty());
        let decision = self
            .random
            .weigh("done", &[(3, "done"), (if adoptable { 14 } else { 1 }, "adopt"), (6, "not_done"), (2, "give_up")]);
        self.decide(run, &id, decision);
    }

    pub(super) fn decide(&mut self, run: usize, id: &str, decision: &str) {
        let mut payload = json!({
            "type": "effect_resolution", "request_record_id": id, "decision": decision,
            "who": "jo", "why": "looked it up",
        });
        if decision == "done" {
            let result = self.random.percent(80).then(|| json!({"resolved": self.random.below(3)}));
            payload["result"] = result.into();
        }
        let facts = if self.random.percent(60) { self.seen_of(run, id) } else { Value::Null };
        self.say_at(run, &payload, facts);
    }

    /// The state that a decision names: mostly the current one, sometimes an earlier or an impossible one.
    fn seen_of(&mut self, run: usize, id: &str) -> Value {
        let effects = self.run(run).map(|run| effects::run_effects(&self.model.rules, run)).unwrap_or_default();
        let named: Vec<_> = effects.iter().filter(|effect| effect.id == id && effect.pending()).collect();
        let effect = self.random.pick(&named);
        let revision = effect.map_or(1, |effect| effect.revision);
        let mut facts = json!({});
        let revisions_back = self.random.weigh(0, &[(6, 0), (3, 1), (1, 2)]);
        if self.random.percent(80) {
            facts["revision"] = match revisions_back {
                2 => revision + 1,
                revisions_back => revision.saturating_sub(revisions_back),
            }
            .into();
        }
        let shown: Vec<String> = effect
            .into_iter()
            .flat_map(|effect| &effect.evidence)
            .map(|evidence| crate::record::text(&evidence.result, "/record_id").to_owned())
            .collect();
        if self.random.percent(70)
            && let Some(named) = shown.last().cloned().filter(|_| self.random.percent(50)).or(self.random.pick(&shown))
        {
            facts["evidence"] = named.into();
        }
        if self.random.percent(25) {
            facts["epoch"] = self.random.below(3).into();
            if self.random.percent(50) {
                facts["only_own"] = true.into();
            }
        }
        if let Some(effect) = effect.cloned()
            && self.random.percent(40)
        {
            facts["basis"] = self.basis(run, &effect).into();
        }
        if self.random.percent(10) {
            facts["principal"] = "jo@desk".into();
            facts["principal_proof"] = "a".repeat(64).into();
        }
        facts
    }

    fn retract(&mut self) {
        if self.random.percent(20) {
            return self.retract_what_comes();
        }
        let run = self.any_run();
        let facts = ["conversation_turn", "code_edit_proposal", "tool_call_requested"];
        let ids = |run: &crate::run::Run| -> Vec<String> {
            let facts = run.applied_entries().filter(|entry| facts.contains(&payload_type(&entry.record)));
            facts.map(|entry| entry.id.clone()).collect()
        };
        let ids = self.run(run).map(ids).unwrap_or_default();
        let id = match self.random.pick(&ids) {
            Some(id) if !self.random.percent(30) => id,
            _ => self.not_yet(run),
        };
        self.say(run, &json!({"type": "retraction", "retracted_record_id": id, "who": "jo", "why": "said by mistake"}));
    }

    /// A turn whose retraction comes before it in the log.
    fn retract_what_comes(&mut self) {
        let at = self.any_agent();
        self.look_up(at);
        let fields = self.conversation_turn();
        // The retraction takes an id itself.
        let id = format!("record-{}", self.ids + 2);
        let payload = json!({"type": "retraction", "retracted_record_id": id, "who": "jo", "why": "said too early"});
        self.say(self.agents[at].run, &payload);
        self.write_one(at, fields);
    }

    /// The id of a sent record that is not applied and may come again, or of a future record.
    fn not_yet(&mut self, run: usize) -> String {
        let applied = |id: &str| self.run(run).is_some_and(|run| run.applied_entries().any(|entry| entry.id == id));
        let sent = self.agents.iter().filter(|agent| agent.run == run).flat_map(|agent| &agent.sent);
        let ids = sent.map(|value| crate::record::text(value, "/record_id").to_owned());
        let mut ids: Vec<String> = ids.filter(|id| !applied(id)).collect();
        // The next one's, as far as it can be predicted.
        ids.extend((3..6).map(|ahead| format!("record-{}", self.ids + ahead)));
        self.random.pick(&ids).unwrap_or_default()
    }

    fn erase(&mut self) {
        let run = self.any_run();
        let mut payload = json!({"type": "erasure", "who": "privacy desk", "why": "asked for"});
        if self.random.percent(50) {
            payload["key_ids"] = json!([self.key_id()]);
        }
        self.say(run, &payload);
    }

    /// One of the two keys that runs have.
    pub(super) fn key_id(&mut self) -> String {
        format!("key/{}", self.random.below(2))
    }

    /// A partition's own record.
    pub(super) fn append_partition_record(&mut self, partition: u32, payload: Value) {
        let value = json!({"record_id": self.id("own"), "timestamp_millis": self.tick(), "payload": payload});
        self.append(partition, record(value), AppendFault::None);
    }

    fn any_partition(&mut self) -> u32 {
        u32::try_from(self.random.below(u64::from(self.model.journal.partitions))).unwrap_or(0)
    }

    fn horizon(&mut self) {
        let families = [
            (4, "tool_call_completed"),
            (2, "tool_call_failed"),
            (2, "tool_call_requested"),
            (2, "conversation_turn"),
            (8, "loop_checkpoint"),
            (1, "effect_resolution"),
            (1, "code_edit_proposal"),
        ];
        let (partition, family) = match self.horizon {
            Some(again) if self.random.percent(50) => again,
            _ => (self.any_partition(), self.random.weigh("tool_call_completed", &families)),
        };
        self.horizon = Some((partition, family));
        // Sometimes a future time: records after the horizon keep their content all the same.
        let until = self.now + 20 - i64::try_from(self.random.below(60)).unwrap_or(0);
        let payload =
            json!({"type": "retention_horizon", "family": family, "until_millis": until, "who": "jo", "why": "policy"});
        self.append_partition_record(partition, payload);
    }

    /// Skips the record at which a partition stopped, a dead letter, or an applied record. Sometimes the log's start
    /// has moved, so that an index without the record cannot be rebuilt.
    fn skip(&mut self) {
        let stopped = (0..self.model.journal.partitions).find(|at| self.stands_at(*at).is_some());
        let partition = match stopped {
            Some(partition) => partition,
            None => self.any_partition(),
        };
        let offset = match self.stands_at(partition) {
            Some(offset) => offset,
            None if !self.model.rebuilds(partition) && self.random.percent(50) => return,
            None => {
                let log = &self.model.partitions[partition as usize].log;
                // Records of the partition itself stay.
                let of_run = |what: &What| what.record().is_some_and(|record| !of_partition(record));
                let offsets = |wanted: &dyn Fn(&What) -> bool| -> Vec<u64> {
                    log.iter().filter(|delivery| wanted(&delivery.what)).map(|delivery| delivery.offset).collect()
                };
                let dead = offsets(&|what| matches!(what, What::Unreadable { .. }));
                let from = if !dead.is_empty() && self.random.percent(50) { dead } else { offsets(&of_run) };
                let Some(offset) = self.random.pick(&from) else { return };
                offset
            }
        };
        let payload = json!({"type": "skip", "offset": offset, "who": "jo", "why": "poison"});
        self.append_partition_record(partition, payload);
    }

    /// The offset of the record that a partition stopped at; none where a skip would not help.
    fn stands_at(&self, partition: u32) -> Option<u64> {
        let (why, offset) = self.model.partitions[partition as usize].stopped.as_ref()?;
        (why != "log_truncated" && why != "not_a_journal").then_some(*offset)
    }

    /// A run's record in a wrong partition.
    fn wrong_partition(&mut self) {
        let sent: Vec<Value> = self.agents.iter().filter_map(|agent| agent.sent.last().cloned()).collect();
        let Some(value) = self.random.pick(&sent) else { return };
        let home = self.partition_of(crate::record::text(&value, "/run_id"));
        let partition = (home + 1) % self.model.journal.partitions;
        self.append(partition, record(value), AppendFault::None);
    }
}

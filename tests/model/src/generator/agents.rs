//! Writers: they claim, append, number their records, resend, and continue after another writer's claim.

use super::{
    AppendFault, payloads, renumbered,
    world::{Agent, World},
};
use crate::{
    effects::{EVIDENCE_MAX, Effect, KINDS},
    hashes,
    record::{inner, needs_claim, numbered, payload_type, text},
    run::{Reason, Verdict},
};
use serde_json::{Value, json};

/// How a record is numbered wrongly.
#[derive(Clone, Copy)]
enum Slip {
    None,
    Gap,
    LowerNumber,
    KnownId,
    JournalSeq,
    OtherEpoch,
}

impl World {
    /// The agent that writes next: mostly the run's writer, sometimes a superseded one.
    pub(super) fn any_agent(&mut self) -> usize {
        let run = usize::try_from(self.random.below(self.runs.len() as u64)).unwrap_or(0);
        let of_run: Vec<usize> = (0..self.agents.len()).filter(|at| self.agents[*at].run == run).collect();
        let writer = self.run(run).map(crate::run::Run::writer).unwrap_or_default();
        let writes = |at: &&usize| {
            let agent = &self.agents[**at];
            agent.epoch == writer.epoch && writer.id.as_ref().is_none_or(|id| *id == agent.writer_id)
        };
        let current = of_run.iter().find(writes).or(of_run.last()).copied().unwrap_or(0);
        if self.random.percent(90) { current } else { self.random.pick(&of_run).unwrap_or(current) }
    }

    /// An agent that is unsure of its position asks, as `reopen` does. A server that lags returns no answer, and the
    /// agent continues by its own count.
    pub(super) fn look_up(&mut self, at: usize) {
        let agent = &self.agents[at];
        let partition = self.partition_of(&self.runs[agent.run]);
        let stopped = self.model.partitions.get(partition as usize).is_none_or(|read| read.stopped.is_some());
        if stopped || self.reader.holds(partition) {
            return;
        }
        let (epoch, writer_seq, journal_seq) = self.head(agent.run);
        if epoch == agent.epoch {
            let agent = &mut self.agents[at];
            agent.writer_seq = writer_seq;
            agent.journal_seq = journal_seq;
        }
    }

    pub(super) fn agent_writes(&mut self) {
        let at = self.any_agent();
        if self.random.percent(92) {
            self.look_up(at);
        }
        if self.random.percent(8) {
            return self.write_batch(at);
        }
        let lost = self.agents[at].epoch < self.head(self.agents[at].run).0;
        if lost && self.random.percent(60) {
            for _ in 0..self.random.between(1, 3) {
                if let Some(fields) = self.late_result(self.agents[at].run) {
                    self.write_one(at, fields);
                }
            }
        } else {
            let fields = self.something_to_say(at);
            self.write_one(at, fields);
        }
    }

    /// Appends one record, mostly with the right numbers.
    pub(super) fn write_one(&mut self, at: usize, fields: Value) {
        let slips = [
            (90, Slip::None),
            (2, Slip::Gap),
            (2, Slip::LowerNumber),
            (3, Slip::KnownId),
            (3, Slip::JournalSeq),
            (2, Slip::OtherEpoch),
        ];
        let slip = self.random.weigh(Slip::None, &slips);
        let value = self.number(at, fields, slip);
        let fault = self.fault();
        self.append_record(&value, fault);
        if fault != AppendFault::Lost || self.random.percent(50) {
            self.remember(at, value, matches!(slip, Slip::None | Slip::KnownId | Slip::JournalSeq));
        }
    }

    fn fault(&mut self) -> AppendFault {
        self.random
            .weigh(AppendFault::None, &[(94, AppendFault::None), (4, AppendFault::Unknown), (2, AppendFault::Lost)])
    }

    /// The agent's numbers continue after the numbers of its sent records.
    pub(super) fn remember(&mut self, at: usize, value: Value, consumes: bool) {
        let agent = &mut self.agents[at];
        if consumes {
            let (count, numbers) = match inner(&value) {
                [] => (1, u64::from(numbered(&value))),
                records => (records.len() as u64, records.iter().filter(|record| numbered(record)).count() as u64),
            };
            agent.writer_seq += count;
            agent.journal_seq += numbers;
        }
        agent.sent.push(value);
    }

    /// Puts the fields into an envelope with the agent's next numbers.
    pub(super) fn number_right(&mut self, at: usize, fields: Value) -> Value {
        self.number(at, fields, Slip::None)
    }

    /// Puts the fields into an envelope with the agent's next numbers, or with wrong ones.
    fn number(&mut self, at: usize, fields: Value, slip: Slip) -> Value {
        let record_id = self.id("record");
        let timestamp = self.tick();
        let agent = &self.agents[at];
        let mut value = json!({
            "run_id": self.runs[agent.run],
            "record_id": record_id,
            "agent_id": "agent",
            "writer_id": agent.writer_id,
            "writer_epoch": agent.epoch,
            "writer_seq": agent.writer_seq,
            "journal_seq": 0,
            "timestamp_millis": timestamp,
        });
        if let (Some(members), Some(fields)) = (value.as_object_mut(), fields.as_object()) {
            members.extend(fields.clone());
        }
        if numbered(&value) {
            value["journal_seq"] = agent.journal_seq.into();
        }
        if self.random.percent(30) {
            let run_id = value["run_id"].clone();
            value["event_index"] = self.event(&run_id);
        }
        let agent = &self.agents[at];
        match slip {
            Slip::None => {}
            Slip::Gap => value["writer_seq"] = (agent.writer_seq + self.random.between(1, 3)).into(),
            Slip::LowerNumber => value["writer_seq"] = self.random.below(agent.writer_seq).into(),
            Slip::KnownId => {
                if let Some(known) = self.random.pick(&agent.sent) {
                    value["record_id"] = known["record_id"].clone();
                }
            }
            Slip::JournalSeq => {
                let wrong = [agent.journal_seq + 1, agent.journal_seq.saturating_sub(1), 0];
                let wrong = if numbered(&value) { self.random.pick(&wrong) } else { Some(agent.journal_seq) };
                value["journal_seq"] = wrong.into();
            }
            Slip::OtherEpoch => value["writer_epoch"] = (agent.epoch + 1).into(),
        }
        value
    }

    /// A summary for event streams with few words, so that records share them; sometimes with more than are indexed.
    fn event(&mut self, run_id: &Value) -> Value {
        let about = if self.random.percent(40) {
            let run = self.random.pick(&self.runs).filter(|_| self.random.percent(50));
            ("run", run.map_or_else(|| run_id.clone(), Value::from))
        } else {
            ("artifact", format!("a-{}", self.random.below(3)).into())
        };
        let entity = |kind: &str, id: Value| json!({"kind": kind, "id": id, "privacy": "internal"});
        let many = if self.random.percent(3) { 70 } else { self.random.below(3) };
        let from = self.random.below(2);
        let related: Vec<Value> = (from..from + many).map(|at| entity("message", format!("m-{at}").into())).collect();
        let mut tags: Vec<String> =
            ["red", "blue"].into_iter().filter(|_| self.random.percent(40)).map(str::to_owned).collect();
        match self.random.below(40) {
            0 => tags.push(crate::events::long()),
            1 => tags.extend((0..70).map(|at| format!("tag-{at}"))),
            _ => {}
        }
        json!({
            "run_id": run_id,
            "agent_id": "agent",
            "event_family": self.random.pick(&["order", "audit"]),
            "event_kind": self.random.pick(&["opened", "closed"]),
            "source": {"kind": "sdk", "id": "source.sdk", "trust": "host_provided", "privacy": "internal"},
            "subject_ref": entity(about.0, about.1),
            "related_refs": related,
            "correlation_keys": [{"key": "trip", "value": self.random.below(4).to_string()}],
            "tags": tags,
            "privacy_class": "internal",
            "delivery_semantics": "journal_backed",
        })
    }

    /// A batch of two or three, mostly a good one.
    pub(super) fn write_batch(&mut self, at: usize) {
        let (first, numbers) = (self.agents[at].writer_seq, self.agents[at].journal_seq);
        let mut records = Vec::new();
        for _ in 0..self.random.between(2, 3) {
            let fields = self.something_to_say(at);
            let value = self.number(at, fields, Slip::None);
            self.agents[at].writer_seq += 1;
            self.agents[at].journal_seq += u64::from(numbered(&value));
            records.push(value);
        }
        self.agents[at].writer_seq = first;
        self.agents[at].journal_seq = numbers;
        let spoilt = self.random.below(14);
        if (1..=3).contains(&spoilt)
            && let Some(fields) = self.late_result(self.agents[at].run).filter(|_| self.random.percent(70))
        {
            records[0] = self.number(at, fields, Slip::None);
        }
        match spoilt {
            0 => records.clear(),
            1 => records[1]["writer_seq"] = (first + 5).into(),
            2 => records[1]["run_id"] = "another run".into(),
            3 => records[1]["writer_epoch"] = (self.agents[at].epoch + 1).into(),
            4 => records[1]["record_id"] = records[0]["record_id"].clone(),
            5 => records[1]["journal_seq"] = (numbers + 7).into(),
            _ => {}
        }
        let fields = json!({"payload": payloads::batch(&records)});
        let slip = if self.random.percent(6) { Slip::Gap } else { Slip::None };
        let value = self.number(at, fields, slip);
        let fault = self.fault();
        self.append_record(&value, fault);
        self.remember(at, value, matches!(slip, Slip::None));
        if (1..=3).contains(&spoilt) && self.random.percent(25) {
            self.skip_refused(true);
        }
    }

    /// A new writer claims a run, perhaps in vain.
    pub(super) fn somebody_claims(&mut self) {
        let run = usize::try_from(self.random.below(self.runs.len() as u64)).unwrap_or(0);
        let (epoch, _, _) = self.head(run);
        let rivals = if self.random.percent(25) { 2 } else { 1 };
        for _ in 0..rivals {
            let epoch = match self.random.below(12) {
                0 => epoch,
                1 => epoch + 2,
                _ => epoch + 1,
            };
            let mut record_id = self.id("claim");
            if self.random.percent(12) {
                let sent: Vec<Value> = self
                    .agents
                    .iter()
                    .filter(|agent| agent.run == run)
                    .filter_map(|agent| agent.sent.last().cloned())
                    .collect();
                record_id = self.random.pick(&sent).map_or(record_id, |known| text(&known, "/record_id").to_owned());
            }
            self.claim(run, epoch, &record_id);
        }
    }

    pub(super) fn claim(&mut self, run: usize, epoch: u64, record_id: &str) {
        let (_, _, journal_seq) = self.head(run);
        let writer_id = self.id("writer");
        let mut claim = json!({
            "run_id": self.runs[run],
            "record_id": record_id,
            "agent_id": "agent",
            "writer_id": writer_id,
            "writer_epoch": epoch,
            "writer_seq": u64::from(self.random.percent(3)),
            "journal_seq": 0,
            "timestamp_millis": self.tick(),
            "payload": {"type": "run_claim", "writer_id": writer_id, "epoch": epoch, "claimed_by": format!("process {writer_id}")},
        });
        if let Some(facts) = self.claim_facts(run, &writer_id) {
            claim["facts"] = facts;
        }
        let fault = self.fault();
        self.append_record(&claim, fault);
        let sent = vec![claim];
        self.agents.push(Agent { run, writer_id, epoch, writer_seq: 1, journal_seq, sent });
    }

    /// The commitment of a claim to a secret, and mostly the secret of the run's last claim. A writer's secret follows from its id.
    fn claim_facts(&mut self, run: usize, writer_id: &str) -> Option<Value> {
        if self.random.percent(35) {
            return None;
        }
        let secret = |writer: &str| hashes::fingerprint(writer, &Value::Null)["v1:".len()..].to_owned();
        let mut facts = json!({});
        if !self.random.percent(15) {
            facts["commitment"] = hashes::commitment(&secret(writer_id)).into();
        }
        if self.random.percent(50) {
            let last = self.run(run).and_then(|run| run.writer().id).filter(|_| !self.random.percent(20));
            facts["shown"] = secret(last.as_deref().unwrap_or("somebody else")).into();
        }
        Some(facts)
    }

    /// A writer starts an effect, loses its run, and repeatedly appends results of the effect.
    pub(super) fn crowd(&mut self) {
        let at = self.any_agent();
        self.look_up(at);
        let run = self.agents[at].run;
        let kind = self.random.pick(&KINDS).unwrap_or(KINDS[0]);
        let effect_id = self.id("effect");
        let fields = match kind {
            "effect" => json!({"payload": payloads::effect_intent(&effect_id, None)}),
            "tool" => json!({"payload": payloads::tool(&self.runs[run], &effect_id, "intent_recorded", false)}),
            "output_delivery" => json!({"payload": payloads::delivery(&effect_id, "requested", "now")}),
            _ => self.request(),
        };
        let value = self.number(at, fields, Slip::None);
        self.append_record(&value, AppendFault::None);
        let id = if kind == KINDS[0] { text(&value, "/record_id").to_owned() } else { effect_id };
        self.remember(at, value, true);
        let (epoch, _, _) = self.head(run);
        let record_id = self.id("claim");
        self.claim(run, epoch + 1, &record_id);
        self.crowd_of_results(at, kind, &id);
        if self.random.percent(30) {
            let decision = self.random.pick(&["give_up", "done"]).unwrap_or("done");
            self.decide(run, &id, decision);
            self.crowd_of_results(at, kind, &id);
        }
    }

    /// More results of an effect than are kept, each refused, until a decision ends it.
    fn crowd_of_results(&mut self, at: usize, kind: &'static str, id: &str) {
        let run = self.agents[at].run;
        let find = |effects: &[Effect]| effects.iter().find(|effect| effect.kind == kind && effect.id == id).cloned();
        let Some(first) = find(&self.effects(run)) else { return };
        let completed = self.random.pick(&[10, 50, 95]).unwrap_or(50);
        for _ in 0..self.random.between(EVIDENCE_MAX as u64 - 1, EVIDENCE_MAX as u64 + 6) {
            let Some(effect) = find(&self.effects(run)).filter(|effect| effect.ended == first.ended) else { return };
            let happened: &[&str] = match kind {
                "tool" => &["completed", "result_rewritten"],
                "output_delivery" => &["completed", "deduped"],
                _ => &["completed"],
            };
            let status = if self.random.percent(completed) { self.random.pick(happened) } else { None };
            let status = status.unwrap_or("failed");
            let fields = self.late_result_fields(run, &effect, status);
            let mut value = self.number(at, fields, Slip::None);
            // Some are of others, which started nothing.
            let of_others = self.random.percent(50);
            if of_others {
                (value["writer_id"], value["writer_epoch"]) = ("nobody".into(), 0.into());
            }
            self.append_record(&value, AppendFault::None);
            if !of_others {
                self.remember(at, value, true);
            }
            if self.random.percent(15) {
                self.decide(run, id, "not_done");
            }
        }
    }

    /// An agent resends records of unknown outcome.
    pub(super) fn somebody_resends(&mut self) {
        let at = self.any_agent();
        let agent = &self.agents[at];
        let sent = agent.sent.clone();
        let recent = sent.len().saturating_sub(6);
        match self.random.below(6) {
            // Unchanged: the last few, in order.
            0 | 1 => {
                let from = sent.len().saturating_sub(usize::try_from(self.random.between(1, 3)).unwrap_or(1));
                for value in &sent[from..] {
                    self.append_record(value, AppendFault::None);
                }
            }
            // With new numbers, as after a claim of its own.
            2 => {
                let Some(value) = self.random.pick(&sent[recent..]) else { return };
                let value = self.renumbered(at, &value);
                self.append_record(&value, AppendFault::None);
                if !matches!(payload_type(&value), "run_claim" | "batch") {
                    self.agents[at].writer_seq += 1;
                }
            }
            // With the next numbers in version 2, as a server does when another record got the numbers.
            3 | 4 => {
                let again = self.refused_for_numbers(self.agents[at].run);
                let Some(value) = self.random.pick(&again) else { return };
                let value = self.numbered_again(self.agents[at].run, &value);
                let partition = self.partition_of(text(&value, "/run_id"));
                let fault = self.fault();
                self.append(partition, renumbered(value), fault);
            }
            // With the current writer's next number.
            _ => {
                let Some(mut value) = self.random.pick(&sent[recent..]) else { return };
                if payload_type(&value) != "run_claim" {
                    value["writer_seq"] = self.head(self.agents[at].run).1.into();
                    self.append_record(&value, AppendFault::None);
                }
            }
        }
    }

    /// Records of a run that were refused for their numbers or ids; some were applied since.
    fn refused_for_numbers(&self, run: usize) -> Vec<Value> {
        let entries = self.run(run).map(|run| run.entries.as_slice()).unwrap_or_default();
        let refused = entries.iter().filter(|entry| {
            matches!(entry.verdict, Verdict::Refused(Reason::Conflict | Reason::Sequence)) && needs_claim(&entry.record)
        });
        refused.map(|entry| Value::clone(&entry.record)).filter(|one| payload_type(one) != "run_claim").collect()
    }

    /// A record with the next numbers of its run; in a batch the records have them, too.
    fn numbered_again(&self, run: usize, value: &Value) -> Value {
        let (_, writer_seq, mut journal_seq) = self.head(run);
        let mut value = value.clone();
        let mut number = |value: &mut Value, nth: u64| {
            value["writer_seq"] = (writer_seq + nth).into();
            if numbered(value) {
                value["journal_seq"] = journal_seq.into();
                journal_seq += 1;
            }
        };
        if payload_type(&value) == "batch" {
            value["writer_seq"] = writer_seq.into();
            let records = value["payload"]["records"].as_array_mut();
            records.into_iter().flatten().zip(0..).for_each(|(record, nth)| number(record, nth));
        } else {
            number(&mut value, 0);
        }
        value
    }

    fn renumbered(&self, at: usize, value: &Value) -> Value {
        let agent = &self.agents[at];
        let mut value = value.clone();
        if payload_type(&value) != "run_claim" {
            value["writer_epoch"] = agent.epoch.into();
            value["writer_seq"] = agent.writer_seq.into();
            if numbered(&value) {
                value["journal_seq"] = agent.journal_seq.into();
            }
        }
        value
    }
}

//! `recover`: the view of a run from which a process resumes.

use super::Seen;
use crate::{
    checkpoints,
    effects::{Effect, Evidence},
    fold::Model,
    lifecycles::{self, Item},
    record::{list, number, text},
    rule::Rule,
    run::Entry,
};
use serde_json::{Value, json};

impl Seen<'_> {
    /// An effect whose end is not recorded.
    pub(crate) fn pending(&self, effect: &Effect) -> Value {
        let safe = effect.retry_safe(&self.model.rules);
        let reason = match safe {
            true if effect.not_done => "not_done",
            true if effect.repeatable => "repeatable",
            true => "key",
            false => "unknown_outcome",
        };
        json!({
            "kind": effect.kind,
            "id": effect.id,
            "tool_name": effect.tool_name,
            "fingerprint": effect.fingerprint,
            "occurrence": effect.occurrence,
            "class": if safe { "retry_safe" } else { "reconcile_required" },
            "reason": reason,
            "evidence": self.evidence(effect),
            "evidence_dropped": effect.discarded,
            "revision": effect.revision,
            "basis": effect.newest,
            "attempts": effect.starts,
            "journal_seq": effect.seq,
            "idempotency_key": effect.key,
            "dedupe_key": effect.dedupe_key,
        })
    }

    pub(crate) fn evidence(&self, effect: &Effect) -> Value {
        let adoptable = effect.adoptable_at_a_basis(&self.model.rules).filter(|_| effect.pending());
        self.results(&effect.evidence, adoptable)
    }

    /// Refused results that contradict the effect's end.
    pub(crate) fn contradicting(&self, effect: &Effect) -> Value {
        self.results(&effect.contradicting, None)
    }

    fn results(&self, results: &[Evidence], adoptable: Option<usize>) -> Value {
        let row = |(at, evidence): (usize, &Evidence)| {
            let entry = &self.run.entries[evidence.entry];
            let crate::run::Verdict::Refused(reason) = entry.verdict else { return Value::Null };
            let payload = self.content_of(entry, &evidence.result);
            let has_type = |name: &str| text(&payload, "/type") == name;
            json!({
                "record_id": text(&evidence.result, "/record_id"),
                "status": evidence.status,
                "reason": reason.as_str(),
                "position": self.model.position(self.number, entry.offset, evidence.index),
                "content_hash": evidence.content,
                "logged_at_millis": entry.log_millis,
                "epoch": number(&evidence.result, "/writer_epoch"),
                "writer_id": text(&evidence.result, "/writer_id"),
                "claimed_by": self.claimed_by(&evidence.result),
                "adoptable": adoptable == Some(at),
                "result": if has_type("tool_call_completed") { payload["result"].clone() } else { Value::Null },
                "error": has_type("tool_call_failed")
                    .then(|| json!({"kind": payload["error_kind"], "message": payload["error_message"]})),
                "payload": payload,
            })
        };
        results.iter().enumerate().map(row).collect()
    }

    /// Who claimed the run in the record's epoch for its writer; null if that claim was not applied.
    fn claimed_by(&self, record: &Value) -> Value {
        let place = |record: &Value| (number(record, "/writer_epoch"), text(record, "/writer_id").to_owned());
        let claim = self.run.of_type("run_claim").find(|claim| place(&claim.record) == place(record));
        claim.map_or(Value::Null, |claim| claim.record["payload"]["claimed_by"].clone())
    }

    fn completed(&self, effect: &Effect) -> Value {
        json!({
            "tool_name": effect.tool_name,
            "fingerprint": effect.fingerprint,
            "occurrence": effect.occurrence,
            "status": effect.status,
            "position": self.position(&self.run.entries[effect.set_by]),
            "id": effect.id,
            "journal_seq": effect.seq,
            "idempotency_key": effect.key,
        })
    }

    /// The open or ended items of a family, by id.
    pub(crate) fn family_items(&self, family: &str, ended: bool) -> Vec<Value> {
        let items = lifecycles::run_items(&self.model.rules, self.run);
        let of_family = |item: &&Item| item.family.name == family && item.ended() == ended;
        let mut all: Vec<&Item> = items.iter().filter(of_family).collect();
        all.sort_by(|one, other| (&one.key.id, one.key.epoch).cmp(&(&other.key.id, other.key.epoch)));
        let row = |item: &Item| {
            let (began, set_by) = (&self.run.entries[item.began], &self.run.entries[item.set_by]);
            json!({
                "id": item.key.id,
                "epoch": item.key.epoch,
                "status": item.state,
                "journal_seq": number(&began.record, "/journal_seq"),
                "since": self.position(began),
                "record_id": set_by.id,
                "position": self.position(set_by),
            })
        };
        all.into_iter().map(row).collect()
    }

    fn recovery(&self) -> Value {
        let rules = &self.model.rules;
        let checkpoint = self.latest(u64::MAX);
        let at = checkpoint.as_ref().map(|checkpoint| &self.run.entries[checkpoint.at]);
        let covers = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.covers);
        let unanswered = at.map(|entry| list(&entry.record, "/payload/unanswered")).unwrap_or_default();
        let covered = |call: &Effect| {
            let below = call.seq <= covers;
            let listed = below && unanswered.iter().any(|id| id.as_str() == Some(&call.id));
            below && !rules.fires(Rule::CheckpointUnanswered, listed)
        };
        let all = self.effects();
        let mut all: Vec<&Effect> = all.iter().collect();
        // Requests that were not applied have no number of their own.
        all.sort_by_key(|effect| {
            let request = effect.entry(self.run, effect.request);
            (effect.seq, request.offset, request.index)
        });
        let (pending, ended): (Vec<&Effect>, Vec<&Effect>) = all.into_iter().partition(|effect| effect.pending());
        let calls = ended.into_iter().filter(|effect| effect.kind == "tool_call" && !covered(effect));
        let completed: Vec<Value> = calls.map(|effect| self.completed(effect)).collect();
        let reason = if self.run.end(rules).is_some() {
            Some("ended")
        } else if pending.iter().any(|effect| !effect.retry_safe(rules)) {
            Some("reconcile_required")
        } else {
            None
        };
        let after_checkpoint = |entry: &&Entry| at.is_none_or(|at| (entry.offset, entry.index) > (at.offset, at.index));
        let mut answer = self.head();
        answer["checkpoint"] = checkpoint.as_ref().map_or(Value::Null, |checkpoint| self.checkpoint(checkpoint));
        answer["records_after"] = self.run.applied_entries().filter(after_checkpoint).count().into();
        answer["unclaimed"] = completed.len().into();
        answer["completed"] = completed.into();
        answer["pending"] = pending.iter().map(|effect| self.pending(effect)).collect();
        answer["approvals"] = self.family_items("approval", false).into();
        answer["wakes"] = self.family_items("wake", false).into();
        answer["messages"] = self.family_items("run_message", false).into();
        answer["write_backs"] = self.family_items("write_back", false).into();
        answer["missing_content"] = Value::Array(Vec::new());
        answer["next_checkpoint_seq"] = (checkpoints::highest_seq(self.run) + 1).into();
        answer["resumable"] = reason.is_none().into();
        answer["reason"] = reason.into();
        answer
    }
}

impl Model {
    /// `recover --full`; null if the run has neither an applied record nor a pending effect.
    pub fn recover(&self, run_id: &str) -> Value {
        let is_known =
            |seen: &Seen<'_>| seen.run.applied_entries().next().is_some() || seen.effects().iter().any(Effect::pending);
        self.run_with_effects(run_id).filter(is_known).map_or(Value::Null, |seen| seen.recovery())
    }
}

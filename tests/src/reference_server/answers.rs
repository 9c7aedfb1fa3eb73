//! Answers of one run.

use super::{
    Answer, ParsedRequest, Reply, State,
    canonical::{self, Slip},
    lists::{page, parse_place},
    not_found, ok, problem,
};
use runlog_model::Model;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The lists of open items, with the model's names.
const LISTS: [(&str, &str); 6] = [
    ("approvals", "approval"),
    ("wakes", "wake"),
    ("messages", "run_message"),
    ("write_backs", "write_back"),
    ("proposals", "code_edit_proposal"),
    ("pools", "agent_pool"),
];

impl State {
    /// The model at the consistency and the position of a request.
    pub(super) fn view(&self, request: &ParsedRequest, run_id: &str, what: &str) -> Result<Cow<'_, Model>, Reply> {
        self.wait(request)?;
        let Some(as_of) = request.get("as_of").filter(|_| !self.is_wrong(&format!("{what}_as_of"))) else {
            let lags = self.is_wrong("default_is_latest") && request.get("consistency").is_none();
            return Ok(Cow::Borrowed(self.before_last.as_ref().filter(|_| lags).unwrap_or(&self.model)));
        };
        let (partition, offset) = parse_place(as_of).ok_or_else(|| problem(400, "usage", "no position"))?;
        if partition != self.partition_of(run_id) && !self.is_wrong("partition_as_of") {
            return Err(problem(400, "usage", "another partition than the run's"));
        }
        let then = self.model.as_of(partition, offset);
        if self.is_wrong("unknown_as_of") && then.recover(run_id).is_null() {
            return Ok(Cow::Borrowed(&self.model));
        }
        Ok(Cow::Owned(then))
    }

    /// Checks the consistency of a request. Fails at once if it is not met, because no record is applied during a request.
    pub(super) fn wait(&self, request: &ParsedRequest) -> Result<(), Reply> {
        let stale = |lag: u64| {
            let mut reply = problem(503, "stale", "it did not come");
            reply.body = reply.body.replacen('{', &format!("{{\"lag\":{lag},"), 1);
            reply
        };
        let at_least = match request.get("consistency").unwrap_or("latest") {
            "eventual" if self.is_wrong("eventual_answers") => return Err(stale(1)),
            "latest" | "eventual" => return Ok(()),
            text => text.strip_prefix("at-least=").and_then(parse_place),
        };
        let Some((partition, offset)) = at_least else { return Err(problem(400, "usage", "no consistency")) };
        let next = self.next.get(partition as usize).copied().unwrap_or_default();
        if offset < next || self.is_wrong("stale_typed") { Ok(()) } else { Err(stale(offset + 1 - next)) }
    }

    pub(super) fn hash(&self, head: &Value) -> Value {
        if self.is_wrong("hash_of_applied") { "0".repeat(64).into() } else { head["hash"].clone() }
    }

    /// A run, as in a list or alone.
    pub(super) fn run(&self, head: &Value) -> Value {
        let mut head = head.clone();
        head["updated_at"] = "2026-11-22T00:00:00.000Z".into();
        head["age_millis"] = 0.into();
        head["hash"] = self.hash(&head);
        if self.is_wrong("next_numbers") {
            head["next_writer_seq"] = head["next_journal_seq"].clone();
        }
        if self.is_wrong("run_status") && head["status"] == "cancelled" {
            head["status"] = "failed".into();
        }
        head
    }

    pub(super) fn show_run(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let view = self.view(request, run_id, "run")?;
        let recovery = view.recover(run_id);
        if recovery.is_null() { Err(not_found("no run")) } else { ok(&self.run(&recovery)) }
    }

    pub(super) fn lookup(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let view = self.view(request, run_id, "lookup")?;
        let tool = request.get("tool").unwrap_or_default();
        let fingerprint = match (request.get("args"), request.get("fingerprint")) {
            (Some(args), None) => {
                let strict = canonical::strict(args);
                let lenient = || serde_json::from_str(args).map_err(|_| ());
                let value = strict.or_else(|_| if self.is_wrong("duplicate_keys") { lenient() } else { Err(()) });
                let value: Value = value.map_err(|()| problem(400, "invalid", "no arguments"))?;
                let slip = match self.wrong.as_str() {
                    "fingerprint" => Slip::Order,
                    "big_integers" => Slip::Doubles,
                    _ => Slip::None,
                };
                canonical::fingerprint(tool, &value, slip)
            }
            (None, Some(fingerprint)) => fingerprint.to_owned(),
            _ => return Err(problem(400, "usage", "either args or fingerprint")),
        };
        let mut occurrence = request.get("occurrence").and_then(|occurrence| occurrence.parse().ok());
        if self.is_wrong("occurrences") {
            occurrence = occurrence.or(Some(1));
        }
        if self.is_wrong("lookup_unknown") && view.recover(run_id).is_null() {
            return Err(not_found("no run"));
        }
        let spaced = request.get("args").is_some_and(|args| args.starts_with(' '));
        let wanted = if self.is_wrong("lookup_canonical") && spaced { "another" } else { &fingerprint };
        let mut answer = view.lookup(run_id, wanted, occurrence);
        answer["missing_content"] = json!([]);
        self.spoil_lookup(run_id, &mut answer);
        ok(&answer)
    }

    fn spoil_lookup(&self, run_id: &str, found: &mut Value) {
        let parsed = found["result"].as_str().and_then(|text| serde_json::from_str(text).ok());
        if let Some(parsed) = parsed.filter(|_| self.is_wrong("lookup_completed")) {
            found["result"] = parsed;
        }
        if self.is_wrong("lookup_failed") && found["error"].is_object() {
            found["result"] = found["error"]["message"].clone();
        }
        let secret = self.privacy.iter().any(|((run, _), class)| run == run_id && class == "secret");
        if self.is_wrong("lookup_whole") && secret {
            found["arguments"] = json!({"masked": "secret"});
        }
    }

    /// Effects of a run, in the order of their requests.
    fn effects(&self, view: &Model, run_id: &str) -> Vec<Value> {
        let all = view.effects(false)["effects"].clone();
        let all = all.as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|effect| effect["run_id"] == run_id).collect()
    }

    pub(super) fn call(&self, request: &ParsedRequest, run_id: &str, id: &str) -> Answer {
        let view = self.view(request, run_id, "call")?;
        let effects = self.effects(&view, run_id);
        let call_effect = effects.iter().find(|effect| effect["id"] == id && effect["kind"] == "tool_call");
        let call_effect =
            call_effect.filter(|_| !self.is_wrong("call_by_request")).ok_or_else(|| not_found("no call"))?;
        let occurrence = call_effect["occurrence"].as_u64().and_then(|occurrence| u32::try_from(occurrence).ok());
        ok(&view.lookup(run_id, call_effect["fingerprint"].as_str().unwrap_or_default(), occurrence))
    }

    pub(super) fn checkpoint(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let view = self.view(request, run_id, "checkpoint")?;
        let covers = request.get("at_or_before").and_then(|covers| covers.parse().ok());
        let covers = covers.filter(|_| !self.is_wrong("checkpoint_at_or_before"));
        let mut answer = view.checkpoint(run_id, covers);
        if answer.is_null() {
            return Err(not_found("no checkpoint"));
        }
        if let Some(other) = self.otherwise_latest(&view, run_id, covers) {
            answer = other;
        }
        if self.is_wrong("checkpoint_list")
            && let Some(messages) = answer["messages"].as_array_mut()
        {
            messages.reverse();
        }
        ok(&answer)
    }

    /// The payloads of a run's checkpoints, in the order in which a load tries them. The suite lists no pruned checkpoints.
    fn newest_first(&self, view: &Model, run_id: &str) -> Vec<Value> {
        let lines = view.show(run_id)["records"].as_array().cloned().unwrap_or_default();
        let payloads = lines.into_iter().map(|mut line| line["payload"].take());
        let mut checkpoints: Vec<Value> = payloads.filter(|payload| payload["type"] == "loop_checkpoint").collect();
        let number = |payload: &Value, name: &str| payload[name].as_u64().unwrap_or_default();
        if !self.is_wrong("checkpoints_listed") {
            checkpoints
                .sort_by_key(|payload| (number(payload, "covers_journal_seq"), number(payload, "checkpoint_seq")));
        }
        checkpoints.reverse();
        checkpoints
    }

    pub(super) fn checkpoints(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let view = self.view(request, run_id, "checkpoints")?;
        let (limit, mut found) = (page(request, self)?, self.newest_first(&view, run_id));
        let from = request.get("cursor").and_then(canonical::unhex).and_then(|told| told.parse().ok()).unwrap_or(0);
        let next = (found.len() > from + limit).then(|| canonical::hex((from + limit).to_string().as_bytes()));
        found.drain(..from.min(found.len()));
        found.truncate(limit);
        ok(&json!({"run_id": run_id, "checkpoints": found, "next_cursor": next}))
    }

    pub(super) fn checkpoint_of(&self, request: &ParsedRequest, run_id: &str, id: &str) -> Answer {
        let view = self.view(request, run_id, "checkpoints")?;
        let mut all = self.newest_first(&view, run_id).into_iter();
        all.find(|one| one["checkpoint_id"] == id).map_or_else(|| Err(not_found("no checkpoint")), |one| ok(&one))
    }

    /// The latest checkpoint by an order without one of its keys; only if all checkpoints are whole and visible.
    fn otherwise_latest(&self, view: &Model, run_id: &str, covers: Option<u64>) -> Option<Value> {
        let left_out = match self.wrong.as_str() {
            "latest_by_covers" => "covers_journal_seq",
            "latest_by_seq" => "checkpoint_seq",
            "latest_by_time" => "created_at_millis",
            _ => return None,
        };
        let lines = view.show(run_id)["records"].as_array().cloned().unwrap_or_default();
        let payloads = lines.iter().map(|line| &line["payload"]);
        let plain = |payload: &Value| payload["base"].is_null() && payload["schema_version"] == 1;
        if !payloads.clone().filter(|payload| payload["type"] == "loop_checkpoint").all(plain) {
            return None;
        }
        let key = |payload: &Value| {
            ["covers_journal_seq", "checkpoint_seq", "created_at_millis"]
                .map(|name| if name == left_out { None } else { payload[name].as_u64() })
        };
        let within = |payload: &&Value| {
            let covered = payload["covers_journal_seq"].as_u64();
            payload["type"] == "loop_checkpoint" && covers.is_none_or(|covers| covered.is_some_and(|it| it <= covers))
        };
        // `max_by_key` returns the last of equal payloads.
        payloads.filter(within).max_by_key(|payload| key(payload)).cloned()
    }

    pub(super) fn recovery(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let (mut skip, mut view) = (0, self.view(request, run_id, "recovery")?);
        if let Some(cursor) = request.get("cursor") {
            let place = canonical::unhex(cursor).unwrap_or_default();
            let place = place.strip_prefix(&format!("recovery|{run_id}|")).map(str::to_owned);
            let place = place.or_else(|| self.is_wrong("cursors_refused").then(|| "0:0:0".to_owned()));
            let place = place.ok_or_else(|| problem(400, "usage", "a cursor of something else"))?;
            let parts: Vec<u64> = place.split(':').filter_map(|part| part.parse().ok()).collect();
            let [partition, offset, skipped] = parts[..] else { return Err(problem(400, "usage", "no cursor")) };
            skip = usize::try_from(skipped).unwrap_or_default();
            if !self.is_wrong("recovery_paged") {
                view = Cow::Owned(self.model.as_of(u32::try_from(partition).unwrap_or_default(), offset));
            }
        }
        let mut answer = view.recover(run_id);
        if answer.is_null() {
            return Err(not_found("no run"));
        }
        let uncovered = self.is_wrong("checkpoint_covered") && !answer["checkpoint"].is_null();
        if request.is("from_start") || uncovered {
            let ended = |effect: &Value| effect["kind"] == "tool_call" && effect["status"] != "pending";
            answer["completed"] = self.effects(&view, run_id).into_iter().filter(ended).collect();
        }
        self.spoil_recovery(request, &mut answer);
        let all = answer["completed"].as_array().cloned().unwrap_or_default();
        let limit = page(request, self)?;
        let rest: Vec<Value> = all.iter().skip(skip).take(limit).cloned().collect();
        let (until, position) = (skip + rest.len(), &answer["position"]);
        if until < all.len() {
            let at = format!("recovery|{run_id}|{}:{}:{until}", position["partition"], position["offset"]);
            answer["next_cursor"] = canonical::hex(at.as_bytes()).into();
            for list in ["approvals", "wakes", "messages", "write_backs"] {
                answer[list] = json!([]);
            }
        } else {
            answer["next_cursor"] = Value::Null;
        }
        if skip > 0 {
            answer["pending"] = json!([]);
        }
        answer["completed"] = rest.into();
        ok(&answer)
    }

    fn spoil_recovery(&self, request: &ParsedRequest, found: &mut Value) {
        let covers = found["checkpoint"]["covers_journal_seq"].as_u64().unwrap_or_default();
        if !request.is("full")
            && !self.is_wrong("recovery_checkpoint")
            && let Some(checkpoint) = found["checkpoint"].as_object_mut()
        {
            checkpoint.remove("messages");
        }
        *found = self.run(found);
        match self.wrong.as_str() {
            "recovery_of_run" => found["hash"] = Value::Null,
            "recovery_after" if !found["checkpoint"].is_null() => {
                found["records_after"] = (found["records_after"].as_u64().unwrap_or_default() + 1).into();
            }
            "recovery_completed" => {
                if let Some(all) = found["completed"].as_array_mut() {
                    all.sort_by_key(|call| call["position"]["offset"].as_u64());
                }
            }
            "recovery_pending" => {
                if let Some(all) = found["pending"].as_array_mut() {
                    all.retain(|effect| effect["journal_seq"].as_u64() > Some(covers));
                }
            }
            "keys_told" => {
                for call in found["completed"].as_array_mut().into_iter().flatten() {
                    call["idempotency_key"] = Value::Null;
                }
            }
            "evidence_once" => self.repeat_evidence(found),
            "recovery_open" => {
                for list in ["approvals", "wakes", "messages", "write_backs"] {
                    found[list] = json!([]);
                }
            }
            "resumable_ended" if found["reason"] == "ended" => found["resumable"] = true.into(),
            "resumable_unsafe" if found["reason"] == "reconcile_required" => found["resumable"] = true.into(),
            "resumable" => {
                found["resumable"] = false.into();
                found["reason"] = "to be sure".into();
            }
            _ => {}
        }
    }

    /// Repeats evidence for each time that it was refused.
    fn repeat_evidence(&self, found: &mut Value) {
        let refused = self.model.anomalies(found["run_id"].as_str());
        let refused = refused["anomalies"].as_array().cloned().unwrap_or_default();
        for effect in found["pending"].as_array_mut().into_iter().flatten() {
            let is_of = |row: &Value, one: &Value| {
                row["record_id"] == one["record_id"] || (one["reason"] == "batch" && row["reason"] == "batch")
            };
            let again = |one: &Value| refused.iter().filter(|row| is_of(row, one)).count();
            let all = effect["evidence"].as_array().cloned().unwrap_or_default();
            effect["evidence"] = all.iter().flat_map(|one| std::iter::repeat_n(one.clone(), again(one))).collect();
        }
    }

    /// The outcome of the first record under an id; null if there is none.
    pub(super) fn outcome_by_id(&self, view: &Model, run_id: &str, record_id: &str) -> Value {
        if !self.is_wrong("partition_of_run") {
            return view.first_outcome(run_id, record_id);
        }
        let lines = view.show(run_id)["records"].as_array().cloned().unwrap_or_default();
        let line = lines.into_iter().find(|line| line["record_id"] == record_id);
        line.and_then(|line| Some((line["position"]["partition"].as_u64()?, line["position"]["offset"].as_u64()?)))
            .map_or(Value::Null, |(partition, offset)| {
                view.outcome(u32::try_from(partition).unwrap_or_default(), offset, 0, record_id)
            })
    }

    pub(super) fn outcome(&self, request: &ParsedRequest, run_id: &str) -> Answer {
        let view = self.view(request, run_id, "outcome")?;
        let record_id = request.get("record_id").unwrap_or_default();
        let mut answer = match request.get("position").map(parse_place) {
            Some(Some((partition, offset))) => view.outcome(partition, offset, 0, record_id),
            Some(None) => return Err(problem(400, "usage", "no position")),
            None => self.outcome_by_id(&view, run_id, record_id),
        };
        if answer.is_null() && self.is_wrong("outcome_by_id") {
            answer = json!({"outcome": "applied", "reason": null, "position": null});
        }
        if answer.is_null() {
            return Err(not_found("no record"));
        }
        if self.is_wrong("outcome_by_position") && request.get("position").is_some() {
            answer["outcome"] = "applied".into();
        }
        let head = view.recover(run_id);
        answer["record_id"] = record_id.into();
        answer["epoch"] = head["epoch"].clone();
        answer["writer_id"] = head["writer_id"].clone();
        if self.is_wrong("read_back_writer") && head["epoch"].as_u64() > Some(1) {
            answer["epoch"] = 1.into();
        }
        ok(&answer)
    }

    pub(super) fn list_open_items(&self, request: &ParsedRequest, run_id: &str, list: &str) -> Answer {
        let view = self.view(request, run_id, "standing")?;
        let family = LISTS.iter().find(|(name, _)| *name == list).ok_or_else(|| not_found("no such list"))?.1;
        let mut items = view.family_items(run_id, family, request.is("ended"));
        items["next_cursor"] = Value::Null;
        ok(&items)
    }
}

//! Appends: parses, checks and completes a record, delivers it to the model, and returns the outcome.

use super::{Answer, PARTITIONS, Reply, State, TOPIC, canonical, not_found, ok, problem};
use serde_json::{Value, json};

/// The longest id, bytes.
const ID_BYTES_MAX: usize = 1024;

/// Payload types, each with a text member that it requires, or "".
const TYPES: [(&str, &str); 30] = [
    ("conversation_turn", "message_id"),
    ("tool_call_requested", "tool_name"),
    ("tool_call_completed", "request_record_id"),
    ("tool_call_failed", "request_record_id"),
    ("tool_call_attempt", "request_record_id"),
    ("effect_resolution", "decision"),
    ("run_lifecycle", "status"),
    ("turn_lifecycle", "status"),
    ("recovery", "recovery_reason"),
    ("effect_intent", "effect_id"),
    ("effect_result", "effect_id"),
    ("terminal_result", "effect_id"),
    ("tool", "tool_call_id"),
    ("output_delivery", "record_type"),
    ("approval", "record_type"),
    ("wake", "condition_id"),
    ("run_message", "message_id"),
    ("code_edit_proposal", "request_id"),
    ("agent_pool", "pool_id"),
    ("write_back_staged", "at"),
    ("write_back_committed", "at"),
    ("write_back_rejected", "at"),
    ("loop_checkpoint", "checkpoint_id"),
    ("checkpoint", "checkpoint_id"),
    ("checkpoint_prune", ""),
    ("retraction", "retracted_record_id"),
    ("run_claim", "writer_id"),
    ("batch", ""),
    ("fork", ""),
    ("erasure", "who"),
];

/// The payload types whose records get no number.
const UNNUMBERED: [&str; 12] = [
    "effect_resolution",
    "code_edit_proposal",
    "write_back_staged",
    "write_back_committed",
    "write_back_rejected",
    "loop_checkpoint",
    "checkpoint_prune",
    "retraction",
    "run_claim",
    "batch",
    "fork",
    "erasure",
];

fn invalid(what: &str) -> Reply {
    problem(400, "invalid", what)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn payload_type(record: &Value) -> &str {
    text(&record["payload"], "type")
}

impl State {
    fn parse(&self, body: &str) -> Result<Value, Reply> {
        if self.is_wrong("duplicate_keys") {
            return serde_json::from_str(body).map_err(|error| invalid(&error.to_string()));
        }
        canonical::strict(body).map_err(|error| invalid(&error))
    }

    pub(super) fn append(&mut self, run_id: &str, body: &str, check: bool) -> Answer {
        let body = self.parse(body)?;
        let many = body.as_array();
        let records = many.cloned().unwrap_or_else(|| vec![body.clone()]);
        if !self.is_wrong("mangled_refused") {
            records.iter().try_for_each(|record| self.check(run_id, record))?;
        }
        if check && !self.is_wrong("check_appends_nothing") {
            return self.clone().append(run_id, &body.to_string(), false);
        }
        let mut outcomes: Vec<Value> = Vec::new();
        for record in records {
            self.check(run_id, &record)?;
            let lost = outcomes.iter().any(|outcome: &Value| outcome["outcome"] == "refused");
            if lost && self.is_wrong("array_not_atomic") {
                outcomes.push(outcomes[0].clone());
                outcomes.last_mut().into_iter().for_each(|last| last["outcome"] = "refused".into());
                continue;
            }
            outcomes.push(self.take(run_id, record));
        }
        if many.is_some() { ok(&outcomes.into()) } else { ok(&outcomes[0]) }
    }

    /// The outcome of one record, with the writer of the run.
    pub(super) fn with_writer(&self, run_id: &str, outcome: &Reply) -> Answer {
        let mut outcome: Value = serde_json::from_str(&outcome.body).unwrap_or_default();
        let head = self.head(run_id);
        let epoch = if self.is_wrong("append_reads_back") { 1.into() } else { head["epoch"].clone() };
        outcome["writer"] = json!({"writer_id": head["writer_id"], "epoch": epoch});
        ok(&outcome)
    }

    fn check(&self, run_id: &str, record: &Value) -> Result<(), Reply> {
        let Some(members) = record.as_object() else { return Err(invalid("no record")) };
        let id = text(record, "record_id");
        if id.is_empty() && !self.is_wrong("record_id_required") {
            return Err(invalid("no record_id"));
        }
        if id.len() > ID_BYTES_MAX && !self.is_wrong("ids_bounded") {
            return Err(invalid("the record_id is too long"));
        }
        if text(record, "run_id") != run_id && !self.is_wrong("run_of_path") {
            return Err(invalid("another run"));
        }
        for number in ["writer_epoch", "writer_seq", "journal_seq", "timestamp_millis"] {
            if members.get(number).is_some_and(|value| !value.is_u64() && !value.is_null()) {
                return Err(invalid("no number"));
            }
        }
        let empty = record["idempotency_key"] == "" && payload_type(record) == "tool_call_requested";
        if empty && !self.is_wrong("empty_key") {
            return Err(invalid("an empty key"));
        }
        let seen = |name: &str| !record["facts"][name].is_null();
        let blind =
            payload_type(record) == "effect_resolution" && !["revision", "epoch", "basis"].into_iter().any(seen);
        if blind && !self.is_wrong("decision_says_revision") {
            return Err(invalid("a decision without a revision"));
        }
        let payload = TYPES.iter().find(|(name, _)| *name == payload_type(record));
        let Some((_, member)) = payload else { return Err(invalid("no payload")) };
        if !member.is_empty() && !record["payload"][member].is_string() {
            return Err(invalid("a payload without a required member"));
        }
        self.check_attempt(run_id, record)
    }

    /// Refuses an attempt without a basis that is in a batch, has another number than the next, or whose call must be decided.
    fn check_attempt(&self, run_id: &str, record: &Value) -> Result<(), Reply> {
        let is_attempt =
            |record: &Value| payload_type(record) == "tool_call_attempt" && record["facts"]["basis"].is_null();
        let in_batch = record["payload"]["records"].as_array().is_some_and(|records| records.iter().any(is_attempt));
        if in_batch && !self.is_wrong("attempt_checked") {
            return Err(invalid("an attempt in a batch"));
        }
        let first = self.outcome_by_id(&self.model, run_id, text(record, "record_id"));
        let is_new = first.is_null() || self.is_wrong("attempt_resent");
        if !is_attempt(record) || !is_new || self.is_wrong("attempt_checked") {
            return Ok(());
        }
        let head = self.head(run_id);
        let mut pending = head["pending"].as_array().into_iter().flatten();
        let Some(call) = pending.find(|call| call["id"] == record["payload"]["request_record_id"]) else {
            return Ok(());
        };
        if call["class"] != "retry_safe" {
            return Err(problem(409, "reconcile_required", "the call must be decided first"));
        }
        let next = call["attempts"].as_u64().map(|attempts| attempts + 1);
        if record["payload"]["attempt"].as_u64() == next { Ok(()) } else { Err(invalid("not the next attempt")) }
    }

    /// The head of a run; the defaults if the run has no records.
    pub(super) fn head(&self, run_id: &str) -> Value {
        match self.model.recover(run_id) {
            Value::Null => {
                json!({"epoch": 0, "writer_id": "", "next_writer_seq": 1, "next_journal_seq": 1, "status": "open"})
            }
            head => head,
        }
    }

    /// Fills in omitted members.
    fn filled(&self, run_id: &str, mut record: Value) -> Value {
        let head = self.head(run_id);
        let unnumbered = UNNUMBERED.contains(&payload_type(&record));
        let mut default = |name: &str, value: Value| {
            if record[name].is_null() {
                record[name] = value;
            }
        };
        default("record_id", format!("given-{}", self.appended).into());
        if self.is_wrong("writer_not_filled_in") {
            default("writer_id", head["writer_id"].clone());
            default("writer_epoch", head["epoch"].clone());
        }
        default("writer_id", "reference".into());
        default("writer_epoch", 0.into());
        default("timestamp_millis", 0.into());
        let none = self.is_wrong("numbers_filled_in");
        default("writer_seq", head["next_writer_seq"].clone());
        default("journal_seq", if unnumbered || none { 0.into() } else { head["next_journal_seq"].clone() });
        record["run_id"] = run_id.into();
        record
    }

    /// Delivers a record; returns its outcome.
    pub(super) fn take(&mut self, run_id: &str, record: Value) -> Value {
        // From schema version 2 on, the judge tries a record again that was refused for used numbers. A writer that leaves the
        // numbers to the server wants that.
        let version = if record["writer_seq"].is_null() { 2 } else { 1 };
        let mut record = self.filled(run_id, record);
        let head = self.head(run_id);
        let id = text(&record, "record_id").to_owned();
        let key = (run_id.to_owned(), id.clone());
        if self.is_wrong("place_refusal_again") && self.gaps.contains(&key) {
            return json!({"position": self.position(run_id, 0), "outcome": "refused", "reason": "gap", "record_id": id});
        }
        self.spoil(run_id, &mut record, &head);
        let privacy = record["privacy"].as_str().unwrap_or("content_refs_only").to_owned();
        self.privacy.insert(key.clone(), privacy);
        let partition = self.partition_of(run_id);
        let offset = self.deliver_in(partition, record.clone(), version);
        let mut outcome = self.model.outcome(partition, offset, 0, &id);
        outcome["record_id"] = id.into();
        if self.is_wrong("record_writer") {
            outcome["record_writer"] = json!({"writer_id": record["writer_id"], "epoch": record["writer_epoch"]});
        }
        if outcome["outcome"] == "refused" && payload_type(&record) == "batch" {
            self.batches.insert(run_id.to_owned());
        }
        if outcome["reason"] == "gap" {
            self.gaps.insert(key);
        }
        let beyond = record["writer_seq"].as_u64() > head["next_writer_seq"].as_u64();
        if self.is_wrong("order_of_judgement") && outcome["reason"] == "fenced" && beyond {
            outcome["reason"] = "gap".into();
        }
        if self.is_wrong("batch_repeat") && payload_type(&record) == "batch" && outcome["outcome"] == "repeat" {
            outcome["outcome"] = "applied".into();
        }
        let third = payload_type(&record) == "conversation_turn" && record["journal_seq"].as_u64() == Some(3);
        if self.is_wrong("one_partition") && third {
            outcome["position"] = self.model.show(run_id)["records"][0]["position"].clone();
        }
        outcome
    }

    /// Changes a record as a wrong server would.
    fn spoil(&self, run_id: &str, record: &mut Value, head: &Value) {
        let numbered = !UNNUMBERED.contains(&payload_type(record));
        let shown = || self.model.show(run_id)["records"].as_array().cloned().unwrap_or_default();
        let pruned = || shown().iter().any(|line| line["payload_type"] == "checkpoint_prune");
        if self.is_wrong("unnumbered_take_none") && numbered && pruned() {
            record["journal_seq"] = 0.into();
        }
        if self.is_wrong("follows_the_end") && payload_type(record) == "recovery" && head["status"] != "open" {
            record["journal_seq"] = 0.into();
        }
        if self.is_wrong("batch_takes_numbers") && self.batches.contains(run_id) {
            record["writer_seq"] = 0.into();
        }
        if self.is_wrong("secret_hidden") && payload_type(record) == "run_claim" {
            record["payload"]["claimed_by"] = record["facts"]["shown"].clone();
        }
        if self.is_wrong("unknown_members")
            && let Some(members) = record.as_object_mut()
        {
            members.retain(|name, _| !name.starts_with("x_"));
        }
        if self.is_wrong("call_ids_repeat") && payload_type(record) == "tool_call_completed" {
            let answered = record["payload"]["request_record_id"].clone();
            let lines = shown();
            let call_id = |line: &&Value| line["record_id"] == answered;
            let call_id = lines.iter().find(call_id).map(|line| line["payload"]["call_id"].clone());
            let first = lines.iter().find(|line| call_id.as_ref() == Some(&line["payload"]["call_id"]));
            if let Some(first) = first.filter(|_| call_id.is_some()) {
                record["payload"]["request_record_id"] = first["record_id"].clone();
            }
        }
    }

    fn position(&self, run_id: &str, offset: u64) -> Value {
        json!({"topic": TOPIC, "partition": self.partition_of(run_id), "offset": offset, "index": 0})
    }

    /// A record of the server's own.
    fn append_own(&mut self, run_id: &str, payload: Value) -> Value {
        let record = json!({"run_id": run_id, "record_id": format!("own-{}", self.appended), "writer_id": "reference",
            "writer_epoch": 0, "writer_seq": 0, "journal_seq": 0, "timestamp_millis": 0, "payload": payload});
        self.take(run_id, record)
    }

    pub(super) fn claim(&mut self, run_id: &str, body: &str) -> Answer {
        let body = if body.is_empty() { json!({}) } else { self.parse(body)? };
        let named = body["record_id"].as_str().filter(|_| !self.is_wrong("claim_resent"));
        let landed = named.map(|id| self.outcome_by_id(&self.model, run_id, id)).unwrap_or_default();
        if !landed.is_null() {
            // Whoever resends a claim without an answer has written nothing under it.
            if self.head(run_id)["next_writer_seq"].as_u64() > Some(1) && !self.is_wrong("claim_resent_late") {
                return Err(problem(409, "claim_lost", "its writer has written since"));
            }
            let (writer, epoch) = (&landed["record_writer"]["writer_id"], &landed["record_writer"]["epoch"]);
            return self.claim_answer(run_id, writer, epoch, &landed["position"]);
        }
        let head = self.head(run_id);
        let read = &body["only_if"]["hash"];
        if !read.is_null() && *read != self.hash(&head) && !self.is_wrong("claim_only_if") {
            return Err(problem(409, "conflict", "the run has another head"));
        }
        let epoch = head["epoch"].as_u64().unwrap_or_default() + 1;
        let own = |name: &str, prefix: &str| {
            body[name].as_str().map_or_else(|| format!("{prefix}-{}", self.appended), str::to_owned)
        };
        let (writer, id) = (own("writer_id", "writer"), named.map_or_else(|| own("", "own"), str::to_owned));
        let claim = json!({"type": "run_claim", "writer_id": writer, "epoch": epoch, "claimed_by": ""});
        let mut record = json!({"run_id": run_id, "record_id": id, "writer_id": writer,
            "writer_epoch": epoch, "writer_seq": 0, "journal_seq": 0, "timestamp_millis": 0, "payload": claim});
        if !self.is_wrong("claim_commits") {
            record["facts"] = json!({"commitment": body["commitment"], "shown": body["shown"]});
        }
        let outcome = self.take(run_id, record);
        self.claim_answer(run_id, &writer.into(), &epoch.into(), &outcome["position"])
    }

    /// The answer to a claim, if its writer has the run.
    fn claim_answer(&self, run_id: &str, writer: &Value, epoch: &Value, position: &Value) -> Answer {
        let head = self.head(run_id);
        if (&head["writer_id"], &head["epoch"]) != (writer, epoch) {
            return Err(problem(409, "claim_lost", "another writer has it"));
        }
        let hash = if self.is_wrong("claim_served") { Value::Null } else { self.hash(&head) };
        ok(&json!({"writer_id": writer, "epoch": epoch, "position": position,
            "next_journal_seq": head["next_journal_seq"], "hash": hash}))
    }

    pub(super) fn resolve(&mut self, run_id: &str, id: &str, body: &str) -> Answer {
        let body = self.parse(body)?;
        if text(&body, "who").is_empty() || text(&body, "why").is_empty() {
            return Err(problem(400, "usage", "a decision needs who and why"));
        }
        if body["revision"].is_null() && !self.is_wrong("decision_says_revision") {
            return Err(invalid("a decision without a revision"));
        }
        let mut payload = body;
        payload["type"] = "effect_resolution".into();
        payload["request_record_id"] = id.into();
        let outcome = self.append_own(run_id, payload);
        if outcome["outcome"] == "refused" && !self.is_wrong("resolution_served") {
            return Err(problem(409, "conflict", "it is not pending"));
        }
        ok(&outcome)
    }

    pub(super) fn skip(&mut self, body: &str) -> Answer {
        let body = self.parse(body)?;
        let payload = json!({"type": "skip", "offset": body["offset"], "who": body["who"], "why": body["why"]});
        self.of_partition(&body, payload)
    }

    pub(super) fn retain(&mut self, body: &str) -> Answer {
        let body = self.parse(body)?;
        let until = super::lists::millis(text(&body, "until")).ok_or_else(|| problem(400, "usage", "no time"))?;
        let payload = json!({"type": "retention_horizon", "family": body["family"], "until_millis": until,
            "who": body["who"], "why": body["why"]});
        let outcome = self.of_partition(&body, payload)?;
        let outcome: Value = serde_json::from_str(&outcome.body).unwrap_or_default();
        ok(&json!({"outcomes": [outcome]}))
    }

    /// Appends a record of the partition that a body names.
    fn of_partition(&mut self, body: &Value, payload: Value) -> Answer {
        let partition = body["partition"].as_u64().and_then(|partition| u32::try_from(partition).ok());
        let partition =
            partition.filter(|partition| *partition < PARTITIONS).ok_or_else(|| not_found("no partition"))?;
        let offset = self.deliver(partition, json!({"record_id": "own", "payload": payload}));
        ok(&json!({"position": {"topic": TOPIC, "partition": partition, "offset": offset, "index": 0},
            "outcome": "applied", "reason": null, "record_id": "own"}))
    }
}

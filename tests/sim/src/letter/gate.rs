//! The gate: a lookup, an intent or an attempt, the read-back, and the result.

use super::{FEW_SECONDS, Gone, Letter, START_WITHIN, Writer, locked};
use crate::{ambient, plan::LETTER};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio::time::Instant;

/// A permitted start: its record and the number of the attempt.
type Attempt = Option<(String, u32)>;

/// The answer to an intent or an attempt.
enum Permit {
    /// The effect may run now.
    Runs,
    /// It may not. The journal knows how to continue.
    No,
    /// Its record was refused.
    Refused,
}

impl Letter {
    /// Looks a call up (6).
    pub(super) async fn lookup(&self, step: u32) -> Result<Value, Gone> {
        let path = format!("/lookup?tool=book&args=%7B%22step%22%3A{step}%7D&deadline_ms=5000");
        Ok(self.ask("GET", &path, &Value::Null).await?.1)
    }

    /// Requests a new call (3).
    pub(super) async fn request(
        &self,
        me: &Writer,
        id: &str,
        (step, key): (u32, bool),
        done: &BTreeSet<u64>,
    ) -> Result<Attempt, Gone> {
        let payload = json!({ "type": "tool_call_requested", "request_id": format!("response-{step}"), "call_id": "call",
            "tool_name": "book", "arguments": { "step": step } });
        let members = if key { json!({ "idempotency_key": format!("key-{step}") }) } else { Value::Null };
        let saved = if self.batches && self.percent(40) { self.state(me, done).await? } else { None };
        match self.permit(me, (id, id), payload, &members, saved).await? {
            Permit::Runs => Ok(Some((id.to_owned(), 1))),
            Permit::No => Ok(None),
            Permit::Refused => {
                self.tell(|| format!("stops: the intent {id} is refused"));
                Err(Gone)
            }
        }
    }

    /// Runs a pending call again, if it may (10). First as the recovery at the opening says (8), then as a new one does.
    pub(super) async fn again(&self, me: &Writer, id: &str) -> Result<Attempt, Gone> {
        let opened = locked(&self.opened).remove(id);
        let pending = match opened {
            Some(pending) => Some(pending),
            None => self.pending(me, id).await?,
        };
        let Some(pending) = pending.filter(|pending| pending["class"] == "retry_safe") else { return Ok(None) };
        let attempt = pending["attempts"].as_u64().and_then(|attempts| u32::try_from(attempts + 1).ok()).unwrap_or(2);
        if self.percent(10) {
            self.wrong_number(me, (id, attempt + 1)).await?;
        }
        let payload = attempt_of(id, attempt);
        // After a refusal the next attempt has the same number and needs another id, so the id names the call's state too.
        let state: String = pending["basis"].as_str().unwrap_or_default().chars().take(12).collect();
        let record_id = format!("{id}-attempt-{attempt}-at-{state}");
        match self.permit(me, (&record_id, id), payload, &Value::Null, None).await? {
            Permit::Runs => Ok(Some((record_id, attempt))),
            Permit::No | Permit::Refused => Ok(None),
        }
    }

    /// Sends an attempt with a number that is not the next one. It must not be applied.
    async fn wrong_number(&self, me: &Writer, (id, attempt): (&str, u32)) -> Result<(), Gone> {
        let record_id = format!("{id}-wrong-attempt-{attempt}-{}", ambient::id());
        let (status, answer) = self.try_append(me, &record_id, attempt_of(id, attempt), &Value::Null, "").await?;
        self.stage.count("attempt with a wrong number");
        if status == 200 && answer["outcome"] != "refused" {
            self.stage
                .ledger()
                .fail(format!("attempt {attempt} of call {id} is not the next one, and is taken: {answer}"));
        }
        Ok(())
    }

    /// The pending call; `None` if it has ended.
    async fn pending(&self, me: &Writer, id: &str) -> Result<Option<Value>, Gone> {
        let recovery = self.recover(me).await?;
        Ok(recovery["pending"].as_array().into_iter().flatten().find(|call| call["id"] == id).cloned())
    }

    /// Appends an intent or an attempt of call `id`, and reads it back (4). `saved` is a checkpoint that is in a batch with it.
    async fn permit(
        &self,
        me: &Writer,
        (record_id, id): (&str, &str),
        payload: Value,
        members: &Value,
        saved: Option<(String, Value)>,
    ) -> Result<Permit, Gone> {
        let asked = Instant::now();
        self.stage.ledger().sends(record_id, me.epoch);
        // An intent in a batch is read back by its own id, at its own index.
        let (two, index) = (self.two || saved.is_some(), u64::from(saved.is_some()));
        let query = if two { "" } else { "&consistency=latest" };
        let (status, answer) = match saved {
            None => self.try_append(me, record_id, payload, members, query).await?,
            Some((checkpoint_id, state)) => {
                let records = json!([
                    self.record(me, &checkpoint_id, &state, &Value::Null),
                    self.record(me, record_id, &payload, members)
                ]);
                self.stage.count("batch of a checkpoint and an intent");
                self.try_append_batch(me, &format!("{record_id}-and-{checkpoint_id}-in-{}", me.epoch), records).await?
            }
        };
        if status != 200 {
            // Its permission ended, or it has another number by now.
            self.stage.count("attempt that a server does not append");
            return Ok(Permit::No);
        }
        if answer["reason"] == "transition" {
            // The call is known since a skip took its request away, or the attempt is not permitted any more.
            return Ok(Permit::No);
        }
        if answer["outcome"] == "refused" || !answer["reason"].is_null() {
            // The checkpoint may be the reason.
            return Ok(if index > 0 { Permit::No } else { Permit::Refused });
        }
        let at = &answer["position"];
        let path = format!(
            "/outcome?position={}:{}:{}&record_id={record_id}&deadline_ms=5000",
            at["partition"],
            at["offset"],
            at["index"].as_u64().unwrap_or_default().max(index)
        );
        let mut since = asked;
        let mut read = if two { None } else { Some(answer) };
        // The read-back must be a few seconds old at most.
        while read.is_none() || since.elapsed() > FEW_SECONDS {
            since = Instant::now();
            read = Some(self.ask("GET", &path, &Value::Null).await?.1);
        }
        if !self.is_permitted(me, &read.unwrap_or_default())? || locked(&self.started).contains(record_id) {
            return Ok(Permit::No);
        }
        if asked.elapsed() > START_WITHIN {
            self.stage.count("start of a client of the protocol that is too late");
            self.not_started(me, id, record_id).await?;
            return Ok(Permit::No);
        }
        locked(&self.started).insert(record_id.to_owned());
        Ok(Permit::Runs)
    }

    /// Whether a read-back, by either of the two ways, permits the effect.
    fn is_permitted(&self, me: &Writer, read: &Value) -> Result<bool, Gone> {
        let (one, writer) = (!read["writer"].is_null(), &read["writer"]);
        let writer = if one { writer } else { read };
        if writer["epoch"].as_u64() > Some(me.epoch) {
            return Err(self.lost(&format!("writer {writer}")));
        }
        let applied = read["outcome"] == "applied" || (one && read["outcome"] == "repeat");
        let mine = self.is_me(writer, me) && self.is_me(&read["record_writer"], me);
        if !applied || !mine {
            self.stage.count("intent of another process");
        }
        Ok(applied && mine && read["changed"] != true)
    }

    /// Records that an effect, which this process alone may have started since it was permitted, was not started (9).
    pub(super) async fn not_started(&self, me: &Writer, id: &str, record_id: &str) -> Result<(), Gone> {
        let number = {
            let mut numbers = locked(&self.next);
            numbers.own_decision += 1;
            numbers.own_decision
        };
        let own = format!("{record_id}-not-started-{}-{number}", me.epoch);
        let payload = json!({ "type": "effect_resolution", "request_record_id": id, "decision": "not_done",
            "who": "letter", "why": "not started" });
        let facts = json!({ "facts": { "epoch": me.epoch } });
        let (status, answer) = self.try_append(me, &own, payload, &facts, "").await?;
        self.stage.count("own decision");
        if status != 200 {
            self.tell(|| format!("{own}: {} (run {LETTER})", answer["detail"]));
        }
        Ok(())
    }

    /// Appends what a call returned after an intent or attempt (5). If it is refused because the call was decided, the journal's answer counts.
    pub(super) async fn result(&self, me: &Writer, intent: &str, payload: Value) -> Result<(), Gone> {
        let record_id = format!("{intent}-result");
        if !self.batches || !self.percent(60) {
            return self.append(me, &record_id, payload, &Value::Null, "").await.map(drop);
        }
        let number = {
            let mut numbers = locked(&self.next);
            numbers.message += 1;
            numbers.message
        };
        let message_id = format!("{record_id}-said-{}-{number}", me.epoch);
        let message = json!({ "type": "conversation_turn", "message_id": message_id, "kind": "tool", "content": { "of": intent } });
        let records = json!([
            self.record(me, &message_id, &message, &Value::Null),
            self.record(me, &record_id, &payload, &Value::Null)
        ]);
        self.stage.count("batch of a message and a result");
        let (status, answer) = self.try_append_batch(me, &format!("{message_id}-batch"), records).await?;
        if status == 200 { Ok(()) } else { Err(self.refused(&format!("the batch of {record_id}"), &answer)) }
    }
}

/// The payload of an attempt.
fn attempt_of(id: &str, attempt: u32) -> Value {
    json!({ "type": "tool_call_attempt", "request_record_id": id, "attempt": attempt, "reason": "again" })
}

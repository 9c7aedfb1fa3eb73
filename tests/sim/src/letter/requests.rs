//! Requests: sent again until there is an answer that says what happened, and sometimes delivered twice.

use super::{Gone, Letter, TRIES_MAX, Writer, locked};
use crate::{grants::Sender, ledger::run_id, plan::LETTER};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// In so many cases of a hundred a copy of a request arrives again later.
const COPIES: u64 = 5;

impl Letter {
    /// Sends a request about the run until it is answered (Errors).
    pub(super) async fn ask(&self, method: &'static str, path: &str, body: &Value) -> Result<(u16, Value), Gone> {
        let path = format!("/v1/runs/{}{path}", run_id(LETTER));
        let mut tries = 0;
        while tries < TRIES_MAX {
            tries += u32::from(self.stage.is_healed());
            self.copy_later(method, &path, body);
            let answer = self.network.ask_paused(Sender::Agent, method, &path, body).await;
            let unknown = ["stale", "unavailable", "partition_stopped", "internal", "overloaded"];
            match answer {
                Some((200, answer)) => return Ok((200, answer)),
                Some((status, problem)) if problem["kind"].as_str().is_some_and(|kind| !unknown.contains(&kind)) => {
                    let kind = problem["kind"].as_str();
                    if matches!(kind, Some("claim_lost" | "fenced")) {
                        self.tell(|| format!("stops: {}", problem["detail"]));
                        return Err(Gone);
                    }
                    return Ok((status, problem));
                }
                _ => {}
            }
            let pause = locked(&self.dice).between(100, 1_500);
            sleep(Duration::from_millis(pause)).await;
        }
        self.stage.ledger().fail(format!("client {} gets no answer: {method} {path}", self.life.id));
        Err(Gone)
    }

    /// Sends the run's last claim again, once its process has written under it. The answer must not say that the claim is this
    /// process's.
    pub(super) async fn reuse_claim(&self) {
        let (claim, ends) = {
            let ledger = self.stage.ledger();
            (ledger.used_claim(LETTER), ledger.moves_of_ends())
        };
        let Some(claim) = claim else { return };
        let body = json!({ "record_id": claim.record_id, "claimed_by": claim.claimed_by });
        let path = format!("/v1/runs/{}/claims?deadline_ms=5000", run_id(LETTER));
        let Some((status, answer)) = self.network.ask_paused(Sender::Agent, "POST", &path, &body).await else { return };
        self.tell(|| format!("sends claim {} again: {status} {answer}", claim.record_id));
        if answer["kind"] == "claim_lost" {
            self.stage.count("claim id of an earlier process");
        }
        let mut ledger = self.stage.ledger();
        // A server that reads an older end of the log does not know what was written.
        let reads_all = !ends.is_deposed && ends == ledger.moves_of_ends();
        if status == 200 && answer["epoch"] == claim.epoch && reads_all && ledger.used_claim(LETTER) == Some(claim) {
            ledger
                .fail(format!("a process gets a claim of run {LETTER} under which another one has written: {answer}"));
        }
    }

    /// A proxy delivers an append or a claim again.
    fn copy_later(&self, method: &'static str, path: &str, body: &Value) {
        if method != "POST" || self.stage.is_healed() || !self.percent(COPIES) {
            return;
        }
        self.stage.count("copy of a request");
        let after = Duration::from_millis(locked(&self.dice).between(0, 12_000));
        let (network, path, body) = (self.network.clone(), path.to_owned(), body.clone());
        tokio::spawn(async move {
            sleep(after).await;
            drop(network.ask(Sender::Agent, method, &path, &body).await);
        });
    }

    pub(super) fn is_me(&self, writer: &Value, me: &Writer) -> bool {
        writer["writer_id"] == me.id.as_str() && writer["epoch"] == me.epoch
    }

    /// Appends a record: the same again until it is judged.
    pub(super) async fn append(
        &self,
        me: &Writer,
        record_id: &str,
        payload: Value,
        members: &Value,
        query: &str,
    ) -> Result<Value, Gone> {
        let (status, answer) = self.try_append(me, record_id, payload, members, query).await?;
        if status == 200 { Ok(answer) } else { Err(self.refused(&format!("record {record_id}"), &answer)) }
    }

    /// An append has no outcome: the process leaves. That is a failure unless an operator skipped the record, or a skip
    /// displaced records of the process.
    pub(super) fn refused(&self, record: &str, answer: &Value) -> Gone {
        let is_skipped = self.stage.ledger().was_skipped(answer);
        if !is_skipped && !self.is_excused() {
            self.stage.ledger().fail(format!("{record} of client {} is refused: {answer}", self.life.id));
        }
        Gone
    }

    /// The same. An error that says that nothing was appended is an answer.
    pub(super) async fn try_append(
        &self,
        me: &Writer,
        record_id: &str,
        payload: Value,
        members: &Value,
        query: &str,
    ) -> Result<(u16, Value), Gone> {
        let record = self.record(me, record_id, &payload, members);
        let (status, answer) = self.ask("POST", &format!("/records?deadline_ms=5000{query}"), &record).await?;
        self.tell(|| format!("{record_id}: {status} {} {}", answer["outcome"], answer["reason"]));
        if answer["reason"] == "fenced" {
            return Err(self.lost(&format!("{record_id} is fenced")));
        }
        Ok((status, answer))
    }

    /// The same for a batch.
    pub(super) async fn try_append_batch(&self, me: &Writer, id: &str, records: Value) -> Result<(u16, Value), Gone> {
        self.try_append(me, id, json!({ "type": "batch", "records": records }), &Value::Null, "").await
    }

    /// A record with further members.
    pub(super) fn record(&self, me: &Writer, record_id: &str, payload: &Value, members: &Value) -> Value {
        let mut record = json!({ "run_id": run_id(LETTER), "record_id": record_id, "agent_id": "letter",
            "writer_id": me.id, "writer_epoch": me.epoch, "payload": payload });
        for (name, member) in members.as_object().into_iter().flatten() {
            record[name] = member.clone();
        }
        record
    }
}

//! An intruder: a process with the scopes of an agent. It acts on calls that other processes started.

use crate::{ambient, grants::Sender, ledger::run_id, network::Network, plan::Deed, stage::Stage};
use runlog_schemas::datum::hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// How often it looks whether the run has a pending call.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// How the ids of its records begin.
const PREFIX: &str = "intruder-";

/// Whether a record is an intruder's, by its id.
pub(crate) fn is_by(record_id: &str) -> bool {
    record_id.starts_with(PREFIX)
}

/// An intruder with its dependencies.
pub(crate) struct Intruder {
    pub(crate) stage: Arc<Stage>,
    pub(crate) network: Arc<Network>,
}

/// The run as the intruder has claimed it.
struct Claimed {
    writer_id: Value,
    epoch: Value,
}

impl Intruder {
    /// Acts on a call of the run, once the run has a pending one.
    pub(crate) async fn act(self, run: u32, deed: Deed, shows: bool) {
        if !self.stage.plan.has_tokens() {
            // It may do everything.
            return;
        }
        let call = loop {
            if self.stage.is_over() {
                return;
            }
            match self.pending_call(run).await {
                Some(call) => break call,
                None => sleep(LOOK_AGAIN).await,
            }
        };
        match deed {
            Deed::Clear => self.clear(run, &call, shows).await,
            Deed::End { fails, in_batch } => self.end(run, &call, (fails, in_batch), shows).await,
            Deed::Resolve => self.resolve(run, &call).await,
            Deed::Skip => self.skip().await,
            Deed::Borrow { clears, in_batch } => self.borrow(run, &call, (clears, in_batch)).await,
            Deed::Flood { results, after } => self.flood(run, &call, (results, after), shows).await,
        }
    }

    /// A call of the run that may have happened.
    async fn pending_call(&self, run: u32) -> Option<Value> {
        let path = format!("/v1/runs/{}/recovery?content=false&limit=1000&deadline_ms=5000", run_id(run));
        let (_, recovery) = self.network.ask(Sender::Intruder, "GET", &path, &Value::Null).await?;
        recovery["pending"].as_array()?.iter().find(|call| call["class"] == "reconcile_required").cloned()
    }

    async fn claim(&self, run: u32, shows: bool) -> Option<Claimed> {
        let mut body = json!({ "claimed_by": "intruder", "record_id": format!("{PREFIX}{}", ambient::id()) });
        if self.stage.plan.checks_starts() {
            let secret = |of: &str| hex(&Sha256::digest(format!("{of} {}", ambient::id())));
            body["commitment"] = json!(secret("commitment"));
            if shows {
                body["shown"] = json!(secret("secret"));
            }
        }
        let path = format!("/v1/runs/{}/claims?deadline_ms=5000", run_id(run));
        let (status, claim) = self.network.ask(Sender::Intruder, "POST", &path, &body).await?;
        self.stage.tell(|| format!("an intruder claims run {run}: {status} {claim}"));
        if status != 200 {
            return None;
        }
        let (writer, epoch) = (claim["writer_id"].as_str()?, claim["epoch"].as_u64()?);
        self.stage.ledger().claim_confirmed(run, writer, epoch);
        Some(Claimed { writer_id: claim["writer_id"].clone(), epoch: claim["epoch"].clone() })
    }

    /// Appends a record of the claimed run.
    async fn append(&self, run: u32, claimed: &Claimed, mut record: Value) {
        record["run_id"] = json!(run_id(run));
        record["record_id"] = json!(format!("{PREFIX}{}", ambient::id()));
        record["writer_id"] = claimed.writer_id.clone();
        record["writer_epoch"] = claimed.epoch.clone();
        let path = format!("/v1/runs/{}/records?force=true&deadline_ms=5000", run_id(run));
        let answer = self.network.ask(Sender::Intruder, "POST", &path, &record).await;
        self.stage.tell(|| format!("an intruder appends {record}: {answer:?}"));
    }

    async fn clear(&self, run: u32, call: &Value, shows: bool) {
        let Some(claimed) = self.claim(run, shows).await else { return };
        self.stage.count("decision of an intruder");
        let payload = json!({ "type": "effect_resolution", "request_record_id": call["id"], "decision": "not_done",
            "who": "intruder", "why": "not started" });
        let record = json!({ "payload": payload, "facts": { "epoch": claimed.epoch } });
        self.append(run, &claimed, record).await;
    }

    async fn end(&self, run: u32, call: &Value, (fails, in_batch): (bool, bool), shows: bool) {
        let Some(claimed) = self.claim(run, shows).await else { return };
        self.stage.count("result of an intruder");
        let id = &call["id"];
        let payload = if fails {
            json!({ "type": "tool_call_failed", "request_record_id": id, "error_kind": "intruder", "error_message": "no" })
        } else {
            json!({ "type": "tool_call_completed", "request_record_id": id, "result": { "by": "intruder" } })
        };
        let record = if in_batch {
            let member = json!({ "run_id": run_id(run), "record_id": format!("{PREFIX}{}", ambient::id()),
                "writer_id": claimed.writer_id, "writer_epoch": claimed.epoch, "payload": payload });
            json!({ "payload": { "type": "batch", "records": [member] } })
        } else {
            json!({ "payload": payload })
        };
        self.append(run, &claimed, record).await;
    }

    /// Writes under the epoch of the process that has the run, whose writer and epoch every answer names.
    async fn borrow(&self, run: u32, call: &Value, (clears, in_batch): (bool, bool)) {
        let Some((writer_id, epoch)) = self.stage.ledger().claimed_by_token(run) else { return };
        let id = &call["id"];
        let payload = if clears {
            json!({ "type": "effect_resolution", "request_record_id": id, "decision": "not_done", "who": "intruder", "why": "not started" })
        } else {
            json!({ "type": "tool_call_completed", "request_record_id": id, "result": { "by": "intruder" } })
        };
        let record = |payload: &Value| {
            json!({ "run_id": run_id(run), "record_id": format!("{PREFIX}{}", ambient::id()), "writer_id": writer_id,
                "writer_epoch": epoch, "payload": payload })
        };
        let mut body = record(&payload);
        // A server takes no decision in a batch.
        if clears {
            body["facts"] = json!({ "epoch": epoch });
        } else if in_batch {
            body = json!({ "run_id": run_id(run), "record_id": format!("{PREFIX}{}", ambient::id()), "writer_id": "nobody",
                "writer_epoch": 0, "payload": { "type": "batch", "records": [body] } });
        }
        let path = format!("/v1/runs/{}/records?deadline_ms=5000", run_id(run));
        let Some((status, answer)) = self.network.ask(Sender::Intruder, "POST", &path, &body).await else { return };
        self.stage.tell(|| format!("an intruder appends {body}: {status} {answer}"));
        if status == 403 {
            self.stage.count("record of an intruder under the epoch of another");
        }
        let mut ledger = self.stage.ledger();
        // A skip can take the claim meanwhile.
        if status == 200 && ledger.has_claim(run, &writer_id, epoch) {
            ledger.fail(format!(
                "an intruder writes under epoch {epoch} of run {run}, which another principal claimed: {answer}"
            ));
        }
    }

    /// Takes the run over, so that the result of its process is refused, and sends many results under an epoch of its own that is over.
    async fn flood(&self, run: u32, call: &Value, (results, after): (u32, u64), shows: bool) {
        let Some(before) = self.claim(run, shows).await else { return };
        if self.claim(run, shows).await.is_none() {
            return;
        }
        sleep(Duration::from_millis(after)).await;
        self.stage.count("flood of an intruder");
        for nth in 0..results {
            if self.stage.is_over() {
                return;
            }
            let result = json!({ "by": "intruder", "nth": nth });
            let payload = json!({ "type": "tool_call_completed", "request_record_id": call["id"], "result": result });
            self.append(run, &before, json!({ "payload": payload })).await;
        }
    }

    async fn resolve(&self, run: u32, call: &Value) {
        self.stage.count("decision of an intruder");
        let body = json!({ "who": "intruder", "why": "asked", "revision": call["revision"], "basis": call["basis"],
            "force": true, "decision": "give_up" });
        let id = call["id"].as_str().unwrap_or_default();
        let path = format!("/v1/runs/{}/effects/{id}/resolution?deadline_ms=5000", run_id(run));
        self.must_be_forbidden("POST", &path, &body).await;
    }

    async fn skip(&self) {
        let body = json!({ "partition": 0, "offset": 1, "who": "intruder", "why": "asked" });
        self.must_be_forbidden("POST", "/v1/skips?force=true&deadline_ms=5000", &body).await;
    }

    async fn must_be_forbidden(&self, method: &str, path: &str, body: &Value) {
        let Some((status, answer)) = self.network.ask(Sender::Intruder, method, path, body).await else { return };
        self.stage.tell(|| format!("an intruder asks {path}: {status} {answer}"));
        if status == 200 {
            self.stage.ledger().fail(format!("an intruder may {method} {path}: {answer}"));
        }
    }
}

//! An operator: reads what is pending, finds out whether it happened, thinks, and decides.

use crate::{
    dice::Dice,
    ledger::{failure, lacks, run_id},
    network::Network,
    plan::RUNS,
    stage::{PARTITIONS, Stage},
};
use runlog_log::{Log, Offset, PartitionId};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// An operator with what they need.
pub(crate) struct Operator {
    pub(crate) stage: Arc<Stage>,
    pub(crate) network: Arc<Network>,
}

impl Operator {
    /// Works until the task is ended.
    pub(crate) async fn work(self) {
        let mut dice = Dice::new(self.stage.seed(), 77);
        loop {
            sleep(Duration::from_millis(dice.between(1_000, 6_000))).await;
            for run in 0..RUNS {
                self.look(run, &mut dice).await;
            }
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let asked = tokio::time::timeout(Duration::from_secs(20), self.network.send(method, path, body));
        let answer = asked.await.ok()?.ok()?;
        Some((answer.status().as_u16(), serde_json::from_slice(answer.body()).ok()?))
    }

    async fn look(&self, run: u32, dice: &mut Dice) {
        let id = run_id(run);
        let then = self.stage.ledger().recovery(run);
        let deposed = self.stage.ledger().deposed_since();
        let path =
            format!("/v1/runs/{id}/recovery?full=true&from_start=true&content=false&limit=1000&deadline_ms=5000");
        let Some((status, recovery)) = self.ask("GET", &path, &Value::Null).await else { return };
        if status != 200 {
            return;
        }
        if !deposed.1
            && deposed == self.stage.ledger().deposed_since()
            && let Some(lacking) = lacks(&recovery, &then)
        {
            self.stage
                .ledger()
                .fail(format!("an answer about {id} at latest lacks {lacking}, which was in the log before"));
        }
        let pending: Vec<Value> = recovery["pending"].as_array().cloned().unwrap_or_default();
        let seen = self.ends();
        for effect in pending.iter().filter(|effect| effect["class"] == "reconcile_required") {
            let Some(request) = effect["id"].as_str() else { continue };
            let phoned = self.stage.ledger().phone(request);
            // About a call that is under way, an impatient operator says how it counts, whatever comes of it.
            let given_up = phoned.is_none() && dice.percent(30);
            if phoned.is_none() && !given_up {
                continue;
            }
            let (happened, result) = phoned.unwrap_or_default();
            // Meanwhile anything may happen.
            sleep(Duration::from_millis(dice.between(0, 15_000))).await;
            let evidence = effect["evidence"].as_array().and_then(|all| {
                let happened = all.iter().rev().find(|one| one["status"] == "completed");
                happened.or(all.last()).and_then(|one| one["record_id"].as_str())
            });
            let partition = effect_partition(&recovery);
            let seen = seen.get(partition.index()).copied().unwrap_or_default();
            let decided = match (given_up, happened) {
                (true, _) => Some(failure("given_up", "asked")),
                (false, true) => result.clone(),
                (false, false) => None,
            };
            let number = self.stage.ledger().decides(request, seen, decided);
            let mut body =
                json!({ "who": format!("operator-{number}"), "why": "asked", "revision": effect["revision"] });
            match (evidence, happened) {
                _ if given_up => body["decision"] = json!("give_up"),
                (Some(evidence), _) => {
                    body["decision"] = json!("adopt");
                    body["evidence"] = json!(evidence);
                }
                (None, true) => {
                    body["decision"] = json!("done");
                    body["result"] =
                        result.as_deref().map_or(json!(null), |text| serde_json::from_str(text).unwrap_or_default());
                }
                (None, false) => body["decision"] = json!("not_done"),
            }
            let path = format!("/v1/runs/{id}/effects/{request}/resolution?deadline_ms=5000");
            let answer = self.ask("POST", &path, &body).await;
            self.stage.count(match body["decision"].as_str() {
                Some("adopt") => "decision: adopt",
                Some("done") => "decision: done",
                Some("give_up") => "decision: give_up",
                _ => "decision: not_done",
            });
            self.stage.tell(|| {
                let (status, answer) = answer.map_or((0, Value::Null), |(status, answer)| (status, answer));
                let said = if status == 200 { answer["outcome"].clone() } else { answer["detail"].clone() };
                format!("operator: {} about {request}: {status} {said}", body["decision"])
            });
        }
    }

    /// Where the log's partitions end now.
    fn ends(&self) -> Vec<Offset> {
        let end = |partition| {
            let bounds = self.stage.log.bounds(partition, Duration::ZERO);
            futures_util::FutureExt::now_or_never(bounds).and_then(Result::ok).map(|bounds| bounds.end)
        };
        PartitionId::all(PARTITIONS).map(|partition| end(partition).unwrap_or_default()).collect()
    }
}

fn effect_partition(recovery: &Value) -> PartitionId {
    let partition = recovery["position"]["partition"].as_u64().and_then(|number| u32::try_from(number).ok());
    partition.and_then(|number| PartitionId::try_from(number).ok()).unwrap_or_default()
}

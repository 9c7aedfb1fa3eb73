//! A client without a handle: it posts records of an unclaimed run, and lets the server number them.

use crate::{dice::Dice, grants::Sender, network::Network, plan::PUBLISHED, stage::Stage};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// Clients that publish to one run at the same time.
pub(crate) const PUBLISHERS: u32 = 2;
/// Records of each.
const RECORDS: u32 = 8;
/// How often a record is posted after the last fault. Before that, a server that admits one append at a time refuses
/// many.
const TRIES_MAX: u32 = 80;

/// A publisher with its dependencies.
pub(crate) struct Publisher {
    pub(crate) id: u32,
    pub(crate) stage: Arc<Stage>,
    pub(crate) network: Arc<Network>,
}

impl Publisher {
    /// Publishes its records, each again and again until it is applied.
    pub(crate) async fn publish(self) {
        let mut dice = Dice::new(self.stage.seed(), 300 + u64::from(self.id));
        for number in 0..RECORDS {
            sleep(Duration::from_millis(dice.between(0, 8_000))).await;
            let id = format!("published-{}-{number}", self.id);
            if !self.publish_record(&id, &mut dice).await {
                return;
            }
        }
    }

    async fn publish_record(&self, id: &str, dice: &mut Dice) -> bool {
        let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": { "by": id } });
        let body = json!({ "record_id": id, "run_id": "published", "payload": payload }).to_string();
        let mut last = String::new();
        let mut tries = 0;
        while tries < TRIES_MAX {
            tries += u32::from(self.stage.is_healed());
            let path = "/v1/runs/published/records?deadline_ms=5000";
            // Impatient clients go away in the middle.
            let patience = Duration::from_millis(if dice.percent(15) { dice.between(10, 400) } else { 20_000 });
            let sent =
                timeout(patience, self.network.send(Sender::Agent, "POST", path, body.clone().into_bytes())).await;
            if let Ok(Ok(answer)) = sent {
                let (status, body) = (answer.status().as_u16(), answer.body());
                let answer: Value = serde_json::from_slice(body).unwrap_or_default();
                let (outcome, reason) = (answer["outcome"].as_str(), &answer["reason"]);
                if status == 200 && matches!(outcome, Some("applied" | "repeat")) && reason.is_null() {
                    self.stage.count("published");
                    let mut ledger = self.stage.ledger();
                    if !ledger.has_applied(id) && !ledger.displaces_one_of(PUBLISHED, &[id.to_owned()]) {
                        ledger.fail(format!("{id} is {outcome:?}, and was not applied: {answer}"));
                    }
                    return true;
                }
                if self.stage.ledger().displaces_one_of(PUBLISHED, &[id.to_owned()]) {
                    // A skip displaced it.
                    return true;
                }
                last = format!("{status} {answer}");
                if status == 200 {
                    // The server numbers the record again if another record got the number.
                    self.stage.ledger().fail(format!("{id} is refused: {last}"));
                    return false;
                }
                self.stage.tell(|| format!("publisher {}: {id}: {last}", self.id));
            }
            sleep(Duration::from_millis(dice.between(200, 2_000))).await;
        }
        self.stage.ledger().fail(format!("{id} is never applied: {last}"));
        false
    }
}

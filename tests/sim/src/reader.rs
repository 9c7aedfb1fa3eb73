//! A reader: asks questions at `latest` about runs, calls and records, as dashboards and agents do. The ledger checks
//! the answers.

use crate::{
    dice::Dice,
    grants::Sender,
    ledger::{Question, run_id},
    network::Network,
    plan::LETTER,
    stage::Stage,
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// A reader with its dependencies.
pub(crate) struct Reader {
    pub(crate) stage: Arc<Stage>,
    pub(crate) network: Arc<Network>,
}

impl Reader {
    /// Asks until the task is ended.
    pub(crate) async fn ask(self) {
        let mut dice = Dice::new(self.stage.seed(), 88);
        loop {
            sleep(Duration::from_millis(dice.between(100, 3_000))).await;
            let run = u32::try_from(dice.between(0, u64::from(LETTER))).unwrap_or_default();
            let Some((question, path)) = self.question(&run_id(run), &mut dice) else { continue };
            let number = self.stage.ledger().asks(question);
            let answer = self.network.ask(Sender::Operator, "GET", &path, &Value::Null).await;
            let result = match answer {
                Some((200, answer)) => Some(answer),
                Some((404, answer)) if answer["kind"] == "not_found" => Some(Value::Null),
                _ => None,
            };
            if result.is_some() {
                self.stage.count("question at latest");
            }
            self.stage.ledger().settle(number, result.as_ref());
        }
    }

    fn question(&self, run_id: &str, dice: &mut Dice) -> Option<(Question, String)> {
        let run = run_id.to_owned();
        Some(match dice.between(0, 4) {
            0 => {
                let path = format!("/v1/runs/{run}/recovery?full=true&content=false&limit=1000&deadline_ms=5000");
                (Question::Recovery(run), path)
            }
            1 => {
                let path = format!("/v1/runs/{run}?deadline_ms=5000");
                (Question::Run(run), path)
            }
            2 => {
                let calls = self.stage.ledger().fingerprints(run_id);
                let nth = usize::try_from(dice.between(0, 1_000)).unwrap_or_default();
                let (fingerprint, occurrences) = calls.get(nth % calls.len().max(1))?.clone();
                let occurrence = u32::try_from(dice.between(1, u64::from(occurrences))).ok();
                let which = occurrence.map(|which| format!("&occurrence={which}")).unwrap_or_default();
                let path = format!("/v1/runs/{run}/lookup?tool=book&fingerprint={fingerprint}{which}&deadline_ms=5000");
                (Question::Lookup { run_id: run, fingerprint, occurrence }, path)
            }
            3 => {
                let record_id = self.stage.ledger().some_record(run_id, dice.between(0, 1_000))?;
                let path = format!("/v1/runs/{run}/outcome?record_id={record_id}&deadline_ms=5000");
                (Question::Known { run_id: run, record_id }, path)
            }
            _ => (
                Question::Pending,
                "/v1/effects?pending=true&limit=1000&consistency=latest&deadline_ms=5000".to_owned(),
            ),
        })
    }
}

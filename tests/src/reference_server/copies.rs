//! Copies of runs: only turns and checkpoints, because the suite copies no other records.

use super::{Answer, State, ok, problem};
use serde_json::{Value, json};

impl State {
    pub(super) fn copy(&mut self, target: &str, body: &str) -> Answer {
        let body: Value = serde_json::from_str(body).map_err(|_| problem(400, "invalid", "no copy"))?;
        let from = body["from"].as_str().unwrap_or_default();
        let lines = self.model.show(from)["records"].as_array().cloned().unwrap_or_default();
        let calls = self.is_wrong("copy_has_checkpoints");
        let is_copied = |line: &Value| calls || line["payload_type"] != "tool_call_requested";
        let (copied, left_out): (Vec<Value>, Vec<Value>) = lines.into_iter().partition(is_copied);
        let numbers: Vec<u64> =
            copied.iter().filter_map(|line| line["journal_seq"].as_u64()).filter(|n| *n > 0).collect();
        let number = |of: &Value| numbers.iter().filter(|number| Some(**number) <= of.as_u64()).count() as u64;
        let records = copied.iter().map(|line| {
            let mut payload = line["payload"].clone();
            if payload["type"] == "loop_checkpoint" {
                payload["covers_journal_seq"] = number(&payload["covers_journal_seq"]).into();
            }
            let journal_seq = if line["journal_seq"] == 0 { 0 } else { number(&line["journal_seq"]) };
            json!({"record_id": line["record_id"], "journal_seq": journal_seq, "payload": payload, "timestamp_millis": 0})
        });
        let records: Vec<Value> = records.collect();
        let (before, is_new_run) = (self.clone(), self.head(target)["next_journal_seq"] == 1);
        for record in &records {
            let outcome = self.take(target, record.clone());
            let is_there = outcome["outcome"] != "refused" && outcome["reason"].is_null();
            if !is_there && (is_new_run || !self.is_wrong("copy_of_new_run")) {
                *self = before;
                return Err(problem(409, "conflict", "it has other records"));
            }
        }
        ok(&json!({"run_id": target, "from": from, "records": records.len(), "left_out": left_out.len()}))
    }
}

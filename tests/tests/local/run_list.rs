//! The list of runs: newest first, with summaries, and the numbers of runs by status.

use runlog_log::memory::MemoryLog;
use runlog_tests::served::Served;
use serde_json::{Value, json};
use std::sync::Arc;

struct Site(Served);

impl Site {
    async fn start() -> Self {
        Self(Served::over(Arc::new(MemoryLog::new(2))).await.unwrap())
    }

    async fn append(&self, run: &str, id: &str, payload: Value) {
        let record = json!({ "run_id": run, "record_id": id, "agent_id": "worker", "payload": payload });
        let (_, answer) = self.0.post(&format!("/v1/runs/{run}/records?consistency=latest"), &record).await;
        assert_eq!(answer["outcome"], "applied", "{answer}");
    }

    /// A run with as many calls, of which the last has no result and the first failed.
    async fn run(&self, run: &str, calls: usize, end: Option<&str>) {
        for call in 0..calls {
            let id = format!("call {call}");
            let request = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "pay",
                "arguments": call });
            self.append(run, &id, request).await;
            if call + 1 < calls {
                let kind = if call == 0 { "tool_call_failed" } else { "tool_call_completed" };
                let mut result = json!({ "type": kind, "request_record_id": id });
                result[if call == 0 { "error_message" } else { "result" }] = "so".into();
                if call == 0 {
                    result["error_kind"] = "refused".into();
                }
                self.append(run, &format!("result {call}"), result).await;
            }
        }
        if let Some(status) = end {
            self.append(run, "end", json!({ "type": "run_lifecycle", "status": status, "reason": "so" })).await;
        }
    }

    async fn runs(&self, query: &str) -> Vec<Value> {
        let (status, page) = self.0.get(&format!("/v1/runs?consistency=latest&{query}")).await;
        assert_eq!(status, 200, "{page}");
        page["runs"].as_array().unwrap().clone()
    }
}

fn ids(runs: &[Value]) -> Vec<&str> {
    runs.iter().map(|run| run["run_id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_the_summaries_and_an_overview_the_numbers_of_runs() {
    let site = Site::start().await;
    site.run("first", 4, None).await;
    site.run("second", 2, Some("failed")).await;
    site.run("third", 0, Some("completed")).await;
    site.append(
        "first",
        "more",
        json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": 1 }),
    )
    .await;
    let runs = site.runs("newest=true&summary=true").await;
    assert_eq!(ids(&runs), ["first", "third", "second"]);
    let effects = json!({ "completed": 2, "failed": 1, "pending": 1, "reconcile_required": 1, "has_more": false });
    let (summary, started) = (&runs[0]["summary"], runs[0]["summary"]["started_at"].as_str().unwrap());
    assert_eq!((&summary["effects"], &summary["agent_id"]), (&effects, &json!("worker")), "{summary}");
    assert!(started <= runs[0]["updated_at"].as_str().unwrap(), "{}", runs[0]);
    assert!(site.runs("").await.iter().all(|run| run.get("summary").is_none()), "only if it is asked for");
    assert_eq!(ids(&site.runs("stuck=true").await), ["first"]);
    assert_eq!(ids(&site.runs("stuck=true&newest=true").await), ["first"]);
    assert_eq!(ids(&site.runs("status=open&newest=true").await), ["first"]);
    let (_, overview) = site.0.get("/v1/overview").await;
    assert_eq!(overview["runs"], json!({ "open": 1, "completed": 1, "failed": 1, "cancelled": 0 }), "{overview}");
    let metrics =
        runlog_tests::server::client().unwrap().get(site.0.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("runlog_runs{status=\"failed\"} 1"), "{metrics}");
}

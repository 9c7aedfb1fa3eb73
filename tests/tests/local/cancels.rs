//! `runlog cancel` if answers are lost: it sends its claim and its record again, and the run has each of them once.

use anyhow::ensure;
use runlog_tests::{command::Runlog, http_proxy::HttpProxy, server::Launch};
use serde_json::json;

#[test]
fn a_cancel_whose_answers_are_lost_claims_and_ends_the_run_once() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    for (run, path) in [("a", "/claims"), ("b", "/records")] {
        let started =
            json!({ "run_id": run, "record_id": "s", "payload": { "type": "run_lifecycle", "status": "started" } });
        server.runlog().publish(&[started])?;
        let proxy = HttpProxy::start(&server.url, path)?;
        proxy.truncate_next_response();
        let cancel = ["cancel", run, "--who", "jo", "--why", "a test", "--yes"];
        Runlog::for_server(&proxy.url).json(&cancel)?.exits(0)?;
        ensure!(proxy.truncated() == 1, "{path}: no answer was lost");
        let (_, state) = server.get(&format!("/v1/runs/{run}?consistency=latest"))?;
        let is_cancelled = state["status"] == "cancelled" && state["epoch"] == 1 && state["records"] == 3;
        ensure!(is_cancelled, "{path}: {state}");
    }
    server.terminate()?;
    Ok(())
}

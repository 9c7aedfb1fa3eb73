//! Queries over HTTP that cannot be answered as requested are refused.

use anyhow::{Context, ensure};
use runlog_tests::{
    sample_journal::{self, CLAIMED, IMPORTED, RUN},
    server::{Launch, Server},
};
use serde_json::{Value, json};
use tempfile::tempdir;

fn with_server(story: impl FnOnce(&Server) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    story(&server)?;
    server.terminate()?;
    Ok(())
}

fn check_refusal(server: &Server, path: &str) -> anyhow::Result<()> {
    let (status, problem) = server.get(path)?;
    ensure!(status == 400 && problem["kind"] == "usage", "{path}: {status} {problem}");
    Ok(())
}

#[test]
fn a_parameter_that_a_list_does_not_have_is_refused() -> anyhow::Result<()> {
    with_server(|server| {
        for path in ["effects?run=x", "anomalies?pending=true", "dead-letters?run=x", "dead-letters?unsafe=true"] {
            check_refusal(server, &format!("/v1/{path}"))?;
        }
        for path in ["journal?run=x", "doctor?run=x", "runs?prefix=%ff", "events?family=%c3%28"] {
            check_refusal(server, &format!("/v1/{path}"))?;
        }
        let (status, problem) = server.post("/v1/verify?partition=1", &json!({}))?;
        ensure!(status == 400 && problem["kind"] == "usage", "{status} {problem}");
        let (_, found) = server.get(&format!("/v1/anomalies?run={CLAIMED}"))?;
        ensure!(found["anomalies"].as_array().is_some_and(|found| found.len() == 1), "{found}");
        Ok(())
    })
}

#[test]
fn numbers_out_of_bounds_are_refused() -> anyhow::Result<()> {
    with_server(|server| {
        for list in ["runs", "effects", "anomalies", "dead-letters", "horizons", "events?family=wake"] {
            let and = if list.contains('?') { '&' } else { '?' };
            check_refusal(server, &format!("/v1/{list}{and}limit=0"))?;
            check_refusal(server, &format!("/v1/{list}{and}limit=1001"))?;
        }
        check_refusal(server, &format!("/v1/runs/{RUN}/records?correlation=x"))?;
        for list in ["records?", "recovery?", "standing/wakes?", "facts?"] {
            check_refusal(server, &format!("/v1/runs/{RUN}/{list}limit=0"))?;
        }
        // Occurrences count from 1: occurrence 0 is an invalid query, not an unknown occurrence.
        check_refusal(server, &format!("/v1/runs/{IMPORTED}/lookup?tool=book&args=%7B%22n%22:1%7D&occurrence=0"))?;
        for position in ["1:2:3:4", "%2B1:2", "1", "1:", "4294967296:0"] {
            check_refusal(server, &format!("/v1/runs/{RUN}/outcome?position={position}"))?;
        }
        check_refusal(server, &format!("/v1/runs/{RUN}?consistency=at-least=%2B0:0"))?;
        check_refusal(server, "/v1/dead-letters/+0:1")
    })
}

#[test]
fn an_invalid_time_or_family_of_facts_is_refused() -> anyhow::Result<()> {
    with_server(|server| {
        for time in
            ["", "yesterday", "2026-11-22", "2026-11-22T10:00:00", "1969-12-31T23:59:59Z", "2026-11-22T10:00:00+1:0"]
        {
            check_refusal(server, &format!("/v1/runs/{RUN}/facts?at={time}"))?;
            check_refusal(server, &format!("/v1/runs/{RUN}/records?at={time}"))?;
        }
        check_refusal(server, &format!("/v1/runs/{RUN}/facts?family=wake"))
    })
}

#[test]
fn a_cursor_of_another_list_is_refused() -> anyhow::Result<()> {
    with_server(|server| {
        let next = |path: &str| -> anyhow::Result<String> {
            let (_, page) = server.get(path)?;
            Ok(page["next_cursor"].as_str().with_context(|| format!("{path}: {page}"))?.to_owned())
        };
        let records = next(&format!("/v1/runs/{RUN}/records?limit=1"))?;
        let effects = next("/v1/effects?limit=1")?;
        let runs = next("/v1/runs?limit=1")?;
        let events = next(&format!("/v1/events?run={RUN}&limit=1"))?;
        check_refusal(server, &format!("/v1/runs/{IMPORTED}/records?cursor={records}"))?;
        check_refusal(server, &format!("/v1/runs/{RUN}/recovery?cursor={records}"))?;
        check_refusal(server, &format!("/v1/runs/{RUN}/standing/wakes?cursor={records}"))?;
        check_refusal(server, &format!("/v1/runs/{IMPORTED}/facts?cursor={records}"))?;
        check_refusal(server, &format!("/v1/runs/{IMPORTED}/records?at=2026-11-22T10:00:00Z&cursor={records}"))?;
        check_refusal(server, &format!("/v1/runs/{RUN}/tail?until_end=true&from={effects}"))?;
        check_refusal(server, &format!("/v1/indices/runs/changes?until_end=true&from={effects}"))?;
        check_refusal(server, &format!("/v1/tail?until_end=true&from={records}"))?;
        check_refusal(server, "/v1/tail?until_end=true&from=at:0")?;
        check_refusal(server, &format!("/v1/anomalies?cursor={effects}"))?;
        check_refusal(server, &format!("/v1/effects?cursor={events}"))?;
        check_refusal(server, "/v1/effects?cursor=99:")?;
        check_refusal(server, &format!("/v1/horizons?cursor={effects}"))?;
        check_refusal(server, &format!("/v1/runs?prefix=zzz&cursor={runs}"))?;
        check_refusal(server, &format!("/v1/runs/{RUN}/records?cursor=%2B1"))?;
        // Their ages grow meanwhile.
        let listed = |page: &Value| -> anyhow::Result<Vec<Value>> {
            let mut effects = page["effects"].as_array().context("a list")?.clone();
            for effect in &mut effects {
                (effect["age_millis"], effect["run"]["age_millis"]) = (Value::Null, Value::Null);
            }
            Ok(effects)
        };
        let (_, all) = server.get("/v1/effects")?;
        let all = listed(&all)?;
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for _ in 0..=all.len() {
            let (_, page) = server.get(&format!("/v1/effects?limit=1{cursor}"))?;
            found.extend(listed(&page)?);
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        ensure!(found == all, "page by page the same");
        Ok(())
    })
}

#[test]
fn an_array_does_not_pass_for_an_object_by_the_order_of_its_items() -> anyhow::Result<()> {
    with_server(|server| {
        for (path, body) in [
            (format!("/v1/runs/{CLAIMED}/claims"), json!(["three"])),
            ("/v1/skips".to_owned(), json!([0, 1, "jo", "no reason"])),
            ("/v1/horizons".to_owned(), json!([0, "wake", "2026-11-22T10:00:00Z", "jo", "no reason"])),
            (format!("/v1/runs/{CLAIMED}/effects/asked/resolution"), json!(["give_up", null, "jo", "no reason"])),
        ] {
            let (status, problem) = server.post(&path, &body)?;
            ensure!(status == 400 && problem["kind"] == "invalid", "{path}: {status} {problem}");
        }
        Ok(())
    })
}

#[test]
fn a_record_for_a_feature_that_servers_lack_is_refused() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let record = |payload: Value| json!({ "run_id": "r", "record_id": "x", "payload": payload });
    let encrypted = |kind: &str, facts: Value| {
        let payload = json!({ "type": "encrypted", "algorithm": "x", "nonce": "00", "ciphertext": "00" });
        json!({ "run_id": "r", "record_id": "x", "record_kind": kind, "key_id": "k", "facts": facts, "payload": payload })
    };
    let erasure = record(json!({ "type": "erasure", "who": "privacy desk", "why": "asked for" }));
    let fingerprint = format!("v1:{}", "0".repeat(64));
    let call = |fingerprint: &str| {
        let facts = json!({ "payload_type": "tool_call_requested", "status": "requested", "tool_name": "pay",
            "fingerprint": fingerprint });
        encrypted("tool_call", facts)
    };
    for body in [
        erasure.clone(),
        record(json!({ "type": "batch", "records": [erasure] })),
        encrypted("erasure", json!({ "payload_type": "erasure", "status": "erased" })),
        call(&fingerprint),
    ] {
        for path in ["/v1/runs/r/records", "/v1/runs/r/records?check=true"] {
            let (status, problem) = server.post(path, &body)?;
            ensure!(status == 400 && problem["kind"] == "invalid", "{body}: {status} {problem}");
        }
    }
    let (status, _) = server.get("/v1/runs/r")?;
    ensure!(status == 404, "no record was appended");
    let (status, outcome) = server.post("/v1/runs/r/records", &call("v2:keyed"))?;
    ensure!(status == 200 && outcome["outcome"] == "applied", "{status} {outcome}");
    server.terminate()?;
    Ok(())
}

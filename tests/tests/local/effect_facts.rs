//! The facts about an effect that a decision needs.

use anyhow::ensure;
use runlog_tests::server::{Launch, Server};
use serde_json::{Value, json};

fn claim(server: &Server) -> anyhow::Result<Value> {
    claim_by(server, "")
}

fn claim_by(server: &Server, claimed_by: &str) -> anyhow::Result<Value> {
    Ok(server.post("/v1/runs/r/claims", &json!({ "claimed_by": claimed_by }))?.1)
}

fn append(server: &Server, claim: &Value, (id, agent): (&str, &str), payload: &Value) -> anyhow::Result<()> {
    let record = json!({ "run_id": "r", "record_id": id, "agent_id": agent, "writer_id": claim["writer_id"],
        "writer_epoch": claim["epoch"], "idempotency_key": "trip-1", "payload": payload });
    let (status, outcome) = server.post("/v1/runs/r/records", &record)?;
    ensure!(status == 200 && outcome["outcome"] == "applied", "{outcome}");
    Ok(())
}

/// The only effect, and the same in the run's recovery.
fn effect(server: &Server) -> anyhow::Result<(Value, Value)> {
    let (_, effects) = server.get("/v1/effects?consistency=latest")?;
    let (_, recovery) = server.get("/v1/runs/r/recovery")?;
    let is_one = |list: &Value| list.as_array().is_some_and(|list| list.len() == 1);
    ensure!(is_one(&effects["effects"]) && is_one(&recovery["pending"]), "{effects} {recovery}");
    Ok((effects["effects"][0].clone(), recovery["pending"][0].clone()))
}

#[test]
fn an_effect_reports_its_last_start_with_time_agent_and_arguments() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = claim(&server)?;
    let call = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "pay",
        "arguments": { "amount": 1.50 } });
    append(&server, &first, ("asked", "one"), &call)?;
    let (requested, pending) = effect(&server)?;
    let facts = |effect: &Value| {
        let members = ["agent_id", "writer_id", "epoch", "attempts", "idempotency_key", "state"];
        Value::from_iter(members.map(|name| effect[name].clone()))
    };
    ensure!(facts(&requested) == json!(["one", first["writer_id"], 1, 1, "trip-1", "running"]), "{requested}");
    ensure!(requested["arguments"] == call["arguments"] && pending["state"] == "running", "{requested} {pending}");
    let second = claim(&server)?;
    let (taken, pending) = effect(&server)?;
    ensure!(facts(&taken) == json!(["one", first["writer_id"], 1, 1, "trip-1", "waiting"]), "{taken}");
    ensure!(taken["since"] == requested["since"] && pending["state"] == "waiting", "{taken} {pending}");
    ensure!(taken["run"]["epoch"] == 2 && taken["run"]["writer_id"] == second["writer_id"], "{taken}");
    let attempt =
        json!({ "type": "tool_call_attempt", "request_record_id": "asked", "attempt": 2, "reason": "has a key" });
    append(&server, &second, ("again", "two"), &attempt)?;
    let (again, pending) = effect(&server)?;
    ensure!(facts(&again) == json!(["two", second["writer_id"], 2, 2, "trip-1", "running"]), "{again}");
    ensure!(again["arguments"] == call["arguments"] && pending["state"] == "running", "{again} {pending}");
    ensure!(again["run"]["status"] == "open" && again["run"]["age_millis"].is_u64(), "{again}");
    let since = |effect: &Value| effect["since"].as_str().map(str::to_owned);
    ensure!(since(&again) >= since(&requested) && again["age_millis"].is_u64(), "{again}");
    let (_, lines) = server.get("/v1/runs/r/records?order=desc")?;
    ensure!(lines["records"][0]["logged_at"] == again["since"], "{lines} {again}");
    server.terminate()?;
    Ok(())
}

#[test]
fn an_effect_names_who_claimed_its_run_and_who_claimed_it_for_each_late_result() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = claim_by(&server, "host a, process 1")?;
    let call = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "pay",
        "arguments": {} });
    append(&server, &first, ("asked", "one"), &call)?;
    ensure!(effect(&server)?.0["run"]["claimed_by"] == "host a, process 1");
    claim_by(&server, "host b, process 2")?;
    let done = json!({ "type": "tool_call_completed", "request_record_id": "asked", "result": { "paid": 1.50 } });
    let failed = json!({ "type": "tool_call_failed", "request_record_id": "asked", "error_kind": "declined",
        "error_message": "no money" });
    let late = |(id, writer_id): (&str, &Value), payload: &Value| {
        let record = json!({ "run_id": "r", "record_id": id, "writer_id": writer_id, "writer_epoch": 1,
            "payload": payload });
        server.post("/v1/runs/r/records", &record)
    };
    late(("done", &first["writer_id"]), &done)?;
    late(("failed", &first["writer_id"]), &failed)?;
    late(("forged", &json!("another")), &done)?;
    let (listed, pending) = effect(&server)?;
    ensure!(listed["run"]["claimed_by"] == "host b, process 2", "{listed}");
    for effect in [&listed, &pending] {
        let claimants = effect["evidence"].as_array().into_iter().flatten().map(|late| late["claimed_by"].clone());
        let claimants = Value::from_iter(claimants);
        ensure!(claimants == json!(["host a, process 1", "host a, process 1", null]), "{effect}");
    }
    let reported = |effect: &Value| json!([effect["evidence"][0]["result"], effect["evidence"][1]["error"]]);
    ensure!(
        reported(&pending) == json!([{ "paid": 1.50 }, { "kind": "declined", "message": "no money" }]),
        "{pending}"
    );
    ensure!(pending["evidence"][0]["error"].is_null() && pending["evidence"][1]["result"].is_null(), "{pending}");
    server.terminate()?;
    Ok(())
}

/// A server with the calls `book` and `pay` under the key `trip-1`, of the run `r`.
fn with_two_tools() -> anyhow::Result<Server> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let claim = claim(&server)?;
    for tool in ["book", "pay"] {
        let call = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": tool, "tool_name": tool,
            "arguments": 1 });
        append(&server, &claim, (tool, "a"), &call)?;
    }
    Ok(server)
}

#[test]
fn effects_and_runs_are_filtered_by_tool_run_and_age() -> anyhow::Result<()> {
    let server = with_two_tools()?;
    let ids = |path: &str| -> anyhow::Result<Vec<Value>> {
        let (status, page) = server.get(path)?;
        ensure!(status == 200, "{path}: {page}");
        let items = ["effects", "runs"].into_iter().find_map(|name| page[name].as_array());
        let id = |item: &Value| ["id", "run_id"].into_iter().find_map(|name| item.get(name).cloned());
        Ok(items.into_iter().flatten().filter_map(id).collect())
    };
    for (path, expected) in [
        ("/v1/effects?pending=true&tool=pay", vec![json!("pay")]),
        ("/v1/effects?tool=cancel", vec![]),
        ("/v1/effects?prefix=r&tool=book", vec![json!("book")]),
        ("/v1/effects?unsafe=true&prefix=s", vec![]),
        ("/v1/runs?status=open&idle=1h", vec![]),
        ("/v1/runs?status=open&idle=0s", vec![json!("r")]),
        ("/v1/runs?newest=true&idle=0ms", vec![json!("r")]),
    ] {
        let found = ids(&format!("{path}&consistency=latest"))?;
        ensure!(found == expected, "{path}: {found:?}");
    }
    // Contradicted effects have ended.
    for other in ["pending", "unsafe"] {
        let (status, problem) = server.get(&format!("/v1/effects?contradicted=true&{other}=true"))?;
        ensure!(status == 400 && problem["kind"] == "usage", "{other}: {problem}");
    }
    let (status, problem) = server.get("/v1/runs?idle=soon")?;
    ensure!(status == 400 && problem["kind"] == "usage" && problem["detail"].to_string().contains("idle"), "{problem}");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_call_is_found_by_its_tool_and_key() -> anyhow::Result<()> {
    let server = with_two_tools()?;
    let (_, journal) = server.get("/v1/journal")?;
    ensure!(journal["features"].to_string().contains("call_keys"), "{journal}");
    let (status, found) = server.get("/v1/runs/r/lookup?tool=pay&key=trip-1")?;
    ensure!(status == 200 && found["request_record_id"] == "pay" && found["status"] == "pending", "{found}");
    let (_, call) = server.get("/v1/runs/r/calls/pay")?;
    ensure!(found["fingerprint"] == call["fingerprint"] && call.get("request_record_id").is_none(), "{found} {call}");
    for unknown in ["tool=pay&key=trip-2", "tool=cancel&key=trip-1"] {
        let (status, problem) = server.get(&format!("/v1/runs/r/lookup?{unknown}"))?;
        ensure!(status == 404 && problem["kind"] == "not_found", "{unknown}: {problem}");
    }
    for usage in ["tool=pay&key=", "tool=pay&key=k&args=1", "tool=pay&key=k&occurrence=1", "tool=pay"] {
        let (status, problem) = server.get(&format!("/v1/runs/r/lookup?{usage}"))?;
        ensure!(status == 400 && problem["kind"] == "usage", "{usage}: {problem}");
    }
    server.terminate()?;
    Ok(())
}

#[test]
fn a_run_whose_process_runs_a_call_is_not_stuck() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = claim(&server)?;
    let record = json!({ "run_id": "r", "record_id": "asked", "writer_id": first["writer_id"], "writer_epoch": first["epoch"],
        "payload": { "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "pay", "arguments": {} } });
    let (_, outcome) = server.post("/v1/runs/r/records", &record)?;
    ensure!(outcome["outcome"] == "applied", "{outcome}");
    let stuck = || -> anyhow::Result<Value> {
        let lists = ["", "&newest=true"].map(|order| server.get(&format!("/v1/runs?stuck=true{order}")));
        let ids = |(_, page): (u16, Value)| {
            Value::from_iter(page["runs"].as_array().into_iter().flatten().map(|run| run["run_id"].clone()))
        };
        Ok(Value::from_iter(lists.into_iter().map(|page| page.map(ids)).collect::<anyhow::Result<Vec<_>>>()?))
    };
    ensure!(effect(&server)?.0["state"] == "running", "{}", effect(&server)?.0);
    ensure!(stuck()? == json!([[], []]), "{}", stuck()?);
    let recovery = server.get("/v1/runs/r/recovery")?.1;
    ensure!(recovery["resumable"] == false, "another process may not continue: {recovery}");
    claim(&server)?;
    ensure!(stuck()? == json!([["r"], ["r"]]), "{}", stuck()?);
    server.terminate()?;
    Ok(())
}

#[test]
fn a_line_names_the_call_that_its_record_ends_although_its_payload_is_not_shown() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = claim(&server)?;
    let request = |tool: &str, arguments: &Value| {
        json!({ "type": "tool_call_requested", "request_id": tool, "call_id": tool, "tool_name": tool,
            "arguments": arguments })
    };
    let result =
        |of: &str, result: &str| json!({ "type": "tool_call_completed", "request_record_id": of, "result": result });
    // A payload of this length goes to the content store.
    let long = "x".repeat(300_000);
    append(&server, &first, ("asked", "one"), &request("read", &json!({ "text": long })))?;
    append(&server, &first, ("ended", "one"), &result("asked", &long))?;
    append(&server, &first, ("asked-2", "one"), &request("pay", &json!({})))?;
    append(&server, &first, ("ended-2", "one"), &result("asked-2", "ok"))?;
    let lines = || -> anyhow::Result<Vec<Value>> {
        let (_, page) = server.get("/v1/runs/r/records?consistency=latest")?;
        let members = ["record_id", "tool_name", "status", "answers"];
        let facts = |line: &Value| Value::from_iter(members.map(|name| line[name].clone()));
        Ok(page["records"].as_array().into_iter().flatten().skip(1).map(facts).collect())
    };
    let expected = [
        json!(["asked", "read", "requested", null]),
        json!(["ended", null, "completed", "asked"]),
        json!(["asked-2", "pay", "requested", null]),
        json!(["ended-2", null, "completed", "asked-2"]),
    ];
    let payload = |at: usize| -> anyhow::Result<Value> {
        Ok(server.get("/v1/runs/r/records?consistency=latest")?.1["records"][at]["payload"].clone())
    };
    ensure!(
        payload(1)?["type"] == "stored_payload" && payload(2)?["type"] == "stored_payload",
        "{} {}",
        payload(1)?,
        payload(2)?
    );
    ensure!(lines()? == expected, "{:?}", lines()?);
    for family in ["tool_call_requested", "tool_call_completed"] {
        let horizon = json!({ "family": family, "until": "2100-01-01T00:00:00Z", "who": "jo", "why": "policy" });
        let (status, outcomes) = server.post("/v1/horizons", &horizon)?;
        ensure!(status == 200, "{outcomes}");
    }
    ensure!(payload(4)?["dropped"].is_object(), "{}", payload(4)?);
    ensure!(lines()? == expected, "{:?}", lines()?);
    server.terminate()?;
    Ok(())
}

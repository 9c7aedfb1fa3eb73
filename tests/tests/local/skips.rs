//! Skips of applied records over HTTP: a displaced record permits no second run, in every build of the index.

use anyhow::{Context, ensure};
use runlog_producer::{Config, Journal, LoopState, Runlog};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::server::{Launch, Server};
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::tempdir;

mod known_gaps;
mod numbers;

const RUN: &str = "r";

/// A process that claimed the run.
struct Writer {
    id: Value,
    epoch: Value,
}

impl Writer {
    fn claim(server: &Server) -> anyhow::Result<Self> {
        let (status, claim) = server.post("/v1/runs/r/claims", &json!({}))?;
        ensure!(status == 200, "{claim}");
        Ok(Self { id: claim["writer_id"].clone(), epoch: claim["epoch"].clone() })
    }

    /// Appends a record that must be applied. Returns its offset.
    fn applied(&self, server: &Server, id: &str, payload: &Value) -> anyhow::Result<u64> {
        let (_, outcome) = self.append(server, id, payload)?;
        ensure!(outcome["outcome"] == "applied", "{id}: {outcome}");
        outcome["position"]["offset"].as_u64().context("an offset")
    }

    fn append(&self, server: &Server, id: &str, payload: &Value) -> anyhow::Result<(u16, Value)> {
        let record = json!({ "run_id": RUN, "record_id": id, "writer_id": self.id, "writer_epoch": self.epoch,
            "payload": payload });
        server.post("/v1/runs/r/records?force=true", &record)
    }
}

fn request(id: &str) -> Value {
    json!({ "type": "tool_call_requested", "request_id": id, "call_id": id, "tool_name": "pay",
        "arguments": { "invoice": id } })
}

fn attempt(call: &str, number: u32) -> Value {
    json!({ "type": "tool_call_attempt", "request_record_id": call, "attempt": number, "reason": "again" })
}

fn completed(call: &str) -> Value {
    json!({ "type": "tool_call_completed", "request_record_id": call, "result": { "booking": "B-1" } })
}

fn turn(text: &str) -> Value {
    json!({ "type": "conversation_turn", "message_id": text, "kind": "user", "content": text })
}

fn pending(server: &Server) -> anyhow::Result<Value> {
    let (_, recovery) = server.get("/v1/runs/r/recovery?from_start=true")?;
    let mut pending = recovery["pending"].clone();
    for effect in pending.as_array_mut().into_iter().flatten() {
        // Whether its process is alive depends on the time.
        effect.as_object_mut().map(|effect| effect.remove("state"));
    }
    Ok(pending)
}

fn of_call(pending: &Value, call: &str) -> anyhow::Result<Value> {
    let listed = pending.as_array().into_iter().flatten().find(|effect| effect["id"] == call);
    listed.cloned().with_context(|| format!("{call} in {pending}"))
}

fn decide(server: &Server, call: &str, decision: &str) -> anyhow::Result<Value> {
    let seen = of_call(&pending(server)?, call)?;
    let mut body = json!({ "decision": decision, "who": "jo", "why": "looked", "force": true, "basis": seen["basis"],
        "revision": seen["revision"] });
    if let Some(evidence) = seen["evidence"].as_array().and_then(|all| all.last()) {
        body["evidence"] = evidence["record_id"].clone();
    }
    Ok(server.post(&format!("/v1/runs/r/effects/{call}/resolution"), &body)?.1)
}

fn skip(server: &Server, offset: u64) -> anyhow::Result<()> {
    let skip = json!({ "partition": 0, "offset": offset, "who": "jo", "why": "a mistake" });
    let (status, skipped) = server.post("/v1/skips?force=true", &skip)?;
    ensure!(status == 200 && skipped["outcome"] == "applied", "{skipped}");
    Ok(())
}

fn outcome(server: &Server, offset: u64) -> anyhow::Result<Value> {
    Ok(server.get(&format!("/v1/runs/r/outcome?position=0:{offset}"))?.1)
}

#[test]
fn a_record_that_a_skip_displaces_permits_no_second_run() -> anyhow::Result<()> {
    for write_schema in ["2", "3"] {
        let folder = tempdir()?;
        let launch = || Launch::local(folder.path()).partitions(1).with("--write-schema").with(write_schema).start();
        let server = launch()?;
        let first = Writer::claim(&server)?;
        first.applied(&server, "pay", &request("pay"))?;
        ensure!(decide(&server, "pay", "not_done")?["outcome"] == "applied");
        let victim = first.applied(&server, "say", &turn("poison"))?;
        // These effects run; then their process ends.
        let ran = first.applied(&server, "again", &attempt("pay", 2))?;
        let request_at = first.applied(&server, "book", &request("book"))?;
        first.applied(&server, "rent", &request("rent"))?;
        first.applied(&server, "rented", &completed("rent"))?;
        let skip = json!({ "partition": 0, "offset": victim, "who": "jo", "why": "poison" });
        let (_, plan) = server.post("/v1/skips?dry_run=true", &skip)?;
        ensure!(plan["displaced"] == 4, "{plan}");
        let (status, refused) = server.post("/v1/skips", &skip)?;
        ensure!(status != 200 && refused["detail"].to_string().contains("4 later applied records"), "{refused}");
        let (status, skipped) = server.post("/v1/skips?force=true", &skip)?;
        ensure!(status == 200, "{skipped}");

        for offset in [ran, request_at] {
            ensure!(outcome(&server, offset)?["reason"] == "gap", "{}", outcome(&server, offset)?);
        }
        let now = pending(&server)?;
        ensure!(now.as_array().is_some_and(|all| all.len() == 3), "{now}");
        for call in ["pay", "book", "rent"] {
            ensure!(of_call(&now, call)?["class"] == "reconcile_required", "{call}: {now}");
            let (_, found) = server.get(&format!("/v1/runs/r/calls/{call}"))?;
            ensure!(found["status"] == "pending" && found["arguments"]["invoice"] == call, "{found}");
        }
        ensure!(of_call(&now, "rent")?["evidence"][0]["record_id"] == "rented", "{now}");
        let (_, verified) = server.post("/v1/verify", &json!({}))?;
        ensure!(verified["equal"] == true, "{verified}");
        let as_of = format!("/v1/runs/r/recovery?from_start=true&as_of=0:{}", skipped["position"]["offset"]);
        ensure!(server.get(&as_of)?.1["pending"].to_string().contains("book"), "{}", server.get(&as_of)?.1);

        // A restart, and an index that is built from the log, answer the same.
        server.terminate()?;
        std::fs::remove_dir_all(folder.path().join("index"))?;
        let server = launch()?;
        ensure!(pending(&server)? == now, "{}", pending(&server)?);

        let second = Writer::claim(&server)?;
        let (_, refused) = second.append(&server, "b2", &attempt("pay", 2))?;
        ensure!(refused["kind"] == "reconcile_required", "{refused}");
        ensure!(decide(&server, "rent", "adopt")?["outcome"] == "applied");
        let (_, found) = server.get("/v1/runs/r/calls/rent")?;
        ensure!(found["status"] == "completed" && found["result"]["booking"] == "B-1", "{found}");
        for call in ["pay", "book"] {
            ensure!(decide(&server, call, "not_done")?["outcome"] == "applied", "{call}");
            second.applied(&server, &format!("{call}-again"), &attempt(call, 2))?;
            second.applied(&server, &format!("{call}-done"), &completed(call))?;
        }
        ensure!(pending(&server)? == json!([]), "{}", pending(&server)?);
        server.terminate()?;
    }
    Ok(())
}

#[test]
fn a_skipped_request_is_a_call_that_may_have_happened() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = Writer::claim(&server)?;
    let request_at = first.applied(&server, "pay", &request("pay"))?;
    let (_, fingerprint) = server.get("/v1/runs/r/calls/pay")?;
    skip(&server, request_at)?;
    let (status, found) = server.get("/v1/runs/r/calls/pay")?;
    ensure!(status == 200 && found["status"] == "pending", "{found}");
    ensure!(found["fingerprint"] == fingerprint["fingerprint"] && found["arguments"]["invoice"] == "pay", "{found}");
    let effect = of_call(&pending(&server)?, "pay")?;
    ensure!(effect["class"] == "reconcile_required" && effect["revision"] == 1, "{effect}");
    // The same request again does not replace the call, whose effect may have run.
    let (_, again) = first.append(&server, "pay", &request("pay"))?;
    ensure!(again["reason"] == "transition", "{again}");
    ensure!(of_call(&pending(&server)?, "pay")? == effect, "a record after the skip changed the call");
    ensure!(decide(&server, "pay", "give_up")?["outcome"] == "applied");
    let (_, verified) = server.post("/v1/verify", &json!({}))?;
    ensure!(verified["equal"] == true, "{verified}");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_run_whose_first_claim_is_skipped_still_has_its_pending_effects() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = Writer::claim(&server)?;
    let request_at = first.applied(&server, "pay", &request("pay"))?;
    // The first record of the partition is its genesis.
    skip(&server, 1)?;
    ensure!(outcome(&server, request_at)?["reason"] == "fenced", "{}", outcome(&server, request_at)?);
    let (status, recovery) = server.get("/v1/runs/r/recovery?from_start=true")?;
    ensure!(status == 200 && recovery["epoch"] == 0 && recovery["position"]["offset"] == 0, "{status} {recovery}");
    ensure!(recovery["resumable"] == false && recovery["records_after"] == 0, "{recovery}");
    ensure!(of_call(&recovery["pending"], "pay")?["class"] == "reconcile_required", "{recovery}");
    ensure!(server.get("/v1/runs/other/recovery")?.0 == 404);
    // A list of runs has the runs with records; a list of runs that wait for decisions has this one too, by id and by time.
    for (query, is_listed) in [("", false), ("?stuck=true", true), ("?stuck=true&newest=true", true)] {
        let (_, runs) = server.get(&format!("/v1/runs{query}"))?;
        let run = runs["runs"].as_array().into_iter().flatten().find(|run| run["run_id"] == RUN);
        ensure!(run.is_some() == is_listed, "{query}: {runs}");
        ensure!(
            run.is_none_or(|run| run["records"] == 0 && run["age_millis"].is_null() && run["status"] == "open"),
            "{runs}"
        );
    }

    // No process is active in it.
    let runtime = tokio::runtime::Runtime::new()?;
    let config = Config::new(Journal::Http(server.url.clone()), "test");
    let opened = runtime.block_on(async {
        let run = Runlog::connect(config).await?.open_unless_active(RUN, Duration::from_secs(3600)).await?;
        anyhow::Ok(run.recovery().pending.len())
    });
    ensure!(opened? == 1);
    ensure!(decide(&server, "pay", "not_done")?["outcome"] == "applied");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_refused_records_outcome_is_answered_for_its_own_place_and_id_only() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = Writer::claim(&server)?;
    let (_, refused) = first.append(&server, "done", &completed("nobody's"))?;
    ensure!(refused["reason"] == "transition", "{refused}");
    let offset = refused["position"]["offset"].as_u64().context("an offset")?;
    let asks =
        |index: &str, id: &str| server.get(&format!("/v1/runs/r/outcome?position=0:{offset}{index}&record_id={id}"));
    ensure!(asks("", "done")?.1["reason"] == "transition");
    for (index, id) in [("", "other"), (":1", "done"), (":1", "other")] {
        let (status, answer) = asks(index, id)?;
        ensure!(status == 404, "{index} {id}: {status} {answer}");
    }
    server.terminate()?;
    Ok(())
}

#[test]
fn a_skip_with_a_plan_voids_only_what_its_author_saw() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    let victim = writer.applied(&server, "say", &turn("poison"))?;
    let mut skip = json!({ "partition": 0, "offset": victim, "who": "jo", "why": "poison" });
    let (_, plan) = server.post("/v1/skips?dry_run=true", &skip)?;
    ensure!(plan["displaced"] == 0 && plan["record_id"] == "say", "{plan}");
    writer.applied(&server, "later", &turn("later"))?;

    let voids = |skip: &Value| server.post("/v1/skips?force=true", skip);
    let other = |member: &str, value: Value| {
        let mut other = plan.clone();
        other[member] = value;
        other
    };
    let other_place = other("position", json!({ "topic": "t", "partition": 0, "offset": victim + 1, "index": 0 }));
    for (seen, why) in [
        (plan.clone(), "0 later records of the run would have been refused, and 1 would be now"),
        (other("record_id", json!("another")), "it was record another, and is record say now"),
        (other("target", json!("stop")), "it was stop, and is readable now"),
        (other_place, "the plan is about"),
    ] {
        skip["plan"] = seen;
        let (status, refused) = voids(&skip)?;
        ensure!(status == 409 && refused["kind"] == "conflict", "{why}: {status} {refused}");
        ensure!(refused["detail"].to_string().contains(why), "{refused}");
    }
    ensure!(outcome(&server, victim)?["outcome"] == "applied", "a refused skip voided the record");

    // Members of a later version do not matter. Neither do records that were not counted.
    let (_, mut now) = server.post("/v1/skips?dry_run=true", &skip)?;
    ensure!(now["displaced"] == 1, "{now}");
    now["a_later_member"] = json!(1);
    now["displaced"] = Value::Null;
    skip["plan"] = now;
    let (status, skipped) = voids(&skip)?;
    ensure!(status == 200 && skipped["outcome"] == "applied", "{skipped}");
    ensure!(outcome(&server, victim)?["outcome"] != "applied", "the record is not void");
    server.terminate()?;
    Ok(())
}

/// After a skip, records are judged without the records that it displaced. So a later skip of one of these takes nothing back from them.
#[test]
fn a_skip_of_a_displaced_record_displaces_no_record_after_the_earlier_skip() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    writer.applied(&server, "pay", &request("pay"))?;
    let victim = writer.applied(&server, "say", &turn("poison"))?;
    let displaced = writer.applied(&server, "paid", &completed("pay"))?;
    let skip = |offset: u64| {
        let skip = json!({ "partition": 0, "offset": offset, "who": "jo", "why": "a mistake" });
        server.post("/v1/skips?force=true", &skip)
    };
    ensure!(skip(victim)?.1["outcome"] == "applied");
    ensure!(outcome(&server, displaced)?["reason"] == "gap", "{}", outcome(&server, displaced)?);
    let record = json!({ "run_id": RUN, "record_id": "never", "writer_id": writer.id, "writer_epoch": writer.epoch,
        "writer_seq": 99, "payload": request("book") });
    let (_, refused) = server.post("/v1/runs/r/records?force=true", &record)?;
    ensure!(refused["reason"] == "gap", "{refused}");
    ensure!(skip(displaced)?.1["outcome"] == "applied");
    let pending = pending(&server)?;
    ensure!(of_call(&pending, "pay")?["class"] == "reconcile_required", "{pending}");
    ensure!(of_call(&pending, "never").is_err(), "it was refused before the skip: {pending}");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_skip_of_evidence_permits_nothing_in_a_run_with_a_skip() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    writer.applied(&server, "pay", &request("pay"))?;
    let victim = writer.applied(&server, "say", &turn("poison"))?;
    skip(&server, victim)?;
    ensure!(decide(&server, "pay", "not_done")?["outcome"] == "applied");
    let seen = of_call(&pending(&server)?, "pay")?;
    ensure!(seen["class"] == "retry_safe", "{seen}");

    // In a run with a skip each refused result is evidence.
    let late = json!({ "run_id": RUN, "record_id": "late", "writer_id": writer.id, "writer_epoch": writer.epoch, "writer_seq": 99,
        "payload": completed("pay") });
    let (_, evidence) = server.post("/v1/runs/r/records", &late)?;
    ensure!(evidence["reason"] == "gap", "{evidence}");
    ensure!(of_call(&pending(&server)?, "pay")?["evidence"][0]["record_id"] == "late");
    let decision = json!({ "run_id": RUN, "record_id": "d", "payload": { "type": "effect_resolution", "request_record_id": "pay",
        "decision": "not_done", "who": "jo", "why": "looked" }, "facts": { "revision": seen["revision"] } });
    let (_, stale) = server.post("/v1/runs/r/records?force=true", &decision)?;
    ensure!(stale["reason"] == "stale_decision", "{stale}");

    skip(&server, evidence["position"]["offset"].as_u64().context("an offset")?)?;
    let stale_at = stale["position"]["offset"].as_u64().context("an offset")?;
    ensure!(outcome(&server, stale_at)?["reason"] == "stale_decision", "{}", outcome(&server, stale_at)?);
    let now = of_call(&pending(&server)?, "pay")?;
    ensure!(now["class"] == "reconcile_required" && now["evidence"] == json!([]), "{now}");
    ensure!(now["basis"] != seen["basis"] && now["revision"].as_u64() > seen["revision"].as_u64(), "{now}");
    let (_, refused) = writer.append(&server, "again", &attempt("pay", 2))?;
    ensure!(refused["kind"] == "reconcile_required", "{refused}");
    let (_, verified) = server.post("/v1/verify", &json!({}))?;
    ensure!(verified["equal"] == true, "{verified}");
    server.terminate()?;
    Ok(())
}

#[test]
fn equal_calls_that_a_skip_displaced_answer_in_the_order_of_the_log() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = Writer::claim(&server)?;
    let victim = first.applied(&server, "say", &turn("poison"))?;
    let equal = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "pay",
        "arguments": { "invoice": 7 } });
    // By their ids they have another order.
    for call in ["z", "a"] {
        first.applied(&server, call, &equal)?;
        first.applied(&server, &format!("{call}-ran"), &completed(call))?;
    }
    skip(&server, victim)?;
    let void = pending(&server)?;
    let listed = void.as_array().context("a list")?;
    ensure!(listed[0]["id"] == "z" && listed[0]["journal_seq"] == listed[1]["journal_seq"], "{void}");
    ensure!(decide(&server, "z", "not_done")?["outcome"] == "applied");
    ensure!(decide(&server, "a", "adopt")?["outcome"] == "applied");

    let runtime = tokio::runtime::Runtime::new()?;
    let config = Config::new(Journal::Http(server.url.clone()), "test");
    let answers = runtime.block_on(async {
        let run = Runlog::connect(config).await?.open(RUN).await?;
        let mut answers = Vec::new();
        for _ in 0..2 {
            let effect = |_| async { Ok(json!({ "booking": "B-2" }).into()) };
            let answer = run.tool("pay", &json!({ "invoice": 7 })).once(effect).await?;
            answers.push(serde_json::to_value(answer.result)?);
        }
        anyhow::Ok(answers)
    });
    let answers = answers?;
    // The earlier call was decided as not done, so it runs for the first step.
    ensure!(answers == [json!({ "booking": "B-2" }), json!({ "booking": "B-1" })], "{answers:?}");
    let (_, found) = server.get("/v1/runs/r/calls/z")?;
    ensure!(found["result"]["booking"] == "B-2", "{found}");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_void_call_is_not_cleared_while_the_run_has_an_equal_call() -> anyhow::Result<()> {
    let (folder, equal) = (
        tempdir()?,
        |id: &str| json!({ "type": "tool_call_requested", "request_id": id, "call_id": id, "tool_name": "pay", "arguments": {} }),
    );
    let server = Launch::local(folder.path()).partitions(1).start()?;
    let first = Writer::claim(&server)?;
    skip(&server, first.applied(&server, "void", &equal("void"))?)?;
    let second = Writer::claim(&server)?;
    second.applied(&server, "paid", &equal("paid"))?;
    second.applied(&server, "paid-result", &completed("paid"))?;
    Writer::claim(&server)?;
    let seen = of_call(&pending(&server)?, "void")?;
    let decide = |force: bool| {
        let body = json!({ "decision": "not_done", "who": "jo", "why": "looked", "force": force, "basis": seen["basis"],
            "revision": seen["revision"] });
        server.post("/v1/runs/r/effects/void/resolution", &body)
    };
    let (status, refused) = decide(false)?;
    ensure!(status == 409 && refused["kind"] == "conflict", "{refused}");
    ensure!(refused["detail"].as_str().is_some_and(|detail| detail.contains("call paid is equal")), "{refused}");
    ensure!(decide(true)?.1["outcome"] == "applied");
    Ok(())
}

#[test]
fn a_covered_call_whose_end_is_voided_later_does_not_run_for_a_process_that_begins_at_the_start() -> anyhow::Result<()>
{
    let server = Launch::temporary()?.partitions(1).start()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let arguments = json!({ "invoice": 7 });
    let config = Config::new(Journal::Http(server.url.clone()), "test");
    let effect = |result| move |_| async move { Ok(json!(result).into()) };
    let journal = runtime.block_on(Runlog::connect(config))?;
    let run = runtime.block_on(journal.open(RUN))?;
    runtime.block_on(run.tool("pay", &arguments).once(effect("paid")))?;
    let result = server.get("/v1/runs/r/recovery")?.1["position"]["offset"].clone();
    runtime.block_on(run.checkpoint(&LoopState::default()))?;
    let late = runtime.block_on(journal.open(RUN))?;
    skip(&server, result.as_u64().context("an offset")?)?;
    let error = runtime.block_on(late.tool("pay", &arguments).once(effect("paid twice"))).expect_err("it is pending");
    ensure!(error.kind() == ErrorKind::ReconcileRequired, "{error}");
    server.terminate()?;
    Ok(())
}

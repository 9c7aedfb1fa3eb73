//! A read-back says whether the call has changed since its intent or attempt: then the record permits no effect.

use super::{NONE, Writer, both, decide, not_done, pending};
use anyhow::ensure;
use runlog_tests::server::Server;
use serde_json::{Value, json};

/// Whether the two ways to read a record back say that its call has changed.
fn changed(server: &Server, writer: &Writer<'_>, record: &Value) -> anyhow::Result<bool> {
    let (_, again) = server.post("/v1/runs/r/records?consistency=latest", record)?;
    let writers = json!([again["record_writer"]["writer_id"], again["writer"]["writer_id"]]);
    ensure!(again["outcome"] == "repeat" && writers == json!([writer.id, writer.id]), "{again}");
    let id = record["record_id"].as_str().unwrap_or_default();
    let (partition, offset) = (&again["position"]["partition"], &again["position"]["offset"]);
    let mut all = vec![again["changed"] == true];
    for query in [format!("record_id={id}"), format!("position={partition}:{offset}&record_id={id}")] {
        let (status, outcome) = server.get(&format!("/v1/runs/r/outcome?{query}"))?;
        ensure!(status == 200 && outcome["outcome"] == "applied", "{outcome}");
        all.push(outcome["changed"] == true);
    }
    ensure!(all.iter().all(|one| *one == all[0]), "{all:?}");
    Ok(all[0])
}

#[test]
fn a_read_back_names_a_change_of_its_call() -> anyhow::Result<()> {
    both(|server, dead| {
        says!(dead.intent("pay", &NONE, &NONE), "applied");
        let writer = Writer::claim(server)?;
        says!(not_done(server, "pay"), "applied");
        let attempt =
            json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2, "reason": "again" });
        let attempt = writer.record("pay-2", &attempt, &NONE);
        ensure!(writer.post(&attempt)?.1["outcome"] == "applied");
        ensure!(!changed(server, &writer, &attempt)?, "nothing came after the attempt");
        // The result of the first attempt arrives before the effect of the second one.
        says!(dead.completed("pay-result", "pay", "B-1"), "refused fenced");
        ensure!(changed(server, &writer, &attempt)?, "evidence");

        let intent = |id: &str| {
            let payload = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "pay",
                "arguments": { "invoice": id } });
            writer.record(id, &payload, &NONE)
        };
        for (call, decision) in [("decided", "not_done"), ("ended", "give_up")] {
            let intent = intent(call);
            ensure!(writer.post(&intent)?.1["outcome"] == "applied");
            ensure!(!changed(server, &writer, &intent)?, "{call}: nothing came after the intent");
            let seen = json!({ "revision": pending(server, call)?["revision"] });
            says!(decide(server, call, decision, &seen), "applied");
            ensure!(changed(server, &writer, &intent)?, "{call}");
        }
        Ok(())
    })
}

#[test]
fn a_skip_before_an_attempt_is_no_change_of_its_call_and_a_later_one_is() -> anyhow::Result<()> {
    both(|server, writer| {
        let skip = |record: &str| {
            let (_, outcome) = server.get(&format!("/v1/runs/r/outcome?record_id={record}"))?;
            let skip = json!({ "partition": 0, "offset": outcome["position"]["offset"], "who": "jo", "why": "forged" });
            let (status, skipped) = server.post("/v1/skips?force=true", &skip)?;
            ensure!(status == 200, "{skipped}");
            Ok(())
        };
        let attempt = |id: &str| {
            let payload =
                json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2, "reason": "again" });
            writer.record(id, &payload, &NONE)
        };
        says!(writer.intent("pay", &json!({ "idempotency_key": "k" }), &NONE), "applied");
        ensure!(writer.post(&attempt("first"))?.1["outcome"] == "applied");
        skip("first")?;
        let again = attempt("again");
        let (_, answer) = writer.post(&again)?;
        ensure!(answer["outcome"] == "applied", "{answer}");
        ensure!(!changed(server, writer, &again)?, "nothing came after the attempt");
        says!(Writer::claim(server)?.attempt("third", "pay", 3, &NONE), "applied");
        skip("third")?;
        let (_, outcome) = server.get("/v1/runs/r/outcome?record_id=again")?;
        ensure!(outcome["changed"] == true, "the skipped attempt may have run: {outcome}");
        Ok(())
    })
}

//! A result that arrives after its call ended, and contradicts the end, is kept and shown in every view.

use anyhow::{Context, ensure};
use runlog_projector::index::query::{
    TopicPartition,
    effects::{Listed, page},
    timeline::{BYTES_MAX, Budget, Show},
    visible::Visible,
};
use runlog_schemas::{
    id::{JournalSeq, PartitionId, RecordId, RunId},
    payload::wrapped::Batch,
    record::JournalRecord,
};
use runlog_tests::{
    agent::Agent,
    checkpoints::Journal,
    server::{Launch, Server},
};
use serde_json::{Value, json};

const RECORDS: &str = "/v1/runs/r/records";

/// A process that claimed the run.
struct Writer<'a> {
    server: &'a Server,
    claim: Value,
}

impl<'a> Writer<'a> {
    fn claim(server: &'a Server) -> anyhow::Result<Self> {
        let (status, claim) = server.post("/v1/runs/r/claims", &json!({}))?;
        ensure!(status == 200, "{claim}");
        Ok(Self { server, claim })
    }

    fn record(&self, id: &str, payload: &Value) -> Value {
        json!({ "run_id": "r", "record_id": id, "writer_id": self.claim["writer_id"],
            "writer_epoch": self.claim["epoch"], "timestamp_millis": 1, "payload": payload })
    }

    /// Appends a record, whose outcome must be `expected`: `applied`, or `refused` with the reason.
    fn append(&self, id: &str, payload: &Value, expected: &str) -> anyhow::Result<()> {
        let (status, answer) = self.server.post(RECORDS, &self.record(id, payload))?;
        let reason = answer["reason"].as_str().unwrap_or_default();
        let outcome = format!("{} {reason}", answer["outcome"].as_str().unwrap_or_default());
        ensure!(status == 200 && outcome.trim_end() == expected, "{id}: {status} {answer}, not {expected}");
        Ok(())
    }

    /// Appends the intent to pay an invoice. The record id is the invoice.
    fn request_payment(&self, invoice: &str) -> anyhow::Result<()> {
        let intent = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": invoice, "tool_name": "pay",
            "arguments": { "invoice": invoice } });
        self.append(invoice, &intent, "applied")
    }
}

fn completed(call: &str, booking: &str) -> Value {
    json!({ "type": "tool_call_completed", "request_record_id": call, "result": { "booking": booking } })
}

fn failed(call: &str) -> Value {
    json!({ "type": "tool_call_failed", "request_record_id": call, "error_kind": "busy", "error_message": "try later" })
}

/// Decides about a call at its current revision. `members` are further members of the decision.
fn decide(server: &Server, call: &str, decision: &str, members: &Value) -> anyhow::Result<()> {
    let (_, recovery) = server.get("/v1/runs/r/recovery?from_start=true")?;
    let pending = recovery["pending"].as_array().into_iter().flatten().find(|pending| pending["id"] == call);
    let revision = &pending.with_context(|| format!("{recovery}"))?["revision"];
    let mut body = json!({ "decision": decision, "who": "jo", "why": "looked", "force": true, "revision": revision });
    for (name, value) in members.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let (status, answer) = server.post(&format!("/v1/runs/r/effects/{call}/resolution"), &body)?;
    ensure!(status == 200 && answer["outcome"] == "applied", "{status} {answer}");
    Ok(())
}

/// Whether a lookup says that the call is contradicted.
fn is_contradicted(server: &Server, call: &str) -> anyhow::Result<bool> {
    let (_, found) = server.get(&format!("/v1/runs/r/calls/{call}"))?;
    found["contradicted"].as_bool().with_context(|| format!("{found}"))
}

fn contradicted(server: &Server) -> anyhow::Result<Vec<Value>> {
    let (status, page) = server.get("/v1/effects?contradicted=true&consistency=latest")?;
    ensure!(status == 200, "{page}");
    page["effects"].as_array().cloned().with_context(|| format!("{page}"))
}

#[test]
fn a_result_after_a_not_done_decision_is_listed_as_contradicting() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = Writer::claim(&server)?;
    first.request_payment("pay")?;
    let second = Writer::claim(&server)?;
    decide(&server, "pay", "not_done", &Value::Null)?;
    let again = json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2, "reason": "again" });
    second.append("again", &again, "applied")?;
    second.append("second-result", &completed("pay", "B-2"), "applied")?;
    ensure!(!is_contradicted(&server, "pay")? && contradicted(&server)?.is_empty(), "only one result");
    for _ in 0..2 {
        first.append("first-result", &completed("pay", "B-1"), "refused fenced")?;
    }

    ensure!(is_contradicted(&server, "pay")?);
    let listed = contradicted(&server)?;
    let [effect] = listed.as_slice() else { anyhow::bail!("{listed:?}") };
    ensure!(effect["id"] == "pay" && effect["status"] == "completed" && effect["contradictions"] == 1, "{effect}");
    let [result] = effect["contradicting"].as_array().context("a list")?.as_slice() else { anyhow::bail!("{effect}") };
    let members = [&result["record_id"], &result["status"], &result["reason"], &result["payload"]["result"]["booking"]];
    ensure!(members == ["first-result", "completed", "fenced", "B-1"], "{result}");
    let shown = server.runlog().plain(&["effects", "--contradicted"])?.exits(0)?.stdout;
    ensure!(shown.contains("first-result") && shown.contains("B-1"), "{shown}");
    let (_, metrics) = server.get("/metrics")?;
    let line = "\nrunlog_contradicted_effects 1\n";
    ensure!(metrics.as_str().is_some_and(|text| text.contains(line)), "{metrics}");
    let (_, doctor) = server.get("/v1/doctor")?;
    let fixes: Vec<_> = doctor["findings"].as_array().into_iter().flatten().map(|found| found["fix"].clone()).collect();
    let names = |fix: &&Value| fix.as_str().is_some_and(|fix| fix.contains("runlog effects --contradicted"));
    ensure!(fixes.iter().filter(names).count() == 1, "{doctor}");

    // The same process may have run the effect twice.
    second.append("second-result", &completed("pay", "B-3"), "refused conflict")?;
    let listed = contradicted(&server)?;
    ensure!(listed.len() == 1 && listed[0]["contradictions"] == 2, "{listed:?}");
    server.terminate()?;
    Ok(())
}

#[test]
fn evidence_before_the_result_of_another_attempt_contradicts() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = Writer::claim(&server)?;
    for call in ["pay", "again", "failed"] {
        first.request_payment(call)?;
    }
    let (source, destination) = (
        json!({ "kind": "sdk", "id": "sdk", "trust": "host_provided", "privacy": "content_refs_only" }),
        json!({ "kind": "tool", "id": "mail", "privacy": "content_refs_only", "retention": "host_policy" }),
    );
    let intent = json!({ "type": "effect_intent", "effect_id": "mail", "kind": "tool_execution", "source": source,
        "subject_ref": { "kind": "tool_call", "id": "call", "privacy": "content_refs_only" },
        "destination": destination, "redacted_summary": "a mail" });
    first.append("mail", &intent, "applied")?;
    let second = Writer::claim(&server)?;
    let mail = |to: &str| {
        json!({ "type": "effect_result", "effect_id": "mail", "terminal_status": "completed",
        "redacted_summary": to })
    };
    let fenced = [
        ("first", completed("pay", "B-1")),
        ("first again", completed("again", "B-1")),
        ("first failed", failed("failed")),
        ("first mail", mail("ann")),
    ];
    let applied = [
        ("second", completed("pay", "B-2")),
        ("second again", completed("again", "B-1")),
        ("second failed", completed("failed", "B-2")),
        ("second mail", mail("bob")),
    ];
    for (id, result) in &fenced {
        first.append(id, result, "refused fenced")?;
    }
    for (id, result) in &applied {
        second.append(id, result, "applied")?;
    }
    // The same result twice is one effect with a key, and a failure had no effect.
    ensure!(is_contradicted(&server, "pay")? && !is_contradicted(&server, "again")?);
    ensure!(!is_contradicted(&server, "failed")?);
    let listed = contradicted(&server)?;
    let ids: Vec<_> = listed.iter().map(|one| (&one["id"], &one["contradicting"][0]["record_id"])).collect();
    ensure!(ids == [(&json!("pay"), &json!("first")), (&json!("mail"), &json!("first mail"))], "{listed:?}");
    ensure!(listed.iter().all(|one| one["contradictions"] == 1), "{listed:?}");
    // The evidence again is no news.
    first.append("first", &fenced[0].1, "refused fenced")?;
    let again = contradicted(&server)?;
    ensure!(again.len() == 2 && again.iter().all(|one| one["contradictions"] == 1), "{again:?}");
    server.terminate()?;
    Ok(())
}

#[test]
fn after_a_give_up_only_a_result_of_a_completed_effect_contradicts() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    writer.request_payment("pay")?;
    decide(&server, "pay", "give_up", &Value::Null)?;
    writer.append("failed", &failed("pay"), "refused transition")?;
    ensure!(!is_contradicted(&server, "pay")?, "given up, it counts as failed");
    writer.append("done", &completed("pay", "B-1"), "refused transition")?;
    ensure!(is_contradicted(&server, "pay")?);
    let listed = contradicted(&server)?;
    ensure!(listed.len() == 1 && listed[0]["contradicting"][0]["record_id"] == "done", "{listed:?}");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_result_that_was_known_when_its_call_ended_does_not_contradict_when_it_arrives_again() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = Writer::claim(&server)?;
    first.request_payment("pay")?;
    first.request_payment("refund")?;
    first.append("refunded", &completed("refund", "B-0"), "applied")?;
    let second = Writer::claim(&server)?;
    first.append("late", &completed("pay", "B-1"), "refused fenced")?;
    decide(&server, "pay", "adopt", &json!({ "evidence": "late" }))?;
    first.append("late", &completed("pay", "B-1"), "refused fenced")?;
    first.append("refunded", &completed("refund", "B-0"), "repeat")?;
    ensure!(contradicted(&server)?.is_empty(), "{:?}", contradicted(&server)?);
    // Other content under the same id is another result.
    first.append("late", &completed("pay", "B-9"), "refused fenced")?;
    let listed = contradicted(&server)?;
    ensure!(listed.len() == 1 && listed[0]["contradicting"][0]["payload"]["result"]["booking"] == "B-9", "{listed:?}");
    drop(second);
    server.terminate()?;
    Ok(())
}

#[test]
fn each_unapplied_result_of_a_refused_batch_contradicts() -> anyhow::Result<()> {
    let (mut journal, mut agent) = (Journal::new()?, Agent::new("run"));
    journal.append(&agent.claim());
    let request = agent.request("pay", &json!(1));
    let call = request.body.record_id.clone();
    journal.append(&request);
    let applied = agent.complete(&call, &json!("B-1"));
    journal.append(&applied);
    let mut zombie = agent.clone();
    journal.append(&agent.claim());
    let mut other = zombie.complete(&call, &json!("B-2"));
    other.body.record_id = RecordId::new("other".to_owned())?;
    let (run, place) = (RunId::new("run")?, applied.place.clone());
    let mut batch = JournalRecord::new(
        run,
        RecordId::new("batch".to_owned())?,
        "agent",
        Batch { records: vec![applied, other] }.into(),
    );
    batch.place = place;
    batch.place.journal_seq = JournalSeq::ZERO;
    journal.append(&batch);
    journal.fold(1)?;

    ensure!(journal.refused()? == ["batch fenced"], "{:?}", journal.refused()?);
    let place = TopicPartition { topic: "test", partition: PartitionId::ZERO, log: None };
    let shown = (Show::Raw, &Budget::new(BYTES_MAX));
    let (listed, _) = page(journal.store(), place, &Visible::default(), Listed::Contradicted, shown, (None, 9), 0)?;
    let results: Vec<_> = listed.iter().flat_map(|effect| &effect.contradicting).collect();
    let [result] = results.as_slice() else { anyhow::bail!("{listed:?}") };
    ensure!((result.record_id.as_str(), result.position.index) == ("other", 1), "{result:?}");
    ensure!(journal.rebuilt(5)?.digests()? == journal.digests()?, "rebuilt");
    Ok(())
}

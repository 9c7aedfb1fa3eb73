//! Permission to run a call again over HTTP: an attempt, a decision and an intent are refused unless the journal
//! permits them, regardless of their client's state. Each claim holds with schema version 2, whose checks are the
//! server's, and with version 3, whose checks are the judge's.

use anyhow::{Context, ensure};
use runlog_tests::server::{Launch, Server};
use serde_json::{Value, json};
use std::{path::Path, thread};
use tempfile::tempdir;

const RUN: &str = "r";
const RECORDS: &str = "/v1/runs/r/records";

fn start(dir: &Path, write_schema: &str) -> anyhow::Result<Server> {
    Launch::local(dir).partitions(1).with("--write-schema").with(write_schema).start()
}

/// A process that claimed the run.
struct Writer<'a> {
    server: &'a Server,
    id: Value,
    epoch: Value,
}

impl<'a> Writer<'a> {
    fn claim(server: &'a Server) -> anyhow::Result<Self> {
        let (status, claim) = server.post("/v1/runs/r/claims", &json!({}))?;
        ensure!(status == 200, "{claim}");
        Ok(Self { server, id: claim["writer_id"].clone(), epoch: claim["epoch"].clone() })
    }

    fn record(&self, id: &str, payload: &Value, facts: &Value) -> Value {
        let mut record = json!({ "run_id": RUN, "record_id": id, "writer_id": self.id, "writer_epoch": self.epoch,
            "payload": payload });
        if !facts.is_null() {
            record["facts"] = facts.clone();
        }
        record
    }

    fn post(&self, record: &Value) -> anyhow::Result<(u16, Value)> {
        // Decisions are made about living processes.
        self.server.post("/v1/runs/r/records?force=true", record)
    }

    /// The outcome of a record and the reason of a refusal, or the kind of the error.
    fn append(&self, id: &str, payload: &Value, facts: &Value) -> anyhow::Result<String> {
        outcome_text(self.post(&self.record(id, payload, facts))?)
    }

    /// A request with some members of its own, as a key.
    fn intent(&self, id: &str, members: &Value, facts: &Value) -> anyhow::Result<String> {
        let mut record = self.record(
            id,
            &json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "pay",
                "arguments": { "invoice": id } }),
            facts,
        );
        for (name, value) in members.as_object().into_iter().flatten() {
            record[name] = value.clone();
        }
        outcome_text(self.post(&record)?)
    }

    fn attempt(&self, id: &str, call: &str, number: u32, facts: &Value) -> anyhow::Result<String> {
        let payload =
            json!({ "type": "tool_call_attempt", "request_record_id": call, "attempt": number, "reason": "again" });
        self.append(id, &payload, facts)
    }

    fn completed(&self, id: &str, call: &str, booking: &str) -> anyhow::Result<String> {
        let payload =
            json!({ "type": "tool_call_completed", "request_record_id": call, "result": { "booking": booking } });
        self.append(id, &payload, &Value::Null)
    }

    fn failed(&self, id: &str, call: &str) -> anyhow::Result<String> {
        let payload = json!({ "type": "tool_call_failed", "request_record_id": call, "error_kind": "busy",
            "error_message": "try later" });
        self.append(id, &payload, &Value::Null)
    }
}

fn outcome_text((status, answer): (u16, Value)) -> anyhow::Result<String> {
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    Ok(match status {
        200 => format!("{} {}", text("outcome"), text("reason")).trim_end().to_owned(),
        _ => text("kind"),
    })
}

fn pending(server: &Server, call: &str) -> anyhow::Result<Value> {
    let (_, recovery) = server.get("/v1/runs/r/recovery?from_start=true")?;
    let all = recovery["pending"].as_array().with_context(|| format!("{recovery}"))?;
    all.iter().find(|pending| pending["id"] == call).cloned().with_context(|| format!("{recovery}"))
}

fn decide(server: &Server, call: &str, decision: &str, members: &Value) -> anyhow::Result<String> {
    let mut body = json!({ "decision": decision, "who": "jo", "why": "looked", "force": true });
    for (name, value) in members.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    outcome_text(server.post(&format!("/v1/runs/r/effects/{call}/resolution"), &body)?)
}

/// Decides `not_done` at the call's current revision.
fn not_done(server: &Server, call: &str) -> anyhow::Result<String> {
    decide(server, call, "not_done", &json!({ "revision": pending(server, call)?["revision"] }))
}

fn both(claim: impl Fn(&Server, &Writer<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for write_schema in ["2", "3"] {
        let folder = tempdir()?;
        let server = start(folder.path(), write_schema)?;
        claim(&server, &Writer::claim(&server)?).with_context(|| format!("--write-schema {write_schema}"))?;
    }
    Ok(())
}

/// Whether the server writes the basis of a decision: schema version 3.
fn says_bases(server: &Server) -> anyhow::Result<bool> {
    Ok(server.get("/v1/journal")?.1.to_string().contains("\"bases\""))
}

macro_rules! says {
    ($answer:expr, $expected:expr) => {{
        let (answer, expected): (String, &str) = ($answer?, $expected);
        ensure!(answer == expected, "{}: {answer}, not {expected}", stringify!($answer));
    }};
}

const NONE: Value = Value::Null;

mod blind_decisions;
mod evidence;
mod posted_facts;
mod read_backs;
mod results_in_between;
mod schema_versions;
mod shared_ids;

#[test]
fn an_attempt_needs_permission_and_the_next_number() -> anyhow::Result<()> {
    both(|server, writer| {
        says!(writer.intent("pay", &NONE, &NONE), "applied");
        says!(writer.attempt("a2", "pay", 2, &NONE), "reconcile_required");
        says!(not_done(server, "pay"), "applied");
        says!(writer.attempt("a3", "pay", 3, &NONE), "invalid");
        says!(writer.attempt("a2", "pay", 2, &NONE), "applied");
        // The clearance is used up.
        says!(writer.attempt("a2", "pay", 2, &NONE), "repeat");
        says!(writer.attempt("b2", "pay", 2, &NONE), "reconcile_required");
        says!(writer.attempt("not-permitted", "pay", 3, &NONE), "reconcile_required");
        ensure!(pending(server, "pay")?["attempts"] == 2);
        let (_, records) = server.get(RECORDS)?;
        ensure!(!records.to_string().contains("not-permitted"), "nothing refused was appended: {records}");
        says!(writer.completed("end", "pay", "B-1"), "applied");
        says!(writer.attempt("late", "pay", 4, &NONE), "refused transition");
        let batch = json!({ "type": "batch", "records": [writer.record("in", &json!({ "type": "tool_call_attempt",
            "request_record_id": "pay", "attempt": 2, "reason": "again" }), &NONE)] });
        says!(writer.append("batch", &batch, &NONE), "invalid");
        Ok(())
    })
}

#[test]
fn only_a_key_with_text_that_the_answer_returns_permits_an_attempt() -> anyhow::Result<()> {
    both(|server, writer| {
        says!(writer.intent("keyed", &json!({ "idempotency_key": "k" }), &NONE), "applied");
        says!(writer.attempt("k2", "keyed", 2, &NONE), "applied");
        says!(writer.attempt("k2 of another", "keyed", 2, &NONE), "invalid");
        says!(writer.attempt("k3", "keyed", 3, &NONE), "applied");
        says!(writer.intent("deduped", &json!({ "dedupe_key": "order-7" }), &NONE), "applied");
        says!(writer.attempt("d2", "deduped", 2, &NONE), "reconcile_required");
        let deduped = pending(server, "deduped")?;
        ensure!(deduped["class"] == "reconcile_required" && deduped["dedupe_key"] == "order-7", "{deduped}");
        Ok(())
    })
}

#[test]
fn a_result_that_comes_after_a_decision_revokes_the_permission_to_run_again() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        let second = Writer::claim(server)?;
        says!(not_done(server, "pay"), "applied");
        ensure!(pending(server, "pay")?["class"] == "retry_safe");
        says!(first.completed("pay-result", "pay", "B-1"), "refused fenced");
        says!(second.attempt("again", "pay", 2, &NONE), "reconcile_required");
        ensure!(pending(server, "pay")?["class"] == "reconcile_required");
        Ok(())
    })
}

#[test]
fn another_result_under_the_id_of_evidence_is_evidence_too() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        let second = Writer::claim(server)?;
        says!(first.failed("pay-result", "pay"), "refused fenced");
        says!(not_done(server, "pay"), "applied");
        says!(second.attempt("again", "pay", 2, &NONE), "applied");
        Writer::claim(server)?;
        let seen = pending(server, "pay")?;
        says!(second.completed("pay-result", "pay", "B-1"), "refused fenced");
        // The same again is no other result.
        says!(second.completed("pay-result", "pay", "B-1"), "refused fenced");
        let now = pending(server, "pay")?;
        let statuses: Vec<_> =
            now["evidence"].as_array().into_iter().flatten().map(|evidence| evidence["status"].clone()).collect();
        ensure!(statuses == ["failed", "completed"] && now["basis"] != seen["basis"], "{now}");
        let blind = decide(server, "pay", "not_done", &json!({ "revision": seen["revision"] }))?;
        ensure!(blind == "conflict", "{blind}");
        let seen = json!({ "revision": now["revision"], "basis": now["basis"], "evidence": "pay-result" });
        let writes_basis = server.get("/v1/journal")?.1["features"].to_string().contains("bases");
        // Without a basis the judge would adopt the failure.
        says!(decide(server, "pay", "adopt", &seen), if writes_basis { "applied" } else { "conflict" });
        if writes_basis {
            let (_, call) = server.get("/v1/runs/r/calls/pay")?;
            ensure!(call["result"] == json!({ "booking": "B-1" }), "{call}");
        }
        Ok(())
    })
}

#[test]
fn a_decision_at_a_revision_that_the_effect_does_not_have_is_refused() -> anyhow::Result<()> {
    both(|server, writer| {
        says!(writer.intent("pay", &NONE, &NONE), "applied");
        let revision = pending(server, "pay")?["revision"].as_u64().context("a revision")?;
        for wrong in [revision + 1, 1_000_000, i64::MAX.unsigned_abs()] {
            says!(decide(server, "pay", "not_done", &json!({ "revision": wrong })), "invalid");
        }
        says!(not_done(server, "pay"), "applied");
        says!(decide(server, "pay", "give_up", &json!({ "revision": revision })), "conflict");
        ensure!(pending(server, "pay")?["class"] == "retry_safe");
        Ok(())
    })
}

#[test]
fn a_decision_needs_the_revision_or_the_basis_of_its_effect() -> anyhow::Result<()> {
    both(|server, writer| {
        for (call, names) in [("1", &["basis"][..]), ("2", &["revision"]), ("3", &["revision", "basis"])] {
            says!(writer.intent(call, &NONE, &NONE), "applied");
            let seen = || -> anyhow::Result<Value> {
                let effect = pending(server, call)?;
                Ok(names.iter().map(|name| ((*name).to_owned(), effect[name].clone())).collect())
            };
            let before = seen()?;
            says!(decide(server, call, "not_done", &before), "applied");
            says!(decide(server, call, "give_up", &before), "conflict");
            says!(decide(server, call, "give_up", &json!({ "revision": null, "basis": null })), "invalid");
            ensure!(pending(server, call)?["class"] == "retry_safe", "{call}: a refused decision was applied");
            let mut now = seen()?;
            if *names == ["basis"] {
                now["revision"] = NONE;
            }
            says!(decide(server, call, "give_up", &now), "applied");
            says!(decide(server, call, "give_up", &now), "conflict");
        }
        Ok(())
    })
}

#[test]
fn an_attempt_whose_payload_is_hidden_needs_permission_too() -> anyhow::Result<()> {
    both(|server, writer| {
        says!(writer.intent("pay", &NONE, &NONE), "applied");
        let hidden = |id: &str| {
            let mut record = writer.record(
                id,
                &json!({ "type": "encrypted", "algorithm": "x", "nonce": "00", "ciphertext": "00" }),
                &json!({ "payload_type": "tool_call_attempt", "status": "attempt", "answers": "pay" }),
            );
            (record["record_kind"], record["key_id"]) = (json!("tool_call"), json!("k"));
            record
        };
        says!(outcome_text(writer.post(&hidden("h2"))?), "reconcile_required");
        let long = json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2,
            "reason": "again ".repeat(40_000) });
        says!(writer.append("l2", &long, &NONE), "reconcile_required");
        says!(not_done(server, "pay"), "applied");
        says!(
            writer.append(
                "l3",
                &json!({ "attempt": 3, "type": "tool_call_attempt", "request_record_id": "pay",
            "reason": "again ".repeat(40_000) }),
                &NONE
            ),
            "invalid"
        );
        says!(outcome_text(writer.post(&hidden("h2"))?), "applied");
        says!(outcome_text(writer.post(&hidden("h2"))?), "repeat");
        says!(outcome_text(writer.post(&hidden("h3"))?), "reconcile_required");
        Ok(())
    })
}

#[test]
fn an_attempt_is_checked_after_the_records_that_are_sent_with_it() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        let attempt =
            json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2, "reason": "again" });
        let claim = json!({ "run_id": RUN, "record_id": "claim", "payload": { "type": "run_claim", "writer_id": "runlog",
            "epoch": 2, "claimed_by": "" } });
        let next = Writer { server, id: json!("runlog"), epoch: json!(2) };
        let mut unnamed = next.record("a2", &attempt, &NONE);
        unnamed.as_object_mut().context("a record")?.remove("writer_id");
        for again in [next.record("a2", &attempt, &NONE), unnamed] {
            says!(outcome_text(next.post(&again)?), "stale");
            says!(outcome_text(next.post(&json!([claim, again]))?), "reconcile_required");
        }
        let (_, records) = server.get(RECORDS)?;
        ensure!(!records.to_string().contains("\"a2\""), "{records}");
        let request = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "book",
            "arguments": 1 });
        let again =
            json!({ "type": "tool_call_attempt", "request_record_id": "book", "attempt": 2, "reason": "again" });
        let both = json!([first.record("book", &request, &NONE), first.record("b2", &again, &NONE)]);
        says!(outcome_text(first.post(&both)?), "reconcile_required");
        // Its own attempt moves the revision that a decision in the same array names.
        says!(first.intent("keyed", &json!({ "idempotency_key": "k" }), &NONE), "applied");
        let again =
            json!({ "type": "tool_call_attempt", "request_record_id": "keyed", "attempt": 2, "reason": "again" });
        let decision = json!({ "type": "effect_resolution", "request_record_id": "keyed", "decision": "not_done",
            "who": "jo", "why": "looked" });
        let both = json!([first.record("k2", &again, &NONE), first.record("d", &decision, &json!({ "revision": 2 }))]);
        let (status, outcomes) = first.post(&both)?;
        ensure!(
            status == 200 && outcomes[0]["outcome"] == "applied" && outcomes[1]["outcome"] == "applied",
            "{outcomes}"
        );
        Ok(())
    })
}

#[test]
fn one_of_several_concurrent_attempts_with_the_same_number_is_applied() -> anyhow::Result<()> {
    both(|server, writer| {
        says!(writer.intent("pay", &json!({ "idempotency_key": "k" }), &NONE), "applied");
        let answers: Vec<_> = thread::scope(|scope| {
            let send = |nth: u32| scope.spawn(move || writer.attempt(&format!("a{nth}"), "pay", 2, &NONE));
            let sent: Vec<_> = (0..8).map(send).collect();
            sent.into_iter().map(|sent| sent.join().unwrap_or_else(|_| Ok("panicked".into()))).collect::<Result<_, _>>()
        })?;
        let applied = answers.iter().filter(|answer: &&String| *answer == "applied").count();
        let refused =
            answers.iter().filter(|answer| ["invalid", "refused transition"].contains(&answer.as_str())).count();
        ensure!((applied, refused) == (1, 7), "{answers:?}");
        ensure!(pending(server, "pay")?["attempts"] == 2);
        Ok(())
    })
}

#[test]
fn an_attempt_that_was_refused_for_its_number_needs_permission_when_it_is_sent_again() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        says!(not_done(server, "pay"), "applied");
        let attempt =
            json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2, "reason": "again" });
        let mut again = first.record("a2", &attempt, &NONE);
        again["writer_seq"] = json!(1);
        says!(outcome_text(first.post(&again)?), "refused conflict");
        again.as_object_mut().context("a record")?.remove("writer_seq");
        says!(first.attempt("b2", "pay", 2, &NONE), "applied");
        let answer = outcome_text(first.post(&again)?)?;
        ensure!(["reconcile_required", "refused transition"].contains(&answer.as_str()), "{answer}");
        ensure!(pending(server, "pay")?["attempts"] == 2);
        Ok(())
    })
}

#[test]
fn a_decision_names_its_basis_and_is_sent_alone() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        let decision = json!({ "type": "effect_resolution", "request_record_id": "pay", "decision": "not_done",
            "who": "jo", "why": "looked" });
        says!(first.append("blind", &decision, &NONE), "invalid");
        let given_up = json!({ "type": "effect_resolution", "request_record_id": "pay", "decision": "give_up",
            "who": "jo", "why": "looked" });
        // Only a `not_done` is the writer's own.
        says!(first.append("own", &given_up, &json!({ "epoch": first.epoch })), "invalid");
        let hidden = json!({ "type": "encrypted", "algorithm": "x", "nonce": "00", "ciphertext": "00" });
        for (payload, facts) in [
            (&decision, json!({ "revision": 1 })),
            (&decision, NONE),
            (
                &hidden,
                json!({ "payload_type": "effect_resolution", "status": "not_done", "answers": "pay", "revision": 1 }),
            ),
        ] {
            let mut record = first.record("member", payload, &facts);
            (record["record_kind"], record["key_id"]) = (json!("effect_resolution"), json!("k"));
            says!(first.append("batch", &json!({ "type": "batch", "records": [record] }), &NONE), "invalid");
        }
        ensure!(pending(server, "pay")?["class"] == "reconcile_required");
        Ok(())
    })
}

#[test]
fn a_second_result_under_one_id_is_decided_about_by_its_basis() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        Writer::claim(server)?;
        says!(first.completed("pay-result", "pay", "B-1"), "refused fenced");
        let seen = pending(server, "pay")?;
        says!(first.completed("pay-result", "pay", "B-2"), "refused fenced");
        let now = pending(server, "pay")?;
        ensure!(now["revision"] == seen["revision"] && now["basis"] != seen["basis"], "{now}");
        let at = |basis: &Value| json!({ "revision": now["revision"], "evidence": "pay-result", "basis": basis });
        let blind = json!({ "revision": now["revision"], "evidence": "pay-result" });
        says!(decide(server, "pay", "not_done", &blind), "conflict");
        says!(decide(server, "pay", "not_done", &at(&seen["basis"])), "conflict");
        says!(decide(server, "pay", "not_done", &at(&now["basis"])), "applied");
        Ok(())
    })
}

#[test]
fn a_resend_beside_other_records_stays_a_repeat() -> anyhow::Result<()> {
    both(|server, writer| {
        says!(writer.intent("pay", &json!({ "idempotency_key": "k" }), &NONE), "applied");
        let attempt = |id: &str, number: u32| {
            let payload = json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": number,
                "reason": "again" });
            writer.record(id, &payload, &NONE)
        };
        let turn = |id: &str| {
            let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": "hello" });
            writer.record(id, &payload, &NONE)
        };
        says!(outcome_text(writer.post(&attempt("a2", 2))?), "applied");
        let sent = json!([turn("x"), attempt("a2", 2), attempt("a3", 3), turn("y"), attempt("a3", 3)]);
        let (_, outcomes) = writer.post(&sent)?;
        let outcomes: Vec<_> = outcomes
            .as_array()
            .with_context(|| format!("{outcomes}"))?
            .iter()
            .map(|one| one["outcome"].clone())
            .collect();
        ensure!(outcomes == ["applied", "repeat", "applied", "applied", "repeat"], "{outcomes:?}");
        ensure!(pending(server, "pay")?["attempts"] == 3);
        Ok(())
    })
}

#[test]
fn evidence_that_is_evicted_at_once_was_not_seen_either() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        Writer::claim(server)?;
        says!(first.failed("x", "pay"), "refused fenced");
        let seen = pending(server, "pay")?;
        for booking in 0..16 {
            says!(first.completed("x", "pay", &format!("B-{booking}")), "refused fenced");
        }
        let payload = json!({ "type": "tool_call_failed", "request_record_id": "pay", "error_kind": "busy",
            "error_message": "at last" });
        says!(first.append("x", &payload, &NONE), "refused fenced");
        let now = pending(server, "pay")?;
        ensure!(now["revision"] == seen["revision"] && now["basis"] != seen["basis"], "{now}");
        let at = json!({ "revision": seen["revision"], "evidence": "x" });
        for decision in ["adopt", "give_up", "not_done"] {
            says!(decide(server, "pay", decision, &at), "conflict");
        }
        Ok(())
    })
}

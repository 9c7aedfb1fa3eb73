//! Pending effects: when they may run again, their evidence, and the four decisions.

use super::client::Target;
use super::{
    payloads::{attempt, completed, effect_intent, failed, request, resolution, turn},
    rule::{Rule, rule},
    run::Run,
    scenario::{Answer, Checked, Needs, Scenario},
};
use serde_json::{Value, json};

const SECTION: &str = "Tool calls";

pub(crate) const RULES: &[Rule] = &[
    rule("key_is_retry_safe", SECTION, "a pending effect without a decision is retry_safe if and only if it has a key")
        .test(|scenario, mut run| {
            scenario.pending(&mut run)?;
            class(scenario, &run, "reconcile_required")?;
            for (name, payload) in
                [("idempotency_key", request("book", &json!({"seat": 1}))), ("dedupe_key", effect_intent("e"))]
            {
                class_with_key(scenario, payload, (name, "key-1"), "retry_safe")?;
            }
            Ok(())
        }),
    rule("empty_key", SECTION, "a tool call with an empty key is refused").test(|scenario, mut run| {
        let record = run.record(request("book", &json!({"seat": 1}))).with("idempotency_key", "");
        scenario.body(&run, record.0.to_string())?.expect_problem(400, "invalid")
    }),
    rule("dedupe_key_of_call", SECTION, "a dedupe key does not make a tool call retry_safe").test(|scenario, _| {
        class_with_key(scenario, request("book", &json!({"seat": 1})), ("dedupe_key", "key-1"), "reconcile_required")
    }),
    rule("evidence_fenced", "Judgement", "a fenced result is kept as evidence of its effect").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            let late = scenario.evidence(&mut run, completed(&request_id, &json!("done")))?;
            let answer = scenario.recovery(&run)?;
            answer.lists("/pending/0/evidence", "record_id", &[&late])?;
            answer.has("/pending/0/evidence/0/status", "completed")?;
            answer.has("/pending/0/evidence/0/reason", "fenced")
        },
    ),
    rule(
        "evidence_of_numbers",
        "Judgement",
        "a result that is refused for its number is kept as evidence of its effect",
    )
    .test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        let early = run.record(completed(&request_id, &json!("done"))).with("writer_seq", run.writer_seq + 7);
        scenario.send(&mut run, &early)?.expect_refused("gap").needs("gap")?;
        let answer = scenario.recovery(&run)?;
        answer.lists("/pending/0/evidence", "record_id", &[early.id()])?;
        answer.has("/pending/0/evidence/0/reason", "gap")
    }),
    rule("evidence_once", "Judgement", "a result that is refused twice is one piece of evidence").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            let late = run.record(completed(&request_id, &json!("done"))).with("writer_epoch", 7);
            for _ in 0..2 {
                scenario.send(&mut run, &late)?.expect_refused("fenced").needs("fenced_unclaimed")?;
            }
            let answer = scenario.recovery(&run)?;
            answer.check(answer.value_at("/pending/0/evidence/0").is_object(), "evidence").needs("evidence_fenced")?;
            answer.only("/pending/0/evidence").map(drop)
        },
    ),
    rule(
        "evidence_of_same_id",
        "Judgement",
        "a result with the id of other evidence and other content is evidence too",
    )
    .test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        let late = evidence(scenario, &mut run, failed(&request_id, "busy"))?;
        let other = run.clone().record(completed(&request_id, &json!("done"))).with("writer_epoch", 7);
        let other = other.with("record_id", late.as_str());
        scenario.send(&mut run, &other)?.expect_refused("fenced").needs("fenced_unclaimed")?;
        let answer = scenario.recovery(&run)?;
        let completed = answer.list("/pending/0/evidence")?.iter().any(|evidence| evidence["status"] == "completed");
        answer.check(completed, "the completion in /pending/0/evidence")
    }),
    rule(
        "evidence_makes_room",
        "Judgement",
        "the 17th result replaces the oldest result that does not say that the effect happened",
    )
    .test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        let mut evidence_ids = vec![scenario.evidence(&mut run, completed(&request_id, &json!("done")))?];
        for number in 0..16 {
            evidence_ids.push(scenario.evidence(&mut run, failed(&request_id, &format!("try {number}")))?);
        }
        evidence_ids.remove(1);
        let answer = scenario.recovery(&run)?;
        answer.check(answer.value_at("/pending/0/evidence/0").is_object(), "evidence").needs("evidence_fenced")?;
        answer.lists("/pending/0/evidence", "record_id", &evidence_ids.iter().map(String::as_str).collect::<Vec<_>>())
    }),
    rule(
        "evidence_of_start",
        "Judgement",
        "other results do not replace a result of the process that started the effect",
    )
    .test(|scenario, mut run| {
        let (request_id, late) = overtaken(scenario, &mut run)?;
        for number in 0..17 {
            scenario.evidence(&mut run, completed(&request_id, &json!(number)))?;
        }
        let answer = scenario.recovery(&run)?;
        let is_listed = answer.list("/pending/0/evidence")?.iter().any(|one| one["record_id"] == *late);
        answer.check(is_listed, format!("{late} in /pending/0/evidence"))
    }),
    rule("evidence_copied", "Judgement", "a copy of a result is not the result of the process that started the effect")
        .test(|scenario, mut run| {
            scenario.claim(&mut run, "one")?;
            let request_id = scenario.pending(&mut run)?;
            let late = run.clone().record(completed(&request_id, &json!("done"))).with("writer_seq", 1);
            let epoch = run.epoch;
            scenario.claim(&mut run, "two")?;
            for sent in [late.clone().with("writer_epoch", 7), late] {
                scenario.send(&mut run, &sent)?.expect_refused("fenced").needs("fenced_writer")?;
            }
            let answer = scenario.recovery(&run)?;
            answer.check(answer.value_at("/pending/0/evidence/0").is_object(), "evidence").needs("evidence_fenced")?;
            let is_listed = answer.list("/pending/0/evidence")?.iter().any(|one| one["epoch"] == epoch);
            answer
                .check(is_listed, format!("a result of epoch {epoch} in /pending/0/evidence"))
                .needs("evidence_of_same_id")
        }),
    rule(
        "adopt_prefers_start",
        SECTION,
        "a decision with a basis adopts a result of a process that started the effect before one of others",
    )
    .test(|scenario, mut run| {
        let (request_id, late) = overtaken(scenario, &mut run)?;
        evidence(scenario, &mut run, completed(&request_id, &json!("of another")))?;
        let answer = scenario.recovery(&run)?;
        let adoptable = answer.list("/pending/0/evidence")?.iter().find(|one| one["adoptable"] == true);
        let is_late = adoptable.is_some_and(|one| one["record_id"] == *late);
        answer.check(is_late, format!("{late} is adoptable"))
    }),
    rule("resolution_transition", "Judgement", "a decision needs a pending effect; adopt also needs evidence").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            for (effect, decision) in [("nobody's", "done"), (request_id.as_str(), "adopt")] {
                let record = run.decision(effect, decision, 1, None);
                let sent = scenario.send(&mut run, &record)?;
                sent.check(sent.value_at("/reason") != "conflict", "no conflict").needs("unclaimed_kind")?;
                sent.expect_refused("transition")?;
            }
            Ok(())
        },
    ),
    rule("resolved_done", SECTION, "done: the call is completed with the decision's result").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            let decided = decide(scenario, &mut run, &request_id, "done")?;
            let call = status(scenario, &run, "completed")?;
            call.has("/result", json!({"found": 7}))?;
            call.has("/position", decided.value_at("/position").clone())
        },
    ),
    rule("resolved_adopt", SECTION, "adopt: the call ends with the status and result of its evidence").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            let evidence_id = evidence(scenario, &mut run, completed(&request_id, &json!("found")))?;
            decide_by(scenario, &mut run, &request_id, "adopt", Some(&evidence_id))?;
            status(scenario, &run, "completed")?.has("/result", "found")
        },
    ),
    rule("resolved_not_done", SECTION, "not_done: the call stays pending and is retry_safe").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            decide(scenario, &mut run, &request_id, "not_done")?;
            status(scenario, &run, "pending")?;
            class(scenario, &run, "retry_safe").map(drop)
        },
    ),
    rule("resolved_give_up", SECTION, "give_up: the call is failed with the error given_up").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            decide(scenario, &mut run, &request_id, "give_up")?;
            status(scenario, &run, "failed")?.has("/error/kind", "given_up")
        },
    ),
    rule(
        "contradiction_kept",
        "Judgement",
        "after give_up only a result that the effect happened contradicts; a lookup shows it",
    )
    .test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        decide(scenario, &mut run, &request_id, "give_up")?;
        status(scenario, &run, "failed").needs("resolved_give_up")?;
        for (result, contradicts) in
            [(failed(&request_id, "busy"), false), (completed(&request_id, &json!("done")), true)]
        {
            scenario.evidence(&mut run, result)?;
            status(scenario, &run, "failed")?.has("/contradicted", contradicts)?;
        }
        Ok(())
    }),
    rule(
        "evidence_contradicts",
        "Judgement",
        "evidence that the effect happened contradicts another result that ends the effect",
    )
    .test(|scenario, mut run| {
        for (result, contradicts) in [("done", false), ("done twice", true)] {
            let request_id = scenario.append(&mut run, request("book", &json!({"seat": result})))?;
            evidence(scenario, &mut run, completed(&request_id, &json!("done")))?;
            scenario.append(&mut run, completed(&request_id, &json!(result)))?;
            let call = scenario.lookup(&run, "book", &json!({"seat": result}))?;
            call.has("/contradicted", contradicts)?;
        }
        Ok(())
    }),
    rule("adopt_prefers_completed", "Judgement", "if evidence is contradictory, adopt completes the call").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            let evidence_id = evidence(scenario, &mut run, completed(&request_id, &json!("found")))?;
            evidence(scenario, &mut run, failed(&request_id, "no answer"))?;
            decide_by(scenario, &mut run, &request_id, "adopt", Some(&evidence_id))?;
            let call = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
            call.check(call.value_at("/status") != "pending", "an end").needs("resolved_adopt")?;
            call.has("/status", "completed")
        },
    ),
    rule("not_done_taken_back", "Judgement", "a later applied record about the effect revokes a not_done decision")
        .test(|scenario, mut run| {
            scenario.append(&mut run, effect_intent("e"))?;
            decide(scenario, &mut run, "e", "not_done")?;
            scenario.append(&mut run, effect_intent("e"))?;
            class(scenario, &run, "reconcile_required").map(drop)
        }),
    rule("attempt_starts_again", SECTION, "an attempt starts the call again; an earlier not_done does not cover it")
        .test(|scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            decide(scenario, &mut run, &request_id, "not_done")?;
            scenario.append(&mut run, attempt(&request_id)).needs("resolved_not_done")?;
            class(scenario, &run, "reconcile_required")?.has("/pending/0/attempts", 2)
        }),
    rule("stale_decision", "Judgement", "a decision made at an earlier revision of its effect is refused").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            let before = scenario.recovery(&run)?;
            before.has("/pending/0/revision", 1)?;
            decide(scenario, &mut run, &request_id, "not_done")?;
            let made_at = |run: &mut Run, revision: u64| {
                run.unclaimed_record(resolution(&request_id, "not_done")).with("facts", json!({"revision": revision}))
            };
            let stale = made_at(&mut run, 1);
            scenario.send(&mut run, &stale)?.expect_refused("stale_decision")?;
            let current = made_at(&mut run, 2);
            scenario.send(&mut run, &current)?.expect_applied()?;
            scenario.recovery(&run)?.has("/pending/0/revision", 3)
        },
    ),
    rule("adopt_names_evidence", "Judgement", "adopt with a revision must name the evidence")
        .test(|scenario, run| check_named_evidence(scenario, run, "adopt")),
    rule(
        "not_done_names_evidence",
        "Judgement",
        "not_done with a revision must name the evidence that the effect happened",
    )
    .test(|scenario, run| check_named_evidence(scenario, run, "not_done")),
    rule("decision_fenced", "Judgement", "a writer's own decision is applied only in the epoch of that writer").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            decide(scenario, &mut run, &request_id, "not_done")?;
            let of_epoch = |run: &mut Run, epoch: u64| {
                let decision =
                    run.unclaimed_record(resolution(&request_id, "not_done")).with("facts", json!({"epoch": epoch}));
                decision.with("writer_epoch", epoch)
            };
            let other = of_epoch(&mut run, 7);
            scenario.send(&mut run, &other)?.expect_refused("fenced")?;
            let own = of_epoch(&mut run, 0);
            scenario.send(&mut run, &own)?.expect_applied().map(drop)
        },
    ),
    rule(
        "decision_says_revision",
        "Judgement",
        "a new decision without a revision or epoch is invalid and not appended",
    )
    .test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        let blind = run.unclaimed_record(resolution(&request_id, "not_done"));
        let of_nobody = blind.clone().with("facts", json!({"evidence": "late"}));
        let beside = json!([run.record(turn("a")).0, blind.0]);
        let records = || Target::run(&run.id).path("/records");
        for body in [&blind.0, &of_nobody.0, &beside] {
            scenario.post(records(), body.to_string())?.expect_problem(400, "invalid")?;
        }
        scenario.post(records().with("check", true), blind.0.to_string())?.expect_problem(400, "invalid")?;
        let body = json!({"decision": "not_done", "who": "conformance", "why": "looked it up"});
        let mut null = body.clone();
        null["revision"] = Value::Null;
        for body in [body, null] {
            let target = Target::run(&run.id).path("/effects").segment(&request_id).path("/resolution");
            scenario.post(target, body.to_string())?.expect_problem(400, "invalid")?;
        }
        let recovery = scenario.recovery(&run)?;
        recovery.has("/next_journal_seq", 2).needs("mangled_refused")?;
        recovery.has("/pending/0/class", "reconcile_required").needs("key_is_retry_safe")?;
        recovery.has("/pending/0/revision", 1).needs("stale_decision")
    }),
    rule(
        "resolution_served",
        SECTION,
        "a server accepts a decision once; if the effect is not pending, it is a conflict",
    )
    .test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        let target = || Target::run(&run.id).path("/effects").segment(&request_id).path("/resolution");
        let unsigned = json!({"decision": "give_up"}).to_string();
        scenario.post(target(), unsigned)?.expect_problem(400, "usage")?;
        let body = json!({"decision": "give_up", "revision": 1, "who": "conformance", "why": "the outcome is unknown"})
            .to_string();
        let decided =
            scenario.post(target(), body.clone())?.ok().and_then(Answer::expect_applied).needs("unclaimed_kind")?;
        let again = scenario.post(target(), body)?;
        run.note_position(&decided);
        status(scenario, &run, "failed").needs("resolved_give_up")?;
        again.expect_problem(409, "conflict").needs("resolution_transition")
    }),
];

/// Checks the class of the run's only pending effect.
pub(crate) fn class(scenario: &mut Scenario<'_>, run: &Run, expected: &str) -> Checked<Answer> {
    let answer = scenario.recovery(run)?;
    answer.only("/pending")?;
    answer.has("/pending/0/class", expected)?;
    Ok(answer)
}

fn status(scenario: &mut Scenario<'_>, run: &Run, expected: &str) -> Checked<Answer> {
    let call = scenario.lookup(run, "book", &json!({"seat": 1}))?;
    call.has("/status", expected)?;
    Ok(call)
}

/// Checks the class of a pending effect whose request has this key.
fn class_with_key(scenario: &mut Scenario<'_>, payload: Value, (name, key): (&str, &str), expected: &str) -> Checked {
    let mut run = scenario.run();
    let record = run.record(payload).with(name, key);
    scenario.send(&mut run, &record)?.expect_applied()?;
    class(scenario, &run, expected).map(drop)
}

/// Appends a decision without evidence at the effect's current revision.
pub(crate) fn decide(scenario: &mut Scenario<'_>, run: &mut Run, request_id: &str, decision: &str) -> Checked<Answer> {
    decide_by(scenario, run, request_id, decision, None)
}

fn decide_by(
    scenario: &mut Scenario<'_>,
    run: &mut Run,
    request_id: &str,
    decision: &str,
    evidence: Option<&str>,
) -> Checked<Answer> {
    let recovery = scenario.recovery(run)?;
    let effect = recovery.list("/pending")?.iter().find(|pending| pending["id"] == *request_id);
    let revision = effect.and_then(|pending| pending["revision"].as_u64()).unwrap_or(1);
    let record = run.decision(request_id, decision, revision, evidence);
    scenario.send(run, &record)?.expect_applied().needs("unclaimed_kind")
}

/// Starts a call, takes the run over, and sends the call's result, which is fenced. Returns the ids of both.
fn overtaken(scenario: &mut Scenario<'_>, run: &mut Run) -> Checked<(String, String)> {
    scenario.claim(run, "one")?;
    let request_id = scenario.pending(run)?;
    // The next number of any writer, so that only its epoch is wrong.
    let late = run.clone().record(completed(&request_id, &json!("done"))).with("writer_seq", 1);
    scenario.claim(run, "two")?;
    scenario.send(run, &late)?.expect_refused("fenced").needs("fenced_writer")?;
    let answer = scenario.recovery(run)?;
    answer.check(answer.value_at("/pending/0/evidence/0").is_object(), "evidence").needs("evidence_fenced")?;
    Ok((request_id, late.id().to_owned()))
}

/// Sends a late result and checks that it is listed as evidence. Returns its id.
fn evidence(scenario: &mut Scenario<'_>, run: &mut Run, result: Value) -> Checked<String> {
    let late = scenario.evidence(run, result)?;
    let answer = scenario.recovery(run)?;
    let is_listed = answer.list("/pending/0/evidence").is_ok_and(|all| all.iter().any(|one| one["record_id"] == *late));
    answer.check(is_listed, format!("{late} in /pending/0/evidence")).needs("evidence_fenced")?;
    Ok(late)
}

/// Checks that a decision is refused if it does not name the evidence, and applied if it does.
fn check_named_evidence(scenario: &mut Scenario<'_>, mut run: Run, decision: &str) -> Checked {
    let request_id = scenario.pending(&mut run)?;
    decide(scenario, &mut run, &request_id, "not_done")?;
    let late = scenario.evidence(&mut run, completed(&request_id, &json!("done")))?;
    let recovery = scenario.recovery(&run)?;
    recovery.check(recovery.value_at("/pending/0/evidence/0").is_object(), "evidence").needs("evidence_fenced")?;
    let unnamed = run.unclaimed_record(resolution(&request_id, decision)).with("facts", json!({"revision": 3}));
    scenario.send(&mut run, &unnamed)?.expect_refused("transition")?;
    let facts = json!({"revision": 3, "evidence": late});
    let named = run.unclaimed_record(resolution(&request_id, decision)).with("facts", facts);
    scenario.send(&mut run, &named)?.expect_applied().map(drop)
}

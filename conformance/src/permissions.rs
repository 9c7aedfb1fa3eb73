//! Permission to run a call again: the checks of a server before it appends an attempt, and those by the judge. The judge
//! reads facts of schema version 3, which a server writes if it lists the feature `bases`.

use super::{
    decisions::{class, decide},
    payloads::{attempt, effect_intent, failed, request, resolution},
    rule::{Rule, rule},
    run::{Record, Run},
    scenario::{Answer, Checked, Needs, Scenario},
};
use runlog_schemas::answer::Feature;
use serde_json::{Value, json};

const SECTION: &str = "Permission to run again";

pub(crate) const RULES: &[Rule] = &[
    rule(
        "attempt_checked",
        SECTION,
        "a server appends no attempt without a basis on a reconcile_required call, in a batch, or with another number than \
         the next",
    )
    .test(|scenario, mut run| {
        let call = scenario.pending(&mut run)?;
        let sent = run.clone().record(attempt(&call));
        scenario.body(&run, sent.0.to_string())?.expect_problem(409, "reconcile_required")?;
        let batch = run.clone().batch(vec![attempt(&call)]);
        scenario.body(&run, batch.0.to_string())?.expect_problem(400, "invalid")?;
        decide(scenario, &mut run, &call, "not_done")?;
        let third = run.clone().record(numbered(&call, 3));
        let answer = scenario.body(&run, third.0.to_string())?;
        answer.check(answer.value_at("/kind") != "reconcile_required", "permission").needs("resolved_not_done")?;
        answer.expect_problem(400, "invalid")?;
        scenario.recovery(&run)?.has("/pending/0/attempts", 1)
    }),
    rule("attempt_resent", SECTION, "an attempt that is sent again is a repeat, also if the call must be decided now")
        .test(|scenario, mut run| {
            let call = scenario.pending(&mut run)?;
            decide(scenario, &mut run, &call, "not_done")?;
            let record = run.record(attempt(&call));
            let first = scenario.send(&mut run, &record).and_then(Answer::expect_applied).needs("resolved_not_done")?;
            scenario.send(&mut run, &record)?.expect_repeat(&first).needs("repeat_of_applied")
        }),
    rule("attempt_permitted", SECTION, "an attempt with a basis is refused while its call is reconcile_required")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            let call = scenario.pending(&mut run)?;
            let early = attempt_at(scenario, &mut run, attempt(&call))?;
            scenario.send(&mut run, &early)?.expect_refused("transition")?;
            let mut run = scenario.run();
            let call = scenario.pending(&mut run)?;
            decide(scenario, &mut run, &call, "not_done")?;
            let permitted = attempt_at(scenario, &mut run, attempt(&call))?;
            scenario.send(&mut run, &permitted)?.expect_applied().needs("resolved_not_done").map(drop)
        }),
    rule("attempt_basis", SECTION, "an attempt is refused unless its basis is the call's basis")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            let call = keyed(scenario, &mut run)?;
            let before = basis(scenario, &run)?;
            scenario.evidence(&mut run, failed(&call, "busy"))?;
            basis(scenario, &run)?.check_change(&before).needs("evidence_fenced")?;
            let late = attempt_with(&mut run, attempt(&call), &before);
            scenario.send(&mut run, &late)?.expect_refused("transition")?;
            let mut run = scenario.run();
            let call = keyed(scenario, &mut run)?;
            let current = attempt_at(scenario, &mut run, attempt(&call))?;
            let late = attempt_at(scenario, &mut run, numbered(&call, 3))?;
            scenario.send(&mut run, &current)?.expect_applied().needs("key_is_retry_safe")?;
            scenario.send(&mut run, &late)?.expect_refused("transition").map(drop)
        }),
    rule("attempt_number", SECTION, "an attempt with a basis has the next number")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            let call = keyed(scenario, &mut run)?;
            let third = attempt_at(scenario, &mut run, numbered(&call, 3))?;
            scenario.send(&mut run, &third)?.expect_refused("transition")?;
            let mut run = scenario.run();
            let call = keyed(scenario, &mut run)?;
            let second = attempt_at(scenario, &mut run, attempt(&call))?;
            scenario.send(&mut run, &second)?.expect_applied().needs("key_is_retry_safe").map(drop)
        }),
    rule("decision_basis", "Judgement", "a decision is refused unless its basis is the effect's basis")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            let call = scenario.pending(&mut run)?;
            let stale = basis(scenario, &run)?;
            decide(scenario, &mut run, &call, "not_done")?;
            let now = basis(scenario, &run)?;
            now.check_change(&stale)?;
            decide_at(scenario, &mut run, &call, &stale)?.expect_refused("stale_decision")?;
            decide_at(scenario, &mut run, &call, &now)?.expect_applied().map(drop)
        }),
    rule("decision_of_basis", "Judgement", "a decision is about the effect with the id that has its basis")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            let call = scenario.append(&mut run, request("book", &json!({"seat": 1})))?;
            let of_call = basis(scenario, &run)?;
            scenario.append(&mut run, effect_intent(&call))?;
            let answer = scenario.recovery(&run)?;
            let is_other = |one: &&Value| one["kind"] == "effect";
            let other = answer.list("/pending")?.iter().find(is_other).map(|one| one["basis"].clone());
            let facts = json!({"basis": other});
            let decision = run.unclaimed_record(resolution(&call, "give_up")).with("facts", facts);
            let sent = scenario.send(&mut run, &decision)?;
            sent.check(sent.value_at("/reason") != "conflict", "no conflict").needs("unclaimed_kind")?;
            sent.expect_applied()?;
            let now = basis(scenario, &run).needs("resolved_give_up")?;
            now.answer.check(now.text == of_call.text, "the call's basis as before")
        }),
    rule("revision_beside_basis", "Judgement", "a decision with the effect's basis is refused for a smaller revision")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            let call = scenario.pending(&mut run)?;
            decide(scenario, &mut run, &call, "not_done")?;
            let now = basis(scenario, &run)?;
            let made_at = |run: &mut Run, revision: u64| {
                let facts = json!({"basis": now.text, "revision": revision});
                run.unclaimed_record(resolution(&call, "not_done")).with("facts", facts)
            };
            let (stale, current) = (made_at(&mut run, 1), made_at(&mut run, 2));
            scenario.send(&mut run, &stale)?.expect_refused("stale_decision")?;
            scenario.send(&mut run, &current)?.expect_applied().map(drop)
        }),
    rule("basis_never_returns", "Judgement", "evidence that was replaced and arrives again gives another basis")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            let call = scenario.pending(&mut run)?;
            let late = run.clone().record(failed(&call, "first")).with("writer_epoch", 7).with("record_id", "late");
            scenario.send(&mut run, &late)?.expect_refused("fenced").needs("fenced_unclaimed")?;
            let before = basis(scenario, &run)?;
            for number in 0..16 {
                scenario.evidence(&mut run, failed(&call, &format!("try {number}")))?;
            }
            scenario.send(&mut run, &late)?.expect_refused("fenced").needs("fenced_unclaimed")?;
            basis(scenario, &run)?.check_change(&before).needs("evidence_fenced")
        }),
    rule("repeatable", SECTION, "a call whose request is repeatable is retry_safe without a key")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            requested(scenario, &mut run, json!({"repeatable": true}))?.expect_applied()?;
            class(scenario, &run, "retry_safe").map(drop)
        }),
    rule("intent_refuses", "Judgement", "unresolved: refuse waits for the undecided calls of earlier epochs")
        .only_with(Feature::Bases)
        .test(|scenario, _| {
            for (unresolved, is_decided) in [("refuse", false), ("refuse", true), ("allow", false)] {
                let mut run = scenario.run();
                let call = scenario.pending(&mut run)?;
                scenario.claim(&mut run, "one")?;
                if is_decided {
                    decide(scenario, &mut run, &call, "not_done")?;
                }
                let answer = requested(scenario, &mut run, json!({"unresolved": unresolved}))?;
                match (unresolved, is_decided) {
                    ("refuse", false) => answer.expect_refused("unresolved")?,
                    ("refuse", true) => answer.expect_applied().needs("resolved_not_done")?,
                    _ => answer.expect_applied()?,
                };
            }
            Ok(())
        }),
    rule("intent_of_epoch", "Judgement", "unresolved: refuse does not wait for calls of the same epoch")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            scenario.pending(&mut run)?;
            requested(scenario, &mut run, json!({"unresolved": "refuse"}))?.expect_applied().map(drop)
        }),
];

/// The basis of a run's only pending effect, and the answer that returned it.
pub(crate) struct Basis {
    answer: Answer,
    text: String,
}

impl Basis {
    /// Checks that the basis is another one than before.
    pub(crate) fn check_change(&self, before: &Self) -> Checked {
        self.answer.check(self.text != before.text, format!("another basis than {}", before.text))
    }
}

/// Returns the basis of the run's only pending effect.
pub(crate) fn basis(scenario: &mut Scenario<'_>, run: &Run) -> Checked<Basis> {
    let answer = scenario.recovery(run)?;
    let text = answer.only("/pending")?["basis"].as_str().map(str::to_owned);
    let text = text.ok_or_else(|| answer.failure("a basis at /pending/0/basis"))?;
    Ok(Basis { answer, text })
}

/// Builds the writer's next record with the current basis of the run's only pending effect.
fn attempt_at(scenario: &mut Scenario<'_>, run: &mut Run, payload: Value) -> Checked<Record> {
    let basis = basis(scenario, run)?;
    Ok(attempt_with(run, payload, &basis))
}

fn attempt_with(run: &mut Run, payload: Value, basis: &Basis) -> Record {
    run.record(payload).with("facts", json!({"basis": basis.text}))
}

/// Sends a `not_done` decision with a basis, and without a revision.
pub(crate) fn decide_at(scenario: &mut Scenario<'_>, run: &mut Run, call: &str, basis: &Basis) -> Checked<Answer> {
    let record = run.unclaimed_record(resolution(call, "not_done")).with("facts", json!({"basis": basis.text}));
    let answer = scenario.send(run, &record)?;
    answer.check(answer.value_at("/reason") != "conflict", "no conflict").needs("unclaimed_kind")?;
    Ok(answer)
}

fn numbered(call: &str, number: u32) -> Value {
    let mut payload = attempt(call);
    payload["attempt"] = number.into();
    payload
}

/// Sends a request with these facts.
fn requested(scenario: &mut Scenario<'_>, run: &mut Run, facts: Value) -> Checked<Answer> {
    let record = run.record(request("look", &json!({"seat": 2}))).with("facts", facts);
    scenario.send(run, &record)
}

/// Appends a request with an idempotency key, which stays pending. Returns its id.
fn keyed(scenario: &mut Scenario<'_>, run: &mut Run) -> Checked<String> {
    let record = run.record(request("book", &json!({"seat": 1}))).with("idempotency_key", "key-1");
    scenario.send(run, &record)?.expect_applied()?;
    Ok(record.id().to_owned())
}

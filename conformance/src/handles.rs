//! Handles: a claim commits to a secret, the process's next claim shows it, and a result that is limited to its own handle does
//! not end another handle's call. A server writes these facts if it lists the feature `commitments`. The scenarios send the fact
//! `only_own` themselves. That a server adds it for a credential without the scope `resolve` needs a second credential, and is not
//! tested here.

use super::client::Target;
use super::{
    decisions::class,
    payloads::{completed, request},
    rule::{Rule, rule},
    run::Run,
    scenario::{Answer, Checked, Needs, Scenario},
};
use runlog_schemas::{answer::Feature, datum::Sha256};
use serde_json::{Value, json};

const SECTION: &str = "Handles";

pub(crate) const RULES: &[Rule] = &[
    rule("not_started_here", SECTION, "an only_own result of a call that another handle started is refused")
        .only_with(Feature::Commitments)
        .test(|scenario, mut run| {
            let call = started_before(scenario, &mut run, commits(1), commits(2))?;
            own_result(scenario, &mut run, &call)?.expect_refused("not_started_here")?;
            let mut run = scenario.run();
            let call = started_before(scenario, &mut run, commits(1), commits(2))?;
            scenario.append(&mut run, completed(&call, &json!("done"))).map(drop)
        }),
    rule(
        "evidence_not_started_here",
        SECTION,
        "a result that is refused as not_started_here is kept as evidence, and the call stays pending",
    )
    .only_with(Feature::Commitments)
    .test(|scenario, mut run| {
        let call = started_before(scenario, &mut run, commits(1), commits(2))?;
        let refused = own_result(scenario, &mut run, &call)?.expect_refused("not_started_here");
        refused.needs("not_started_here")?;
        let answer = class(scenario, &run, "reconcile_required")?;
        answer.only("/pending/0/evidence")?;
        answer.has("/pending/0/evidence/0/status", "completed")?;
        answer.has("/pending/0/evidence/0/reason", "not_started_here")
    }),
    rule("secret_shown", SECTION, "a claim that shows the secret of the run's previous claim is of the same handle")
        .only_with(Feature::Commitments)
        .test(|scenario, mut run| {
            let call = started_before(scenario, &mut run, commits(1), shows(1, 2))?;
            own_result(scenario, &mut run, &call)?.expect_applied()?;
            // The claim between them has another commitment.
            let mut run = scenario.run();
            let call = started_before(scenario, &mut run, commits(1), commits(2))?;
            scenario.claim_with(&mut run, "three", shows(1, 3))?;
            let stolen = own_result(scenario, &mut run, &call)?;
            stolen.expect_refused("not_started_here").needs("not_started_here").map(drop)
        }),
    rule(
        "uncommitted_start",
        SECTION,
        "a call that was started under a claim without a commitment may have any result",
    )
    .only_with(Feature::Commitments)
    .test(|scenario, mut run| {
        let call = started_before(scenario, &mut run, Value::Null, commits(2))?;
        own_result(scenario, &mut run, &call)?.expect_applied().map(drop)
    }),
    rule("observed", SECTION, "a call whose request is observed may have the result of any handle")
        .only_with(Feature::Commitments)
        .test(|scenario, mut run| {
            scenario.claim_with(&mut run, "one", commits(1))?;
            let record = run.record(request("book", &json!({"seat": 1}))).with("facts", json!({"observed": true}));
            scenario.send(&mut run, &record)?.expect_applied()?;
            scenario.claim_with(&mut run, "two", commits(2))?;
            own_result(scenario, &mut run, record.id())?.expect_applied().map(drop)
        }),
    rule(
        "claim_commits",
        SECTION,
        "a claim that a server makes has the commitment and the shown secret of its request",
    )
    .only_with(Feature::Commitments)
    .test(|scenario, mut run| {
        served_claim(scenario, &mut run, &commits(1))?;
        let call = scenario.pending(&mut run)?;
        served_claim(scenario, &mut run, &shows(1, 2))?;
        own_result(scenario, &mut run, &call)?.expect_applied().needs("secret_shown")?;
        let mut run = scenario.run();
        served_claim(scenario, &mut run, &commits(1))?;
        let call = scenario.pending(&mut run)?;
        served_claim(scenario, &mut run, &commits(2))?;
        let foreign = own_result(scenario, &mut run, &call)?;
        foreign.expect_refused("not_started_here").needs("not_started_here").map(drop)
    }),
    rule("secret_hidden", SECTION, "no answer contains a shown secret").only_with(Feature::Commitments).test(
        |scenario, mut run| {
            scenario.claim_with(&mut run, "one", commits(1))?;
            scenario.claim_with(&mut run, "two", shows(1, 2))?;
            for (path, query) in
                [("", &[][..]), ("/recovery", &[]), ("/records", &[("raw", "true"), ("whole", "true")])]
            {
                let answer = scenario.query_run(&run, path, query)?.ok()?;
                answer.check(!answer.text.contains(&secret(1)), "an answer without the secret")?;
            }
            Ok(())
        },
    ),
];

/// Returns the secret of a claim, in hexadecimal.
fn secret(number: u8) -> String {
    format!("{number:02x}").repeat(32)
}

/// Returns the facts of a claim that commits to a secret.
fn commits(number: u8) -> Value {
    json!({"commitment": Sha256::of(&[number; 32]).to_string()})
}

/// Returns the facts of a claim that shows a secret and commits to the next one.
fn shows(shown: u8, next: u8) -> Value {
    let mut facts = commits(next);
    facts["shown"] = secret(shown).into();
    facts
}

/// Starts a call under one claim, and claims the run again. Returns the call's id.
fn started_before(scenario: &mut Scenario<'_>, run: &mut Run, first: Value, second: Value) -> Checked<String> {
    scenario.claim_with(run, "one", first)?;
    let call = scenario.pending(run)?;
    scenario.claim_with(run, "two", second)?;
    Ok(call)
}

/// Sends a result that is valid only for a call of the writer's handle.
fn own_result(scenario: &mut Scenario<'_>, run: &mut Run, call: &str) -> Checked<Answer> {
    let record = run.record(completed(call, &json!("done"))).with("facts", json!({"only_own": true}));
    scenario.send(run, &record)
}

/// Lets the server claim the run.
fn served_claim(scenario: &mut Scenario<'_>, run: &mut Run, facts: &Value) -> Checked {
    let target = Target::run(&run.id).path("/claims");
    let claim = scenario.post(target, facts.to_string())?.ok().needs("claim_applied")?;
    run.note_position(&claim);
    let writer = claim.value_at("/writer_id").as_str().ok_or_else(|| claim.failure("a writer_id"))?;
    (run.writer, run.epoch, run.writer_seq) = (writer.to_owned(), run.epoch + 1, 1);
    Ok(())
}

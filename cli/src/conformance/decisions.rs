//! Pending effects: what makes them safe to run again, evidence, and the four decisions.

use super::{
    Rule,
    payloads::{attempt, completed, effect_intent, failed, request, resolution},
    run::Run,
    site::{Answer, Checked, Needs, Site},
};
use crate::client::Target;
use serde_json::{Value, json};

const SECTION: &str = "Tool calls";

pub(super) const RULES: &[Rule] = &[
    Rule::new("key_is_retry_safe", SECTION, "a pending call is retry_safe if, and only if, it has a key", key),
    Rule::new("evidence_fenced", "Judgement", "a result that was fenced is evidence of its effect", evidence_fenced),
    Rule::new("evidence_once", "Judgement", "a result that was refused again is the same evidence", evidence_once),
    Rule::new(
        "evidence_makes_room",
        "Judgement",
        "of 17 results the oldest that does not say that it happened makes room",
        evidence_makes_room,
    ),
    Rule::new(
        "resolution_transition",
        "Judgement",
        "a decision is about a pending effect; adopt needs evidence",
        transition,
    ),
    Rule::new("resolved_done", SECTION, "decided done: the call completed with that result", done),
    Rule::new("resolved_adopt", SECTION, "decided adopt: the call ended as its evidence says", adopt),
    Rule::new("resolved_not_done", SECTION, "decided not done: the call may run again", not_done),
    Rule::new("resolved_give_up", SECTION, "decided give up: the call failed, given_up", give_up),
    Rule::new(
        "adopt_prefers_completed",
        "Judgement",
        "evidence that contradicts itself says that it happened",
        adopt_prefers,
    ),
    Rule::new(
        "not_done_taken_back",
        "Judgement",
        "who speaks of an effect that was not done takes that back",
        taken_back,
    ),
    Rule::new(
        "attempt_starts_again",
        SECTION,
        "an attempt is a start: not done was said of the one before",
        attempt_starts,
    ),
    Rule::new(
        "resolution_served",
        SECTION,
        "a server takes a decision once; on what is not pending it is a conflict",
        served,
    ),
];

/// The class of the run's only pending effect.
fn class(site: &mut Site<'_>, run: &Run, expected: &str) -> Checked<Answer> {
    let answer = site.recovery(run)?;
    answer.only("/pending")?;
    answer.has("/pending/0/class", expected)?;
    Ok(answer)
}

fn status(site: &mut Site<'_>, run: &Run, expected: &str) -> Checked<Answer> {
    let call = site.lookup(run, "book", &json!({"seat": 1}))?;
    call.has("/status", expected)?;
    Ok(call)
}

fn key(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    site.pending(&mut run)?;
    class(site, &run, "reconcile_required")?;
    for name in ["idempotency_key", "dedupe_key"] {
        let mut run = site.run();
        let record = run.record(request("book", &json!({"seat": 1}))).with(name, "key-1");
        site.send(&mut run, &record)?.applied()?;
        class(site, &run, "retry_safe")?;
    }
    Ok(())
}

fn evidence_fenced(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    let late = site.evidence(&mut run, completed(&asked, &json!("done")))?;
    let answer = site.recovery(&run)?;
    answer.lists("/pending/0/evidence", "record_id", &[&late])?;
    answer.has("/pending/0/evidence/0/status", "completed")?;
    answer.has("/pending/0/evidence/0/reason", "fenced")
}

fn evidence_once(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    let late = run.record(completed(&asked, &json!("done"))).with("writer_epoch", 7);
    for _ in 0..2 {
        site.send(&mut run, &late)?.refused("fenced").needs("fenced_unclaimed")?;
    }
    let answer = site.recovery(&run)?;
    answer.that(answer.at("/pending/0/evidence/0").is_object(), "evidence").needs("evidence_fenced")?;
    answer.only("/pending/0/evidence").map(drop)
}

fn evidence_makes_room(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    let mut kept = vec![site.evidence(&mut run, completed(&asked, &json!("done")))?];
    for number in 0..16 {
        kept.push(site.evidence(&mut run, failed(&asked, &format!("try {number}")))?);
    }
    kept.remove(1);
    let answer = site.recovery(&run)?;
    answer.that(answer.at("/pending/0/evidence/0").is_object(), "evidence").needs("evidence_fenced")?;
    answer.lists("/pending/0/evidence", "record_id", &kept.iter().map(String::as_str).collect::<Vec<_>>())
}

fn transition(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    for decision in [resolution("nobody's", "done"), resolution(&asked, "adopt")] {
        let record = run.unclaimed(decision);
        let sent = site.send(&mut run, &record)?;
        sent.that(sent.at("/reason") != "conflict", "no conflict").needs("unclaimed_kind")?;
        sent.refused("transition")?;
    }
    Ok(())
}

/// A decision, which needs no claim.
fn decide(site: &mut Site<'_>, run: &mut Run, asked: &str, decision: &str) -> Checked<Answer> {
    site.decide(run, resolution(asked, decision)).needs("unclaimed_kind")
}

/// Evidence of a call, which is there.
fn evidence(site: &mut Site<'_>, run: &mut Run, result: Value) -> Checked {
    let late = site.evidence(run, result)?;
    let answer = site.recovery(run)?;
    let found = answer.list("/pending/0/evidence").is_ok_and(|all| all.iter().any(|one| one["record_id"] == *late));
    answer.that(found, format!("{late} in /pending/0/evidence")).needs("evidence_fenced")
}

fn done(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    let decided = decide(site, &mut run, &asked, "done")?;
    let call = status(site, &run, "completed")?;
    call.has("/result", json!({"found": 7}))?;
    call.has("/position", decided.at("/position").clone())
}

fn adopt(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    evidence(site, &mut run, completed(&asked, &json!("found")))?;
    decide(site, &mut run, &asked, "adopt")?;
    status(site, &run, "completed")?.has("/result", "found")
}

fn not_done(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    decide(site, &mut run, &asked, "not_done")?;
    status(site, &run, "pending")?;
    class(site, &run, "retry_safe").map(drop)
}

fn give_up(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    decide(site, &mut run, &asked, "give_up")?;
    status(site, &run, "failed")?.has("/error/kind", "given_up")
}

fn adopt_prefers(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    evidence(site, &mut run, completed(&asked, &json!("found")))?;
    evidence(site, &mut run, failed(&asked, "no answer"))?;
    decide(site, &mut run, &asked, "adopt")?;
    let call = site.lookup(&run, "book", &json!({"seat": 1}))?;
    call.that(call.at("/status") != "pending", "an end").needs("resolved_adopt")?;
    call.has("/status", "completed")
}

fn taken_back(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    site.say(&mut run, effect_intent("e"))?;
    decide(site, &mut run, "e", "not_done")?;
    site.say(&mut run, effect_intent("e"))?;
    class(site, &run, "reconcile_required").map(drop)
}

fn attempt_starts(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    decide(site, &mut run, &asked, "not_done")?;
    site.say(&mut run, attempt(&asked))?;
    class(site, &run, "reconcile_required")?.has("/pending/0/attempts", 2)
}

fn served(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    let target = || Target::run(&run.id).path("/effects").segment(&asked).path("/resolution");
    let unsigned = json!({"decision": "give_up"}).to_string();
    site.post(target(), unsigned)?.problem(400, "usage")?;
    let body = json!({"decision": "give_up", "who": "conformance", "why": "nobody knows"}).to_string();
    let decided = site.post(target(), body.clone())?.ok().and_then(Answer::applied).needs("unclaimed_kind")?;
    let again = site.post(target(), body)?;
    run.seen(&decided);
    status(site, &run, "failed").needs("resolved_give_up")?;
    again.problem(409, "conflict").needs("resolution_transition")
}

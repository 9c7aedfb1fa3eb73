//! `effects`: effects across all runs, and decisions on them.

use super::{confirm::confirm, pages};
use crate::{
    args::{self, Decision, EffectsAction},
    client::{self, Target},
    error::Error,
    exit::Answer,
    output, render,
    session::{APPEND_WAIT, READ_WAIT, Session},
    text::{Cell, Text},
    value,
};
use runlog_schemas::{
    answer::{Effect, Effects, ErrorKind, Feature, Outcome, Pending},
    id::{ContentHash, RecordId},
    json::Json,
    shell,
};
use serde::Serialize;
use shown::Shown;

mod shown;

pub(super) async fn run(session: &Session, args: args::Effects) -> Result<Answer, Error> {
    match args.action {
        Some(EffectsAction::Resolve(args)) => resolve(session, args).await,
        None => list(session, args).await,
    }
}

async fn list(session: &Session, args: args::Effects) -> Result<Answer, Error> {
    if args.contradicted {
        session.needs(&[Feature::Contradictions], session.wait(&args.reading.wait, READ_WAIT)).await?;
    }
    let target = Target::new("/v1/effects")
        .with_flag("pending", args.pending)
        .with_flag("unsafe", args.r#unsafe)
        .with_flag("contradicted", args.contradicted);
    let list: Effects = pages::get(session, target, &args.page, &args.reading).await?;
    session.output.answer(&list, |list, text| {
        if args.contradicted {
            contradictions(list, text);
        }
        human(list, text);
    })?;
    Ok(Answer::Yes)
}

/// Number of characters of arguments in the table; `--json` prints all of them.
const ARGUMENTS_WIDTH: usize = 40;
/// Prints effects with the later results that contradict them.
fn contradictions(list: &Effects, text: &mut Text) {
    for Effect { run_id, pending: effect, contradicting, contradictions, .. } in &list.effects {
        let what = format!("{run_id}, {}: recorded as {}, contradicting result", effect.id, effect.status);
        render::refused_results(&what, contradicting, text);
        render::replaced_results(contradictions.saturating_sub(contradicting.len() as u64), text);
    }
}

fn human(list: &Effects, text: &mut Text) {
    text.list(&list.effects, "no effects")
        .column("RUN", |effect| &effect.run_id)
        .column("TOOL", |effect| &effect.pending.tool_name)
        .column("N", |effect| effect.pending.occurrence)
        .column("STATUS", |effect| Cell::status(effect.pending.status.as_str()))
        .column("STATE", |effect| effect.pending.state.as_ref().map(|state| Cell::status(state.as_str())))
        .column("CLASS", |effect| effect.pending.class.as_ref().map(|class| Cell::status(class.as_str())))
        .column("AGE", |effect| effect.age_millis.map(render::age))
        .column("AGENT", |effect| Cell::from(effect.agent_id.as_ref()))
        .column("ATTEMPTS", |effect| Cell::from(effect.attempts))
        .column("EVIDENCE", |effect| effect.evidence.len() as u64)
        .column("ARGUMENTS", |effect| Cell::from(effect.arguments.as_ref().map(Json::as_str)).clip(ARGUMENTS_WIDTH))
        .column("POSITION", |effect| render::position(&effect.position))
        .column("ID", |effect| &effect.pending.id)
        .print();
    pages::print_rest(list, text);
}

/// The body of a resolution.
#[derive(Debug, Serialize)]
struct Resolution<'a> {
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Json>,
    who: &'a str,
    why: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    /// `None` for a server without this feature.
    #[serde(skip_serializing_if = "Option::is_none")]
    basis: Option<ContentHash>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    force: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<&'a RecordId>,
}

async fn resolve(session: &Session, args: args::Resolve) -> Result<Answer, Error> {
    let (decision, result) = decided(&args.decision)?;
    let (run_id, id) = (&args.run.run, &args.id);
    let journal = session.needs(&[Feature::Revisions], session.wait(&args.wait, APPEND_WAIT)).await?;
    let mut shown = shown::read(session, &args, &journal).await?;
    loop {
        if let (Some(shown), "not_done") = (&shown, decision) {
            check_against(shown, &args)?;
        }
        confirm(args.consent, &format!("decide {decision} for effect {id} of run {run_id}"), |text| {
            plan(shown.as_ref(), decision, result.as_ref(), text);
        })?;
        if !args.consent.yes {
            // The operator can take hours to answer, and the server compares only the effect.
            let now = shown::read(session, &args, &journal).await?;
            if note_changes(shown.as_ref(), now.as_ref()) {
                shown = now;
                continue;
            }
        }
        let effect = shown.as_ref().map(|shown| &shown.pending);
        // A server without revisions returns 0.
        let revision = effect.map(|effect| effect.revision).filter(|revision| *revision > 0);
        let adoptable = effect.filter(|_| revision.is_some()).and_then(Pending::adoptable);
        let cited_evidence =
            adoptable.filter(|adoptable| decision == "adopt" || (decision == "not_done" && adoptable.happened()));
        let evidence = cited_evidence.map(|evidence| &evidence.record_id);
        let (who, why) = (args.attribution.who.as_str(), args.attribution.why.as_str());
        let basis = effect.and_then(|effect| effect.basis);
        let body =
            Resolution { decision, result: result.clone(), who, why, revision, basis, force: args.force, evidence };
        let target = Target::run(run_id).path("/effects").segment(id).path("/resolution");
        let wait = session.wait(&args.wait, APPEND_WAIT);
        let refused = match session.client.post::<Outcome>(target, client::body(&body)?, wait).await {
            Ok(outcome) => {
                session.output.answer(&outcome, render::outcome)?;
                return Ok(Answer::from_outcome(&outcome));
            }
            Err(error) if error.kind() == ErrorKind::Conflict && !args.consent.yes => error,
            Err(error) => return Err(error),
        };
        let now = shown::read(session, &args, &journal).await?;
        if !note_changes(shown.as_ref(), now.as_ref()) {
            return Err(refused);
        }
        shown = now;
    }
}

/// Notes the changes of the effect since it was shown, before the operator is asked again. Returns whether there are any.
fn note_changes(shown: Option<&Shown>, now: Option<&Shown>) -> bool {
    let changes = shown::changes(shown, now);
    if changes.is_empty() {
        return false;
    }
    output::note(|text| {
        text.line([Cell::from("not decided yet: the effect changed since it was shown").warn()]);
        changes.iter().for_each(|change| text.line([Cell::from(change).warn()]));
    });
    true
}

/// Whether `--not-done` names the evidence that the effect happened and that `adopt` takes, if there is such evidence.
///
/// Errors: `Conflict`, after the evidence was shown and without an append.
fn check_against(shown: &Shown, args: &args::Resolve) -> Result<(), Error> {
    let effect = &shown.pending;
    let newest = effect.adoptable().filter(|evidence| evidence.happened()).map(|evidence| &evidence.record_id);
    if newest == args.against.as_ref() {
        return Ok(());
    }
    let what = match newest {
        None => "no evidence says that it happened; decide without --against".to_owned(),
        Some(newest) => format!(
            "record {newest} is evidence that it happened. If the effect did not happen, add \
             {}; if it did, decide --adopt instead of --not-done",
            shell::flag("--against", newest.as_str())
        ),
    };
    output::note(|text| plan(Some(shown), "not_done", None, text));
    let evidence = serde_json::to_value(&effect.evidence).unwrap_or_default();
    let message = format!("effect {} of run {}: {what}. Nothing happened", effect.id, args.run.run);
    Err(Error::new(ErrorKind::Conflict, message).with("evidence", evidence))
}

/// Prints the effect and the consequences of a decision, for the confirmation.
fn plan(shown: Option<&Shown>, decision: &str, result: Option<&Json>, text: &mut Text) {
    if let Some(shown) = shown {
        shown.print(text);
        text.title("decision".to_owned());
    } else {
        text.line([Cell::from("the effect is not pending; the server will refuse the decision").warn()]);
    }
    let follows = match decision {
        "done" => "the call counts as completed with this result, and never runs again",
        "adopt" => "the evidence becomes the result of the call, which never runs again",
        "not_done" => "the call may run again: make sure that it did not happen and that no process can still do it",
        _ => "the call counts as failed, although it may have happened",
    };
    let result = result.map_or("", |result| result.as_str());
    text.facts([("decision", format!("{decision} {result}").trim_end().into()), ("effect", follows.into())]);
}

fn decided(decision: &Decision) -> Result<(&'static str, Option<Json>), Error> {
    if let Some(result) = &decision.done {
        return Ok(("done", Some(value::json("--done", result)?)));
    }
    let name = if decision.adopt {
        "adopt"
    } else if decision.not_done {
        "not_done"
    } else {
        "give_up"
    };
    Ok((name, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_carries_its_result_unchanged() {
        let flags = |done: Option<&str>, adopt, not_done, give_up| {
            decided(&Decision { done: done.map(str::to_owned), adopt, not_done, give_up }).unwrap()
        };
        let (decision, result) = flags(Some(r#"{"n": 12345678901234567890, "a": 1.50}"#), false, false, false);
        let body = client::body(&Resolution {
            decision,
            result,
            who: "w",
            why: "t",
            revision: None,
            basis: None,
            force: false,
            evidence: None,
        })
        .unwrap();
        assert_eq!(body, r#"{"decision":"done","result":{"n":12345678901234567890,"a":1.50},"who":"w","why":"t"}"#);
        assert_eq!(flags(None, true, false, false), ("adopt", None));
        assert_eq!(flags(None, false, true, false), ("not_done", None));
        assert_eq!(flags(None, false, false, true), ("give_up", None));
    }
}

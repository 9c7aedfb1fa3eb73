//! `effects`: effects across all runs, and decisions on them.

use super::{APPEND_WAIT, Answer, Session, pages};
use crate::{
    Error,
    args::{self, Decision, EffectsAction},
    client::Target,
    text::{Cell, Text},
    value,
};
use runlog_schemas::{
    answer::{Effect, Effects, Outcome},
    json::Json,
};
use serde::Serialize;
use std::collections::BTreeSet;

pub(super) async fn run(session: &Session, args: args::Effects) -> Result<Answer, Error> {
    match args.action {
        Some(EffectsAction::Resolve(args)) => resolve(session, args).await,
        None => list(session, args).await,
    }
}

async fn list(session: &Session, args: args::Effects) -> Result<Answer, Error> {
    let mut unavailable = BTreeSet::new();
    let (effects, next_cursor) = pages::gather(args.page.limit, args.page.cursor.clone(), async |limit, cursor| {
        let target = Target::new("/v1/effects")
            .with_flag("pending", args.pending)
            .with_flag("unsafe", args.r#unsafe)
            .with("limit", limit)
            .with_some("cursor", cursor);
        let page: Effects = session.read(target, &args.reading).await?;
        unavailable.extend(page.unavailable_partitions);
        Ok((page.effects, page.next_cursor))
    })
    .await?;
    let unavailable_partitions = unavailable.into_iter().collect();
    session.output.answer(&Effects { effects, unavailable_partitions, next_cursor }, human)?;
    Ok(Answer::Yes)
}

fn human(page: &Effects, text: &mut Text) {
    let rows = page.effects.iter().map(|Effect { run_id, pending: effect, position }| {
        [
            Cell::from(run_id),
            Cell::from(&effect.tool_name),
            effect.occurrence.into(),
            Cell::word(&effect.status),
            effect.class.as_deref().map(Cell::word).into(),
            (effect.evidence.len() as u64).into(),
            super::place(position),
            Cell::from(&effect.id),
        ]
    });
    let heads = ["RUN", "TOOL", "N", "STATUS", "CLASS", "EVIDENCE", "POSITION", "ID"];
    text.table(heads, rows.collect(), "no effects");
    super::unavailable(&page.unavailable_partitions, text);
    super::more(page.next_cursor.as_deref(), text);
}

/// The body of a resolution.
#[derive(Debug, Serialize)]
struct Resolution<'a> {
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Json>,
    who: &'a str,
    why: &'a str,
}

async fn resolve(session: &Session, args: args::Resolve) -> Result<Answer, Error> {
    let (decision, result) = decided(&args.decision)?;
    let body = Resolution { decision, result, who: &args.signed.who, why: &args.signed.why };
    let target = Target::run(&args.of.run).path("/effects").segment(&args.id).path("/resolution");
    let wait = session.wait(&args.wait, APPEND_WAIT);
    let outcome: Outcome = session.client.post(target, super::body(&body)?, wait).await?;
    session.output.answer(&outcome, super::outcome)?;
    Ok(Answer::of(&outcome))
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
        let body = super::super::body(&Resolution { decision, result, who: "w", why: "t" }).unwrap();
        assert_eq!(body, r#"{"decision":"done","result":{"n":12345678901234567890,"a":1.50},"who":"w","why":"t"}"#);
        assert_eq!(flags(None, true, false, false), ("adopt", None));
        assert_eq!(flags(None, false, true, false), ("not_done", None));
        assert_eq!(flags(None, false, false, true), ("give_up", None));
    }
}

//! `retention`: lists retention horizons, and deletes the content of old records.

use super::{confirm::confirm, pages};
use crate::{
    args,
    client::{self, Target},
    error::Error,
    exit::Answer,
    render,
    session::{APPEND_WAIT, Session},
    text::{Cell, Text},
    value,
};
use runlog_schemas::{
    answer::{Feature, Horizons, Outcomes, RetentionPlan},
    id::PartitionId,
};
use serde::Serialize;

pub(super) async fn run(session: &Session, args: args::Retention) -> Result<Answer, Error> {
    match (&args.family, &args.until, &args.who, &args.why) {
        (Some(family), Some(until), Some(who), Some(why)) => {
            let horizon = Horizon { partition: args.partition, family, until, who, why };
            append(session, &args, &horizon).await
        }
        _ => list(session, args).await,
    }
}

async fn list(session: &Session, args: args::Retention) -> Result<Answer, Error> {
    let target = Target::new("/v1/horizons");
    let list: Horizons = pages::get(session, target, &args.page, &args.reading).await?;
    session.output.answer(&list, |list, text| {
        text.list(&list.horizons, "no retention horizon; all content is kept")
            .column("POSITION", |horizon| render::position(&horizon.position))
            .column("FAMILY", |horizon| &horizon.family)
            .column("UNTIL", |horizon| &horizon.until)
            .column("WHO", |horizon| &horizon.who)
            .column("WHY", |horizon| Cell::from(&horizon.why).dim())
            .print();
        pages::print_rest(list, text);
    })?;
    Ok(Answer::Yes)
}

/// The body of a horizon.
#[derive(Debug, Serialize)]
struct Horizon<'a> {
    partition: Option<PartitionId>,
    family: &'a str,
    until: &'a str,
    who: &'a str,
    why: &'a str,
}

async fn append(session: &Session, args: &args::Retention, horizon: &Horizon<'_>) -> Result<Answer, Error> {
    let wait = session.wait(&args.reading.wait, APPEND_WAIT);
    let (target, body) = (|| Target::new("/v1/horizons"), client::body(horizon)?);
    session.needs(&[Feature::DryRun], wait).await?;
    let plan: RetentionPlan = session.client.post(target().with_flag("dry_run", true), body.clone(), wait).await?;
    if args.dry_run {
        session.output.answer(&plan, human_plan)?;
        return Ok(Answer::Yes);
    }
    confirm(args.consent, &format!("delete the content of {} {} records", plan.records, plan.family), |text| {
        human_plan(&plan, text);
    })?;
    let appended: Outcomes = session.client.post(target(), body, wait).await?;
    session.output.answer(&appended, |appended, text| {
        for outcome in &appended.outcomes {
            render::outcome(outcome, text);
        }
    })?;
    Ok(Answer::from_bool(appended.outcomes.iter().all(|outcome| Answer::from_outcome(outcome) == Answer::Yes)))
}

fn human_plan(plan: &RetentionPlan, text: &mut Text) {
    let partitions: Vec<String> = plan
        .partitions
        .iter()
        .filter(|partition| partition.records > 0)
        .map(|partition| format!("{} ({})", partition.partition, partition.records))
        .collect();
    let at_least = if plan.complete { "" } else { "at least " };
    text.facts([
        ("family", Cell::from(&plan.family)),
        ("received before", Cell::from(&plan.until)),
        ("records", Cell::from(format!("{at_least}{}", plan.records))),
        ("partitions", Cell::from(partitions.join(", "))),
        ("effect", Cell::from("the content cannot be read any more; this cannot be undone").bad()),
    ]);
    if value::millis(&plan.until).is_some_and(|until| until > crate::ambient::now_millis()) {
        let future = format!("{} is in the future: content that arrives before then is deleted, too", plan.until);
        text.line([Cell::from(future).bad()]);
    }
}

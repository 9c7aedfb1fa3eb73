//! `retention`: lists retention horizons, and deletes the content of old records.

use super::{confirm::confirm, pages};
use crate::{
    Error, args,
    client::{self, Target},
    exit::Answer,
    render,
    session::{APPEND_WAIT, Session},
    text::Cell,
};
use runlog_schemas::{
    answer::{Horizons, Outcomes},
    id::PartitionId,
};
use serde::Serialize;
use std::collections::BTreeSet;

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
    let mut unavailable = BTreeSet::new();
    let (horizons, next_cursor) = pages::gather(args.page.limit, args.page.cursor.clone(), async |limit, cursor| {
        let target = Target::new("/v1/horizons").with("limit", limit).with_some("cursor", cursor);
        let page: Horizons = session.read(target, &args.reading).await?;
        unavailable.extend(page.unavailable_partitions);
        Ok((page.horizons, page.next_cursor))
    })
    .await?;
    let unavailable_partitions = unavailable.into_iter().collect();
    session.output.answer(&Horizons { horizons, unavailable_partitions, next_cursor }, |page, text| {
        let rows = page.horizons.iter().map(|horizon| {
            [
                render::position(&horizon.position),
                Cell::from(&horizon.family),
                Cell::from(&horizon.until),
                Cell::from(&horizon.who),
                Cell::from(&horizon.why).dim(),
            ]
        });
        text.table(
            ["POSITION", "FAMILY", "UNTIL", "WHO", "WHY"],
            rows.collect(),
            "no retention horizon; all content is kept",
        );
        render::unavailable(&page.unavailable_partitions, text);
        render::more(page.next_cursor.as_deref(), text);
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
    confirm(args.consent, &format!("delete the content of {} records", horizon.family), |text| {
        let partitions = horizon.partition.map_or_else(|| "all".to_owned(), |partition| partition.to_string());
        text.facts([
            ("family", Cell::from(horizon.family)),
            ("received before", Cell::from(horizon.until)),
            ("partitions", partitions.into()),
            ("effect", Cell::from("the content cannot be read any more; this cannot be undone").bad()),
        ]);
    })?;
    let appended: Outcomes = session.client.post(Target::new("/v1/horizons"), client::body(horizon)?, wait).await?;
    session.output.answer(&appended, |appended, text| {
        for outcome in &appended.outcomes {
            render::outcome(outcome, text);
        }
    })?;
    Ok(Answer::from_bool(appended.outcomes.iter().all(|outcome| Answer::of(outcome) == Answer::Yes)))
}

//! `retention`: what took content away, and taking it away.

use super::{APPEND_WAIT, Answer, Session, pages};
use crate::{Error, args, client::Target, text::Cell};
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
                super::place(&horizon.position),
                Cell::from(&horizon.family),
                Cell::from(&horizon.until),
                Cell::from(&horizon.who),
                Cell::from(&horizon.why).dim(),
            ]
        });
        text.table(["POSITION", "FAMILY", "UNTIL", "WHO", "WHY"], rows.collect(), "no content was taken away");
        super::unavailable(&page.unavailable_partitions, text);
        super::more(page.next_cursor.as_deref(), text);
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
    let appended: Outcomes = session.client.post(Target::new("/v1/horizons"), super::body(horizon)?, wait).await?;
    session.output.answer(&appended, |appended, text| {
        for outcome in &appended.outcomes {
            super::outcome(outcome, text);
        }
    })?;
    Ok(Answer::from_bool(appended.outcomes.iter().all(|outcome| Answer::of(outcome) == Answer::Yes)))
}

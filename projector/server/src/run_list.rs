//! A page of runs, by id or newest first.

use super::{
    app::App,
    parameters::{Ask, limit},
    problem::Refusal,
};
use axum::{Json, extract::Query};
use runlog_projector::index::{
    error::Error,
    projector::Consistency,
    query::{
        self, parse_cursor, parse_time,
        runs::{Filter, NewestFirst},
    },
};
use runlog_schemas::{
    answer::{ErrorKind, Run, RunStatus, Runs},
    datum::hex,
    id::RunId,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{cmp::Reverse, collections::BTreeSet};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    status: Option<String>,
    #[serde(default)]
    prefix: String,
    /// Sorts newest first, instead of by id.
    #[serde(default)]
    newest: bool,
    /// RFC 3339, inclusive.
    since: Option<String>,
    #[serde(default)]
    stuck: bool,
    /// Only open runs whose home was lost and that no operator has accepted.
    #[serde(default)]
    in_doubt: bool,
    /// Adds a summary to each run.
    #[serde(default)]
    summary: bool,
    /// A duration such as `30s`.
    idle: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// Runs that a newest-first page reads, in all partitions together: all runs of the times that it spans, also runs that the filter
/// leaves out.
const NEWEST_AMONG_MAX: usize = 1_000_000;

/// The start of a page.
enum After {
    Id(Option<RunId>),
    Newest(Option<NewestFirst>),
}

/// The first byte of a newest-first cursor. No UTF-8 text, such as a run id, contains it.
const NEWEST: u8 = 0xff;

impl After {
    fn parse(newest: bool, cursor: Option<&str>) -> Result<Self, Error> {
        let Some(bytes) = parse_cursor(cursor)? else {
            return Ok(if newest { Self::Newest(None) } else { Self::Id(None) });
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let after = match bytes.split_first() {
            Some((&NEWEST, place)) if newest => text(place).and_then(|place| {
                let (millis, run_id) = place.split_once(':')?;
                Some(Self::Newest(Some((Reverse(millis.parse().ok()?), RunId::new(run_id.to_owned()).ok()?))))
            }),
            _ if newest => None,
            _ => text(&bytes).and_then(|id| Some(Self::Id(Some(RunId::new(id).ok()?)))),
        };
        after.ok_or_else(|| Error::new(ErrorKind::Usage, "not a cursor of this list"))
    }
}

fn cursor_of((Reverse(millis), run_id): &NewestFirst) -> String {
    let mut bytes = vec![NEWEST];
    bytes.extend(format!("{millis}:{run_id}").into_bytes());
    hex(&bytes)
}

pub(super) async fn list(app: App, Query(query): Query<ListQuery>) -> Result<Json<Runs>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let limit = limit(query.limit)?;
    // An index without the takeover has no run in doubt.
    let consistency = ask.consistency(if query.in_doubt { Consistency::Latest } else { Consistency::Eventual })?;
    let status = query.status.map(|status| {
        status.parse::<RunStatus>().map_err(|error| Error::new(ErrorKind::Usage, format!("status {error}")))
    });
    let since_millis = query.since.as_deref().map(parse_time).transpose()?;
    let idle: Option<Result<i64, Error>> = query.idle.as_deref().map(|idle| {
        let usage = |error| Error::new(ErrorKind::Usage, format!("idle is no duration such as 30s: {error}"));
        Ok(i64::try_from(humantime::parse_duration(idle).map_err(usage)?.as_millis()).unwrap_or(i64::MAX))
    });
    let idle = idle.transpose()?;
    let mut filter = Filter {
        prefix: query.prefix,
        status: status.transpose()?,
        since_millis,
        until_millis: idle.map(|idle| app.projector.log_now().saturating_sub(idle)),
        stuck: query.stuck,
        in_doubt_since: None,
        visible: app.caller.visible(),
    };
    let has_summary = query.summary;
    let after = After::parse(query.newest, query.cursor.as_deref())?;
    let mut unavailable_partitions = app.wait_for_partitions(consistency, ask.deadline()).await?;
    if query.in_doubt {
        // The runs in doubt of a stopped partition stay in doubt, and so they are listed.
        unavailable_partitions.retain(|partition| app.projector.is_rebuilding(*partition).unwrap_or(true));
        filter.in_doubt_since = app.projector.home().takeover();
        if filter.in_doubt_since.is_none() {
            return Ok(Json(Runs { runs: Vec::new(), unavailable_partitions, next_cursor: None }));
        }
    }
    app.read(move |app| {
        let (mut runs, next_cursor) = match after {
            After::Id(after) => by_id(app, &filter, after.as_ref(), limit),
            After::Newest(after) => newest(app, &filter, after.as_ref(), limit),
        }?;
        if has_summary {
            let partitions: BTreeSet<_> = runs.iter().map(|run| run.position.partition).collect();
            for partition in partitions {
                let store = app.projector.store(partition)?;
                let view = store.view();
                for run in runs.iter_mut().filter(|run| run.position.partition == partition) {
                    run.summary = Some(query::runs::summary(&view, run)?);
                }
            }
        }
        Ok(Json(Runs { runs, unavailable_partitions, next_cursor }))
    })
    .await
    .map_err(Refusal)
}

/// The runs of a page, and the cursor of the next page.
type Page = (Vec<Run>, Option<String>);

/// Reads a page by id. Blocking, as is [`newest`].
fn by_id(app: &App, filter: &Filter, after: Option<&RunId>, limit: usize) -> Result<Page, Error> {
    let (mut runs, now) = (Vec::new(), app.projector.log_now());
    for partition in app.projector.held_partitions() {
        let (store, place) = (app.projector.store(partition)?, app.topic_partition(partition));
        // One run more than requested shows whether there is another page.
        let after = after.map(RunId::borrow);
        runs.extend(query::runs::list(&store.view(), place, filter, after, limit + 1, now)?);
    }
    runs.sort_by(|a: &Run, b| a.run_id.cmp(&b.run_id));
    let more = runs.len() > limit;
    runs.truncate(limit);
    let next_cursor = runs.last().filter(|_| more).map(|run| app.with_log(hex(run.run_id.as_bytes())));
    Ok((runs, next_cursor))
}

/// Reads a page newest first. A run that gets new records between two pages moves to the first page.
fn newest(app: &App, filter: &Filter, after: Option<&NewestFirst>, limit: usize) -> Result<Page, Error> {
    let (mut runs, now, mut steps) = (Vec::new(), app.projector.log_now(), NEWEST_AMONG_MAX);
    for partition in app.projector.held_partitions() {
        let (store, place) = (app.projector.store(partition)?, app.topic_partition(partition));
        runs.extend(query::runs::newest(&store.view(), place, filter, after, limit + 1, now, &mut steps)?);
    }
    runs.sort_by(|(a, _), (b, _)| a.cmp(b));
    let more = runs.len() > limit;
    runs.truncate(limit);
    let next_cursor = runs.last().filter(|_| more).map(|(at, _)| app.with_log(cursor_of(at)));
    Ok((runs.into_iter().map(|(_, run)| run).collect(), next_cursor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_belongs_to_one_order() {
        let at = (Reverse(17), RunId::new("a:b".to_owned()).unwrap());
        let newest = cursor_of(&at);
        assert!(matches!(After::parse(true, Some(&newest)), Ok(After::Newest(Some(found))) if found == at));
        assert!(After::parse(false, Some(&newest)).is_err());
        let by_id = hex(b"17:a");
        assert!(matches!(After::parse(false, Some(&by_id)), Ok(After::Id(Some(_)))));
        assert!(After::parse(true, Some(&by_id)).is_err());
    }
}

//! Finds events across runs by the summaries of their records.

use super::{
    app::App,
    multi_query::WithCorrelation,
    pages::{Pages, across},
    parameters::Ask,
    problem::Refusal,
};
use axum::Json;
use runlog_projector::index::{
    error::Error,
    query::{self, events::Filter},
};
use runlog_schemas::{
    answer::{ErrorKind, Events},
    id::RunId,
    refs::EntityKind,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// `subject` and `related` are KIND:ID. Each `correlation` is KEY=VALUE, and is parsed separately.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    run: Option<RunId>,
    family: Option<String>,
    kind: Option<String>,
    subject: Option<String>,
    related: Option<String>,
    tag: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// Takes the terms from a query that repeats them as its own members, since serde cannot combine `flatten` with
/// `deny_unknown_fields`.
macro_rules! terms {
    ($query:expr, $correlation:expr) => {
        $crate::events::Terms {
            family: $query.family.as_deref(),
            kind: $query.kind.as_deref(),
            subject: $query.subject.as_deref(),
            related: $query.related.as_deref(),
            correlation: &$correlation,
            tag: $query.tag.as_deref(),
        }
    };
}
pub(super) use terms;

/// The unparsed terms of a query on records' summaries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'q> {
    pub(super) family: Option<&'q str>,
    pub(super) kind: Option<&'q str>,
    pub(super) subject: Option<&'q str>,
    pub(super) related: Option<&'q str>,
    pub(super) correlation: &'q [String],
    pub(super) tag: Option<&'q str>,
}

impl Terms<'_> {
    /// Errors: `Usage` for a malformed subject, related entity or correlation entry.
    pub(super) fn filter(self, run_id: Option<&RunId>) -> Result<Filter, Error> {
        let usage = |text: &str, form| Error::new(ErrorKind::Usage, format!("{text:?} is not {form}"));
        let entity = |text: &str| -> Result<(EntityKind, String), Error> {
            let parsed = text.split_once(':').and_then(|(kind, id)| {
                let kind = EntityKind::ALL.iter().find(|each| each.as_str() == kind)?;
                Some((*kind, id.to_owned()))
            });
            parsed.ok_or_else(|| usage(text, "KIND:ID, of the contract's kinds of entities"))
        };
        let correlation = self.correlation.iter().map(|text| {
            let (key, value) = text.split_once('=').ok_or_else(|| usage(text, "KEY=VALUE"))?;
            Ok::<_, Error>((key.to_owned(), value.to_owned()))
        });
        Ok(Filter {
            run_id: run_id.cloned(),
            family: self.family.map(str::to_owned),
            kind: self.kind.map(str::to_owned),
            subject: self.subject.map(entity).transpose()?,
            related: self.related.map(entity).transpose()?,
            correlation: correlation.collect::<Result<_, _>>()?,
            tag: self.tag.map(str::to_owned),
            ..Filter::default()
        })
    }
}

/// Answers a page of events. Default consistency: `latest` for a query that names a run.
pub(super) async fn list(
    app: App,
    WithCorrelation(query, correlation): WithCorrelation<EventsQuery>,
) -> Result<Json<Events>, Refusal> {
    let filter = Filter { visible: app.caller.visible(), ..terms!(query, correlation).filter(query.run.as_ref())? };
    let pages = Pages::parse(query.limit, query.cursor.as_deref())?;
    let ask = Ask { consistency: query.consistency.clone(), deadline_ms: query.deadline_ms };
    let unavailable_partitions = app.wait_for_run_or_all(query.run.as_ref().map(RunId::borrow), &ask).await?;
    let only = query.run.as_ref().map(|run_id| app.projector.partition_of(run_id.borrow()));
    app.read(move |app| {
        let (events, next_cursor) = across(app, pages, only, |app, partition, cursor, limit| {
            let store = app.projector.store(partition)?;
            query::events::page(&store.view(), app.topic_partition(partition), &filter, cursor, limit)
        })?;
        Ok(Json(Events { events, unavailable_partitions, next_cursor }))
    })
    .await
    .map_err(Refusal)
}

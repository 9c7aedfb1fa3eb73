//! Appends to a log and queries a projector inside this process.
//!
//! The projector makes the same checks as for a server's routes. A query reads rows only through a [`FreshRun`], so it states whether
//! its answer continues the run or is only shown.

use super::request::{AppendFailed, Appended, RecordFilter, RecoveryQuery, ToAppend, run_of, unacknowledged};
use crate::{
    config::Config,
    error::{Action, Error},
};
use runlog_content::Store;
use runlog_projector::{
    Consistency, Contents, Projector,
    index::{
        as_of::{BYTES_MAX, Limits, RunAsOf},
        projector::{Author, NotAppended},
        query::{self, TopicPartition, timeline},
        store::View,
    },
    open,
};
use runlog_schemas::{
    answer::{Checkpoint, ErrorKind, Feature, Lines, Lookup, Position, ReadBack, Recovery, Run},
    headers,
    id::{JournalSeq, PartitionId, RecordId, RunId},
};
use std::{path::Path, sync::Arc, time::Duration};

/// A journal in a folder. Only one process at a time can open it.
#[derive(Debug)]
pub(crate) struct Local {
    projector: Arc<Projector>,
    deadline: Duration,
}

fn error(error: &runlog_projector::Error) -> Error {
    error.problem().into()
}

impl Local {
    pub(crate) async fn open(dir: &Path, config: &Config) -> Result<Self, Error> {
        let content = config.content_store()?;
        let settings = runlog_projector::Config::new(dir, config.clock, config.ids);
        let settings = runlog_projector::Config { content, ..settings };
        let projector = open::local(settings).await.map_err(|failed| error(&failed))?;
        Ok(Self::new(Arc::new(projector), config.deadline))
    }

    pub(crate) fn new(projector: Arc<Projector>, deadline: Duration) -> Self {
        Self { projector, deadline }
    }

    pub(super) fn has(&self, feature: Feature) -> bool {
        self.projector.has(feature)
    }

    pub(crate) fn content(&self) -> Option<&Store> {
        self.projector.content()
    }

    pub(crate) async fn append(&self, all: &[ToAppend<'_>]) -> Result<Vec<Appended>, AppendFailed> {
        let Some(ToAppend { record: first, .. }) = all.first() else { return Ok(Vec::new()) };
        let refused = |failed| AppendFailed { error: error(&failed), untouched: true };
        let entry = |&ToAppend { record, trace }: &ToAppend<'_>| {
            let mut entry = self.projector.entry(record).map_err(refused)?;
            entry.headers.extend(headers::trace(trace));
            Ok(entry)
        };
        let entries = all.iter().map(entry).collect::<Result<_, _>>()?;
        let (run_id, author) = (run_of(first)?, Author::of(all.iter().map(|one| one.record)));
        let partition = self.projector.partition_of(run_id);
        let ack = tokio::time::timeout(self.deadline, self.projector.append(run_id, author, entries)).await;
        let offsets = ack.map_err(|_| unacknowledged(first, self.deadline))?.map_err(|failed| {
            let NotAppended { error: failed, had_no_effect } = failed;
            AppendFailed { error: error(&failed), untouched: had_no_effect }
        })?;
        let at = |offset| Appended::with_position(self.projector.position(partition, offset, 0));
        Ok(offsets.into_iter().map(at).collect())
    }

    pub(crate) async fn read_back(
        &self,
        run_id: RunId<&str>,
        position: &Position,
        record_id: Option<RecordId<&str>>,
        also: &[Position],
        deadline: Duration,
    ) -> Result<ReadBack, Error> {
        let answer = self.projector.read_back(run_id, position, record_id, also, Consistency::Latest, deadline);
        answer.await.map_err(|failed| error(&failed))
    }

    pub(crate) async fn landed(
        &self,
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
        at_least: Option<&Position>,
    ) -> Result<Option<ReadBack>, Error> {
        let consistency =
            at_least.map_or(Consistency::Latest, |position| Consistency::AtLeast(position.partition, position.offset));
        let answer = self.projector.landed(run_id, record_id, consistency, self.deadline);
        answer.await.map_err(|failed| error(&failed))
    }

    /// Waits for rows by which the agent continues the run. Refuses a run in doubt.
    async fn to_continue(&self, run_id: RunId<&str>, consistency: Consistency) -> Result<FreshRun<'_>, Error> {
        let waited = self.projector.wait_to_continue(run_id, consistency, self.deadline).await;
        let partition = waited.map_err(|failed| error(&failed))?;
        Ok(FreshRun { local: self, partition, run_id: run_id.to_owned() })
    }

    /// Waits for rows that are only shown.
    async fn to_show(&self, run_id: RunId<&str>) -> Result<FreshRun<'_>, Error> {
        let partition = self.projector.partition_of(run_id);
        let waited = self.projector.wait(partition, Consistency::Latest, self.deadline).await;
        waited.map_err(|failed| error(&failed))?;
        Ok(FreshRun { local: self, partition, run_id: run_id.to_owned() })
    }

    pub(crate) async fn run(&self, run_id: RunId<&str>) -> Result<Option<Run>, Error> {
        let fresh = self.to_continue(run_id, Consistency::Latest).await?;
        fresh.query(|Rows { view, place, run_id, now, .. }| query::runs::get(view, place, run_id, now)).await
    }

    pub(crate) async fn recovery(
        &self,
        run_id: RunId<&str>,
        query: RecoveryQuery,
        cursor: Option<&str>,
    ) -> Result<Option<Recovery>, Error> {
        let fresh = self.to_continue(run_id, Consistency::Latest).await?;
        let cursor = query::parse_cursor(cursor).map_err(|failed| error(&failed))?;
        let RecoveryQuery { from_start, content, limit } = query;
        let partitions = self.projector.journal().partitions;
        fresh
            .query(move |Rows { view, contents, place, run_id: run, now }| {
                let (pending, now) = (query::recovery::PENDING_MAX, Some(now));
                let ask = query::recovery::Query { full: true, from_start, content, limit, pending, now };
                let cursor = cursor.as_deref();
                // All pages show one state of the run. If records were applied since, later pages read the earlier state.
                let first_page_offset =
                    cursor.map(|cursor| query::recovery::cursor_offset(view, run, cursor)).transpose()?.flatten();
                let Some(offset) = first_page_offset else {
                    return query::recovery::get(view, contents, place, run, ask, cursor);
                };
                let mut then = RunAsOf::new(run.to_owned(), place.partition, partitions);
                then.fold(view, offset, Limits { bytes: BYTES_MAX, until: None })?;
                query::recovery::get(then.rows(), contents, place, run, ask, cursor)
            })
            .await
    }

    pub(crate) async fn records(
        &self,
        run_id: RunId<&str>,
        which: &RecordFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<Lines>, Error> {
        let fresh = self.to_show(run_id).await?;
        let cursor = query::parse_cursor(cursor).map_err(|failed| error(&failed))?;
        if !(1..=query::LIMIT_MAX).contains(&limit) {
            let message = format!("a page has 1 to {} records, not {limit}", query::LIMIT_MAX);
            return Err(Error::new(ErrorKind::Usage, Action::FixTheInput, message));
        }
        let filter = query::events::Filter {
            run_id: Some(run_id.to_owned()),
            family: which.family.clone(),
            kind: which.kind.clone(),
            correlation: which.correlation.clone().into_iter().collect(),
            tag: which.tag.clone(),
            ..query::events::Filter::default()
        };
        let all = *which == RecordFilter::default();
        fresh
            .query(move |Rows { view, contents, place, run_id: run, now }| {
                let cursor = cursor.as_deref();
                if query::runs::get(view, place, run, now)?.is_none() {
                    return Ok(None);
                }
                let show = timeline::Show::Whole.into();
                let ask = timeline::Query { limit, show, as_of: None, order: query::Order::Asc };
                if all {
                    return timeline::page(view, contents, place, run, ask, cursor).map(Some);
                }
                timeline::page_matching(view, contents, place, (run, &filter), ask, cursor).map(Some)
            })
            .await
    }

    pub(crate) async fn checkpoint(
        &self,
        run_id: RunId<&str>,
        at_or_before: Option<JournalSeq>,
    ) -> Result<Option<Checkpoint>, Error> {
        let fresh = self.to_continue(run_id, Consistency::Latest).await?;
        let answer = fresh.query(move |Rows { view, contents, place, run_id, .. }| {
            let latest = query::checkpoint::latest(view, contents, place, run_id, at_or_before)?;
            query::checkpoint::answer_latest(place, run_id, latest)
        });
        match answer.await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            answer => answer.map(Some),
        }
    }

    pub(crate) async fn call(&self, run_id: RunId<&str>, id: RecordId<&str>) -> Result<Lookup, Error> {
        let (fresh, request) = (self.to_continue(run_id, Consistency::Latest).await?, id.to_owned());
        let answer = fresh.query(move |Rows { view, contents, place, run_id, .. }| {
            query::lookup::by_request(view, contents, place, run_id, request.borrow())
        });
        let none = || Error::new(ErrorKind::NotFound, Action::Operator, format!("run {run_id} has no call {id}"));
        answer.await?.ok_or_else(none)
    }

    pub(crate) async fn call_with_key(
        &self,
        run_id: RunId<&str>,
        (tool, key): (&str, &str),
        at_least: &Position,
    ) -> Result<Option<Lookup>, Error> {
        let at_least = Consistency::AtLeast(at_least.partition, at_least.offset);
        let fresh = self.to_continue(run_id, at_least).await?;
        let (tool, key) = (tool.to_owned(), key.to_owned());
        fresh
            .query(move |Rows { view, contents, place, run_id, .. }| {
                query::lookup::by_key(view, contents, place, run_id, (&tool, &key))
            })
            .await
    }
}

/// A run whose partition is as fresh as a query needs.
struct FreshRun<'a> {
    local: &'a Local,
    partition: PartitionId,
    run_id: RunId,
}

/// The inputs of a query.
struct Rows<'a> {
    view: &'a View<'a>,
    contents: &'a Contents,
    place: TopicPartition<'a>,
    run_id: RunId<&'a str>,
    /// The log's time, milliseconds since the Unix epoch.
    now: i64,
}

impl FreshRun<'_> {
    /// Runs a query on a thread that may block.
    async fn query<T: Send + 'static>(
        self,
        query: impl FnOnce(Rows<'_>) -> Result<T, runlog_projector::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Self { local: Local { projector, deadline }, partition, run_id } = self;
        let (reader, wait) = (projector.clone(), *deadline);
        let answered = projector.executor().run(move || {
            let (store, contents) = (reader.store(partition)?, reader.contents(wait));
            let (view, place, now) = (store.view(), reader.place(partition), reader.log_now());
            query(Rows { view: &view, contents: &contents, place, run_id: run_id.borrow(), now })
        });
        let answered = answered.await.map_err(|failed| {
            Error::new(ErrorKind::Internal, Action::Operator, format!("a query panicked: {failed}"))
        })?;
        answered.map_err(|failed| error(&failed))
    }
}

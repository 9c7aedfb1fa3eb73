//! Appends to a log and queries a projector inside this process.

use super::request::{AppendFailed, Appended, RecordFilter, RecoveryQuery, ToAppend, run_of, unacknowledged};
use crate::{
    config::Config,
    error::{Action, Error},
};
use runlog_content::Store;
use runlog_log::Kind;
use runlog_projector::{
    Consistency, Projector,
    index::{
        as_of::{BYTES_MAX, Limits, RunAsOf},
        query::{self, timeline},
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
        let partition = self.projector.partition_of(run_of(first)?);
        let ack = self.projector.log().append(partition, entries);
        let ack = tokio::time::timeout(self.deadline, ack).await.map_err(|_| unacknowledged(first, self.deadline))?;
        let offsets = ack.map_err(|failed| {
            let untouched = matches!(failed.kind(), Kind::Retry | Kind::Invalid | Kind::NotHome);
            let failed = runlog_projector::Error::of_append(failed);
            AppendFailed { error: error(&failed), untouched }
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

    async fn wait_for_latest(&self, run_id: RunId<&str>) -> Result<PartitionId, Error> {
        self.wait_for(run_id, Consistency::Latest).await
    }

    async fn wait_for(&self, run_id: RunId<&str>, consistency: Consistency) -> Result<PartitionId, Error> {
        let partition = self.projector.partition_of(run_id);
        let wait = self.projector.wait(partition, consistency, self.deadline);
        wait.await.map_err(|failed| error(&failed))?;
        Ok(partition)
    }

    pub(crate) async fn run(&self, run_id: RunId<&str>) -> Result<Option<Run>, Error> {
        let partition = self.wait_for_latest(run_id).await?;
        let run_id = run_id.to_owned();
        self.query(move |projector| {
            let place = projector.place(partition);
            query::runs::get(&projector.store(partition).view(), place, run_id.borrow(), projector.log_now())
        })
        .await
    }

    /// Runs a query on a thread that may block.
    async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Projector) -> Result<T, runlog_projector::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let projector = self.projector.clone();
        let answered = self.projector.executor().run(move || query(&projector)).await;
        let answered = answered.map_err(|failed| {
            Error::new(ErrorKind::Internal, Action::Operator, format!("a query panicked: {failed}"))
        })?;
        answered.map_err(|failed| error(&failed))
    }

    pub(crate) async fn recovery(
        &self,
        run_id: RunId<&str>,
        query: RecoveryQuery,
        cursor: Option<&str>,
    ) -> Result<Option<Recovery>, Error> {
        let partition = self.wait_for_latest(run_id).await?;
        let cursor = query::parse_cursor(cursor).map_err(|failed| error(&failed))?;
        let RecoveryQuery { from_start, content, limit } = query;
        let (pending, now) = (query::recovery::PENDING_MAX, Some(self.projector.log_now()));
        let ask = query::recovery::Query { full: true, from_start, content, limit, pending, now };
        let (run_id, wait) = (run_id.to_owned(), self.deadline);
        self.query(move |projector| {
            let (store, contents) = (projector.store(partition), projector.contents(wait));
            let place = projector.place(partition);
            let (view, run, cursor) = (store.view(), run_id.borrow(), cursor.as_deref());
            // All pages show one state of the run. If records were applied since, later pages read the earlier state.
            let first_page_offset =
                cursor.map(|cursor| query::recovery::cursor_offset(&view, run, cursor)).transpose()?.flatten();
            let Some(offset) = first_page_offset else {
                return query::recovery::get(&view, &contents, place, run, ask, cursor);
            };
            let mut then = RunAsOf::new(run_id.clone(), partition, projector.journal().partitions);
            then.fold(&view, offset, Limits { bytes: BYTES_MAX, until: None })?;
            query::recovery::get(then.rows(), &contents, place, run, ask, cursor)
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
        let partition = self.wait_for_latest(run_id).await?;
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
        let (run, wait, all) = (run_id.to_owned(), self.deadline, *which == RecordFilter::default());
        self.query(move |projector| {
            let (store, contents) = (projector.store(partition), projector.contents(wait));
            let place = projector.place(partition);
            let (view, run, cursor) = (store.view(), run.borrow(), cursor.as_deref());
            if query::runs::get(&view, place, run, projector.log_now())?.is_none() {
                return Ok(None);
            }
            let show = timeline::Show::Whole.into();
            let ask = timeline::Query { limit, show, as_of: None, order: query::Order::Asc };
            if all {
                return timeline::page(&view, &contents, place, run, ask, cursor).map(Some);
            }
            timeline::page_matching(&view, &contents, place, (run, &filter), ask, cursor).map(Some)
        })
        .await
    }

    pub(crate) async fn checkpoint(
        &self,
        run_id: RunId<&str>,
        at_or_before: Option<JournalSeq>,
    ) -> Result<Option<Checkpoint>, Error> {
        let partition = self.wait_for_latest(run_id).await?;
        let (run, wait) = (run_id.to_owned(), self.deadline);
        let answer = self.query(move |projector| {
            let (store, contents) = (projector.store(partition), projector.contents(wait));
            let place = projector.place(partition);
            let latest = query::checkpoint::latest(&store.view(), &contents, place, run.borrow(), at_or_before)?;
            query::checkpoint::answer_latest(place, run.borrow(), latest)
        });
        match answer.await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            answer => answer.map(Some),
        }
    }

    pub(crate) async fn call(&self, run_id: RunId<&str>, id: RecordId<&str>) -> Result<Lookup, Error> {
        let partition = self.wait_for_latest(run_id).await?;
        let (run, request, wait) = (run_id.to_owned(), id.to_owned(), self.deadline);
        let answer = self.query(move |projector| {
            let (store, contents) = (projector.store(partition), projector.contents(wait));
            let place = projector.place(partition);
            query::lookup::by_request(&store.view(), &contents, place, run.borrow(), request.borrow())
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
        let partition = self.wait_for(run_id, Consistency::AtLeast(at_least.partition, at_least.offset)).await?;
        let (run, wait) = (run_id.to_owned(), self.deadline);
        let (tool, key) = (tool.to_owned(), key.to_owned());
        self.query(move |projector| {
            let (store, contents) = (projector.store(partition), projector.contents(wait));
            query::lookup::by_key(&store.view(), &contents, projector.place(partition), run.borrow(), (&tool, &key))
        })
        .await
    }
}

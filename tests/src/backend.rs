//! A journal backend (`local:`, memory, `http:`, `kafka:`) with a producer connected to it and faults to inject. The claims
//! in `claims/` run on each of them.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use anyhow::Context;
use runlog_log::memory::{AppendFault, MemoryLog, MemoryOptions};
use runlog_producer::{Action, Config, Error, Journal, Json, LoopState, OpenOptions, Run, Runlog};
use runlog_projector::{Consistency, Projector, index::query, open};
use runlog_schemas::{
    id::{Offset, RecordId, RunId},
    payload::{ConversationTurn, EffectResolution, Payload},
    record::JournalRecord,
    schema::WRITTEN_BY_DEFAULT,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{deployment::Deployment, http_proxy::HttpProxy, writers::compare};

/// Timeout of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Page size of reads; the runs here are shorter.
const RECORDS_MAX: usize = 1000;

/// A fault that leaves the outcome of an append unknown to its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The record is appended; its acknowledgement is lost.
    AckLost,
    /// The record is not appended, and its writer gets no answer.
    AppendLost,
    /// The append's future is dropped as soon as it is pending. The record may be appended now, later or never.
    Cancelled,
}

/// The result of an operation whose append had a fault.
#[derive(Debug)]
pub enum FaultOutcome {
    /// It failed with an error whose action is to reopen the run.
    Failed(Error),
    /// Its future was dropped.
    Dropped,
    /// It completed before its future was dropped.
    Completed,
}

/// A connected backend.
#[derive(Debug)]
pub struct Backend {
    /// A producer in this process.
    pub runlog: Runlog,
    /// The faults that can be injected here.
    pub faults: &'static [Fault],
    target: Target,
    _dir: Option<TempDir>,
}

#[derive(Debug)]
enum Target {
    /// Log and projector in this process.
    Embedded(Arc<Projector>, Option<MemoryLog>),
    /// A server; with a proxy in front of it if appends are sent to the server.
    Served(Box<Deployment>, Option<HttpProxy>),
}

fn id(run: &str) -> RunId<&str> {
    RunId::new(run).expect("a run id")
}

fn config() -> Config {
    Config::new(Journal::Local("unused".into()), "test")
}

impl Backend {
    /// `local:`.
    pub async fn local() -> anyhow::Result<Self> {
        let (dir, config) = (tempfile::tempdir()?, config());
        let settings = runlog_projector::Config::new(dir.path(), config.clock, config.ids);
        let projector = Arc::new(open::local(settings).await?);
        let runlog = Runlog::embedded(config, projector.clone());
        Ok(Self { runlog, faults: &[Fault::Cancelled], target: Target::Embedded(projector, None), _dir: Some(dir) })
    }

    /// A log in memory that can lose appends and acknowledgements.
    pub async fn memory(options: MemoryOptions) -> anyhow::Result<Self> {
        Self::memory_writing(options, WRITTEN_BY_DEFAULT).await
    }

    /// As [`Backend::memory`], in this schema version.
    pub async fn memory_writing(options: MemoryOptions, write_schema: u16) -> anyhow::Result<Self> {
        let (dir, config, log) = (tempfile::tempdir()?, config(), MemoryLog::with(options));
        let settings = runlog_projector::Config::new(dir.path(), config.clock, config.ids);
        let settings = runlog_projector::Config { write_schema, ..settings };
        let projector = Arc::new(Projector::start(settings, Arc::new(log.clone())).await?);
        let runlog = Runlog::embedded(config, projector.clone());
        // Its appends are never pending, so none can be cancelled.
        Ok(Self {
            runlog,
            faults: &[Fault::AckLost, Fault::AppendLost],
            target: Target::Embedded(projector, Some(log)),
            _dir: Some(dir),
        })
    }

    /// `http:`, through a proxy that injects faults.
    pub async fn http() -> anyhow::Result<Self> {
        let deployment = Deployment::http()?;
        let proxy = HttpProxy::start(&deployment.server.url, "/records")?;
        let runlog = deployment.connect_by(&proxy.url).await?;
        let faults = &[Fault::AckLost, Fault::AppendLost, Fault::Cancelled];
        Ok(Self { runlog, faults, target: Target::Served(Box::new(deployment), Some(proxy)), _dir: None })
    }

    /// `kafka:`.
    pub async fn kafka() -> anyhow::Result<Self> {
        let deployment = Deployment::kafka()?;
        let runlog = deployment.connect().await?;
        Ok(Self { runlog, faults: &[Fault::Cancelled], target: Target::Served(Box::new(deployment), None), _dir: None })
    }

    /// Connects another producer to the same journal with a changed configuration.
    pub async fn connect(&self, change: impl FnOnce(&mut Config)) -> Runlog {
        match &self.target {
            Target::Embedded(projector, _) => {
                let mut config = config();
                change(&mut config);
                Runlog::embedded(config, projector.clone())
            }
            Target::Served(deployment, proxy) => {
                let server = proxy.as_ref().map_or(&deployment.server.url, |proxy| &proxy.url);
                let mut config = deployment.config(server).expect("a journal");
                change(&mut config);
                Runlog::connect(config).await.expect("a journal")
            }
        }
    }

    /// The headers of each record of a run in the log. Only for a log in this process.
    pub async fn headers(&self, run: &str) -> Vec<BTreeMap<String, String>> {
        let Target::Embedded(projector, _) = &self.target else { panic!("the log is in another process") };
        let (log, partition) = (projector.log().clone(), projector.partition_of(id(run)));
        let end = log.bounds(partition, QUERY_TIMEOUT).await.expect("bounds").end;
        let read = move || {
            let mut reader = log.reader(&[(partition, Offset::ZERO)])?;
            let mut deliveries = Vec::new();
            while reader.position(partition).is_some_and(|next| next < end) {
                deliveries.extend(reader.poll(RECORDS_MAX, QUERY_TIMEOUT)?);
            }
            Ok::<_, runlog_log::Error>(deliveries)
        };
        let deliveries = tokio::task::spawn_blocking(read).await.expect("a reader").expect("records");
        let of_run = deliveries.into_iter().filter(|record| record.key == run.as_bytes());
        let text = |(name, value): (String, Vec<u8>)| (name, String::from_utf8(value).expect("UTF-8"));
        of_run.map(|record| record.headers.into_iter().map(text).collect()).collect()
    }

    /// Opens (claims) a run.
    pub async fn open(&self, run: &str) -> Run {
        self.runlog.open(run).await.expect("open")
    }

    /// Opens a run and allows unresolved effects.
    pub async fn open_unresolved(&self, run: &str) -> Run {
        let options = OpenOptions { allow_unresolved: true, ..OpenOptions::default() };
        self.runlog.open_with(run, options).await.expect("open")
    }

    /// Injects a fault into the next append. A cancellation is up to the caller, see [`Backend::run_with_fault`].
    pub fn inject(&self, fault: Fault) {
        match (&self.target, fault) {
            (_, Fault::Cancelled) => {}
            (Target::Embedded(_, Some(log)), Fault::AckLost) => log.fail_next(AppendFault::UnknownLanded),
            (Target::Embedded(_, Some(log)), Fault::AppendLost) => log.fail_next(AppendFault::UnknownLost),
            (Target::Served(_, Some(proxy)), Fault::AckLost) => proxy.truncate_next_response(),
            (Target::Served(_, Some(proxy)), Fault::AppendLost) => proxy.drop_next_request(),
            (target, fault) => panic!("{fault:?} cannot be injected on {target:?}"),
        }
    }

    /// Hides new records of a run's partition from readers until [`Backend::release`]. In memory only.
    pub fn hold(&self, run: &str) {
        let Target::Embedded(projector, Some(log)) = &self.target else {
            panic!("cannot hold a partition of {:?}", self.target)
        };
        log.hold(projector.partition_of(id(run)));
    }

    /// Ends [`Backend::hold`].
    pub fn release(&self, run: &str) {
        if let Target::Embedded(projector, Some(log)) = &self.target {
            log.release(projector.partition_of(id(run)));
        }
    }

    /// Runs an operation with a fault in its next append.
    pub async fn run_with_fault<T>(
        &self,
        fault: Fault,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> FaultOutcome {
        self.inject(fault);
        let polls = if fault == Fault::Cancelled { 1 } else { usize::MAX };
        // Unconstrained: a task without cooperative budget left would be pending before the operation starts.
        match dropped_after(polls, tokio::task::unconstrained(operation)).await {
            None => FaultOutcome::Dropped,
            Some(Err(error)) => {
                assert_eq!(error.action(), Action::Reopen, "{fault:?}: {error}");
                FaultOutcome::Failed(error)
            }
            // It completed before its future could be dropped.
            Some(Ok(_)) => {
                assert_eq!(fault, Fault::Cancelled);
                FaultOutcome::Completed
            }
        }
    }

    /// Stops a handle with a turn whose outcome is unknown. Returns how many turns the run has once it is reopened.
    pub async fn stop_handle(&self, fault: Fault, run: &Run) -> usize {
        let mut turns = 1;
        while matches!(self.run_with_fault(fault, run.turn("user", "unknown")).await, FaultOutcome::Completed) {
            turns += 1;
        }
        let error = run.turn("user", "after").await.expect_err("the handle is stopped");
        assert_eq!(error.action(), Action::Reopen, "{error}");
        turns
    }

    /// The payload types and payloads of a run, in log order.
    pub async fn records(&self, run: &str) -> Vec<(String, Value)> {
        let lines = match &self.target {
            Target::Embedded(projector, ..) => {
                let partition = projector.partition_of(id(run));
                projector.wait(partition, Consistency::Latest, QUERY_TIMEOUT).await.expect("latest");
                let (store, contents) =
                    (projector.store(partition).expect("a store"), projector.contents(QUERY_TIMEOUT));
                let place = projector.place(partition);
                let (show, order) = (query::timeline::Show::Raw.into(), query::Order::Asc);
                let ask = query::timeline::Query { limit: RECORDS_MAX, show, as_of: None, order };
                let page = query::timeline::page(&store.view(), &contents, place, id(run), ask, None);
                let line = |line| serde_json::to_value(line).expect("a line");
                page.expect("a page").records.into_iter().map(line).collect()
            }
            Target::Served(deployment, _) => {
                let http = crate::server::client().expect("a client");
                compare::lines(&http, &format!("{}/v1/runs/{run}", deployment.server.url)).await.expect("records")
            }
        };
        let kind = |line: &Value| line["payload_type"].as_str().expect("a type").to_owned();
        lines.into_iter().map(|mut line| (kind(&line), line["payload"].take())).collect()
    }

    /// The number of records of this type in a run.
    pub async fn count(&self, run: &str, payload_type: &str) -> usize {
        self.records(run).await.iter().filter(|(found, _)| found == payload_type).count()
    }

    /// Appends a record unchanged, under the writer that it names.
    pub async fn append(&self, record: JournalRecord) -> anyhow::Result<()> {
        match &self.target {
            Target::Embedded(projector, ..) => {
                let partition = projector.partition_of(record.body.run_id.borrow().context("a run")?);
                projector.log().append(partition, vec![projector.entry(&record)?]).await?;
                Ok(())
            }
            Target::Served(deployment, _) => std::thread::scope(|scope| {
                let appended = scope.spawn(|| deployment.append(&record)).join();
                appended.ok().context("a thread that appends")?
            }),
        }
    }

    /// Decides, as an operator, that the only pending effect of a run happened, with this result.
    pub async fn decide_done(&self, run: &str, result: &Value) {
        let recovery = self.runlog.recovery(run).await.expect("an answer").expect("a run");
        let [pending] = &recovery.pending[..] else { panic!("not one pending effect: {:?}", recovery.pending) };
        let resolution = EffectResolution {
            request_record_id: pending.id.clone(),
            decision: "done".into(),
            result: Some(Json::from(result.clone())),
            who: "operator".into(),
            why: "asked the receiver".into(),
        };
        let record_id = RecordId::new(format!("decision-{run}")).expect("a record id");
        let mut record = JournalRecord::new(id(run), record_id, "test", Payload::EffectResolution(resolution));
        record.body.facts.revision = Some(pending.revision);
        self.append(record).await.expect("appended");
        let left = self.runlog.recovery(run).await.expect("an answer").expect("a run");
        assert!(left.pending.is_empty(), "{:?}", left.pending);
    }

    /// Saves an empty checkpoint.
    pub async fn checkpoint(&self, run: &Run) {
        run.checkpoint(&LoopState::default()).await.expect("checkpoint");
    }
}

/// A turn under this handle's writer id, not written by the handle.
pub fn foreign(run: &Run, writer_seq: u32, journal_seq: u32) -> JournalRecord {
    let content = Json::from(Value::from("mine"));
    let turn =
        ConversationTurn { message_id: "m".into(), parent_id: None, thread_id: None, kind: "user".into(), content };
    let id = RecordId::new("foreign".to_owned()).expect("a record id");
    let mut record = JournalRecord::new(run.id().borrow(), id, "test", turn.into());
    record.place.writer_id = run.recovery().writer_id.clone();
    record.place.writer_epoch = run.recovery().epoch;
    record.place.writer_seq = writer_seq.into();
    record.place.journal_seq = journal_seq.into();
    record
}

/// Polls a future at most `polls` times. Returns its output, or `None` if it is still pending and was dropped.
pub async fn dropped_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Pending if left == 0 => Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}

//! A way to a journal for claims that hold on every one of them, with what can be made to go wrong on it.

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
    payload::ConversationTurn,
    record::JournalRecord,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{cut::Relay, site::Site, writers::compare};

/// What no query here takes that long for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Records of a run that are looked at.
const RECORDS: usize = 1000;

/// What becomes of an append whose writer does not learn of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It landed.
    Landed,
    /// It did not.
    Lost,
    /// Its future is dropped as soon as it waits: it may land or not, now or later.
    Cancelled,
}

/// What an operation came to whose append had one.
#[derive(Debug)]
pub enum Came {
    /// An error that says so.
    Failed(Error),
    /// Its future was dropped.
    Dropped,
    /// It came to its end all the same.
    Ended,
}

/// A way, connected.
#[derive(Debug)]
pub struct Way {
    /// The library in this process.
    pub runlog: Runlog,
    /// What can be made of an append.
    pub fates: &'static [Fate],
    at: At,
    _dir: Option<TempDir>,
}

#[derive(Debug)]
enum At {
    /// Log and projector in this process.
    Embedded(Arc<Projector>, Option<MemoryLog>),
    /// A server, and a relay before it where appends go to it.
    Site(Box<Site>, Option<Relay>),
}

fn id(run: &str) -> RunId<&str> {
    RunId::new(run).expect("a run id")
}

fn config() -> Config {
    Config::new(Journal::Local("unused".into()), "test")
}

impl Way {
    /// `local:`.
    pub async fn local() -> anyhow::Result<Self> {
        let (dir, config) = (tempfile::tempdir()?, config());
        let settings = runlog_projector::Config::new(dir.path(), config.clock, config.ids);
        let projector = Arc::new(open::local(settings).await?);
        let runlog = Runlog::embedded(config, projector.clone());
        Ok(Self { runlog, fates: &[Fate::Cancelled], at: At::Embedded(projector, None), _dir: Some(dir) })
    }

    /// A log in memory, which fails at will.
    pub async fn memory(options: MemoryOptions) -> anyhow::Result<Self> {
        let (dir, config, log) = (tempfile::tempdir()?, config(), MemoryLog::with(options));
        let settings = runlog_projector::Config::new(dir.path(), config.clock, config.ids);
        let projector = Arc::new(Projector::start(settings, Arc::new(log.clone())).await?);
        let runlog = Runlog::embedded(config, projector.clone());
        // Its appends never wait, so that none is cancelled.
        Ok(Self { runlog, fates: &[Fate::Landed, Fate::Lost], at: At::Embedded(projector, Some(log)), _dir: Some(dir) })
    }

    /// `http:`, by way of a relay that breaks.
    pub async fn http() -> anyhow::Result<Self> {
        let site = Site::http()?;
        let relay = Relay::start(&site.server.url, "/records")?;
        let runlog = site.connect_by(&relay.url).await?;
        let fates = &[Fate::Landed, Fate::Lost, Fate::Cancelled];
        Ok(Self { runlog, fates, at: At::Site(Box::new(site), Some(relay)), _dir: None })
    }

    /// `kafka:`.
    pub async fn kafka() -> anyhow::Result<Self> {
        let site = Site::kafka()?;
        let runlog = site.connect().await?;
        Ok(Self { runlog, fates: &[Fate::Cancelled], at: At::Site(Box::new(site), None), _dir: None })
    }

    /// The library on the same journal, made otherwise.
    pub async fn connect(&self, change: impl FnOnce(&mut Config)) -> Runlog {
        match &self.at {
            At::Embedded(projector, _) => {
                let mut config = config();
                change(&mut config);
                Runlog::embedded(config, projector.clone())
            }
            At::Site(site, relay) => {
                let server = relay.as_ref().map_or(&site.server.url, |relay| &relay.url);
                let mut config = site.config(server).expect("a journal");
                change(&mut config);
                Runlog::connect(config).await.expect("a journal")
            }
        }
    }

    /// What the log has of a run: each record's headers. Of a log in this process.
    pub async fn headers(&self, run: &str) -> Vec<BTreeMap<String, String>> {
        let At::Embedded(projector, _) = &self.at else { panic!("the log is elsewhere") };
        let (log, partition) = (projector.log().clone(), projector.partition_of(id(run)));
        let end = log.bounds(partition, PATIENCE).await.expect("bounds").end;
        let read = move || {
            let mut reader = log.reader(&[(partition, Offset::ZERO)])?;
            let mut found = Vec::new();
            while reader.position(partition).is_some_and(|next| next < end) {
                found.extend(reader.poll(RECORDS, PATIENCE)?);
            }
            Ok::<_, runlog_log::Error>(found)
        };
        let found = tokio::task::spawn_blocking(read).await.expect("a reader").expect("records");
        let of_run = found.into_iter().filter(|record| record.key == run.as_bytes());
        let text = |(name, value): (String, Vec<u8>)| (name, String::from_utf8(value).expect("UTF-8"));
        of_run.map(|record| record.headers.into_iter().map(text).collect()).collect()
    }

    /// Takes a run over.
    pub async fn open(&self, run: &str) -> Run {
        self.runlog.open(run).await.expect("open")
    }

    /// The same with unresolved effects allowed.
    pub async fn open_unresolved(&self, run: &str) -> Run {
        let options = OpenOptions { allow_unresolved: true, ..OpenOptions::default() };
        self.runlog.open_with(run, options).await.expect("open")
    }

    /// Lets this become of the next append, unless it is to be cancelled.
    pub fn spoil(&self, fate: Fate) {
        match (&self.at, fate) {
            (_, Fate::Cancelled) => {}
            (At::Embedded(_, Some(log)), Fate::Landed) => log.fail_next(AppendFault::UnknownLanded),
            (At::Embedded(_, Some(log)), Fate::Lost) => log.fail_next(AppendFault::UnknownLost),
            (At::Site(_, Some(relay)), Fate::Landed) => relay.cut_next(),
            (At::Site(_, Some(relay)), Fate::Lost) => relay.swallow_next(),
            (at, fate) => panic!("{fate:?} cannot be had on {at:?}"),
        }
    }

    /// Holds back from its readers what is appended to a run's partition from now on. In memory only.
    pub fn hold(&self, run: &str) {
        let At::Embedded(projector, Some(log)) = &self.at else { panic!("nothing can be held on {:?}", self.at) };
        log.hold(projector.partition_of(id(run)));
    }

    /// Ends [`Way::hold`].
    pub fn release(&self, run: &str) {
        if let At::Embedded(projector, Some(log)) = &self.at {
            log.release(projector.partition_of(id(run)));
        }
    }

    /// Runs an operation whose next append has this fate.
    pub async fn unknown<T>(&self, fate: Fate, operation: impl Future<Output = Result<T, Error>>) -> Came {
        self.spoil(fate);
        let polls = if fate == Fate::Cancelled { 1 } else { usize::MAX };
        // Where the test's task has used up its budget of polls, an operation would wait before it has begun.
        match dropped_after(polls, tokio::task::unconstrained(operation)).await {
            None => Came::Dropped,
            Some(Err(error)) => {
                assert_eq!(error.action(), Action::Reopen, "{fate:?}: {error}");
                Came::Failed(error)
            }
            // It came to its end before anybody could drop it.
            Some(Ok(_)) => {
                assert_eq!(fate, Fate::Cancelled);
                Came::Ended
            }
        }
    }

    /// A handle that stands still behind a turn that nobody knows of; how many turns its run is to have in the end.
    pub async fn stops(&self, fate: Fate, run: &Run) -> usize {
        let mut turns = 1;
        while matches!(self.unknown(fate, run.turn("user", "unknown")).await, Came::Ended) {
            turns += 1;
        }
        let error = run.turn("user", "after").await.expect_err("it stands still");
        assert_eq!(error.action(), Action::Reopen, "{error}");
        turns
    }

    /// What a run has, in log order: payload types and payloads.
    pub async fn records(&self, run: &str) -> Vec<(String, Value)> {
        let lines = match &self.at {
            At::Embedded(projector, ..) => {
                let partition = projector.partition_of(id(run));
                projector.wait(partition, Consistency::Latest, PATIENCE).await.expect("latest");
                let (store, contents) = (projector.store(partition), projector.contents(PATIENCE));
                let place = query::Place { topic: projector.log().topic(), partition };
                let ask = query::timeline::Ask { limit: RECORDS, show: query::timeline::Show::Raw, as_of: None };
                let page = query::timeline::page(&store.view(), &contents, place, id(run), ask, None);
                let line = |line| serde_json::to_value(line).expect("a line");
                page.expect("a page").records.into_iter().map(line).collect()
            }
            At::Site(site, _) => {
                let http = crate::server::client().expect("a client");
                compare::lines(&http, &format!("{}/v1/runs/{run}", site.server.url)).await.expect("records")
            }
        };
        let kind = |line: &Value| line["payload_type"].as_str().expect("a type").to_owned();
        lines.into_iter().map(|mut line| (kind(&line), line["payload"].take())).collect()
    }

    /// How many records of this type a run has.
    pub async fn count(&self, run: &str, payload_type: &str) -> usize {
        self.records(run).await.iter().filter(|(found, _)| found == payload_type).count()
    }

    /// Appends a record as it is, in whoever's name it says.
    pub async fn append(&self, record: JournalRecord) -> anyhow::Result<()> {
        match &self.at {
            At::Embedded(projector, ..) => {
                let partition = projector.partition_of(record.body.run_id.borrow().context("a run")?);
                projector.log().append(partition, vec![projector.entry(&record)?]).await?;
                Ok(())
            }
            At::Site(site, _) => std::thread::scope(|scope| {
                let appended = scope.spawn(|| site.append(&record)).join();
                appended.ok().context("a thread that appends")?
            }),
        }
    }

    /// Saves a state.
    pub async fn checkpoint(&self, run: &Run) {
        run.checkpoint(&LoopState::default()).await.expect("checkpoint");
    }
}

/// A turn in the name of this handle, which knows nothing of it.
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

/// Drops the future where it has been polled so often and is not ready; what it came to otherwise.
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

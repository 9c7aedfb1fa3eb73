//! A projector in this process whose log took over from a lost home: the transport refuses to continue runs in doubt.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::{
    Transport,
    request::{AppendAsk, AppendFailed, RecordFilter, RecoveryQuery, ToAppend},
};
use crate::{
    config::{Config, Journal},
    error::{Action, Error},
};
use runlog_log::{
    Entry, Log,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::{
    Projector,
    index::home::{Carried, Home, header},
};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    id::{Epoch, LogId, PartitionId, RecordId, RunId},
    payload::{EffectResolution, Payload, RunClaim, RunLifecycle, observed::Retraction, wrapped::Batch},
    record::JournalRecord,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

const WAIT: Duration = Duration::from_secs(30);

/// Methods of [`Transport`] about a run by which an agent continues it.
const CONTINUE: &[&str] = &[
    "append",
    "append_one",
    "call",
    "call_with_key",
    "checkpoint",
    "landed",
    "pending_recovery",
    "read_back",
    "recovery",
    "run",
    "whole_recovery",
];

/// The other methods: they show records, concern no run of the journal, or ask a server, whose claims refuse runs in doubt.
const OTHERS: &[&str] = &["claim_conditionally", "connect", "offload_payload", "permit", "records"];

fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn log_id(name: &str) -> LogId {
    LogId::memory(name).unwrap()
}

struct Site {
    log: MemoryLog,
    transport: Transport,
    projector: Arc<Projector>,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn start() -> Self {
        let options = MemoryOptions { partitions: 1, id: Some(log_id("new")), ..MemoryOptions::default() };
        let (dir, log) = (tempfile::tempdir().unwrap(), MemoryLog::with(options));
        let config = runlog_projector::Config::new(dir.path(), || 0, unique);
        let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await.unwrap());
        let config = Config { ids: unique, ..Config::new(Journal::Local("unused".into()), "agent") };
        let transport = Transport::embedded(projector.clone(), &config);
        Self { log, transport, projector, _dir: dir }
    }

    async fn end(&self) -> u64 {
        self.log.bounds(PartitionId::ZERO, WAIT).await.unwrap().end.get()
    }

    /// Appends the record by which the log takes over, and waits until it is applied.
    async fn take_over(&self) {
        let mut reader = self.log.reader(&[(PartitionId::ZERO, 0_u32.into())]).unwrap();
        let genesis = reader.poll(1, Duration::ZERO).unwrap().remove(0);
        let home =
            Home { epoch: 2, log: log_id("new"), from: Some(log_id("lost")), who: "ann".into(), why: "flood".into() };
        let entry = Entry { key: genesis.key, value: genesis.value, headers: vec![header(&Carried::Home(home))] };
        self.log.append(PartitionId::ZERO, vec![entry]).await.unwrap();
        self.projector.caught_up(PartitionId::ZERO, WAIT).await.unwrap();
    }

    async fn append(&self, record: JournalRecord) -> Result<Position, AppendFailed> {
        let appended = self.transport.append_one(ToAppend::new(&record, None), AppendAsk::JUDGED).await?;
        Ok(appended.position)
    }

    /// The error of each method that continues the run, if it fails.
    async fn continued(&self, run_id: RunId<&str>, position: &Position) -> Vec<(&'static str, Option<Error>)> {
        let (transport, id) = (&self.transport, RecordId::new("claim").unwrap());
        let record = turn_record(run_id);
        let to_append = ToAppend::new(&record, None);
        let untouched = |failed: AppendFailed| {
            assert!(failed.untouched, "{}", failed.error);
            failed.error
        };
        let query = RecoveryQuery::WHOLE;
        vec![
            ("append", transport.append(&[to_append], AppendAsk::JUDGED).await.map_err(untouched).err()),
            ("append_one", transport.append_one(to_append, AppendAsk::JUDGED).await.map_err(untouched).err()),
            ("call", transport.call(run_id, id).await.err()),
            ("call_with_key", transport.call_with_key(run_id, ("pay", "key"), position).await.err()),
            ("checkpoint", transport.checkpoint(run_id, None).await.err()),
            ("landed", transport.landed(run_id, id, None).await.err()),
            ("pending_recovery", transport.pending_recovery(run_id).await.err()),
            ("read_back", transport.read_back(run_id, position, None, &[], WAIT).await.err()),
            ("recovery", transport.recovery(run_id, query, None).await.err()),
            ("run", transport.run(run_id).await.err()),
            ("whole_recovery", transport.whole_recovery(run_id, query).await.err()),
        ]
    }
}

fn run_id(text: &str) -> RunId {
    RunId::new(text.to_owned()).unwrap()
}

fn record(run_id: RunId<&str>, id: &str, payload: Payload) -> JournalRecord {
    JournalRecord::new(run_id, RecordId::new(id.to_owned()).unwrap(), "agent", payload)
}

fn claim(run_id: RunId<&str>) -> JournalRecord {
    let (writer_id, epoch) = (runlog_schemas::id::WriterId::new("w".to_owned()).unwrap(), Epoch::from(1));
    let claim = RunClaim { writer_id: writer_id.clone(), epoch, claimed_by: String::new() };
    let mut record = record(run_id, "claim", claim.into());
    (record.place.writer_id, record.place.writer_epoch) = (writer_id.into(), epoch);
    record
}

fn turn_record(run_id: RunId<&str>) -> JournalRecord {
    let started = RunLifecycle { status: "started".into(), reason: String::new() };
    record(run_id, &unique(), started.into())
}

/// A decision that an operator makes, or a writer in its own epoch.
fn decision(run_id: RunId<&str>, epoch: Option<Epoch>) -> JournalRecord {
    let decision = EffectResolution {
        request_record_id: RecordId::new("call".to_owned()).unwrap(),
        decision: "not_done".into(),
        result: None,
        who: "jo".into(),
        why: "looked".into(),
    };
    let mut record = record(run_id, &unique(), decision.into());
    record.body.facts.epoch = epoch;
    record
}

fn is_doubt(error: Option<&Error>) -> bool {
    error.is_some_and(|error| {
        (error.kind(), error.action()) == (ErrorKind::ReconcileRequired, Action::Operator)
            && error.to_string().contains("the home memory:lost was lost")
    })
}

/// The asynchronous methods of the transport, from its source.
fn methods() -> BTreeSet<&'static str> {
    let lines = include_str!("../transport.rs").lines();
    lines.filter_map(|line| line.strip_prefix("    pub(crate) async fn ")?.split(['(', '<']).next()).collect()
}

#[test]
fn each_method_either_continues_a_run_or_does_not() {
    let classified: BTreeSet<_> = CONTINUE.iter().chain(OTHERS).copied().collect();
    assert_eq!(methods(), classified, "a new method that continues a run must refuse runs in doubt");
}

#[tokio::test]
async fn an_agent_in_the_process_of_the_projector_cannot_continue_a_run_in_doubt() {
    let site = Site::start().await;
    let (open, unknown) = (run_id("open"), run_id("unknown"));
    let position = site.append(claim(open.borrow())).await.unwrap();
    for (method, error) in site.continued(open.borrow(), &position).await {
        let may_be = error.as_ref().is_none_or(|error| error.kind() == ErrorKind::NotFound);
        assert!(may_be, "before the takeover, {method}: {error:?}");
    }
    site.take_over().await;
    let before = site.end().await;
    for run_id in [&open, &unknown] {
        let continued = site.continued(run_id.borrow(), &position).await;
        assert_eq!(continued.iter().map(|(method, _)| *method).collect::<Vec<_>>(), CONTINUE);
        for (method, error) in continued {
            assert!(is_doubt(error.as_ref()), "{method} of {run_id}: {error:?}");
        }
    }
    let shown = site.transport.records(open.borrow(), &RecordFilter::default(), None, 10).await.unwrap();
    assert!(shown.is_some_and(|page| !page.records.is_empty()), "the records are shown");
    assert_eq!(site.end().await, before, "no record was appended");
}

#[tokio::test]
async fn only_an_operators_decisions_are_appended_to_a_run_in_doubt() {
    let site = Site::start().await;
    let open = run_id("open");
    site.append(claim(open.borrow())).await.unwrap();
    site.take_over().await;
    let operators = decision(open.borrow(), None);
    let retraction = Retraction { retracted_record_id: "fact".into(), who: "jo".into(), why: "wrong".into() };
    site.append(operators.clone()).await.unwrap();
    site.append(record(open.borrow(), "retraction", retraction.into())).await.unwrap();
    let before = site.end().await;
    let batch = record(open.borrow(), "batch", Batch { records: vec![operators] }.into());
    for refused in [decision(open.borrow(), Some(1.into())), batch, claim(open.borrow())] {
        let kind = refused.body.record_kind;
        let failed = site.append(refused).await.unwrap_err();
        assert!(failed.untouched && is_doubt(Some(&failed.error)), "{kind:?}: {:?}", failed.error);
    }
    assert_eq!(site.end().await, before, "no record was appended");
}

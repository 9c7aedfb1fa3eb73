//! Two servers over one log that fill in the numbers of one run's records.

use runlog_log::{
    Ack, Entry, Log, Offset, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::{Config, Consistency, Projector};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome},
    codec,
    draft::Draft,
    id::RunId,
    judge::Reason,
};
use runlog_server::append::Appender;
use runlog_tests::hooked_log::{Hooks, hook};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use tempfile::{TempDir, tempdir};
use tokio::sync::Barrier;

const RUN: &str = "shared";
const DEADLINE: Duration = Duration::from_secs(30);
/// Appends of each server that wait until the other server has numbered a record, too.
const PAIRED: u32 = 5;

/// One server's view of the log: records that both numbered at the same time land at the same time.
#[derive(Debug)]
struct Paired {
    both: Arc<Barrier>,
    left: AtomicU32,
    /// The number of queries for its end.
    end_queries: AtomicU32,
    /// Whether appends are answered as by a log that has only its first record left.
    lost_its_end: AtomicBool,
}

impl Hooks for Paired {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let of_run = batch.iter().any(|entry| entry.key == RUN.as_bytes());
        let paired =
            of_run && self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok();
        let (this, log) = (self.clone(), log.clone());
        Box::pin(async move {
            if paired {
                this.both.wait().await;
            }
            let offsets = log.append(partition, batch).await?;
            Ok(if this.lost_its_end.load(Ordering::Relaxed) { vec![1_u32.into(); offsets.len()] } else { offsets })
        })
    }

    fn end(&self, end: Offset) -> Offset {
        self.end_queries.fetch_add(1, Ordering::Relaxed);
        end
    }
}

struct Servers {
    _dir: TempDir,
    log: MemoryLog,
    servers: [Arc<Projector>; 2],
    appenders: [Arc<Appender>; 2],
    links: [Arc<Paired>; 2],
}

async fn start(dir: &Path, log: Arc<dyn Log>) -> Arc<Projector> {
    let id = || format!("{:032x}", rand_id());
    Arc::new(Projector::start(Config::new(dir, || 0, id), log).await.unwrap())
}

/// Unique in this process.
fn rand_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Servers {
    async fn start(paired: u32) -> Self {
        let dir = tempdir().unwrap();
        let log = MemoryLog::with(MemoryOptions { partitions: 1, ..MemoryOptions::default() });
        let both = Arc::new(Barrier::new(2));
        let links = [paired; 2].map(|paired| {
            let (left, both) = (paired.into(), both.clone());
            Arc::new(Paired { both, left, end_queries: 0.into(), lost_its_end: false.into() })
        });
        let servers = [
            start(&dir.path().join("one"), hook(log.clone(), &links[0])).await,
            start(&dir.path().join("other"), hook(log.clone(), &links[1])).await,
        ];
        let appenders = servers.clone().map(|server| Arc::new(Appender::new(server)));
        Self { _dir: dir, log, servers, appenders, links }
    }

    async fn append(&self, server: usize, record: &Value) -> Outcome {
        append(&self.appenders[server], record).await.unwrap()
    }

    /// How often each record id was applied, according to both servers.
    async fn applied_counts(&self) -> Vec<(String, u64)> {
        let mut agreed: Option<Vec<(String, u64)>> = None;
        for server in &self.servers {
            let partition = PartitionId::from(0);
            server.wait(partition, Consistency::Latest, DEADLINE).await.unwrap();
            let mut counts = std::collections::BTreeMap::new();
            let bounds = self.log.bounds(partition, DEADLINE).await.unwrap();
            for offset in bounds.start.get()..bounds.end.get() {
                for index in 0..2 {
                    let outcome = server.outcome(run().borrow(), partition, (offset.try_into().unwrap(), index), None);
                    if outcome.is_ok_and(|outcome| outcome.outcome == Disposition::Applied) {
                        *counts.entry(self.id_at(offset, index as usize)).or_insert(0) += 1;
                    }
                }
            }
            let counts: Vec<_> = counts.into_iter().collect();
            assert!(agreed.as_ref().is_none_or(|other| *other == counts), "{agreed:?}\nand\n{counts:?}");
            agreed = Some(counts);
            let verified = server.clone();
            assert!(tokio::task::spawn_blocking(move || verified.verify()).await.unwrap().unwrap().equal);
        }
        agreed.unwrap()
    }

    fn value(&self, offset: u64) -> Vec<u8> {
        let mut reader = self.log.reader(&[(PartitionId::from(0), offset.try_into().unwrap())]).unwrap();
        reader.poll(1, DEADLINE).unwrap().remove(0).value
    }

    /// The id of the record at a position.
    fn id_at(&self, offset: u64, index: usize) -> String {
        let value = self.value(offset);
        let envelope = codec::read(&value).unwrap();
        match envelope.records() {
            Ok(records) => records[index].record_id.to_string(),
            Err(_) => envelope.record_id.to_string(),
        }
    }

    /// How many records in the log were numbered again.
    async fn renumbered(&self) -> usize {
        let end = self.log.bounds(PartitionId::from(0), DEADLINE).await.unwrap().end.get();
        (0..end).filter(|offset| codec::read(&self.value(*offset)).unwrap().version().number == 2).count()
    }
}

fn run() -> RunId {
    RUN.parse().unwrap()
}

async fn append(appender: &Arc<Appender>, record: &Value) -> Result<Outcome, runlog_projector::Error> {
    let draft = Draft::parse(&record.to_string()).unwrap();
    Ok(appender.append(run().borrow(), vec![draft], DEADLINE).await?.remove(0))
}

fn assert_outcome(outcome: &Outcome, as_what: Disposition, reason: Option<Reason>) {
    let actual = outcome.reason.as_ref().map(|reason| reason.as_str());
    assert!(outcome.outcome == as_what && actual == reason.map(Reason::as_str), "{outcome:?}");
}

fn turn_record(id: &str) -> Value {
    let payload = json!({"type": "conversation_turn", "message_id": id, "kind": "user", "content": id});
    json!({"record_id": id, "run_id": RUN, "timestamp_millis": 1, "payload": payload})
}

fn batch(id: &str) -> Value {
    let records = [turn_record(&format!("{id}/0")), turn_record(&format!("{id}/1"))];
    json!({"record_id": id, "run_id": RUN, "payload": {"type": "batch", "records": records}})
}

fn checkpoint(id: &str) -> Value {
    let payload = json!({"type": "loop_checkpoint", "checkpoint_id": id, "checkpoint_seq": 1, "covers_journal_seq": 0,
        "schema_version": 1, "messages": [], "state": null});
    json!({"record_id": id, "run_id": RUN, "payload": payload})
}

/// A client's record, of several kinds in turn.
fn record(client: usize, number: u32) -> Value {
    let id = format!("{client}-{number}");
    match number % 5 {
        3 => batch(&id),
        4 => checkpoint(&id),
        _ => turn_record(&id),
    }
}

fn ids(clients: usize, records: u32) -> Vec<(String, u64)> {
    let all = (0..clients).flat_map(|client| (0..records).map(move |number| (client, number)));
    let mut ids: Vec<_> = all
        .flat_map(|(client, number)| match number % 5 {
            3 => vec![format!("{client}-{number}/0"), format!("{client}-{number}/1")],
            _ => vec![format!("{client}-{number}")],
        })
        .map(|id| (id, 1))
        .collect();
    ids.sort();
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_that_two_servers_number_are_each_applied_once_without_a_conflict() {
    const CLIENTS: usize = 4;
    const RECORDS: u32 = 12;
    let servers = Arc::new(Servers::start(PAIRED).await);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let servers = servers.clone();
            tokio::spawn(async move {
                let mut last = None;
                for number in 0..RECORDS {
                    let outcome = servers.append(client % 2, &record(client, number)).await;
                    let is_applied = outcome.outcome == Disposition::Applied && outcome.reason.is_none();
                    assert!(is_applied, "{client}-{number}: {outcome:?}");
                    assert!(last < Some(outcome.position.offset), "in the order in which the client sent them");
                    last = Some(outcome.position.offset);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(servers.applied_counts().await, ids(CLIENTS, RECORDS));
    assert!(servers.renumbered().await >= PAIRED as usize, "both servers gave out the same numbers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_queries_the_logs_end_before_it_numbers_a_record_unless_its_last_number_was_right() {
    let servers = Servers::start(0).await;
    let asks = async |server: usize, id: &str| {
        servers.servers[server].wait(PartitionId::from(0), Consistency::Latest, DEADLINE).await.unwrap();
        let queries = || servers.links[server].end_queries.load(Ordering::Relaxed);
        let before = queries();
        let outcome = servers.append(server, &turn_record(&format!("{id}-{server}"))).await;
        assert_outcome(&outcome, Disposition::Applied, None);
        queries() > before
    };
    for server in [0, 1] {
        assert!(asks(server, "first").await, "it does not know who else writes to the run");
        assert!(!asks(server, "second").await, "it has the record before");
    }
    servers.servers[0].wait(PartitionId::from(0), Consistency::Latest, DEADLINE).await.unwrap();
    servers.links.iter().for_each(|link| link.left.store(1, Ordering::Relaxed));
    let thirds = [turn_record("third-0"), turn_record("third-1")];
    let (one, other) = tokio::join!(servers.append(0, &thirds[0]), servers.append(1, &thirds[1]));
    let lost = usize::from(other.position.offset > one.position.offset);
    assert!(!asks(1 - lost, "fourth").await, "its number was right");
    assert!(asks(lost, "fourth").await && asks(lost, "fifth").await, "another server writes to the run");
    assert_eq!(servers.renumbered().await, 1, "the third record of the server that lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_contents_of_one_id_on_two_servers_are_answered_as_applied_and_refused() {
    let servers = Servers::start(0).await;
    for server in [0, 1] {
        servers.append(server, &turn_record(&format!("first-{server}"))).await;
    }
    servers.servers[0].wait(PartitionId::from(0), Consistency::Latest, DEADLINE).await.unwrap();
    servers.links.iter().for_each(|link| link.left.store(1, Ordering::Relaxed));
    let (one, mut other) = (turn_record("same"), turn_record("same"));
    other["payload"]["content"] = json!("something else");
    let (one, other) = tokio::join!(servers.append(0, &one), servers.append(1, &other));
    let (applied, refused) = if one.position.offset < other.position.offset { (one, other) } else { (other, one) };
    assert_outcome(&applied, Disposition::Applied, None);
    assert_outcome(&refused, Disposition::Refused, Some(Reason::Conflict));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_a_truncated_log_is_not_answered_with_the_indexs_record_at_its_offset() {
    let servers = Servers::start(0).await;
    servers.append(0, &turn_record("first")).await;
    servers.links[0].lost_its_end.store(true, Ordering::Relaxed);
    let error = append(&servers.appenders[0], &turn_record("second")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("was truncated"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_an_unjudged_record_accepts_appends_again_once_the_index_has_reached_the_end() {
    let (servers, partition) = (Servers::start(0).await, PartitionId::from(0));
    for id in ["first", "second"] {
        assert_outcome(&servers.append(0, &turn_record(id)).await, Disposition::Applied, None);
    }
    let end = async || servers.log.bounds(partition, DEADLINE).await.unwrap().end.get();
    let late = async |id: &str, deadline: u64| {
        let (draft, deadline) = (Draft::parse(&turn_record(id).to_string()).unwrap(), Duration::from_millis(deadline));
        servers.appenders[0].append(run().borrow(), vec![draft], deadline).await.unwrap_err();
    };
    servers.log.hold(partition);
    let before = end().await;
    late("third", 2_000).await;
    assert_eq!(end().await, before + 1, "it is in the log");
    late("third", 100).await;
    late("fourth", 100).await;
    assert_eq!(end().await, before + 1, "a server with a lagging index appends no record");
    servers.log.release(partition);
    assert_outcome(&servers.append(0, &turn_record("third")).await, Disposition::Repeat, None);
    assert_outcome(&servers.append(0, &turn_record("fourth")).await, Disposition::Applied, None);
    assert_eq!(end().await, before + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_record_whose_client_left_and_sends_it_again_elsewhere_is_applied_once() {
    const CLIENTS: usize = 4;
    const RECORDS: u32 = 12;
    let servers = Arc::new(Servers::start(0).await);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let servers = servers.clone();
            tokio::spawn(async move {
                for number in 0..RECORDS {
                    let record = record(client, number);
                    if number % 3 == 0 {
                        let patience = Duration::from_micros(300 * u64::from(number));
                        let _ = tokio::time::timeout(patience, servers.append(client % 2, &record)).await;
                    }
                    let outcome = servers.append((client + 1) % 2, &record).await;
                    assert!(outcome.outcome != Disposition::Refused, "{client}-{number}: {outcome:?}");
                    assert!(outcome.reason.is_none(), "{client}-{number}: {outcome:?}");
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(servers.applied_counts().await, ids(CLIENTS, RECORDS));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_a_killed_server_left_as_a_conflict_is_applied_when_it_is_sent_again() {
    let servers = Servers::start(0).await;
    let first = servers.append(0, &turn_record("first")).await;
    assert_outcome(&first, Disposition::Applied, None);
    for lost in [turn_record("lost"), batch("lost-batch")] {
        // Simulates a server that was killed before it could number the record again.
        let mut numbered = lost.clone();
        (numbered["writer_id"], numbered["writer_seq"]) = (json!("runlog"), json!(1));
        let refused = servers.append(0, &numbered).await;
        assert_outcome(&refused, Disposition::Refused, Some(Reason::Conflict));
        let applied = servers.append(1, &lost).await;
        assert_outcome(&applied, Disposition::Applied, None);
        for server in [0, 1] {
            let again = servers.append(server, &lost).await;
            assert_outcome(&again, Disposition::Repeat, None);
            assert_eq!(again.position.offset, applied.position.offset);
        }
    }
    let applied = servers.applied_counts().await;
    assert!(applied.iter().all(|(_, times)| *times == 1) && applied.len() == 4, "{applied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_of_ids_remains_a_conflict_and_is_appended_once() {
    let servers = Servers::start(0).await;
    servers.append(0, &turn_record("taken")).await;
    let mut other = turn_record("taken");
    other["payload"]["content"] = json!("something else");
    let mut inner = batch("whole");
    inner["payload"]["records"][1] = other.clone();
    for record in [other, inner] {
        let refused = servers.append(0, &record).await;
        assert_outcome(&refused, Disposition::Refused, Some(Reason::Conflict));
        let end = servers.log.bounds(PartitionId::from(0), DEADLINE).await.unwrap().end;
        let again = servers.append(1, &record).await;
        assert_outcome(&again, Disposition::Repeat, Some(Reason::Conflict));
        assert_eq!(servers.log.bounds(PartitionId::from(0), DEADLINE).await.unwrap().end, end);
    }
}

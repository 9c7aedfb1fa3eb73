//! Instances that share the partitions of a journal: when an instance answers, and what each tells the others.

use anyhow::ensure;
use runlog_log::{Delivery, Error, Log, Offset, PartitionId, Reader, memory::MemoryLog};
use runlog_projector::{Config, Consistency, Projector, index::held::Holds};
use runlog_server::access::AllowedHosts;
use runlog_tests::{
    agent::{Agent, entry, run_in},
    hooked_log::{Hooks, hook},
    served,
    server::client,
    unreadable::of_schema,
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const WAIT: Duration = Duration::from_secs(30);

fn zero() -> PartitionId {
    PartitionId::ZERO
}

/// A log whose records arrive when it flows; the genesis and an index's last record are read before.
#[derive(Debug, Default)]
struct Held {
    flows: AtomicBool,
}

impl Hooks for Held {
    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        if max > 1 && !self.flows.load(Ordering::Acquire) {
            std::thread::park_timeout(timeout);
            return Ok(Vec::new());
        }
        reader.poll(max, timeout)
    }

    fn position(&self, reader: &dyn Reader, partition: PartitionId) -> Option<Offset> {
        if self.flows.load(Ordering::Acquire) { reader.position(partition) } else { None }
    }
}

async fn get(address: SocketAddr, path: &str) -> anyhow::Result<(u16, Value)> {
    let answer = client()?.get(format!("http://{address}{path}")).send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

async fn started(dir: &Path, log: Arc<dyn Log>, holds: Holds) -> anyhow::Result<(Arc<Projector>, SocketAddr)> {
    let config = Config { holds, ..Config::new(dir, || 0, served::id) };
    let projector = Arc::new(Projector::start(config, log).await?);
    let address = served::start(projector.clone(), AllowedHosts::default()).await?;
    Ok((projector, address))
}

/// A folder whose index has the first turn of a run, and a log that has a later record of the run.
async fn outdated(log: &MemoryLog, agent: &mut Agent) -> anyhow::Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    let projector = Projector::start(Config::new(dir.path(), || 0, served::id), Arc::new(log.clone())).await?;
    log.append(zero(), vec![entry(&agent.turn("first"))]).await?;
    projector.wait(zero(), Consistency::Latest, WAIT).await?;
    projector.end();
    drop(projector);
    Ok(dir)
}

fn chosen() -> Holds {
    Holds::Chosen([zero()].into())
}

/// The index may be restored from a copy that is hours old, while another instance has answered from all records.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_answers_eventual_after_it_has_applied_the_records_that_the_log_had_at_its_start()
-> anyhow::Result<()> {
    for (holds, answers_at_once) in [(Holds::All, true), (chosen(), false)] {
        let log = MemoryLog::new(1);
        let mut agent = Agent::new(&run_in(zero(), 1, "run"));
        let dir = outdated(&log, &mut agent).await?;
        log.append(zero(), vec![entry(&agent.turn("second"))]).await?;
        let held = Arc::new(Held::default());
        let (projector, address) = started(dir.path(), hook(log.clone(), &held), holds).await?;
        let run = format!("/v1/runs/{}?consistency=eventual", agent.run_id);
        for path in [run.as_str(), "/v1/runs?consistency=eventual", "/v1/effects"] {
            let mark = if path.contains('?') { '&' } else { '?' };
            let (status, answer) = get(address, &format!("{path}{mark}deadline_ms=50")).await?;
            let expected = if answers_at_once { (200, &Value::Null) } else { (503, &json!("stale")) };
            ensure!((status, &answer["kind"]) == expected, "{path}: {status} {answer}");
        }
        let lacks = if answers_at_once { json!([]) } else { json!([0]) };
        let (status, overview) = get(address, "/v1/overview").await?;
        ensure!(status == 200 && overview["unavailable_partitions"] == lacks, "{overview}");

        let waiting = tokio::spawn(async move { get(address, &run).await });
        held.flows.store(true, Ordering::Release);
        let (status, answer) = waiting.await??;
        let records = if answers_at_once { 1..=2 } else { 2..=2 };
        ensure!(status == 200 && records.contains(&answer["records"].as_u64().unwrap_or(0)), "{status} {answer}");

        // A record after the start makes no query wait.
        projector.wait(zero(), Consistency::Latest, WAIT).await?;
        held.flows.store(false, Ordering::Release);
        log.append(zero(), vec![entry(&agent.turn("third"))]).await?;
        let run = format!("/v1/runs/{}?consistency=eventual&deadline_ms=50", agent.run_id);
        let (status, answer) = get(address, &run).await?;
        ensure!(status == 200, "{status} {answer}");
        held.flows.store(true, Ordering::Release);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_stops_before_the_end_of_the_start_answers_nothing_until_it_has_reached_it()
-> anyhow::Result<()> {
    for (holds, answers) in [(Holds::All, true), (chosen(), false)] {
        let log = MemoryLog::new(1);
        let mut agent = Agent::new(&run_in(zero(), 1, "run"));
        let dir = outdated(&log, &mut agent).await?;
        let unknown = of_schema([0xAB; 8], &agent.turn("of a newer version"));
        log.append(zero(), vec![unknown, entry(&Agent::new("other").turn("after"))]).await?;
        let (projector, address) = started(dir.path(), Arc::new(log.clone()), holds).await?;
        projector.wait_until(zero(), |progress| progress.stopped.is_some()).await?;
        let (status, answer) = get(address, &format!("/v1/runs/{}?consistency=eventual", agent.run_id)).await?;
        let expected = if answers { (200, &Value::Null) } else { (503, &json!("partition_stopped")) };
        ensure!((status, &answer["kind"]) == expected, "{status} {answer}");
        let (status, list) = get(address, "/v1/runs").await?;
        let lacks = if answers { json!([]) } else { json!([0]) };
        ensure!(status == 200 && list["unavailable_partitions"] == lacks, "{status} {list}");
    }
    Ok(())
}

/// The log lost records that the index has, and the other instances may not have them.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_does_not_match_the_log_answers_nothing_on_an_instance() -> anyhow::Result<()> {
    for (holds, answers) in [(Holds::All, true), (chosen(), false)] {
        let log = MemoryLog::new(1);
        let mut agent = Agent::new(&run_in(zero(), 1, "run"));
        let dir = outdated(&log, &mut agent).await?;
        let shorter = MemoryLog::new(1);
        let first = log.reader(&[(zero(), Offset::ZERO)])?.poll(1, WAIT)?.remove(0);
        let genesis = runlog_log::Entry { value: first.value, headers: first.headers, ..runlog_log::Entry::default() };
        shorter.append(zero(), vec![genesis]).await?;
        let (_, address) = started(dir.path(), Arc::new(shorter), holds).await?;
        let (status, answer) = get(address, &format!("/v1/runs/{}?consistency=eventual", agent.run_id)).await?;
        let expected = if answers { (200, &Value::Null) } else { (503, &json!("partition_stopped")) };
        ensure!((status, &answer["kind"]) == expected, "{status} {answer}");
    }
    Ok(())
}

//! A server that answers lookups and accepts appends, with and without the projection of other appends at the same time.

use anyhow::{Context, ensure};
use runlog_log::kafka::{KafkaConfig, KafkaLog};
use runlog_tests::{
    kafka::Broker,
    server::{Launch, Server, client},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    Scale,
    append::Writer,
    id,
    measure::{Latencies, open_loop, quantiles},
    records::{self, Journal},
    report::{Figure, Goal, Row, Unit},
    served::{Call, PARTITIONS, fill, look_up, ready},
};

/// Lookups per second, and appends per second.
const RATE: u32 = 1_000;
/// Records per second of the other appends, and records of each.
const PROJECTED: u64 = 20_000;
const TOGETHER: u64 = 100;
/// Runs of the appends.
const RUNS: u32 = 200;
/// Records before the measurement, which contain the calls of the lookups.
const BEFORE: u64 = 100_000;

pub(crate) async fn run(broker: &Broker, scale: &Scale) -> anyhow::Result<Figure> {
    let (topic, dir) = (broker.unique_topic(), tempfile::tempdir()?);
    Launch::kafka(&dir.path().join("first"), &topic).partitions(PARTITIONS).start()?.kill()?;
    let calls = Arc::new(fill(&topic, BEFORE).await?);
    let server = Launch::kafka(&dir.path().join("served"), &topic).start()?;
    ready(&server).await?;
    let count = RATE * u32::try_from(scale.round.as_secs())?;
    let (mut alone, mut loaded): ([Vec<Latencies>; 2], [Vec<Latencies>; 2]) = Default::default();
    let (mut projected, mut refused) = (Vec::new(), Vec::new());
    for round in 0..scale.rounds {
        alone[0].push(lookups(&server, &calls, count).await?);
        alone[1].push(appends(&server, count).await?.0);
        let (ending, topic) = (Arc::new(AtomicBool::new(false)), topic.clone());
        let others = thread::spawn({
            let ending = ending.clone();
            move || append_paced(&topic, round as u64, &ending)
        });
        let both = tokio::try_join!(lookups(&server, &calls, count), appends(&server, count));
        ending.store(true, Ordering::Relaxed);
        projected.push(others.join().ok().context("the appender panicked")??);
        let (looked_up, appended) = both?;
        loaded[0].push(looked_up);
        loaded[1].push(appended.0);
        refused.push(f64::from(appended.1) / f64::from(count));
        // Waits until all records are applied, before the next round without load.
        ready(&server).await?;
    }
    server.terminate()?;
    let p99 = |rounds: &[Latencies]| quantiles(0.99, rounds);
    Ok(Figure {
        title: "HTTP under load".into(),
        method: format!(
            "{RATE} lookups/s at eventual and {RATE} appends/s (turns of {RUNS} runs that leave their numbers to the server), open \
             loop: alone, and both at once while others append {PROJECTED} records/s to the topic, which the server projects. The \
             broker, the server and all clients share two cores."
        ),
        rows: vec![
            Row::ratio("lookups, p99, loaded over alone", &p99(&loaded[0]), &p99(&alone[0])).goal(Goal::AtMost(2.0)),
            Row::ratio("appends, p99, loaded over alone", &p99(&loaded[1]), &p99(&alone[1])).goal(Goal::AtMost(2.0)),
            Row::new("lookups alone, p99", Unit::Millis, p99(&alone[0])),
            Row::new("lookups loaded, p99", Unit::Millis, p99(&loaded[0])),
            Row::new("appends alone, p99", Unit::Millis, p99(&alone[1])),
            Row::new("appends loaded, p99", Unit::Millis, p99(&loaded[1])),
            Row::new("others' appends", Unit::RecordsPerSecond, projected),
            Row::new("appends refused as overloaded, of all, loaded", Unit::Ratio, refused),
        ],
    })
}

async fn lookups(server: &Server, calls: &Arc<Vec<Call>>, count: u32) -> anyhow::Result<Latencies> {
    let (client, url) = (client()?, server.url.clone());
    let work = |nth: u32| look_up(client.clone(), url.clone(), calls.clone(), "eventual", nth);
    open_loop(RATE, count, work).await
}

/// Sends appends; returns their latencies, and the number of refused appends.
async fn appends(server: &Server, count: u32) -> anyhow::Result<(Latencies, u32)> {
    let (client, url, round, refused) = (client()?, server.url.clone(), id(), Arc::new(AtomicU32::new(0)));
    let work = |nth: u32| {
        let run = format!("load-{round}-{}", nth % RUNS);
        let turn = json!({ "type": "conversation_turn", "message_id": format!("m{nth}"), "kind": "user",
            "content": "x".repeat(300) });
        let body = json!({ "run_id": run, "record_id": format!("r{nth}"), "agent_id": "bench", "payload": turn });
        let request = client.post(format!("{url}/v1/runs/{run}/records")).json(&body);
        let refused = refused.clone();
        async move {
            let answer: Value = request.send().await?.json().await?;
            if answer["kind"] == "overloaded" {
                refused.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            ensure!(answer["outcome"] == "applied", "{answer}");
            Ok(())
        }
    };
    let latencies = open_loop(RATE, count, work).await?;
    Ok((latencies, refused.load(Ordering::Relaxed)))
}

/// Appends at the rate of [`PROJECTED`] until `ending`; returns the actual rate.
fn append_paced(topic: &KafkaConfig, seed: u64, ending: &AtomicBool) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let log = KafkaLog::connect(topic.clone())?;
    let (mut writer, mut journal, mut appended) =
        (Writer::new(&log), Journal::new(100 + seed, crate::RECORDS_PER_RUN), 0);
    let started = Instant::now();
    while !ending.load(Ordering::Relaxed) {
        let due = Duration::from_secs_f64(appended as f64 / PROJECTED as f64);
        thread::sleep(due.saturating_sub(started.elapsed()));
        for _ in 0..TOGETHER {
            let (partition, entry) = records::entry(&journal.record()?, PARTITIONS)?;
            runtime.block_on(writer.append(partition, entry))?;
        }
        appended += TOGETHER;
    }
    let rate = appended as f64 / started.elapsed().as_secs_f64();
    runtime.block_on(writer.finish())?;
    Ok(rate)
}

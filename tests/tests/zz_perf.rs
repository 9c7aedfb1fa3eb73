#![allow(clippy::unwrap_used)]
use runlog_log::{
    Entry, Kind, Log,
    local::{LocalConfig, LocalLog},
};
use runlog_tests::kafka::Broker;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
fn wait<T>(f: impl Future<Output = T>) -> T {
    static R: std::sync::LazyLock<tokio::runtime::Runtime> =
        std::sync::LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    R.block_on(f)
}

fn fill(log: &Arc<dyn Log>, count: usize, batch: usize) {
    let begun = Instant::now();
    let value: Vec<u8> = (0..500u64).map(|i| (i.wrapping_mul(0x9E3779B97F4A7C15) >> 59) as u8 + b'a').collect();
    let mut acks = std::collections::VecDeque::new();
    let mut sent = 0;
    while sent < count {
        let entries = vec![
            Entry {
                key: b"run-0123456789".to_vec(),
                value: value.clone(),
                headers: vec![("kind".into(), b"tool".to_vec())]
            };
            batch
        ];
        acks.push_back(log.append((sent / batch % 4) as u32, entries));
        sent += batch;
        while acks.len() * batch > 20_000 {
            wait(acks.pop_front().unwrap()).unwrap();
        }
    }
    for ack in acks {
        wait(ack).unwrap();
    }
    println!(
        "append {count} of 500 B in batches of {batch}: {:?} = {:.0}/s",
        begun.elapsed(),
        count as f64 / begun.elapsed().as_secs_f64()
    );
}
fn drain(log: &Arc<dyn Log>, count: usize) {
    for round in 0..2 {
        let mut reader = log.reader(&[(0, 0), (1, 0), (2, 0), (3, 0)]).unwrap();
        let begun = Instant::now();
        let (mut seen, mut polls) = (0, 0);
        while seen < count {
            seen += reader.poll(5000, Duration::from_secs(5)).unwrap().len();
            polls += 1;
        }
        println!(
            "round {round}: read {seen}: {:?} = {:.0}/s, {polls} polls",
            begun.elapsed(),
            seen as f64 / begun.elapsed().as_secs_f64()
        );
    }
}
fn latency(log: &Arc<dyn Log>) {
    let mut times: Vec<Duration> = (0..500)
        .map(|_| {
            let begun = Instant::now();
            wait(log.append(0, vec![Entry { value: vec![1; 500], ..Entry::default() }])).unwrap();
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!("append latency p50 {:?} p99 {:?}", times[250], times[495]);
    let mut times: Vec<Duration> = (0..500)
        .map(|_| {
            let begun = Instant::now();
            wait(log.bounds(0, Duration::from_secs(5))).unwrap();
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!("bounds latency p50 {:?} p99 {:?}", times[250], times[495]);
    let mut reader = log.reader(&[(0, wait(log.bounds(0, Duration::from_secs(5))).unwrap().end)]).unwrap();
    let _ = reader.poll(10, Duration::from_millis(500));
    let mut times: Vec<Duration> = (0..300)
        .map(|_| {
            wait(log.append(0, vec![Entry { value: vec![1; 500], ..Entry::default() }])).unwrap();
            let begun = Instant::now();
            assert_eq!(reader.poll(10, Duration::from_secs(5)).unwrap().len(), 1);
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!("delivery after ack p50 {:?} p99 {:?}", times[150], times[297]);
    let _ = Kind::Retry;
}
#[test]
fn kafka() {
    let log: Arc<dyn Log> = Arc::new(Broker::shared().log(4).unwrap());
    fill(&log, 500_000, 1);
    fill(&log, 500_000, 10);
    drain(&log, 1_000_000);
    latency(&log);
}
#[test]
fn local() {
    let dir = tempfile::tempdir().unwrap();
    let log: Arc<dyn Log> =
        Arc::new(LocalLog::open(LocalConfig { partitions: Some(4), ..LocalConfig::new(dir.path()) }).unwrap());
    fill(&log, 500_000, 1);
    fill(&log, 500_000, 10);
    drain(&log, 1_000_000);
    latency(&log);
    drop(log);
    let begun = Instant::now();
    let _log = LocalLog::open(LocalConfig::new(dir.path())).unwrap();
    println!("reopen {:?}", begun.elapsed());
    println!(
        "{}",
        String::from_utf8(
            std::process::Command::new("sh")
                .args([
                    "-c",
                    &format!("du -sh {0}; ls -la {0} | head -40; grep -i -c compaction {0}/LOG", dir.path().display())
                ])
                .output()
                .unwrap()
                .stdout
        )
        .unwrap()
    );
}

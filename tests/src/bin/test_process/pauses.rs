//! Pauses brokers for 1 to 60 s while a server starts, accepts claims or folds records. Afterwards the server must apply
//! records on every partition by itself. `test_process pauses SECONDS`, 600 by default; prints a line per pause.

use anyhow::{Context, ensure};
use runlog_log::kafka::{KafkaConfig, admin};
use runlog_tests::{
    chaos::cluster::{Cluster, brokers},
    kafka::Broker,
    random::Random,
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const SECONDS: u64 = 600;
const PARTITIONS: u32 = 4;
const DISK_MIB: u32 = 192;
/// How long a server may take to apply records on every partition after its broker answers again.
const RESUME_WAIT: Duration = Duration::from_secs(90);
const AGAIN: Duration = Duration::from_millis(200);

/// The work of the server when the pause begins.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Start,
    Idle,
    Claims,
    Fold,
}

const MOMENTS: [Moment; 4] = [Moment::Start, Moment::Idle, Moment::Claims, Moment::Fold];

enum Kafka {
    One(Broker),
    Three(Cluster),
}

impl Kafka {
    fn start(three: bool) -> anyhow::Result<Self> {
        if three { Cluster::start(DISK_MIB).map(Self::Three) } else { Broker::start().map(Self::One) }
    }

    fn config(&self) -> KafkaConfig {
        let bootstrap = match self {
            Self::One(broker) => broker.bootstrap(),
            Self::Three(cluster) => cluster.bootstrap(),
        };
        KafkaConfig::new(bootstrap, "pauses")
    }

    /// Pauses one broker: of three, broker `which`.
    fn pause(&self, which: usize) -> anyhow::Result<()> {
        match self {
            Self::One(broker) => broker.pause(),
            Self::Three(cluster) => cluster.pause(brokers()[which]),
        }
    }

    fn unpause(&self, which: usize) -> anyhow::Result<()> {
        match self {
            Self::One(broker) => broker.unpause(),
            Self::Three(cluster) => cluster.unpause(brokers()[which]),
        }
    }
}

impl fmt::Display for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::One(_)) { "1 broker" } else { "3 brokers" })
    }
}

#[allow(clippy::print_stdout, reason = "the figures of a command")]
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let seconds = arguments.next().map_or(Ok(SECONDS), |seconds| seconds.parse()).context("pauses SECONDS")?;
    let (started, seed) = (Instant::now(), Random::seed());
    println!("RUNLOG_SEED={seed}");
    let mut random = Random::new(seed);
    let mut rounds = 0;
    while rounds == 0 || started.elapsed() < Duration::from_secs(seconds) {
        let three = rounds % 3 == 2;
        let moment = MOMENTS[usize::try_from(random.between(0, 4))?];
        // Most of the pauses around the session timeout of a broker, after which it is fenced.
        let pause = if random.between(0, 4) == 0 { random.between(1, 61) } else { random.between(8, 13) };
        let pause = Duration::from_secs(pause);
        let kafka = Kafka::start(three)?;
        let resumed = round(&kafka, moment, pause, &mut random)
            .with_context(|| format!("{kafka} paused for {pause:?} at {moment:?}, RUNLOG_SEED={seed}"))?;
        rounds += 1;
        println!("{kafka} paused for {pause:?} at {moment:?}: every partition applied records after {resumed:?}");
    }
    println!("{rounds} pauses");
    Ok(())
}

/// Pauses a fresh cluster once. Returns how long after the pause records were applied on every partition.
fn round(kafka: &Kafka, moment: Moment, pause: Duration, random: &mut Random) -> anyhow::Result<Duration> {
    let (folder, config) = (tempfile::tempdir()?, kafka.config());
    admin::create_topic(&config, PARTITIONS)?;
    let launch = Launch::kafka(&folder.path().join("data"), &config).partitions(PARTITIONS).with("--new-journal");
    let which = usize::try_from(random.between(0, 3))?;
    let delay = Duration::from_millis(random.between(0, 3000));
    if matches!(moment, Moment::Start) {
        let server = thread::scope(|scope| {
            let starting = scope.spawn(|| launch.start());
            thread::sleep(delay);
            kafka.pause(which)?;
            thread::sleep(pause);
            kafka.unpause(which)?;
            starting.join().map_err(|_| anyhow::anyhow!("the start panicked"))?.or_else(|error| {
                // Without Kafka a server may end with 4; a supervisor starts it again.
                ensure!(error.to_string().contains("exit status: 4"), "{error}");
                launch.start()
            })
        })?;
        return resumes(&server);
    }
    let server = launch.start()?;
    resumes(&server)?;
    let (ending, sent, accepted) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn({
                let (server, ending, sent, accepted) = (&server, &ending, &sent, &accepted);
                move || {
                    while !ending.load(Ordering::SeqCst) {
                        let number = sent.fetch_add(1, Ordering::SeqCst);
                        // Answers during the pause may be errors.
                        let answer = match moment {
                            Moment::Claims => {
                                server.post(&format!("/v1/runs/claimed-{writer}/claims"), &json!({})).ok()
                            }
                            Moment::Fold => start_run(server, &format!("folded-{number}")).ok(),
                            Moment::Start | Moment::Idle => return,
                        };
                        if answer.is_some_and(|(status, _)| status == 200) {
                            accepted.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
        let paused = (|| {
            thread::sleep(delay);
            kafka.pause(which)?;
            thread::sleep(pause);
            kafka.unpause(which)
        })();
        ending.store(true, Ordering::SeqCst);
        paused
    })?;
    let is_loaded = matches!(moment, Moment::Claims | Moment::Fold);
    ensure!(!is_loaded || accepted.into_inner() > 0, "the server accepted no record: {}", server.stderr());
    resumes(&server)
}

fn start_run(server: &Server, run: &str) -> anyhow::Result<(u16, Value)> {
    let record = json!({
        "run_id": run, "record_id": format!("{run}-started"), "occurred_at_millis": 1,
        "payload": { "type": "run_lifecycle", "status": "started" },
    });
    server.post(&format!("/v1/runs/{run}/records"), &record)
}

/// Waits until records are applied on every partition and the server is ready; returns how long that took.
fn resumes(server: &Server) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let (mut applied, mut last) = (std::collections::BTreeSet::new(), Value::Null);
    for number in 0u64.. {
        ensure!(
            started.elapsed() < RESUME_WAIT,
            "records were applied on {applied:?} of {PARTITIONS} partitions only, last answer {last}: {}",
            server.stderr()
        );
        let run = format!("after-{}-{number}", started.elapsed().as_nanos());
        if let Ok((status, answer)) = start_run(server, &run) {
            if status == 200 && answer["outcome"] == "applied" {
                applied.insert(answer["position"]["partition"].as_u64());
            }
            last = answer;
        }
        let is_ready = || server.get("/readyz").is_ok_and(|(status, _)| status == 200);
        if applied.len() == usize::try_from(PARTITIONS)? && is_ready() {
            return Ok(started.elapsed());
        }
        thread::sleep(AGAIN);
    }
    unreachable!("the loop ends by its deadline")
}

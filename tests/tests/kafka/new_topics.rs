//! The creation of a journal in Kafka: who writes the genesis of an empty topic, and how the next start completes a killed creation.

use anyhow::{Context, ensure};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
};
use runlog_log::{
    Entry, Log, PartitionId,
    kafka::{KafkaConfig, KafkaLog, admin},
};
use runlog_projector::{Config, index::failpoint, open};
use runlog_tests::{
    agent_process::AgentProcess,
    chaos::kill_fleet::PARTITIONS,
    kafka::Broker,
    log_contract::{PATIENCE, wait},
    programs::test_process,
    server::{Launch, Server},
};
use std::{path::Path, sync::Arc, thread};
use tempfile::tempdir;

/// The start of the refusal of an empty topic.
const NOT_CREATED: &str = "is empty, and this server did not create it";
/// The file about a creation that is not complete.
const NOTE: &str = "new-topic.json";

fn launch(dir: &Path, config: &KafkaConfig) -> Launch {
    Launch::kafka(dir, config).partitions(PARTITIONS)
}

/// Starts a server that creates the topic, and kills it at the failpoint. Its data folder is `folder/index-0`.
fn kill_creation(point: &str, folder: &Path, config: &KafkaConfig) -> anyhow::Result<()> {
    let mut command = test_process("killed-server")?;
    command.args([&config.brokers, &config.topic]).arg(folder).args(["0", point]);
    let process = AgentProcess::start(command)?;
    let report = process.receive()?;
    ensure!(report["at"] == point, "{point}: {report}");
    process.kill()
}

/// The number of records in each partition.
fn counts(config: &KafkaConfig) -> anyhow::Result<Vec<u64>> {
    let log = KafkaLog::connect(config.clone())?;
    PartitionId::all(log.partitions()).map(|partition| Ok(wait(log.end(partition, PATIENCE))?.get())).collect()
}

fn journal_id(server: &Server) -> anyhow::Result<String> {
    let (status, journal) = server.get("/v1/journal")?;
    Ok(journal["journal_id"].as_str().with_context(|| format!("{status} {journal}"))?.to_owned())
}

/// Fails unless a start is refused with this message, which must name the topic.
fn is_refused(launch: &Launch, config: &KafkaConfig, why: &[&str]) -> anyhow::Result<()> {
    let refused = launch.refused()?.exits(3)?;
    for part in why.iter().chain([&config.topic.as_str()]) {
        ensure!(refused.stdout.contains(part), "{part:?} is missing in {}", refused.stdout);
    }
    Ok(())
}

fn operator(config: &KafkaConfig) -> anyhow::Result<AdminClient<DefaultClientContext>> {
    Ok(ClientConfig::new().set("bootstrap.servers", &config.brokers).create()?)
}

fn delete(config: &KafkaConfig) -> anyhow::Result<()> {
    let deleted = wait(operator(config)?.delete_topics(&[&config.topic], &AdminOptions::new()))?;
    deleted
        .into_iter()
        .next()
        .context("an answer")?
        .map(drop)
        .map_err(|(topic, code)| anyhow::anyhow!("{topic}: {code}"))
}

/// Creates the topic as Runlog does.
fn create(config: &KafkaConfig) -> anyhow::Result<()> {
    while !admin::create_topic(config, PARTITIONS)? {
        // The deleted topic still exists.
        thread::yield_now();
    }
    Ok(())
}

/// Creates the topic as MirrorMaker does for a topic of Runlog: it copies most settings, but not the type of timestamps.
fn create_mirror(config: &KafkaConfig) -> anyhow::Result<()> {
    let partitions = i32::try_from(PARTITIONS)?;
    let topic = NewTopic::new(&config.topic, partitions, TopicReplication::Fixed(1));
    let topic = topic.set("retention.ms", "-1").set("max.message.bytes", "2097152");
    let created = wait(operator(config)?.create_topics([&topic], &AdminOptions::new()))?;
    created
        .into_iter()
        .next()
        .context("an answer")?
        .map(drop)
        .map_err(|(topic, code)| anyhow::anyhow!("{topic}: {code}"))
}

/// Runs all at once, because a refusal takes ten seconds.
fn together<T: Sync>(cases: &[T], run: impl Fn(&T) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let run = &run;
        let started: Vec<_> = cases.iter().map(|case| scope.spawn(move || run(case))).collect();
        started.into_iter().try_for_each(|case| case.join().ok().context("a case panicked")?)
    })
}

#[test]
fn a_creation_that_is_killed_anywhere_is_completed_by_the_next_start() -> anyhow::Result<()> {
    together(&failpoint::CREATION, |point| {
        let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
        let (dir, elsewhere) = (folder.path().join("index-0"), folder.path().join("elsewhere"));
        kill_creation(point, folder.path(), &config)?;
        ensure!(dir.join(NOTE).exists(), "{point}: no note");
        let before = match *point {
            failpoint::CREATION_NOTED => None,
            failpoint::GENESIS_APPENDED => Some(vec![1, 0, 0, 0]),
            _ => Some(vec![0; 4]),
        };
        ensure!(admin::describe(&config)?.is_some() == before.is_some(), "{point}");
        if let Some(before) = before {
            ensure!(counts(&config)? == before, "{point}");
            if before[0] == 0 {
                is_refused(&launch(&elsewhere, &config), &config, &[NOT_CREATED])?;
                ensure!(counts(&config)? == before, "{point}: a server without the note wrote a genesis");
            }
        }
        let server = launch(&dir, &config).start().context(*point)?;
        ensure!(counts(&config)? == [1; 4], "{point}: {:?}", counts(&config)?);
        ensure!(!dir.join(NOTE).exists(), "{point}: the note stays");
        let other = launch(&elsewhere, &config).start()?;
        ensure!(journal_id(&other)? == journal_id(&server)?, "{point}");
        ensure!(counts(&config)? == [1; 4], "{point}: {:?}", counts(&config)?);
        Ok(())
    })
}

#[test]
fn an_empty_topic_that_the_server_did_not_create_gets_a_genesis_only_with_new_journal() -> anyhow::Result<()> {
    let (folder, config) = (tempdir()?, Broker::shared().topic(PARTITIONS)?);
    let launch = launch(folder.path(), &config);
    is_refused(&launch, &config, &[NOT_CREATED, "--new-journal", "MirrorMaker"])?;
    ensure!(counts(&config)? == [0; 4]);
    let begins = launch.clone().with("--new-journal");
    let journal = journal_id(&begins.start()?)?;
    ensure!(journal_id(&launch.start()?)? == journal, "the flag is needed once");
    let server = begins.start()?;
    server.await_complaint("--new-journal has no effect")?;
    ensure!(journal_id(&server)? == journal && counts(&config)? == [1; 4]);
    Ok(())
}

#[test]
fn a_note_is_valid_only_for_the_topic_that_its_process_created() -> anyhow::Result<()> {
    let made_by_mirror_maker: fn(&KafkaConfig) -> anyhow::Result<()> = create_mirror;
    let recreated: fn(&KafkaConfig) -> anyhow::Result<()> = |config| {
        delete(config)?;
        create(config)
    };
    let cases = [(failpoint::CREATION_NOTED, made_by_mirror_maker), (failpoint::CREATION_TOPIC_NOTED, recreated)];
    together(&cases, |(point, replace)| {
        let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
        kill_creation(point, folder.path(), &config)?;
        replace(&config)?;
        is_refused(&launch(&folder.path().join("index-0"), &config), &config, &[NOT_CREATED])?;
        ensure!(counts(&config)? == [0; 4], "{point}");
        Ok(())
    })
}

#[test]
fn a_server_on_an_empty_mirror_waits_for_the_genesis_of_its_home() -> anyhow::Result<()> {
    let (folder, home, mirror) = (tempdir()?, Broker::shared().unique_topic(), Broker::shared().unique_topic());
    let journal = journal_id(&launch(&folder.path().join("home"), &home).start()?)?;
    let log = KafkaLog::connect(home)?;
    let genesis = log.reader(&[(PartitionId::ZERO, 0.into())])?.poll(1, PATIENCE)?.pop().context("a genesis")?;
    create_mirror(&mirror)?;
    thread::scope(|scope| {
        let dir = folder.path().join("mirror");
        let launch = launch(&dir, &mirror);
        let starting = scope.spawn(move || launch.start());
        while !std::fs::read_to_string(dir.join(".stderr.txt")).unwrap_or_default().contains("waits for its genesis") {
            ensure!(!starting.is_finished(), "it did not wait");
            thread::yield_now();
        }
        let copy = Entry { key: genesis.key, value: genesis.value, headers: genesis.headers };
        wait(KafkaLog::connect(mirror.clone())?.append(PartitionId::ZERO, vec![copy]))?;
        let server = starting.join().ok().context("the start panicked")??;
        ensure!(journal_id(&server)? == journal);
        ensure!(counts(&mirror)? == [1, 0, 0, 0], "{:?}", counts(&mirror)?);
        server.await_complaint("the log is a mirror")?;
        Ok(())
    })
}

#[test]
fn a_missing_topic_is_not_created_beside_an_index() -> anyhow::Result<()> {
    let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
    let launch = launch(&folder.path().join("data"), &config);
    let server = launch.start()?;
    let journal = journal_id(&server)?;
    // An index that has not read the genesis names no journal.
    server.runlog().answer(&["runs", "--consistency", "latest"])?;
    ensure!(server.terminate()?.0 == Some(0));
    delete(&config)?;
    // The broker still describes a topic for a moment after it has acknowledged the deletion.
    while admin::describe(&config)?.is_some() {
        thread::yield_now();
    }
    for launch in [launch.clone(), launch.with("--new-journal")] {
        is_refused(&launch, &config, &["does not exist", &journal, "--brokers", "--data"])?;
    }
    ensure!(admin::describe(&config)?.is_none(), "the topic was created");
    Ok(())
}

fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// A server that waits too long for the other server's genesis ends, and its supervisor starts it again.
async fn open_until_started(dir: &Path, topic: &KafkaConfig) -> anyhow::Result<Arc<runlog_projector::Projector>> {
    loop {
        let config = Config { partitions: Some(2), ..Config::new(dir, || 0, random_id) };
        match open::kafka(config, topic.clone()).await {
            Ok(projector) => return Ok(Arc::new(projector)),
            Err(error) if error.to_string().contains(NOT_CREATED) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn start_two() -> anyhow::Result<()> {
    let (one, other, topic) = (tempdir()?, tempdir()?, Broker::shared().unique_topic());
    let started = tokio::join!(open_until_started(one.path(), &topic), open_until_started(other.path(), &topic));
    let started = [started.0?, started.1?];
    let [journal, equal] = started.each_ref().map(|server| &server.journal().journal_id);
    ensure!(journal == equal, "{journal} and {equal}");
    ensure!(![one, other].iter().any(|dir| dir.path().join(NOTE).exists()), "a note stays");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_that_start_at_once_create_one_journal() -> anyhow::Result<()> {
    let started: Vec<_> = (0..20).map(|_| tokio::spawn(start_two())).collect();
    for started in started {
        started.await??;
    }
    Ok(())
}

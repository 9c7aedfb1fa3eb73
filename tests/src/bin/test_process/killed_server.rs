//! A server process that is killed: what `runlog serve --brokers` runs, with failpoints. Reads the next failpoint to stop
//! at from stdin, line by line, and ends when stdin does.
//!
//! ```text
//!   test_process killed-server BROKERS TOPIC FOLDER PORT [STOP_AT [TAKE_HOME]]
//!   {"listening": true}; then {"armed": NAME} for each {"stop_at": NAME}, and {"at": NAME} where it stopped
//! ```

use std::{
    io,
    path::Path,
    process,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use runlog_log::kafka::KafkaConfig;
use runlog_producer::content::Store;
use runlog_projector::{
    Config, Projector,
    index::{failpoint::Failpoints, projector::Decision},
    open,
};
use runlog_schemas::id::LogId;
use runlog_server::{access::AllowedHosts, serve};
use runlog_tests::chaos::kill_fleet::{PARTITIONS, content, process_log};
use serde_json::{Value, json};

use crate::failpoint::{self, say};

fn reached(name: &'static str) {
    if failpoint::disarm(name) {
        tracing::info!(name, "stops at its failpoint");
        say(&json!({ "at": name }));
        failpoint::park();
    }
}

#[allow(clippy::disallowed_methods, reason = "a separate process with the system's clock")]
fn millis() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn id() -> String {
    uuid::Uuid::new_v4().to_string()
}

async fn take_home(projector: Arc<Projector>, from: LogId) {
    let decision = Decision { who: "jo".into(), why: "a test".into() };
    let taken = projector.take_home(&from, decision).await;
    tracing::info!(?taken, "took over");
}

pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    process_log::start();
    let mut next = || arguments.next().context("BROKERS TOPIC FOLDER PORT [STOP_AT]");
    let (brokers, topic, folder, port) = (next()?, next()?, next()?, next()?.parse::<u16>()?);
    if let Some(name) = arguments.next() {
        failpoint::arm(&name);
    }
    let lost_home = arguments.next().map(|id| LogId::parse(&id)).transpose()?;
    thread::spawn(|| {
        for line in io::stdin().lines().map_while(Result::ok) {
            let order: Value = serde_json::from_str(&line).unwrap_or_default();
            tracing::info!(line, "must stop");
            failpoint::arm_and_report(order["stop_at"].as_str().unwrap_or_default());
        }
        process::exit(0);
    });
    let folder = Path::new(&folder);
    let config = Config {
        partitions: Some(PARTITIONS),
        content: Some(Store::open(&content(folder)?)?),
        failpoints: Failpoints::new(reached),
        ..Config::new(folder.join(format!("index-{port}")), millis, id)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let projector = Arc::new(open::kafka(config, KafkaConfig::new(brokers, topic)).await?);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        tracing::info!(port, "listening");
        say(&json!({ "listening": true }));
        if let Some(from) = lost_home {
            tokio::spawn(take_home(projector.clone(), from));
        }
        serve(listener, projector, AllowedHosts::default(), std::future::pending(), Duration::ZERO).await;
        Ok(())
    })
}

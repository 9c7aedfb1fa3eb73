//! A cluster that asks for TLS and a password: the server, an import and a producer that append to Kafka use it, and a password
//! changes while they append.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
};

use runlog_producer::{Config, Journal, KafkaProperties, Runlog};
use runlog_tests::{
    certificates::{Authority, replace},
    kafka::{Broker, MECHANISM},
    server::{Launch, Server},
};
use serde_json::{Value, json};

const USER: &str = "runlog";
const RUN: &str = "r";
const OLD: &str = "old-canary";
const NEW: &str = "new-canary";

/// Properties with these authorities and this password, which is in a file of its own.
fn properties(dir: &Path, name: &str, ca: &Path, password: &str) -> PathBuf {
    let secret = dir.join(format!("{name}.password"));
    replace(&secret, password).unwrap();
    let text = format!(
        "security.protocol=SASL_SSL\nsasl.mechanism={MECHANISM}\nsasl.username={USER}\nsasl.password_file={}\nssl.ca.location={}\n",
        secret.display(),
        ca.display()
    );
    let path = dir.join(format!("{name}.properties"));
    fs::write(&path, text).unwrap();
    path
}

fn post(server: &Server, id: &str) {
    let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": id });
    let record = json!({ "run_id": RUN, "record_id": id, "payload": payload });
    let (status, answer) = server.post(&format!("/v1/runs/{RUN}/records"), &record).unwrap();
    assert!(status == 200 && answer["outcome"] == "applied", "{answer}");
}

/// A handle that appends to the topic itself.
async fn producer(brokers: &str, server: &str, file: &Path) -> Result<Runlog, runlog_producer::Error> {
    let lines = fs::read_to_string(file).unwrap();
    let properties = lines.lines().filter_map(|line| line.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned()));
    let journal = Journal::Kafka { brokers: brokers.to_owned(), server: server.to_owned() };
    let kafka = Some(KafkaProperties(properties.collect()));
    Runlog::connect(Config { kafka, ..Config::new(journal, "test") }).await
}

#[test]
fn a_cluster_with_tls_and_passwords_is_used_and_a_password_changes_without_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca").unwrap();
    let other = Authority::new(dir.path(), "other").unwrap();
    let broker = Broker::secured(&authority.sign(&["127.0.0.1"], 3000).unwrap()).unwrap();
    broker.set_password(USER, OLD).unwrap();
    let kafka = runlog_log::kafka::KafkaConfig::new(broker.bootstrap(), "journal");
    let launch = |name: &str, file: &Path| {
        let launch = Launch::kafka(&dir.path().join(name), &kafka).partitions(1);
        launch.with("--kafka-properties").with(file.to_str().unwrap())
    };
    let good = properties(dir.path(), "good", &authority.ca, OLD);

    // Whoever does not trust the cluster, or is not trusted by it, is told so, without the password.
    let bad = [
        ("untrusted", properties(dir.path(), "untrusted", &other.ca, OLD), "certificate verify failed"),
        ("denied", properties(dir.path(), "denied", &authority.ca, NEW), "SASL authentication error"),
    ];
    let refusals = bad.map(|(name, file, why)| {
        let refused = launch(name, &file);
        thread::spawn(move || {
            let ran = refused.refused().unwrap().exits(4).unwrap();
            assert!(ran.stdout.contains(why), "{ran:?}");
            assert!(!format!("{ran:?}").contains("canary"), "{ran:?}");
        })
    });

    let first = launch("first", &good).start().unwrap();
    for refusal in refusals {
        refusal.join().unwrap();
    }
    let recorded = json!([{"task_id": 1, "trial": 0, "reward": 1.0, "traj": [{"role": "user", "content": "Hi"}]}]);
    let file = dir.path().join("recorded.json");
    fs::write(&file, recorded.to_string()).unwrap();
    let import = ["import", "tau-bench", file.to_str().unwrap(), "--topic", &kafka.topic, "--brokers", &kafka.brokers];
    let import = [&import[..], &["--kafka-properties", good.to_str().unwrap()]].concat();
    assert_eq!(first.runlog().answer(&import).unwrap()["runs"], 1);

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let old = runtime.block_on(producer(&kafka.brokers, &first.url, &good)).unwrap();
    let handle = runtime.block_on(old.open("direct")).unwrap();
    let turn =
        |text: &'static str| runtime.block_on(async { handle.turn("user", text).await.and(handle.flush().await) });
    turn("before").unwrap();
    post(&first, "before");

    // Connections that exist go on after the change; new ones need the new password.
    broker.set_password(USER, NEW).unwrap();
    turn("between").unwrap();
    post(&first, "between");
    replace(&dir.path().join("good.password"), NEW).unwrap();
    let second = launch("second", &good).start().unwrap();
    post(&second, "after");
    turn("after").unwrap();
    let new = runtime.block_on(producer(&kafka.brokers, &second.url, &good)).unwrap();
    assert_eq!(runtime.block_on(new.open("direct")).unwrap().recovery().epoch.get(), 2);
    assert_eq!(first.terminate().unwrap().0, Some(0));

    for run in [RUN, "direct"] {
        let shown = second.runlog().json(&["show", run, "--raw"]).unwrap().exits(0).unwrap();
        let mut found = BTreeMap::<String, usize>::new();
        for line in shown.documents().unwrap() {
            if let Value::String(text) = &line["payload"]["content"] {
                *found.entry(text.clone()).or_default() += 1;
            }
        }
        let expected = ["after", "before", "between"].map(|text| (text.to_owned(), 1));
        assert_eq!(found, BTreeMap::from(expected), "{run}");
    }
    assert!(!second.stderr().contains("canary"), "{}", second.stderr());
}

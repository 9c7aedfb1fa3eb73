//! A cluster with TLS and passwords: the server, an import and a producer append to it. Passwords, certificates and tokens
//! change while clients append.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use runlog_producer::{Config, Journal, KafkaProperties, Runlog, Security, Tls, Token};
use runlog_server::auth::token_file::{Entry, Scope, TokenFile};
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

/// Writes a properties file with this CA and this password, which is in a separate file.
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

/// A producer that appends directly to the topic.
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

    // A client that does not trust the cluster, or has a wrong password, gets an error that does not contain the password.
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

    // Open connections stay usable after the change; new connections need the new password.
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
        let mut counts = BTreeMap::<String, usize>::new();
        for line in shown.documents().unwrap() {
            if let Value::String(text) = &line["payload"]["content"] {
                *counts.entry(text.clone()).or_default() += 1;
            }
        }
        let expected = ["after", "before", "between"].map(|text| (text.to_owned(), 1));
        assert_eq!(counts, BTreeMap::from(expected), "{run}");
    }
    assert!(!second.stderr().contains("canary"), "{}", second.stderr());
}

/// How long the [`APPENDS_AFTER`] appends of a step may take.
const STEP_WAIT: Duration = Duration::from_secs(60);
/// Appends awaited after each step: more than can be in flight, so that some began after it.
const APPENDS_AFTER: usize = 30;
const CLIENTS: usize = 3;

/// The current credentials of the clients.
struct Access {
    urls: [String; 2],
    token: String,
    ca: PathBuf,
}

impl Access {
    fn client(&self) -> reqwest::Client {
        let token = Some(Token::new(&self.token).unwrap());
        let security =
            Security { token, tls: Tls { ca: Some(self.ca.clone()), ..Tls::default() }, ..Security::default() };
        security.client(&self.urls[0]).unwrap().timeout(STEP_WAIT).build().unwrap()
    }
}

/// Appends turns to a run until `end`, alternating between the servers, each until it is acknowledged. Returns their ids.
async fn append(
    run: String,
    access: &Mutex<Access>,
    end: &AtomicBool,
    count: &tokio::sync::watch::Sender<usize>,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let id = format!("{run}-{}", acknowledged.len());
        let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": id });
        let record = json!({ "run_id": run, "record_id": id, "payload": payload });
        let started = Instant::now();
        for attempt in acknowledged.len().. {
            assert!(started.elapsed() < STEP_WAIT, "{id} is not acknowledged");
            let (url, http) = {
                let access = access.lock().unwrap();
                (access.urls[attempt % 2].clone(), access.client())
            };
            let answer = http.post(format!("{url}/v1/runs/{run}/records")).json(&record).send().await;
            match answer {
                Ok(answer) if answer.status() == 200 => break,
                // A revoked token, or a server that is ending or cannot append.
                Ok(answer) => assert!(matches!(answer.status().as_u16(), 401 | 429 | 503), "{answer:?}"),
                // A server that is not running, or that has a certificate of the other CA.
                Err(error) => assert!(error.is_connect() || error.is_request() || error.is_body(), "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        acknowledged.push(id);
        count.send_modify(|count| *count += 1);
    }
    acknowledged
}

fn entry(secret: u8) -> (Entry, String) {
    Entry::new("agent".into(), [Scope::Append, Scope::ReadMeta].into(), vec!["*".into()], &[secret; 32])
}

#[test]
fn credentials_and_certificates_change_under_load_without_loss_or_duplicates() {
    let dir = tempfile::tempdir().unwrap();
    let [authority, next] = ["ca", "next"].map(|name| Authority::new(dir.path(), name).unwrap());
    let broker = Broker::secured(&authority.sign(&["127.0.0.1"], 3000).unwrap()).unwrap();
    broker.set_password(USER, OLD).unwrap();
    let kafka = runlog_log::kafka::KafkaConfig::new(broker.bootstrap(), "journal");
    let file = properties(dir.path(), "good", &authority.ca, OLD);
    let names = ["localhost", "127.0.0.1"];
    let (cert, key) = authority.sign(&names, 3000).unwrap().write(dir.path(), "server").unwrap();
    let tokens = dir.path().join("tokens.json");
    let ((first_entry, first), (second_entry, second)) = (entry(1), entry(2));
    TokenFile { tokens: vec![first_entry.clone()], ..TokenFile::default() }.write(&tokens).unwrap();
    let launch = ["a", "b"].map(|name| {
        let launch = Launch::kafka(&dir.path().join(name), &kafka).partitions(2);
        let files = [("--kafka-properties", &file), ("--tls-cert", &cert), ("--tls-key", &key), ("--tokens", &tokens)];
        files.into_iter().fold(launch, |launch, (flag, file)| launch.with(flag).with(file.to_str().unwrap()))
    });
    let mut servers: Vec<Server> = launch.iter().map(|launch| launch.start().unwrap()).collect();
    let urls = [servers[0].url.clone(), servers[1].url.clone()];
    let access = Mutex::new(Access { urls, token: first.clone(), ca: authority.ca.clone() });
    let (end, count) = (AtomicBool::new(false), tokio::sync::watch::Sender::new(0));

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let appended = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let clients = (0..CLIENTS).map(|number| append(format!("run-{number}"), &access, &end, &count));
            runtime.block_on(join_all(clients))
        });
        let step = || {
            let before = *count.borrow();
            let started = Instant::now();
            while *count.borrow() < before + APPENDS_AFTER {
                assert!(started.elapsed() < STEP_WAIT && !load.is_finished(), "the load has stopped");
                thread::sleep(Duration::from_millis(10));
            }
        };
        step();
        // The password: open connections stay usable, and a restarted process has the new password.
        broker.set_password(USER, NEW).unwrap();
        step();
        replace(&dir.path().join("good.password"), NEW).unwrap();
        for (at, launch) in launch.iter().enumerate() {
            assert_eq!(servers.remove(at).terminate().unwrap().0, Some(0));
            servers.insert(at, launch.start().unwrap());
            access.lock().unwrap().urls[at] = servers[at].url.clone();
            step();
        }
        // The certificate, now of another CA: clients trust both for a while.
        let both = [&authority.ca, &next.ca].map(|ca| fs::read_to_string(ca).unwrap()).concat();
        replace(&dir.path().join("both.pem"), &both).unwrap();
        access.lock().unwrap().ca = dir.path().join("both.pem");
        next.sign(&names, 3000).unwrap().write(dir.path(), "server").unwrap();
        for server in &servers {
            server.hang_up().unwrap();
        }
        access.lock().unwrap().ca = next.ca.clone();
        step();
        // The token: adds a second token, then removes the first.
        TokenFile { tokens: vec![first_entry, second_entry.clone()], ..TokenFile::default() }.write(&tokens).unwrap();
        access.lock().unwrap().token = second;
        step();
        TokenFile { tokens: vec![second_entry], ..TokenFile::default() }.write(&tokens).unwrap();
        for server in &servers {
            server.hang_up().unwrap();
        }
        step();
        end.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    let old = Access { urls: access.lock().unwrap().urls.clone(), token: first, ca: next.ca.clone() };
    let access = access.into_inner().unwrap();
    runtime.block_on(async {
        let refused = old.client().get(format!("{}/v1/runs", old.urls[0])).send().await.unwrap();
        assert_eq!(refused.status(), 401, "the first token");
        let shown = access.urls.iter().map(|url| join_all((0..CLIENTS).map(|number| ids(&access, url, number))));
        let shown = join_all(shown).await;
        // Both servers list each acknowledged record once, and no others.
        assert!(shown.iter().all(|shown| *shown == appended), "{shown:?} are not {appended:?}");
    });
    for server in servers {
        assert!(!server.stderr().contains("canary"), "{}", server.stderr());
    }
}

/// The ids of a run's records, in order.
async fn ids(access: &Access, url: &str, number: usize) -> Vec<String> {
    let (http, mut found, mut cursor) = (access.client(), Vec::new(), String::new());
    loop {
        let page = http.get(format!("{url}/v1/runs/run-{number}/records?limit=1000{cursor}")).send().await.unwrap();
        let page: Value = page.json().await.unwrap();
        let records = page["records"].as_array().unwrap_or_else(|| panic!("{page}"));
        found.extend(records.iter().map(|line| line["record_id"].as_str().unwrap().to_owned()));
        let Value::String(next) = &page["next_cursor"] else { return found };
        cursor = format!("&cursor={next}");
    }
}

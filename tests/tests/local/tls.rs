//! Connections are encrypted, both sides authenticate, and certificates change under load.

use futures_util::{StreamExt, future::join_all};
use runlog_log::memory::MemoryLog;
use runlog_producer::{Journal, Runlog, Tls as ClientTls};
use runlog_projector::{Config, Projector};
use runlog_schemas::answer::ErrorKind;
use runlog_server::{
    Options,
    access::AllowedHosts,
    auth::{
        Authentication,
        token_file::{Entry, Scope, TokenFile},
    },
    serve,
    tls::{Files, Tls},
};
use runlog_tests::{
    certificates::{Authority, Pair, replace},
    server::{Launch, client},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, timeout},
};

const WAIT: Duration = Duration::from_secs(10);
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
const LONG: i32 = 3000;

/// A server with a certificate of its own authority, over a log in memory.
struct Site {
    dir: TempDir,
    authority: Authority,
    tls: Arc<Tls>,
    address: SocketAddr,
    admin: SocketAddr,
}

/// The projector's ids for its own records.
fn id() -> String {
    uuid::Uuid::new_v4().to_string()
}

impl Site {
    async fn start(pair: impl FnOnce(&Authority) -> Pair, mutual: bool, tokens: Option<&TokenFile>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path(), "ca").unwrap();
        let (cert, key) = pair(&authority).write(dir.path(), "server").unwrap();
        let tls = Tls::open(Files { cert, key, client_ca: mutual.then(|| authority.ca.clone()) }).unwrap();
        let config = Config::new(dir.path().join("data"), || 1_000, id);
        let projector = Arc::new(Projector::start(config, Arc::new(MemoryLog::new(2))).await.unwrap());
        let (listener, admin) = (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
        let (listener, admin) = (listener.unwrap(), admin.unwrap());
        let (address, admin_address) = (listener.local_addr().unwrap(), admin.local_addr().unwrap());
        let mut options = Options::from(AllowedHosts::default());
        (options.tls, options.admin) = (Some(tls.clone()), Some(admin));
        options.authentication = tokens.map(|tokens| {
            let path = dir.path().join("tokens.json");
            tokens.write(&path).unwrap();
            Authentication::open(&path, || 0).unwrap()
        });
        tokio::spawn(serve(listener, projector, options, std::future::pending(), WAIT));
        Self { dir, authority, tls, address, admin: admin_address }
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    fn trusting(&self) -> ClientTls {
        ClientTls { ca: Some(self.authority.ca.clone()), ..ClientTls::default() }
    }

    async fn connect(&self, url: &str, tls: ClientTls) -> Result<Runlog, runlog_producer::Error> {
        let config = runlog_producer::Config::new(Journal::parse(url, None).unwrap(), "test");
        Runlog::connect(runlog_producer::Config { tls: Some(tls), deadline: WAIT, ..config }).await
    }

    /// The reason for which a client gets no connection.
    async fn refused(&self, url: &str, tls: ClientTls) -> String {
        let error = self.connect(url, tls).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        error.to_string()
    }

    async fn metric(&self, name: &str) -> u64 {
        let text = client().unwrap().get(format!("http://{}/metrics", self.admin)).send().await.unwrap();
        let text = text.text().await.unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        value.trim().parse().unwrap()
    }
}

fn long(authority: &Authority) -> Pair {
    authority.sign(&NAMES, LONG).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_uses_only_a_server_that_it_trusts() {
    let site = Site::start(long, false, None).await;
    site.connect(&site.url(), site.trusting()).await.unwrap();
    let other = Authority::new(site.dir.path(), "other").unwrap();
    let foreign = ClientTls { ca: Some(other.ca), ..ClientTls::default() };
    let reason = site.refused(&site.url(), foreign).await;
    assert!(reason.contains("not trusted") && reason.contains("--ca"), "{reason}");
    // A client without TLS gets an answer with the remedy.
    let plain = client().unwrap().post(format!("http://{}/v1/verify", site.address)).body("{}".repeat(9_000));
    let plain = plain.send().await.unwrap();
    assert_eq!(plain.status(), 400);
    let plain: Value = plain.json().await.unwrap();
    assert!(plain["kind"] == "usage" && plain["detail"].as_str().unwrap().contains("https://"), "{plain}");
    assert_eq!(site.metric("runlog_tls_handshake_failures_total{reason=\"not_tls\"}").await, 1);

    let named = Site::start(|authority| authority.sign(&["journal.example"], LONG).unwrap(), false, None).await;
    let reason = named.refused(&named.url(), named.trusting()).await;
    assert!(reason.contains("another name"), "{reason}");
    let expired = Site::start(|authority| authority.sign(&NAMES, 2001).unwrap(), false, None).await;
    let reason = expired.refused(&expired.url(), expired.trusting()).await;
    assert!(reason.contains("has expired"), "{reason}");
    // 2001-01-01, and 3000-01-01.
    for (site, ends) in [(&expired, 978_307_200), (&site, 32_503_680_000)] {
        assert_eq!(site.metric("runlog_expiry_timestamp_seconds{what=\"certificate\"} ").await, ends);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_requires_certificates_accepts_only_its_authoritys() {
    let site = Site::start(long, true, None).await;
    let reason = site.refused(&site.url(), site.trusting()).await;
    assert!(reason.contains("asks for a client certificate") && reason.contains("--client-cert"), "{reason}");
    let with = |pair: Pair, name| {
        let (cert, key) = pair.write(site.dir.path(), name).unwrap();
        ClientTls { client_cert: Some(cert), client_key: Some(key), ..site.trusting() }
    };
    let other = Authority::new(site.dir.path(), "other").unwrap();
    for foreign in [other.sign(&["agent"], LONG).unwrap(), site.authority.sign(&["agent"], 2001).unwrap()] {
        let reason = site.refused(&site.url(), with(foreign, "foreign")).await;
        assert!(reason.contains("does not accept this client's certificate"), "{reason}");
    }
    let own = with(site.authority.sign(&["agent"], LONG).unwrap(), "agent");
    let runlog = site.connect(&site.url(), own).await.unwrap();
    runlog.open("r").await.unwrap().turn("user", "x").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_renews_its_certificate_is_accepted_after_the_authority_changes() {
    let site = Site::start(long, true, None).await;
    let (cert, key) = site.authority.sign(&["agent"], LONG).unwrap().write(site.dir.path(), "agent").unwrap();
    let tls = ClientTls { client_cert: Some(cert), client_key: Some(key), ..site.trusting() };
    // Each request opens its own connection.
    let http = runlog_producer::Security { tls, ..Default::default() }.client(&site.url()).unwrap();
    let http = http.pool_max_idle_per_host(0).build().unwrap();
    let ask = || http.get(format!("{}/v1/journal", site.url())).send();
    assert_eq!(ask().await.unwrap().status(), 200);
    let next = Authority::new(site.dir.path(), "next").unwrap();
    let trusted = std::fs::read_to_string(&site.authority.ca).unwrap();
    replace(&site.dir.path().join("ca.pem"), &std::fs::read_to_string(&next.ca).unwrap()).unwrap();
    site.tls.reload();
    assert!(ask().await.is_err(), "the old authority is gone");
    next.sign(&["agent"], LONG).unwrap().write(site.dir.path(), "agent").unwrap();
    assert_eq!(ask().await.unwrap().status(), 200);
    // An unusable certificate is ignored.
    replace(&site.dir.path().join("agent.pem"), &trusted).unwrap();
    assert_eq!(ask().await.unwrap().status(), 200);
}

/// Appends after the last change: more than three clients have in flight over their earlier connections.
const APPENDS_AFTER: usize = 18;

/// Appends turns, three over each connection, until the end flag is set, and counts them. Returns the acknowledged
/// texts.
async fn append(
    site: &Site,
    run: &str,
    (end, count): (&AtomicBool, &watch::Sender<usize>),
    tls: &ClientTls,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let runlog = site.connect(&site.url(), tls.clone()).await.unwrap();
        let handle = runlog.open(run).await.unwrap();
        for _ in 0..3 {
            let text = id();
            handle.turn("user", text.as_str()).await.unwrap();
            acknowledged.push(text);
            count.send_modify(|count| *count += 1);
        }
        handle.flush().await.unwrap();
    }
    acknowledged
}

/// How often each text is in the run.
async fn turns(site: &Site, run: &str, tls: &ClientTls) -> BTreeMap<String, usize> {
    let runlog = site.connect(&site.url(), tls.clone()).await.unwrap();
    let (mut found, mut cursor) = (BTreeMap::new(), None);
    loop {
        let page = runlog.records(run, &Default::default(), cursor.as_deref(), 1000).await.unwrap();
        for record in &page.records {
            let record = serde_json::to_value(record.record.as_ref().unwrap()).unwrap();
            if let Some(text) = record["payload"]["content"].as_str() {
                *found.entry(text.to_owned()).or_default() += 1;
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_change_under_load_loses_and_duplicates_no_append() {
    let site = Site::start(long, false, None).await;
    let next = Authority::new(site.dir.path(), "next").unwrap();
    let both = [&site.authority.ca, &next.ca].map(|ca| std::fs::read_to_string(ca).unwrap()).concat();
    replace(&site.dir.path().join("both.pem"), &both).unwrap();
    let tls = ClientTls { ca: Some(site.dir.path().join("both.pem")), ..ClientTls::default() };
    let http = runlog_producer::Security { tls: tls.clone(), ..Default::default() }.client(&site.url()).unwrap();
    let stream = http.build().unwrap().get(format!("{}/v1/tail", site.url())).send().await.unwrap();
    let mut events = stream.bytes_stream();
    let runs = ["a", "b", "c"];
    let (end, count) = (AtomicBool::new(false), watch::Sender::new(0));
    let change = async {
        let file = |name: &str| -> PathBuf { site.dir.path().join(name) };
        let old = site.trusting();
        let (pair, unusable) = (next.sign(&NAMES, LONG).unwrap(), "runlog_certificates_unusable ");
        // First the certificate alone: it does not match the old key, so the old certificate stays.
        replace(&file("server.pem"), &pair.cert).unwrap();
        site.tls.reload();
        assert_eq!(site.metric(unusable).await, 1);
        site.connect(&site.url(), old.clone()).await.unwrap();
        replace(&file("server.key"), &pair.key).unwrap();
        site.tls.reload();
        assert_eq!(site.metric(unusable).await, 0);
        assert!(site.refused(&site.url(), old).await.contains("not trusted"));
        replace(&file("server.key"), "nonsense").unwrap();
        site.tls.reload();
        assert_eq!(site.metric(unusable).await, 1);
        // Clients that connect now get the old certificate.
        let before = *count.borrow();
        count.subscribe().wait_for(|now| *now >= before + APPENDS_AFTER).await.unwrap();
        end.store(true, Ordering::Relaxed);
    };
    let load = join_all(runs.map(|run| append(&site, run, (&end, &count), &tls)));
    let ((), acknowledged) = timeout(6 * WAIT, futures_util::future::join(change, load)).await.unwrap();
    let mut last = String::new();
    for (run, acknowledged) in runs.into_iter().zip(acknowledged) {
        let counts = turns(&site, run, &tls).await;
        assert!(counts.values().all(|count| *count == 1), "{run}: {counts:?}");
        assert_eq!(counts.len(), acknowledged.len(), "{run}");
        assert!(acknowledged.iter().all(|text| counts.contains_key(text)), "{run}");
        last = acknowledged.last().unwrap().clone();
    }
    // The stream opened before the change still delivers later records.
    let mut seen = String::new();
    while !seen.contains(&last) {
        let some = timeout(WAIT, events.next()).await.unwrap().expect("the stream continues").unwrap();
        seen.push_str(&String::from_utf8_lossy(&some));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_stop_during_a_handshake_delay_no_other_and_are_disconnected() {
    let site = Site::start(long, false, None).await;
    let start = Instant::now();
    let mut silent = Vec::new();
    for number in 0..200_u32 {
        let mut stream = TcpStream::connect(site.address).await.unwrap();
        if number % 2 == 0 {
            // The first bytes of a handshake record.
            stream.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
        }
        silent.push(stream);
    }
    site.connect(&site.url(), site.trusting()).await.unwrap();
    assert!(start.elapsed() < WAIT, "{:?}", start.elapsed());
    for mut stream in silent {
        timeout(2 * WAIT, stream.read_to_end(&mut Vec::new())).await.unwrap().ok();
    }
    assert_eq!(site.metric("runlog_tls_handshake_failures_total{reason=\"timed_out\"}").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn monitoring_needs_no_token_and_reveals_no_run() {
    let (entry, token) = Entry::new("agent".into(), [Scope::Append].into(), vec!["*".into()], &[7; 32]);
    let site = Site::start(long, false, Some(&TokenFile { tokens: vec![entry], ..TokenFile::default() })).await;
    let security = runlog_producer::Security {
        token: Some(runlog_producer::Token::new(&token).unwrap()),
        tls: site.trusting(),
        ..Default::default()
    };
    let http = security.client(&site.url()).unwrap().build().unwrap();
    let payload = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": "canary" });
    let record = json!({ "run_id": "canary", "record_id": "canary", "payload": payload });
    let posted = http.post(format!("{}/v1/runs/canary/records", site.url())).json(&record).send().await.unwrap();
    assert_eq!(posted.status(), 200, "{:?}", posted.text().await);
    let admin = client().unwrap();
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/v1/runs", 404), ("/", 404)] {
        let answer = admin.get(format!("http://{}{path}", site.admin)).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        let text = answer.text().await.unwrap();
        assert!(!text.contains("canary"), "{path}: {text}");
    }
    let security = runlog_producer::Security { tls: site.trusting(), ..Default::default() };
    let nobody = security.client(&site.url()).unwrap().build().unwrap();
    for path in ["/readyz", "/metrics"] {
        assert_eq!(nobody.get(format!("{}{path}", site.url())).send().await.unwrap().status(), 401, "{path}");
    }
}

#[test]
fn the_command_serves_and_asks_over_tls_and_a_hangup_reads_the_certificate_again() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca").unwrap();
    let (cert, key) = long(&authority).write(dir.path(), "server").unwrap();
    let [ca, cert, key] = [&authority.ca, &cert, &key].map(|path| path.to_str().unwrap());
    let data = dir.path().join("data");
    let server = Launch::local(&data).with("--tls-cert").with(cert).with("--tls-key").with(key).start().unwrap();
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let runlog = server.runlog();
    assert_eq!(runlog.answer(&["runs", "--ca", ca]).unwrap()["runs"], json!([]));
    assert_eq!(runlog.json(&["runs"]).unwrap().exits(4).unwrap().error_kind().unwrap(), "unavailable");
    let rule = ["conformance", "--rule", "unknown_run", "--ca", ca];
    assert_eq!(runlog.answer(&rule).unwrap()["passed"], 1);

    // Another certificate's key, and a key that others may read.
    let other = long(&authority);
    replace(&dir.path().join("server.key"), &other.key).unwrap();
    server.hang_up().unwrap();
    server.await_complaint("cannot be used together").unwrap();
    runlog.answer(&["runs", "--ca", ca]).unwrap();
    std::process::Command::new("chmod").args(["644", key]).status().unwrap();
    server.hang_up().unwrap();
    server.await_complaint("chmod 600").unwrap();
    let refused = Launch::local(&dir.path().join("data2")).with("--tls-cert").with(cert).with("--tls-key").with(key);
    assert_eq!(refused.refused().unwrap().exits(3).unwrap().error_kind().unwrap(), "invalid");
    assert_eq!(server.terminate().unwrap().0, Some(0));
}

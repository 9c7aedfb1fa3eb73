//! A principal over a limit is refused without any effect and with a retry time; others are not affected.

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use runlog_log::{Log, PartitionId, memory::MemoryLog};
use runlog_producer::{Action, Journal, Runlog, SideEffect, Token};
use runlog_projector::{Config, Projector};
use runlog_schemas::answer::ErrorKind;
use runlog_server::{
    Options,
    access::AllowedHosts,
    auth::{
        Authentication,
        token_file::{Entry, Scope, TokenFile},
    },
};
use runlog_tests::{
    content::{objects, text},
    served,
    server::client,
};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const WAIT: Duration = Duration::from_secs(10);
const DAY_SECONDS: u64 = 24 * 60 * 60;
const BUSY: &str = "busy";
const OTHER: &str = "other";

/// A server that requires tokens: two of `busy`, one of `other`.
struct Site {
    dir: TempDir,
    log: MemoryLog,
    url: String,
    http: reqwest::Client,
    authentication: Arc<Authentication>,
    busy: [String; 2],
    other: String,
}

#[derive(Debug)]
struct Reply {
    status: u16,
    retry_after: Option<u64>,
    body: Value,
}

impl Reply {
    /// Checks for a refusal without any effect. Returns the retry time, seconds.
    fn refused(&self) -> u64 {
        assert_eq!((self.status, &self.body["kind"]), (429, &json!("overloaded")), "{self:?}");
        assert!(self.body["detail"].as_str().unwrap().contains("nothing happened"), "{self:?}");
        self.retry_after.unwrap()
    }
}

fn write(path: &Path, limits: Value) -> ([String; 2], String) {
    let entry = |principal: &str, number: u8| {
        Entry::new(principal.into(), Scope::ALL.iter().copied().collect(), vec!["*".into()], &[number; 32])
    };
    let [(a, one), (b, two), (c, other)] = [entry(BUSY, 1), entry(BUSY, 2), entry(OTHER, 3)];
    let limits = serde_json::from_value(limits).unwrap();
    TokenFile { limits, tokens: vec![a, b, c], ..TokenFile::default() }.write(path).unwrap();
    ([one, two], other)
}

impl Site {
    async fn start(limits: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (log, tokens) = (MemoryLog::new(1), dir.path().join("tokens.json"));
        let (busy, other) = write(&tokens, limits);
        let content = Some(served::content(&dir.path().join("content")).unwrap());
        let config = Config { content, ..Config::new(dir.path(), || 1_000, served::id) };
        let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await.unwrap());
        let authentication = Authentication::open(&tokens, || 1_000).unwrap();
        let mut options = Options::from(AllowedHosts::default());
        options.authentication = Some(authentication.clone());
        let url = format!("http://{}", served::start(projector, options).await.unwrap());
        Self { dir, log, url, http: client().unwrap(), authentication, busy, other }
    }

    async fn send(&self, request: reqwest::RequestBuilder, token: &str) -> Reply {
        let response = request.bearer_auth(token).send().await.unwrap();
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after").map(|wait| wait.to_str().unwrap().parse().unwrap());
        let body = response.text().await.unwrap();
        Reply { status, retry_after, body: serde_json::from_str(&body).unwrap_or(json!(body)) }
    }

    async fn get(&self, path: &str, token: &str) -> Reply {
        self.send(self.http.get(format!("{}{path}", self.url)), token).await
    }

    fn post(&self, id: &str, content: &str) -> reqwest::RequestBuilder {
        self.http.post(format!("{}/v1/runs/r/records", self.url)).json(&json!({ "run_id": "r", "record_id": id,
            "payload": { "type": "conversation_turn", "message_id": id, "kind": "user", "content": content } }))
    }

    /// Six requests of `busy` to append records, with this header line and the first `sent` bytes of their bodies.
    async fn slow_bodies(&self, header: &str, sent: usize) -> Vec<TcpStream> {
        let mut open = Vec::new();
        for token in self.busy.iter().cycle().take(6) {
            let mut stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).await.unwrap();
            let head = format!(
                "POST /v1/runs/r/records HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{header}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&vec![b' '; sent]).await.unwrap();
            open.push(stream);
        }
        open
    }

    async fn end(&self) -> u64 {
        self.log.bounds(PartitionId::from(0), WAIT).await.unwrap().end.get()
    }

    /// How many requests were refused over this limit.
    async fn refusals(&self, limit: &str) -> u64 {
        let metrics = self.get("/metrics", &self.other).await.body;
        let line = format!("runlog_principal_refusals_total{{limit=\"{limit}\"}} ");
        let count = metrics.as_str().unwrap().lines().find_map(|text| text.strip_prefix(&line)?.parse().ok());
        count.unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_the_rate_are_refused_until_it_allows_them_with_all_tokens_of_the_principal_together() {
    let site = Site::start(json!({ BUSY: { "requests_per_second": 4 } })).await;
    let start = Instant::now();
    let mut answered = 0;
    let refused = loop {
        let reply = site.get("/v1/journal", &site.busy[answered % 2]).await;
        if reply.status != 200 {
            break reply;
        }
        answered += 1;
        assert!(answered < 1_000, "no request was refused");
    };
    // The requests of one second, and the allowance regained meanwhile.
    let most = 4 + (start.elapsed().as_millis() / 250) as usize;
    assert!((4..=most).contains(&answered), "{answered} of {most}");
    assert_eq!(refused.refused(), 1);
    for _ in 0..20 {
        assert_eq!(site.get("/v1/journal", &site.other).await.status, 200, "another principal");
    }
    assert!(site.refusals("requests_per_second").await >= 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(site.get("/v1/journal", &site.busy[0]).await.status, 200, "after the retry time");
    // Limits are read again while the used allowance is kept.
    write(&site.dir.path().join("tokens.json"), json!({ "*": { "requests_per_second": 1 } }));
    site.authentication.reload();
    site.get("/v1/journal", &site.busy[0]).await;
    site.get("/v1/journal", &site.busy[0]).await.refused();
    site.get("/v1/journal", &site.other).await;
    site.get("/v1/journal", &site.other).await.refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_over_the_rate_are_refused_unread_and_a_producer_knows_that_no_effect_happened() {
    let site = Site::start(json!({ BUSY: { "body_bytes_per_second": 4_000 } })).await;
    let long = text(16_000, 1);
    assert_eq!(site.send(site.post("one", &long), &site.busy[0]).await.status, 200);
    let end = site.end().await;
    let again = site.send(site.post("two", "short"), &site.busy[1]).await.refused();
    assert!((3..=4).contains(&again), "{again} s for 16,000 bytes at 4,000 a second, of which a second is free");
    assert_eq!(site.send(site.post("three", &long), &site.other).await.status, 200, "another principal");
    assert_eq!(site.end().await, end + 1, "the refused records are not in the log");
    // More than socket buffers hold: the answer arrives after the whole body is sent.
    let again = site.send(site.post("four", &text(12 << 20, 1)), &site.busy[1]).await.refused();
    // A body without a length is charged once it has arrived.
    tokio::time::sleep(Duration::from_secs(again)).await;
    let chunks = futures_util::stream::iter([Ok::<_, std::io::Error>(" ".repeat(16_000))]);
    let chunked = || site.http.post(format!("{}/v1/runs/r/records", site.url));
    let chunked = chunked().header("content-type", "application/json").body(reqwest::Body::wrap_stream(chunks));
    assert_eq!(site.send(chunked, &site.busy[0]).await.status, 400);
    let again = site.send(site.post("two", "short"), &site.busy[0]).await.refused();
    // One second more, so that the claim fits in, too.
    tokio::time::sleep(Duration::from_secs(again + 1)).await;

    let journal = Journal::parse(&site.url, None).unwrap();
    let token = Some(Token::new(&site.busy[0]).unwrap());
    let config = runlog_producer::Config { token, ..runlog_producer::Config::new(journal, "test") };
    let run = Runlog::connect(config).await.unwrap().open("handle").await.unwrap();
    run.turn("user", &*long).await.unwrap();
    run.flush().await.unwrap();
    let error = run.turn("user", "next").await.unwrap_err();
    let reply = (error.kind(), error.action(), error.side_effect());
    assert_eq!(reply, (ErrorKind::Overloaded, Action::Retry, SideEffect::None), "{error}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    run.turn("user", "next").await.expect("the handle continues");
    run.end(runlog_producer::Outcome::Completed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn content_over_the_days_quota_is_not_stored() {
    let site = Site::start(json!({ BUSY: { "content_bytes_per_day": 1_000_000 } })).await;
    let stored = || objects(&site.dir.path().join("content")).unwrap().len();
    for (nth, id) in (1..).zip(["one", "two"]) {
        assert_eq!(site.send(site.post(id, &text(600_000, nth)), &site.busy[0]).await.status, 200, "{id}");
    }
    assert_eq!(stored(), 2);
    let end = site.end().await;
    let again = site.send(site.post("three", &text(600_000, 3)), &site.busy[0]).await.refused();
    assert!(
        (DAY_SECONDS / 5 - 60..=DAY_SECONDS / 5 + 60).contains(&again),
        "a fifth of it has to come back: {again} s"
    );
    assert_eq!((stored(), site.end().await), (2, end), "nothing happened");
    assert_eq!(site.send(site.post("short", "short"), &site.busy[0]).await.status, 200, "it is in its record");
    assert_eq!(site.send(site.post("three", &text(600_000, 3)), &site.other).await.status, 200, "another principal");
    assert_eq!(site.refusals("content_bytes_per_day").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_use_only_their_principals_capacity() {
    let site = Site::start(json!({ "*": { "body_bytes_per_second": 1_000_000_000 } })).await;
    // Together longer than the whole capacity.
    let slow = site.slow_bodies(&format!("Content-Length: {}", 70 << 20), 128 << 10).await;
    // Gives the slow bodies time to arrive first.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(site.send(site.post("long", &text(2 << 20, 1)), &site.other).await.status, 200);
    // It did not wait for them: they are all still open.
    for mut stream in slow {
        let read = tokio::time::timeout(Duration::ZERO, stream.read(&mut [0])).await;
        assert!(read.is_err(), "the server closed a connection that is slow: {read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_uses_no_capacity() {
    let site = Site::start(json!({ "*": { "body_bytes_per_second": 1_000_000_000 } })).await;
    let mut silent = site.slow_bodies("Transfer-Encoding: chunked", 0).await;
    silent.extend(site.slow_bodies(&format!("Content-Length: {}", 70 << 20), 0).await);
    // Gives the silent bodies time to arrive first.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(site.send(site.post("long", &text(2 << 20, 1)), &site.busy[0]).await.status, 200);
    // It did not wait for them: they are all still open.
    for mut stream in silent {
        let read = tokio::time::timeout(Duration::ZERO, stream.read(&mut [0])).await;
        assert!(read.is_err(), "the server closed a connection that sends nothing: {read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_the_past_wait_only_for_reads_of_the_same_principal() {
    const READS: usize = 8;
    let site = Site::start(json!({})).await;
    for part in 0..2 {
        let turn = |nth: u32| {
            let id = format!("{part}-{nth}");
            json!({ "run_id": "r", "record_id": id,
                "payload": { "type": "conversation_turn", "message_id": id, "kind": "user", "content": "hello" } })
        };
        let records = (0..1000).map(turn).collect::<Vec<_>>();
        let request = site.http.post(format!("{}/v1/runs/r/records", site.url)).json(&records);
        assert_eq!(site.send(request, &site.busy[0]).await.status, 200);
    }
    let path = format!("/v1/runs/r/recovery?deadline_ms=60000&as_of=0:{}", site.end().await - 1);
    let mut reads: FuturesUnordered<_> = (0..READS).map(|nth| site.get(&path, &site.busy[nth % 2])).collect();
    // The others wait when the first is answered.
    assert_eq!(reads.next().await.unwrap().status, 200);
    let mut other = std::pin::pin!(site.get(&path, &site.other));
    let mut answered = 1;
    loop {
        tokio::select! {
            told = &mut other => {
                assert_eq!(told.status, 200, "{told:?}");
                break;
            }
            Some(told) = reads.next() => {
                assert_eq!(told.status, 200, "{told:?}");
                answered += 1;
            }
        }
    }
    assert!(answered <= READS / 2, "{answered} reads of another principal came first");
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_answers_use_only_their_principals_capacity() {
    let site = Site::start(json!({ "*": { "body_bytes_per_second": 1_000_000_000 } })).await;
    for nth in 0..60 {
        assert_eq!(site.send(site.post(&nth.to_string(), &text(240_000, nth)), &site.busy[0]).await.status, 200);
    }
    let address = site.url.strip_prefix("http://").unwrap();
    // Reads the status of a page of 14 MB, and no more.
    let unread = async |token: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET /v1/runs/r/records?limit=60&raw=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        tokio::time::timeout(WAIT, stream.read_exact(&mut status)).await.unwrap().unwrap();
        (String::from_utf8(status.to_vec()).unwrap(), stream)
    };
    let mut streams = Vec::new();
    let refused = loop {
        let (status, stream) = unread(&site.busy[streams.len() % 2]).await;
        if status != "HTTP/1.1 200" {
            break status;
        }
        streams.push(stream);
        assert!(streams.len() < 5, "64 MiB of a principal are four of them");
    };
    assert_eq!((refused.as_str(), streams.len()), ("HTTP/1.1 429", 4));
    let (other, _stream) = unread(&site.other).await;
    assert_eq!(other, "HTTP/1.1 200", "another principal");
    drop(streams);
    let freed = async {
        while unread(&site.busy[0]).await.0 != "HTTP/1.1 200" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, freed).await.expect("a client that disconnects frees its capacity");
}

/// Sends one request over a connection and keeps it open. Returns the answer.
async fn ask_over(stream: &mut TcpStream, token: Option<&str>, path: &str) -> std::io::Result<String> {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n").as_bytes()).await?;
    let (mut answer, mut some) = (String::new(), [0; 4096]);
    // The head, and the body of the length that it names.
    let is_whole = |answer: &str| {
        let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        body.len() >= length.parse().unwrap()
    };
    while !is_whole(&answer) {
        let length = tokio::time::timeout(WAIT, stream.read(&mut some)).await.unwrap()?;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answer.push_str(std::str::from_utf8(&some[..length]).unwrap());
    }
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_are_refused_and_closed_with_all_tokens_of_the_principal_together() {
    let site = Site::start(json!({ BUSY: { "connections": 2 } })).await;
    let address = site.url.strip_prefix("http://").unwrap();
    let connect = async |token: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = ask_over(&mut stream, Some(token), "/v1/journal").await.unwrap();
        (head, stream)
    };
    let (first, mut one) = connect(&site.busy[0]).await;
    let (second, _two) = connect(&site.busy[1]).await;
    assert!(first.starts_with("HTTP/1.1 200") && second.starts_with("HTTP/1.1 200"), "{first}{second}");
    let (third, mut refused) = connect(&site.busy[0]).await;
    assert!(third.starts_with("HTTP/1.1 429") && third.contains("connection: close"), "{third}");
    refused.read_to_end(&mut Vec::new()).await.unwrap();
    let again = ask_over(&mut one, Some(&site.busy[1]), "/v1/journal").await.unwrap();
    assert!(again.starts_with("HTTP/1.1 200"), "it has its connection: {again}");
    // A proxy's connection belongs to the principal of its last request.
    let other = ask_over(&mut one, Some(&site.other), "/v1/journal").await.unwrap();
    assert!(other.starts_with("HTTP/1.1 200"), "{other}");
    let (fourth, _three) = connect(&site.busy[0]).await;
    assert!(fourth.starts_with("HTTP/1.1 200"), "{fourth}");
    assert_eq!(site.refusals("connections").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_valid_token_displace_no_authenticated_connection() {
    let site = Site::start(json!({})).await;
    let address = site.url.strip_prefix("http://").unwrap();
    let mut authenticated = TcpStream::connect(address).await.unwrap();
    ask_over(&mut authenticated, Some(&site.other), "/v1/journal").await.unwrap();
    let mut strangers = Vec::new();
    // Half of them send nothing; the others request a path that needs no token, or send a wrong token.
    for nth in 0..1_100 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        match nth % 4 {
            0 => drop(ask_over(&mut stream, None, "/healthz").await.unwrap()),
            1 => drop(ask_over(&mut stream, Some("wrong"), "/v1/journal").await.unwrap()),
            _ => {}
        }
        strangers.push(stream);
    }
    let oldest = &mut strangers[0];
    tokio::time::timeout(WAIT / 2, oldest.read_to_end(&mut Vec::new())).await.expect("it is closed").ok();
    let reply = ask_over(&mut authenticated, Some(&site.other), "/v1/journal").await.expect("it stays open");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let latest = ask_over(&mut strangers[1_096], None, "/healthz").await.expect("the latest connection is accepted");
    assert!(latest.starts_with("HTTP/1.1 200"), "{latest}");
}

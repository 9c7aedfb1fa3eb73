//! With authentication, a record may name content only if its sender uploaded it for the run, or can read it there.

use runlog_log::memory::MemoryLog;
use runlog_producer::{Journal, Runlog, Token};
use runlog_projector::{Config, Projector};
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
use std::{path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;

const WAIT: Duration = Duration::from_secs(10);
/// Longer than the payloads that stay in a record.
const LONG: usize = 300 << 10;

/// A server of the journal in `log` and the content in `folder`, with the tokens of `tokens.json` there.
struct Server {
    _dir: TempDir,
    url: String,
    http: reqwest::Client,
}

/// Tokens of two tenants' agents without read scopes, and of a reader of the first tenant.
struct Tokens {
    acme: String,
    globex: String,
    reader: String,
}

fn write(folder: &Path, receipt_key: Option<u8>) -> Tokens {
    let entry = |principal: &str, scopes: &[Scope], runs: &str, number: u8| {
        Entry::new(principal.into(), scopes.iter().copied().collect(), vec![runs.into()], &[number; 32])
    };
    let (a, acme) = entry("acme", &[Scope::Append, Scope::ReadMeta], "acme/*", 1);
    let (b, globex) = entry("globex", &[Scope::Append, Scope::ReadMeta], "globex/*", 2);
    let (c, reader) = entry("reader", &[Scope::Append, Scope::ReadMeta, Scope::ReadContent], "acme/*", 3);
    let receipt_key = receipt_key.map(|byte| format!("{byte:02x}").repeat(32));
    TokenFile { receipt_key, tokens: vec![a, b, c], ..TokenFile::default() }
        .write(&folder.join("tokens.json"))
        .unwrap();
    Tokens { acme, globex, reader }
}

impl Server {
    async fn start(folder: &Path, log: &MemoryLog) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let content = Some(served::content(&folder.join("content")).unwrap());
        let config = Config { content, ..Config::new(dir.path(), || 1_000, served::id) };
        let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await.unwrap());
        let mut options = Options::from(AllowedHosts::default());
        options.authentication = Some(Authentication::open(&folder.join("tokens.json"), || 1_000).unwrap());
        let url = format!("http://{}", served::start(projector, options).await.unwrap());
        Self { _dir: dir, url, http: client().unwrap() }
    }

    /// Posts about a run, with a token and a receipt: status and answer.
    async fn post(&self, path: &str, token: &str, receipt: Option<&str>, body: &Value) -> (u16, Value) {
        let run = body["run_id"].as_str().unwrap().replace('/', "%2F");
        let request = self.http.post(format!("{}/v1/runs/{run}/{path}", self.url)).bearer_auth(token).json(body);
        let request = if let Some(receipt) = receipt { request.header("Runlog-Receipt", receipt) } else { request };
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Uploads a turn's payload for a run. Returns the record that names it, and the receipt.
    async fn upload(&self, run: &str, token: &str, content: &str) -> (Value, String) {
        let (status, uploaded) = self.post("contents", token, None, &turn_record(run, "1", content)).await;
        assert_eq!(status, 200, "{uploaded}");
        let record = json!({ "run_id": run, "record_id": "1", "record_kind": uploaded["record_kind"],
            "facts": uploaded["facts"], "payload": uploaded["payload"] });
        (record, uploaded["receipt"].as_str().unwrap().to_owned())
    }
}

fn turn_record(run: &str, id: &str, content: &str) -> Value {
    json!({ "run_id": run, "record_id": id,
        "payload": { "type": "conversation_turn", "message_id": id, "kind": "user", "content": content } })
}

fn with(record: &Value, member: &str, value: impl Into<Value>) -> Value {
    let mut record = record.clone();
    record[member] = value.into();
    record
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_named_only_by_its_uploader_for_the_run_or_by_a_reader_of_the_run() {
    let (folder, log) = (tempfile::tempdir().unwrap(), MemoryLog::new(1));
    let tokens = write(folder.path(), None);
    let server = Server::start(folder.path(), &log).await;
    let (record, receipt) = server.upload("acme/1", &tokens.acme, "secret").await;
    let (_, foreign) = server.upload("globex/1", &tokens.globex, "another").await;
    let post = async |token: &str, receipt: Option<&str>, record: &Value| {
        let (status, answer) = server.post("records", token, receipt, record).await;
        (status, answer["outcome"].as_str().or(answer["kind"].as_str()).unwrap().to_owned(), answer)
    };
    // Without its receipt, with other content's receipt, for another run, and for a tenant who knows hash and
    // receipt.
    let absent = with(
        &record,
        "payload",
        json!({ "type": "stored_payload", "payload_type": "conversation_turn",
        "sha256": "0".repeat(64), "bytes": record["payload"]["bytes"] }),
    );
    let mut refusals = Vec::new();
    for (token, receipt, record) in [
        (&tokens.acme, None, record.clone()),
        (&tokens.acme, None, absent.clone()),
        (&tokens.acme, Some(foreign.as_str()), record.clone()),
        (&tokens.acme, Some(receipt.as_str()), absent),
        (&tokens.acme, Some(receipt.as_str()), with(&record, "run_id", "acme/2")),
        (&tokens.globex, Some(receipt.as_str()), with(&record, "run_id", "globex/1")),
        (&tokens.globex, None, with(&record, "run_id", "globex/1")),
        (&tokens.reader, None, record.clone()),
    ] {
        let (status, kind, answer) = post(token, receipt, &record).await;
        assert_eq!((status, kind.as_str()), (403, "forbidden"), "{record} {answer}");
        refusals.push(answer);
    }
    refusals.dedup();
    assert_eq!(refusals.len(), 1, "existing and absent content are refused with the same answer: {refusals:?}");
    assert!(refusals[0]["detail"].as_str().unwrap().contains("/contents"), "it says what to do: {refusals:?}");

    let both = format!("{foreign}, {receipt}");
    assert_eq!(post(&tokens.acme, Some(&both), &record).await.1, "applied");
    assert_eq!(post(&tokens.acme, Some(&receipt), &record).await.1, "repeat");
    // The run names it now: a sender that can read the run's content may name it again, and no other.
    let again = with(&record, "record_id", "2");
    assert_eq!(post(&tokens.acme, None, &again).await.0, 403);
    assert_eq!(post(&tokens.reader, None, &with(&again, "run_id", "acme/2")).await.0, 403, "another run does not");
    assert_eq!(post(&tokens.reader, None, &again).await.1, "applied");
    let member = with(&record, "record_id", "3");
    let batch = json!({ "run_id": "acme/1", "record_id": "b", "payload": { "type": "batch", "records": [member] } });
    assert_ne!(post(&tokens.acme, None, &batch).await.0, 200, "nor does a batch name it");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_accept_each_others_receipts_only_with_the_same_receipt_key() {
    let (folder, log) = (tempfile::tempdir().unwrap(), MemoryLog::new(1));
    for (key, status) in [(Some(7), 200), (None, 403)] {
        let tokens = write(folder.path(), key);
        let servers = (Server::start(folder.path(), &log).await, Server::start(folder.path(), &log).await);
        let run = format!("acme/{status}");
        let (record, receipt) = servers.0.upload(&run, &tokens.acme, "content").await;
        let (accepted, answer) = servers.1.post("records", &tokens.acme, Some(&receipt), &record).await;
        assert_eq!(accepted, status, "{answer}");
        let (accepted, answer) = servers.0.post("records", &tokens.acme, Some(&receipt), &record).await;
        assert_eq!(accepted, 200, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_with_a_content_store_uploads_through_the_server() {
    let (folder, log) = (tempfile::tempdir().unwrap(), MemoryLog::new(1));
    let tokens = write(folder.path(), None);
    let server = Server::start(folder.path(), &log).await;
    // Its own folder stays empty: a producer may lack the store's credentials.
    let own = folder.path().join("own");
    let content = Some(runlog_content::Config::new(format!("file:{}", own.display())));
    let token = Some(Token::new(&tokens.reader).unwrap());
    let journal = Journal::parse(&server.url, None).unwrap();
    let config = runlog_producer::Config { content, token, ..runlog_producer::Config::new(journal, "test") };
    let run = Runlog::connect(config).await.unwrap().open("acme/handle").await.unwrap();
    for seed in 1..=2 {
        let position = run.turn("user", &text(LONG, seed)).await.unwrap();
        run.applied(&position, WAIT).await.unwrap();
    }
    let stored = objects(&folder.path().join("content")).unwrap();
    assert_eq!((stored.len(), objects(&own).unwrap().len()), (2, 0));
    run.end(runlog_producer::Outcome::Completed).await.unwrap();
}

//! Every operation with every kind of caller, about the caller's runs, other runs, and absent runs.
//!
//! The expectations are repeated here by hand: an operation outside the table fails the test, as does a cell with
//! another answer.

mod append_alone;
mod claimants;
mod content;
mod doubt;
mod handles;
mod operators;
mod principals;
mod streams;
mod whoami;

use runlog_log::{
    Log, LogId, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::{Config, Projector};
use runlog_schemas::schema::WRITTEN_BY_DEFAULT;
use runlog_server::{
    Options,
    access::AllowedHosts,
    audit::Audit,
    auth::{
        Authentication,
        token_file::{Entry, Scope, TokenFile},
    },
    operations,
};
use runlog_tests::{served, server::client};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

const WAIT: Duration = Duration::from_secs(10);
const ALL: &str = "*";

/// The server's clock, set by a test.
static NOW: AtomicU64 = AtomicU64::new(1_000);

/// A server that requires tokens, over a log in memory.
struct Site {
    dir: TempDir,
    log: MemoryLog,
    address: SocketAddr,
    http: reqwest::Client,
    authentication: Arc<Authentication>,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq)]
struct Reply {
    status: u16,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The same response about a run of another name, at other times.
    fn about(&self, run: &str) -> Self {
        // A message that quotes an id has its combining characters as escapes, in JSON with two backslashes.
        let quoted = format!("{run:?}").trim_matches('"').replace('\\', "\\\\");
        let named = [run.to_owned(), escaped(run), quoted];
        let body = named.iter().fold(self.body.clone(), |body, name| body.replace(name.as_str(), "RUN"));
        Self { status: self.status, body }
    }
}

fn token_of(number: u8) -> (u8, String) {
    (number, Entry::new("x".into(), [Scope::Append].into(), vec![ALL.into()], &[number; 32]).1)
}

/// The text with all but unreserved characters in hexadecimal.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

impl Site {
    async fn start(entries: &[(u8, &str, &[Scope], &[&str])]) -> Self {
        Self::start_on(None, WRITTEN_BY_DEFAULT, entries).await
    }

    /// With schema version 3.
    async fn start_of_version_3(entries: &[(u8, &str, &[Scope], &[&str])]) -> Self {
        Self::start_on(None, 3, entries).await
    }

    /// With an audit log whose files are links to a file.
    async fn start_on(audit_log: Option<&str>, write_schema: u16, entries: &[(u8, &str, &[Scope], &[&str])]) -> Self {
        let log =
            MemoryLog::with(MemoryOptions { partitions: 1, id: LogId::memory("matrix"), ..MemoryOptions::default() });
        Self::start_over(log, audit_log, write_schema, entries).await
    }

    /// Another server of the same journal, with a new index.
    async fn start_beside(&self, entries: &[(u8, &str, &[Scope], &[&str])]) -> Self {
        Self::start_over(self.log.clone(), None, WRITTEN_BY_DEFAULT, entries).await
    }

    async fn start_over(
        log: MemoryLog,
        audit_log: Option<&str>,
        write_schema: u16,
        entries: &[(u8, &str, &[Scope], &[&str])],
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (file, name) in audit_log.into_iter().flat_map(|file| ["audit", "audit-reads"].map(|name| (file, name))) {
            std::os::unix::fs::symlink(file, dir.path().join(format!("{name}.jsonl"))).unwrap();
        }
        let content = Some(served::content(&dir.path().join("content")).unwrap());
        let config = Config { content, write_schema, ..Config::new(dir.path(), || 1_000, served::id) };
        let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await.unwrap());
        write(&dir.path().join("tokens.json"), entries);
        let authentication =
            Authentication::open(&dir.path().join("tokens.json"), || NOW.load(Ordering::Relaxed)).unwrap();
        let mut options = Options::from(AllowedHosts::default());
        options.authentication = Some(authentication.clone());
        options.audit = Some(Audit::open(&dir.path().join("audit.jsonl"), || 0).unwrap());
        let address = served::start(projector, options).await.unwrap();
        Self { dir, log, address, http: client().unwrap(), authentication }
    }

    fn audit_log(&self) -> PathBuf {
        self.dir.path().join("audit.jsonl")
    }

    fn tokens(&self) -> PathBuf {
        self.dir.path().join("tokens.json")
    }

    fn request(&self, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> reqwest::RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.http.request(method.to_uppercase().parse().unwrap(), url);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        }
    }

    async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> Reply {
        let response = self.request(method, path, token, body).send().await.unwrap();
        let status = response.status().as_u16();
        Reply { status, body: response.text().await.unwrap() }
    }

    async fn end(&self) -> u64 {
        self.log.bounds(PartitionId::from(0), WAIT).await.unwrap().end.get()
    }

    /// Writes a run with a claim, a pending call, an answered call, a checkpoint and a refused record. It begins before the claim, so
    /// that every credential with `append` may append to it.
    async fn fill(&self, run: &str, token: &str) {
        let path = format!("/v1/runs/{}", escaped(run));
        let turn = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": 1 });
        let first = json!({ "run_id": run, "record_id": format!("{run}-first"), "payload": turn });
        let reply = self.ask("post", &format!("{path}/records"), Some(token), Some(&first)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let claim = self.ask("post", &format!("{path}/claims"), Some(token), Some(&json!({}))).await;
        assert_eq!(claim.status, 200, "{claim:?}");
        let writer = claim.json()["writer_id"].clone();
        let record = |id: &str, payload: &Value| {
            json!({ "run_id": run, "record_id": format!("{run}-{id}"), "writer_id": writer, "writer_epoch": 1,
                "payload": payload })
        };
        let requested = |id: &str| {
            json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "book",
                "arguments": { "secret": 1 } })
        };
        let done = json!({ "type": "tool_call_completed", "request_record_id": format!("{run}-a"),
            "result": { "secret": run } });
        let refused = json!({ "type": "tool_call_completed", "request_record_id": "nobody", "result": null });
        let checkpoint = json!({ "type": "loop_checkpoint", "checkpoint_id": format!("{run}-b"), "checkpoint_seq": 1,
            "covers_journal_seq": 3, "schema_version": 1, "messages": [{ "secret": run }], "state": null });
        let payloads =
            [("a", requested("a")), ("b", requested("b")), ("done", done), ("point", checkpoint), ("refused", refused)];
        for (id, payload) in payloads {
            let record = record(id, &payload);
            let reply = self.ask("post", &format!("{path}/records"), Some(token), Some(&record)).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
    }
}

fn write(path: &std::path::Path, entries: &[(u8, &str, &[Scope], &[&str])]) {
    let entry = |(number, principal, scopes, runs): &(u8, &str, &[Scope], &[&str])| {
        let runs = runs.iter().map(|text| (*text).to_owned()).collect();
        Entry::new((*principal).to_owned(), scopes.iter().copied().collect(), runs, &[*number; 32]).0
    };
    TokenFile { tokens: entries.iter().map(entry).collect(), ..TokenFile::default() }.write(path).unwrap();
}

/// The documented requirement of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Needs {
    Nothing,
    Token,
    /// A scope for the named run. Without the scope for that run, the answer equals the answer about an absent run.
    Run(Scope),
    /// A list of the caller's runs.
    List(Scope),
    /// Counts over the caller's runs.
    Figures(Scope),
    /// A scope for creating the named item.
    Write(Scope),
    /// The same for a copy from an absent run that the caller may read: the caller must be able to read its content.
    Copy,
    /// One of the scopes, for all runs.
    All(&'static [Scope]),
}

const WATCH: &[Scope] = &[Scope::Operate, Scope::Audit];

/// The operations: the requirement of each, and its query about a run.
fn table() -> Vec<(&'static str, &'static str, Needs, &'static str)> {
    use Needs::{All, Figures, List, Nothing, Run, Token, Write};
    use Scope::{Append, Operate, ReadContent, ReadMeta, Resolve};
    vec![
        ("get", "/v1/journal", Token, ""),
        ("get", "/v1/whoami", Token, ""),
        ("get", "/v1/overview", Figures(ReadMeta), ""),
        ("get", "/v1/runs", List(ReadMeta), ""),
        ("get", "/v1/runs/{run}", Run(ReadMeta), ""),
        ("get", "/v1/runs/{run}/records", Run(ReadMeta), ""),
        ("get", "/v1/runs/{run}/records", Run(ReadMeta), "?order=desc&correlation=a%3D1&correlation=b%3D2"),
        ("post", "/v1/runs/{run}/records", Write(Append), "?check=true"),
        ("post", "/v1/runs/{run}/records", Write(Append), "?check=true&consistency=latest"),
        ("post", "/v1/runs/{run}/claims", Write(Append), ""),
        ("post", "/v1/runs/{run}/contents", Write(Append), ""),
        ("post", "/v1/runs/{run}/copies", Needs::Copy, ""),
        ("get", "/v1/runs/{run}/lookup", Run(ReadContent), "?tool=book&args=%7B%22secret%22%3A1%7D"),
        ("get", "/v1/runs/{run}/calls/{id}", Run(ReadContent), ""),
        ("get", "/v1/runs/{run}/checkpoints", Run(ReadMeta), ""),
        ("get", "/v1/runs/{run}/checkpoints/latest", Run(ReadContent), ""),
        ("get", "/v1/runs/{run}/checkpoints/{id}", Run(ReadContent), ""),
        ("get", "/v1/runs/{run}/recovery", Run(ReadContent), "?full=true"),
        ("get", "/v1/runs/{run}/outcome", Run(ReadMeta), "?record_id=RUN-a"),
        ("get", "/v1/runs/{run}/tail", Run(ReadMeta), "?until_end=true"),
        ("get", "/v1/runs/{run}/standing/{list}", Run(ReadMeta), ""),
        ("get", "/v1/runs/{run}/facts", Run(ReadContent), ""),
        ("post", "/v1/runs/{run}/effects/{id}/resolution", Run(Resolve), ""),
        ("get", "/v1/indices/{index}/changes", List(ReadContent), "?until_end=true"),
        ("get", "/v1/tail", List(ReadMeta), "?until_end=true"),
        ("get", "/v1/events", List(ReadMeta), "?subject=run:RUN"),
        ("get", "/v1/effects", List(ReadMeta), ""),
        ("get", "/v1/anomalies", List(ReadMeta), ""),
        ("get", "/v1/dead-letters", All(WATCH), ""),
        ("get", "/v1/dead-letters/{at}", All(&[Operate]), ""),
        ("post", "/v1/skips", All(&[Operate]), "?dry_run=true"),
        ("get", "/v1/horizons", All(WATCH), ""),
        ("post", "/v1/horizons", All(&[Operate]), "?dry_run=true"),
        ("post", "/v1/home", All(&[Operate]), "?dry_run=true"),
        ("post", "/v1/home/accepts", All(&[Operate]), ""),
        ("post", "/v1/verify", All(WATCH), ""),
        ("get", "/v1/doctor", All(WATCH), ""),
        ("get", "/healthz", Nothing, ""),
        ("get", "/readyz", Token, ""),
        ("get", "/metrics", All(WATCH), ""),
        ("get", "/openapi.json", Token, ""),
    ]
}

/// Builds the request of an operation about a run.
fn question(method: &str, path: &str, query: &str, run: &str) -> (String, Option<Value>) {
    let filled = path
        .replace("{run}", &escaped(run))
        .replace("{id}", &escaped(&format!("{run}-b")))
        .replace("{list}", "approvals")
        .replace("{index}", "effects")
        .replace("{at}", "0:1");
    let body = (method == "post").then(|| match path {
        "/v1/runs/{run}/effects/{id}/resolution" => {
            // An old revision: refused if the effect is visible, so that the next cell finds the effect unchanged.
            json!({ "decision": "give_up", "revision": 0, "who": "jo", "why": "a test" })
        }
        "/v1/runs/{run}/records" => json!({ "run_id": run, "record_id": "new",
            "payload": { "type": "run_lifecycle", "status": "started" } }),
        "/v1/runs/{run}/contents" => {
            json!({ "run_id": run, "payload": { "type": "conversation_turn", "message_id": "m",
            "kind": "user", "content": "hello" } })
        }
        "/v1/runs/{run}/copies" => json!({ "from": "acme/absent" }),
        "/v1/skips" => json!({ "partition": 0, "offset": 1, "who": "jo", "why": "a test" }),
        "/v1/horizons" => json!({ "family": "tool_call_completed", "until": "2026-01-01T00:00:00Z", "who": "jo",
            "why": "a test" }),
        "/v1/home" => json!({ "log_id": "memory:matrix", "who": "jo", "why": "a test" }),
        "/v1/home/accepts" => json!({ "run_id": run, "who": "jo", "why": "a test" }),
        _ => json!({}),
    });
    (format!("{filled}{}", query.replace("RUN", &escaped(run))), body)
}

type Role = (u8, &'static str, &'static [Scope], &'static [&'static str]);

/// The callers: each scope alone, and the scopes of agents and operators, each for one tenant or for all.
const ROLES: &[Role] = {
    use Scope::{Append, Approve, Audit, Operate, ReadContent, ReadMeta, Resolve};
    &[
        (1, "appender", &[Append], &["acme/*", "acme"]),
        (2, "lister", &[ReadMeta], &["acme/*", "acme"]),
        (3, "reader", &[ReadContent], &["acme/*", "acme"]),
        (4, "resolver", &[Resolve], &["acme/*", "acme"]),
        (5, "agent", &[Append, ReadMeta, ReadContent], &["acme/*", "acme"]),
        (6, "desk", &[ReadMeta, ReadContent, Resolve], &["acme/*", "acme"]),
        (7, "operator", &[Operate], &["*"]),
        (8, "auditor", &[Audit, ReadMeta], &["*"]),
        (9, "everything", &[Append, ReadMeta, ReadContent, Resolve, Operate, Audit], &["*"]),
        (10, "nobody's", &[Append, ReadMeta, ReadContent, Resolve], &["nobody"]),
        (11, "approver", &[Append, Approve], &["acme/*", "acme"]),
    ]
};

/// Existing runs whose names belong to `acme`, and runs whose names only look so.
const OWN: &[&str] = &["acme/1", "acme", "acme/é", "acme/a/../b"];
const FOREIGN: &[&str] = &["acme2", "acme2/1", "globex/1", "acme%2F1", "Acme/1", "acme\u{301}/1", "аcme/1"];

/// A principal may have no apostrophe.
fn entries() -> Vec<Role> {
    ROLES
        .iter()
        .map(|(number, name, scopes, runs)| (*number, if *number == 10 { "nobodys" } else { *name }, *scopes, *runs))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_requires_its_scope_and_shows_only_the_callers_runs() {
    let table = table();
    let described: BTreeSet<_> = table.iter().map(|(method, path, ..)| (*method, *path)).collect();
    assert_eq!(described, operations().collect::<BTreeSet<_>>(), "every operation is in the table");
    let site = Site::start(&entries()).await;
    let (_, everything) = token_of(9);
    for run in OWN.iter().chain(FOREIGN) {
        site.fill(run, &everything).await;
    }
    let mut cells = 0;
    for (number, role, scopes, patterns) in ROLES {
        let (_, token) = token_of(*number);
        let all = *patterns == [ALL];
        for run in OWN.iter().chain(FOREIGN).copied() {
            let sees = all || (patterns.contains(&"acme/*") && OWN.contains(&run));
            for (method, path, needs, query) in &table {
                let (url, body) = question(method, path, query, run);
                let reply = site.ask(method, &url, Some(&token), body.as_ref()).await;
                let cell = format!("{role} {method} {url}: {reply:?}");
                let has = |scope: &Scope| scopes.contains(scope);
                match needs {
                    Needs::Nothing | Needs::Token => assert_eq!(reply.status, 200, "{cell}"),
                    Needs::All(some) => {
                        let may = all && some.iter().any(has);
                        let content = *path != "/v1/dead-letters/{at}" || has(&Scope::ReadContent);
                        let expected = match may && content {
                            true if path.ends_with("{at}") => 404,
                            true => 200,
                            false => 403,
                        };
                        assert_eq!(reply.status, expected, "{cell}");
                    }
                    Needs::Run(scope) | Needs::List(scope) | Needs::Figures(scope) | Needs::Write(scope)
                        if !has(scope) =>
                    {
                        assert_eq!((reply.status, &reply.json()["kind"]), (403, &json!("forbidden")), "{cell}");
                        assert!(reply.json()["detail"].as_str().unwrap().contains(scope.as_str()), "{cell}");
                        assert!(
                            !reply.body.contains(run),
                            "a refusal for a missing scope must not name the run: {cell}"
                        );
                    }
                    Needs::Copy => {
                        let missing = [Scope::Append, Scope::ReadContent].into_iter().find(|scope| !has(scope));
                        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
                        match missing {
                            Some(Scope::ReadContent) if !sees => assert_eq!(reply.status, 403, "{cell}"),
                            Some(scope) => assert!(reply.status == 403 && detail.contains(scope.as_str()), "{cell}"),
                            None => assert_eq!(reply.status, if sees { 404 } else { 403 }, "{cell}"),
                        }
                    }
                    Needs::Write(_) => assert_eq!(reply.status, if sees { 200 } else { 403 }, "{cell}"),
                    Needs::List(_) => {
                        assert_eq!(reply.status, 200, "{cell}");
                        let shown = reply.body.contains(&format!("\"run_id\":{}", json!(run)));
                        assert_eq!(shown, sees, "{cell}");
                    }
                    Needs::Figures(_) => {
                        assert_eq!(reply.status, 200, "{cell}");
                        let reply = reply.json();
                        let of_class = |class: &str| {
                            let of_state = |state: &str| reply["pending"][class][state].as_u64().unwrap();
                            of_state("running") + of_state("waiting")
                        };
                        let own = if patterns.contains(&"acme/*") { OWN.len() } else { 0 };
                        let expected = if all { OWN.len() + FOREIGN.len() } else { own };
                        let pending = of_class("retry_safe") + of_class("reconcile_required");
                        assert_eq!(pending, expected as u64, "each run has one: {cell}");
                        assert_eq!(
                            (reply["refused"].is_null(), reply["dead_letters"].is_null()),
                            (!all, !all),
                            "{cell}"
                        );
                    }
                    Needs::Run(_) if sees => {
                        let there = match *path {
                            "/v1/runs/{run}/effects/{id}/resolution" => 409,
                            _ => 200,
                        };
                        assert_eq!(reply.status, there, "{cell}");
                    }
                    Needs::Run(_) => {
                        // Equal to the answer about an absent run, in all but the name.
                        let absent = format!("absent/{}", run.len());
                        let (url, body) = question(method, path, query, &absent);
                        let other = site.ask(method, &url, Some(&token), body.as_ref()).await;
                        assert_eq!(reply.about(run), other.about(&absent), "{cell}");
                        assert!(reply.status != 403, "{cell}");
                    }
                }
                cells += 1;
            }
        }
    }
    assert!(cells > 3_000, "{cells} cells");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_token_only_healthz_is_answered() {
    let site = Site::start(&entries()).await;
    let (_, unknown) = token_of(77);
    let before = site.end().await;
    for (method, path) in operations().chain([("get", "/"), ("get", "/nothing"), ("put", "/v1/runs")]) {
        let (url, body) = question(method, path, "", "acme/1");
        let mut answers = Vec::new();
        for token in [None, Some(""), Some("x"), Some(unknown.as_str())] {
            let response = site.request(method, &url, token, body.as_ref()).send().await.unwrap();
            if path == "/healthz" {
                assert_eq!(response.status(), 200);
                continue;
            }
            let asks =
                response.headers().get("www-authenticate").is_some_and(|value| value == "Bearer realm=\"runlog\"");
            assert!(response.status() == 401 && asks, "{method} {url} {token:?}: {}", response.status());
            answers.push(response.text().await.unwrap());
        }
        answers.dedup();
        assert!(answers.len() < 2, "{method} {url}: the answers distinguish a missing from a bad token: {answers:?}");
    }
    assert_eq!(site.end().await, before, "no record was appended");
}

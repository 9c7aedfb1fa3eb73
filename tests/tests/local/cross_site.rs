//! A web page of another origin can neither query a server nor append through it.

use axum::http::header;
use runlog_log::{Log, PartitionId, memory::MemoryLog};
use runlog_projector::{Config, Projector};
use runlog_server::{access::AllowedHosts, operations};
use runlog_tests::{served, server::client};
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tempfile::TempDir;

const WAIT: Duration = Duration::from_secs(10);
const JSON: &str = "application/json";
const CLAIM: &str = r#"{"claimed_by": "me"}"#;

struct Site {
    _dir: TempDir,
    log: MemoryLog,
    address: SocketAddr,
    http: reqwest::Client,
}

impl Site {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = MemoryLog::new(1);
        let config = Config::new(dir.path(), || 0, || "journal".into());
        let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await.unwrap());
        let hosts = AllowedHosts::new(["Journal.Example".to_owned()]);
        let address = served::start(projector, hosts).await.unwrap();
        Self { _dir: dir, log, address, http: client().unwrap() }
    }

    /// The status and the kind of error.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let path = path.replace(['{', '}'], "");
        let mut request = self.http.request(method.to_uppercase().parse().unwrap(), self.url(&path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if method == "post" {
            request = request.body(CLAIM);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json::<Value>().await.unwrap_or_default()["kind"].clone())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn end(&self) -> u64 {
        self.log.bounds(PartitionId::from(0), WAIT).await.unwrap().end.get()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operation_answers_a_request_of_another_sites_page() {
    let site = Site::start().await;
    let (host, origin, fetch, kind) =
        (header::HOST.as_str(), header::ORIGIN.as_str(), "sec-fetch-site", header::CONTENT_TYPE.as_str());
    let own = format!("http://{}", site.address);
    let other_port = "http://127.0.0.1:1";
    let before = site.end().await;
    let mut requests = 0;
    for (method, path) in operations() {
        for (status, error, headers) in [
            (421, "usage", vec![(host, "rebound.example"), (kind, JSON)]),
            (421, "usage", vec![(host, "127.0.0.1.rebound.example:80"), (kind, JSON)]),
            (421, "usage", vec![(host, "localhost.example"), (origin, own.as_str()), (kind, JSON)]),
            (421, "usage", vec![(host, "a@journal.example"), (kind, JSON)]),
            (403, "forbidden", vec![(origin, "https://page.example"), (kind, JSON)]),
            (403, "forbidden", vec![(origin, "null"), (kind, JSON)]),
            (403, "forbidden", vec![(origin, other_port), (kind, JSON)]),
            (403, "forbidden", vec![(origin, own.as_str()), (origin, "https://page.example"), (kind, JSON)]),
            (403, "forbidden", vec![(fetch, "cross-site"), (kind, JSON)]),
        ] {
            let answer = site.ask(method, path, &headers).await;
            assert_eq!(answer, (status, json!(error)), "{method} {path} {headers:?}");
            requests += 1;
        }
        let simple =
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=application/json", ""];
        for content_type in simple.into_iter().filter(|_| method == "post") {
            let answer = site.ask(method, path, &[(kind, content_type)]).await;
            assert_eq!(answer, (415, json!("usage")), "{method} {path} {content_type:?}");
            requests += 1;
        }
    }
    assert!(requests > 200, "{requests}");
    assert_eq!(site.end().await, before, "no record was appended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_to_its_names_and_to_its_own_pages() {
    let site = Site::start().await;
    let (host, origin, kind) = (header::HOST.as_str(), header::ORIGIN.as_str(), header::CONTENT_TYPE.as_str());
    for name in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:7070", "10.1.2.3:80", "journal.example:443"] {
        assert_eq!(site.ask("get", "/v1/journal", &[(host, name)]).await.0, 200, "{name}");
    }
    let own = [(origin, "https://journal.example"), (host, "journal.example"), ("sec-fetch-site", "same-origin")];
    assert_eq!(site.ask("get", "/v1/journal", &own).await.0, 200);
    let before = site.end().await;
    let typed = (kind, "application/json; charset=utf-8");
    assert_eq!(site.ask("post", "/v1/runs/r/claims", &[typed, own[0], own[1]]).await.0, 200);
    assert_eq!(site.ask("post", "/v1/runs/other/claims", &[]).await.0, 200, "an older producer sends no type");
    assert_eq!(site.end().await, before + 2, "the claims are in the log");
}

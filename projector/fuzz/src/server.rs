//! Any request to a whole server in memory: paths, query strings, headers and bodies.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use runlog_log::memory::MemoryLog;
use runlog_projector::{
    Config, Projector,
    index::{
        executor::{Executor, Task},
        store::{MemoryFolders, Storage},
    },
};
use runlog_server::{Options, auth::Authentication, fuzzing};
use std::{
    cell::Cell,
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time;
use tower::ServiceExt as _;

const PARTITIONS: u32 = 3;
/// The longest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Longer than any deadline that a client can ask for, on the clock that only moves while all tasks wait.
const ANSWER_WAIT: Duration = Duration::from_secs(400);
/// The interval at which the log is read.
const STEP: Duration = Duration::from_millis(10);
const RECORDS: usize = 64;

/// The requests that every run starts with: a run with a call that is pending and a checkpoint.
const PREPARED: &str = include_str!("../prepared.txt");
const TOKENS: &str = include_str!("../seeds/token_file/tokens.json");

fn millis() -> u64 {
    1_000_000_000_000
}

thread_local! {
    static IDS: Cell<u64> = const { Cell::new(0) };
}

fn id() -> String {
    IDS.set(IDS.get() + 1);
    format!("id-{}", IDS.get())
}

fn authentication() -> Arc<Authentication> {
    static OPENED: OnceLock<Arc<Authentication>> = OnceLock::new();
    let open = || {
        let folder = std::env::temp_dir().join(format!("runlog-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the token file");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("its permissions");
        for (name, content) in [("tokens.json", TOKENS), ("jwks.json", include_str!("../seeds/jwks.json"))] {
            fs::write(folder.join(name), content).expect("a file");
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).expect("its permissions");
        }
        let opened = Authentication::open(&folder.join("tokens.json"), millis).expect("the token file is valid");
        fs::remove_dir_all(&folder).expect("the folder is there");
        opened
    };
    OPENED.get_or_init(open).clone()
}

struct Server {
    projector: Arc<Projector>,
    open: Router,
    guarded: Router,
}

impl Server {
    async fn start() -> Self {
        let spawn = |task: Task| drop(tokio::spawn(task));
        let config = Config {
            storage: Storage::Memory(MemoryFolders::default()),
            memory_bytes: 1 << 20,
            executor: Executor::Caller(Arc::new(spawn)),
            ..Config::new("/nonexistent", millis, id)
        };
        let projector = Projector::start(config, Arc::new(MemoryLog::new(PARTITIONS))).await;
        let projector = Arc::new(projector.expect("a server in memory starts"));
        let open = fuzzing::router(projector.clone(), Options::default());
        let mut options = Options::default();
        options.authentication = Some(authentication());
        let guarded = fuzzing::router(projector.clone(), options);
        Self { projector, open, guarded }
    }

    /// Sends a request, and checks its answer.
    async fn answer(&self, text: &str) -> Option<StatusCode> {
        let request = parsed(text)?;
        let router = if request.headers().contains_key(header::AUTHORIZATION) { &self.guarded } else { &self.open };
        let answer = async {
            let response = router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
            let (head, body) = response.into_parts();
            let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            // A stream of events ends with its client.
            let wait = if kind.starts_with("text/event-stream") { STEP * 3 } else { ANSWER_WAIT };
            let body = time::timeout(wait, to_bytes(body, ANSWER_BYTES_MAX)).await;
            if let Ok(body) = body {
                let body = body.expect("an answer within the limit");
                if kind.contains("json") {
                    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&body);
                    assert!(parsed.is_ok(), "the answer is not JSON");
                }
                let shown = String::from_utf8_lossy(&body);
                assert_ne!(head.status, StatusCode::INTERNAL_SERVER_ERROR, "{shown}");
            } else {
                assert!(kind.starts_with("text/event-stream"), "an answer without end");
            }
            head.status
        };
        let steps = async {
            loop {
                while self.projector.step(RECORDS) > 0 {}
                time::sleep(STEP).await;
            }
        };
        tokio::select! {
            status = time::timeout(ANSWER_WAIT, answer) => Some(status.expect("every request has a deadline")),
            () = steps => None,
        }
    }
}

/// Parses `METHOD TARGET`, then headers, an empty line and a body.
fn parsed(text: &str) -> Option<Request<Body>> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let (method, target) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    request.body(Body::from(body.to_owned())).ok()
}

/// Sends requests, separated by lines of `---`, to a server with a run.
pub fn request(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // With the runtime end the tasks of the server, so that executions share nothing.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    IDS.set(0);
    runtime.block_on(async {
        let server = Server::start().await;
        for prepared in PREPARED.split("\n---\n") {
            let status = server.answer(prepared).await;
            assert!(status.is_some_and(|status| status.is_success()), "{status:?} for {prepared}");
        }
        for request in text.split("\n---\n").take(4) {
            server.answer(request).await;
        }
    });
}

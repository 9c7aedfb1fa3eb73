//! The network between clients and servers: one address, several servers, requests that are late or lost.

use crate::{dice::Dice, grants::Sender, plan::RequestFault, server::Server, stage::Stage};
use axum::{
    body::Body,
    http::{Request, header},
};
use runlog_producer::{HttpSender, NoResponse, Tls};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};

/// How long a client without a handle waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// An answer arrives within the request's deadline, and this for the network and the server's own slack.
const ANSWER_SLACK: Duration = Duration::from_secs(4);

/// The address that every client has.
pub(crate) const ADDRESS: &str = "http://runlog";

/// The network.
pub(crate) struct Network {
    stage: Arc<Stage>,
    servers: Vec<Arc<Server>>,
    /// The server of the mirror, and how many requests in a hundred go to it.
    mirror: Option<Arc<Server>>,
    to_mirror: AtomicU64,
    /// Servers that refuse every request for now.
    overloaded: Vec<AtomicBool>,
    current: AtomicU32,
    /// So many requests in a hundred go to any server.
    mixed: u64,
}

fn no_response(sent: bool, why: &str) -> NoResponse {
    NoResponse { sent, why: why.to_owned() }
}

fn is_mirrors_refusal(answer: &axum::http::Response<Vec<u8>>) -> bool {
    let problem: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    answer.status() == 503 && problem["reason"] == "mirror"
}

impl Network {
    pub(crate) fn new(
        stage: Arc<Stage>,
        servers: Vec<Arc<Server>>,
        mirror: Option<Arc<Server>>,
        mixed: u64,
    ) -> Arc<Self> {
        let overloaded = servers.iter().map(|_| AtomicBool::default()).collect();
        let (to_mirror, current) = (AtomicU64::new(0), AtomicU32::new(0));
        Arc::new(Self { stage, servers, mirror, to_mirror, overloaded, current, mixed })
    }

    /// Routes the requests to another server.
    pub(crate) fn switch(&self) {
        let servers = u32::try_from(self.servers.len()).unwrap_or(1);
        let now = (self.current.load(Ordering::Relaxed) + 1) % servers;
        self.current.store(now, Ordering::Relaxed);
        self.stage.tell(|| format!("the address is server {now}'s"));
    }

    /// A server starts or stops refusing every request.
    pub(crate) fn overload(&self, server: u32, overloaded: bool) {
        if let Some(server) = self.overloaded.get(server as usize) {
            server.store(overloaded, Ordering::Relaxed);
        }
    }

    /// So many requests in a hundred go to the mirror's server from now on.
    pub(crate) fn ask_mirror(&self, percent: u64) {
        self.to_mirror.store(percent, Ordering::Relaxed);
    }

    /// The mirror's server, if this request goes to it.
    fn mirror_for(&self, nth: u64) -> Option<&Arc<Server>> {
        let percent = self.to_mirror.load(Ordering::Relaxed);
        let mirror = self.mirror.as_ref().filter(|_| percent > 0 && !self.stage.is_healed())?;
        Dice::new(self.stage.seed(), 20_000_000 + nth).percent(percent).then_some(mirror)
    }

    /// The answer of a server without capacity.
    fn refusal(&self) -> Option<axum::http::Response<Vec<u8>>> {
        self.stage.count("server refuses requests for now");
        let problem = json!({
            "type": "about:blank#overloaded", "title": "overloaded", "status": 429, "kind": "overloaded",
            "detail": "too many requests are in progress; nothing happened, send this one again later",
        });
        let refusal = axum::http::Response::builder().status(429).header("retry-after", "1");
        refusal.body(problem.to_string().into_bytes()).ok()
    }

    /// Sends the requests of a handle.
    pub(crate) fn sender(self: &Arc<Self>) -> HttpSender {
        let network = self.clone();
        static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| {
            Tls::default().http_client(false).expect("without TLS no file is read").build().expect("an HTTP client")
        });
        HttpSender::new(CLIENT.clone(), move |request| {
            let network = network.clone();
            Box::pin(async move {
                let (method, url) = (request.method().clone(), request.url().clone());
                let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
                let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default().to_vec();
                let answer = network.send(Sender::Agent, method.as_str(), &path, body).await?;
                Ok(answer.into())
            })
        })
    }

    fn check_in_time(&self, path: &str, took: Duration) {
        let deadline = path.split(['?', '&']).find_map(|term| term.strip_prefix("deadline_ms=")?.parse().ok());
        let Some(deadline) = deadline.map(Duration::from_millis) else { return };
        // A skip waits for its append as long as the log does, and a list for each partition by itself.
        if path.contains("/skips") || path.contains("/effects?") {
            return;
        }
        // A claim reads before it appends, and a decision, too.
        let appends_after_a_read = path.contains("/claims") || path.contains("/resolution");
        let limit = if appends_after_a_read { 2 * deadline } else { deadline } + ANSWER_SLACK;
        if took > limit {
            self.stage.ledger().fail(format!("an answer took {took:?}, and its deadline is {deadline:?}: {path}"));
        }
    }

    /// Asks as a client without a handle: the status and the answer, or `None`.
    pub(crate) async fn ask(&self, sender: Sender, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        let start = Instant::now();
        let answer = self.ask_paused(sender, method, path, body).await?;
        self.check_in_time(path, start.elapsed());
        Some(answer)
    }

    /// The same for a process that pauses, so that its answers may be late.
    pub(crate) async fn ask_paused(
        &self,
        sender: Sender,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = timeout(PATIENCE, self.send(sender, method, path, body)).await.ok()?.ok()?;
        Some((answer.status().as_u16(), serde_json::from_slice(answer.body()).ok()?))
    }

    /// Sends a request to the address and waits for the answer.
    pub(crate) async fn send(
        &self,
        sender: Sender,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Result<axum::http::Response<Vec<u8>>, NoResponse> {
        let (nth, fault) = self.stage.next_request();
        let mut dice = Dice::new(self.stage.seed(), 10_000_000 + nth);
        let (there, back) = (Duration::from_millis(dice.delay()), Duration::from_millis(dice.delay()));
        let at = if !self.stage.is_healed() && dice.percent(self.mixed) {
            u32::from(dice.percent(50))
        } else {
            self.current.load(Ordering::Relaxed)
        };
        if let Some(fault) = fault {
            let short = path.split('?').next().unwrap_or_default();
            self.stage.tell(|| format!("request {nth} {method} {short} to server {at}: {fault:?}"));
        }
        match fault {
            Some(RequestFault::Refused) => {
                self.stage.count("request: no connection");
                sleep(there).await;
                return Err(no_response(false, "connection refused"));
            }
            Some(RequestFault::Lost { after }) => {
                self.stage.count("request lost");
                sleep(Duration::from_millis(after)).await;
                return Err(no_response(true, "connection reset"));
            }
            _ => {}
        }
        if path.contains("/lookup?") && path.contains("&key=") {
            self.stage.count("key looked up");
        }
        sleep(there).await;
        let mirror = self.mirror_for(nth);
        let overloaded =
            mirror.is_none() && self.overloaded.get(at as usize).is_some_and(|full| full.load(Ordering::Relaxed));
        if let Some(refusal) = overloaded.then(|| self.refusal()).flatten() {
            sleep(back).await;
            return Ok(refusal);
        }
        let mut request = Request::builder().method(method).uri(path);
        if self.stage.plan.has_tokens() {
            request = request.header(header::AUTHORIZATION, sender.authorization());
        }
        let request = request.body(Body::from(body));
        let request = request.map_err(|error| no_response(false, &error.to_string()))?;
        if mirror.is_some() {
            self.stage.count("request to a mirror");
        }
        let server = mirror.or(self.servers.get(at as usize));
        let Some(answering) = server.and_then(|server| server.answer(request)) else {
            self.stage.count("request to a server that is down");
            return Err(no_response(false, "connection refused"));
        };
        match fault {
            Some(RequestFault::AnswerLost) => {
                self.stage.count("answer lost");
                drop(answering.whole().await);
                sleep(back).await;
                Err(no_response(true, "connection reset"))
            }
            Some(RequestFault::Dropped { after }) => {
                self.stage.count("disconnected in mid-request");
                sleep(Duration::from_millis(after)).await;
                drop(answering);
                Err(no_response(true, "connection reset"))
            }
            Some(RequestFault::Silent) => {
                self.stage.count("answer never came");
                answering.detach();
                // The client does not wait that long.
                sleep(Duration::from_secs(3600)).await;
                Err(no_response(true, "connection reset"))
            }
            _ => {
                let answer = answering.whole().await.ok_or_else(|| no_response(true, "connection reset"))?;
                if mirror.is_some() && is_mirrors_refusal(&answer) {
                    self.stage.count("refusal of a mirror");
                }
                sleep(back).await;
                Ok(answer)
            }
        }
    }
}

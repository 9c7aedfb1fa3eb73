//! Forwards a request about a partition that this server does not hold to an instance that holds it.
//!
//! ```text
//!   read ──▶ handler ──not here──▶ the partition's instances in order ──▶ the first answer about the same log
//!   append ▶ not held? ──────────▶ the next instance only while no byte was sent
//! ```
//!
//! A forwarded request has the caller's own credential, and is answered or refused, never forwarded again. An answer counts only if its
//! header [`AT`] names this server's journal and log: another service at the same address may say "not found" about anything.

use super::{Instances, Placed};
use crate::{metrics::Metrics, parameters::Ask, problem, requests};
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    middleware::Next,
    response::Response,
};
use futures_util::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use reqwest::{Client, redirect::Policy};
use runlog_projector::index::{error::Error, held::NotHere, projector::Projector};
use runlog_schemas::{
    answer::{Elsewhere, ErrorKind, OrOther, Problem, ProblemReason, with_causes},
    id::{PartitionId, RunId},
};
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::OnceCell,
    time::{sleep, timeout},
};

/// The header of an answer: the journal and the log of the server.
const AT: HeaderName = HeaderName::from_static("runlog-at");
/// The header of a forwarded request: the instance that forwards it.
const FORWARDED: HeaderName = HeaderName::from_static("runlog-forwarded");
/// How long connecting to an instance may take.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// How long a read waits for an instance before it asks the next one too.
const NEXT_AFTER: Duration = Duration::from_millis(100);
/// How long an answer may begin after the deadline of its request.
const LATE: Duration = Duration::from_secs(5);
/// The longest problem, bytes.
const PROBLEM_BYTES_MAX: usize = 1 << 20;

/// Headers that concern one connection, or the browser at the first server, which has checked them.
const NOT_FORWARDED: [HeaderName; 14] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    header::ORIGIN,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::REFERER,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// What forwarding needs.
pub(crate) struct Forward {
    placed: Placed,
    projector: Arc<Projector>,
    metrics: Arc<Metrics>,
    at: Option<HeaderValue>,
    /// Made at the first use, because it reads files.
    client: OnceCell<Client>,
}

/// Why an instance gave no answer that counts.
struct Missed {
    why: String,
    /// An answer about the same log that another instance may do better: a refusal for the moment.
    answer: Option<Response>,
}

impl Forward {
    pub(crate) fn new(list: &Arc<Instances>, projector: &Arc<Projector>, metrics: &Arc<Metrics>) -> Arc<Self> {
        let (journal, log) = (projector.journal(), projector.log().id());
        let at = log.and_then(|log| HeaderValue::try_from(format!("{}/{log}", journal.journal_id)).ok());
        let placed = list.placement(journal.partitions);
        let (projector, metrics) = (Arc::clone(projector), Arc::clone(metrics));
        Arc::new(Self { placed, projector, metrics, at, client: OnceCell::new() })
    }
}

/// Answers a request here, or forwards it.
pub(crate) async fn forward(State(forward): State<Arc<Forward>>, request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_forwarded = request.headers().contains_key(FORWARDED);
    let mut response = if is_read {
        let (parts, body) = request.into_parts();
        let response = next.run(Request::from_parts(parts.clone(), body)).await;
        match not_here(response).await {
            Ok((partition, problem)) if is_forwarded => forward.named(partition, problem),
            Ok((partition, problem)) => forward.read(partition, &parts, problem).await,
            Err(response) => response,
        }
    } else {
        match forward.elsewhere(request.uri()).filter(|_| !is_forwarded) {
            Some(partition) => forward.append(partition, request).await,
            None => match not_here(next.run(request).await).await {
                Ok((partition, problem)) => forward.named(partition, problem),
                Err(response) => response,
            },
        }
    };
    if let Some(at) = &forward.at {
        response.headers_mut().insert(AT, at.clone());
    }
    response
}

/// The partition of a problem with the reason `not_here`; otherwise the response unchanged.
async fn not_here(response: Response) -> Result<(PartitionId, Problem), Response> {
    if response.status() != StatusCode::SERVICE_UNAVAILABLE {
        return Err(response);
    }
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&body).ok();
    let problem = problem.filter(|problem| problem.reason == Some(OrOther::from(ProblemReason::NotHere)));
    match problem.and_then(|problem| Some((problem.partition?, problem))) {
        Some(found) => Ok(found),
        None => Err(Response::from_parts(parts, Body::from(body))),
    }
}

impl Forward {
    /// The partition of the run in a path, if this server does not hold it.
    fn elsewhere(&self, uri: &Uri) -> Option<PartitionId> {
        let run_id = RunId::new(requests::run(uri.path())?).ok()?;
        let partition = self.projector.partition_of(run_id.borrow());
        self.projector.check_held(partition).err().map(|_| partition)
    }

    /// The problem `not_here` with the URLs of the partition's instances.
    fn named(&self, partition: PartitionId, problem: Problem) -> Response {
        let instances = self.placed.urls(partition);
        let detail = format!("{}, but placed on {}", problem.detail, instances.join(", "));
        problem::respond(Problem { detail, not_here: Some(Elsewhere { partition, instances }), ..problem })
    }

    /// The answer if no instance of the partition answered. Nothing happened.
    fn unreachable(&self, partition: PartitionId, problem: Problem, missed: &[String]) -> Response {
        let detail = format!("{}; asked its instances: {}", problem.detail, missed.join("; "));
        self.named(partition, Problem { detail, ..problem })
    }

    /// Asks the partition's instances in order, the next one too if one does not answer soon, and returns the first answer.
    async fn read(&self, partition: PartitionId, parts: &Parts, problem: Problem) -> Response {
        let (mut targets, mut asked) = (self.placed.urls(partition).into_iter().peekable(), FuturesUnordered::new());
        let (mut missed, mut answer) = (Vec::new(), None);
        loop {
            match targets.next() {
                Some(target) => asked.push(self.ask(target, parts)),
                None if asked.is_empty() => break,
                None => {}
            }
            let next = OptionFuture::from(targets.peek().map(|_| sleep(NEXT_AFTER)));
            tokio::select! {
                Some(asked) = asked.next() => match asked {
                    Ok(response) => return response,
                    Err(other) => {
                        missed.push(other.why);
                        answer = answer.or(other.answer);
                    }
                },
                Some(()) = next => {}
            }
        }
        answer.unwrap_or_else(|| self.unreachable(partition, problem, &missed))
    }

    async fn ask(&self, target: String, parts: &Parts) -> Result<Response, Missed> {
        let answer = self.answer(&target, parts).await;
        self.metrics.forwarded(&target, answer.is_ok());
        answer
    }

    async fn answer(&self, target: &str, parts: &Parts) -> Result<Response, Missed> {
        let missed = |why: String| Missed { why: format!("{target}: {why}"), answer: None };
        let request = self.request(target, parts).await.map_err(missed)?;
        let response = match timeout(wait(&parts.uri), request.send()).await {
            Ok(sent) => sent.map_err(|error| missed(with_causes(&error.without_url())))?,
            Err(_) => return Err(missed("it did not answer in time".to_owned())),
        };
        let response = self.relay(response).map_err(missed)?;
        if response.status() != StatusCode::SERVICE_UNAVAILABLE {
            return Ok(response);
        }
        match not_here(response).await {
            Ok((_, problem)) => Err(missed(problem.detail)),
            Err(response) => {
                Err(Missed { answer: Some(response), ..missed("it cannot answer at the moment".to_owned()) })
            }
        }
    }

    /// Sends a request that may append. After its first byte was sent, no other instance gets it.
    async fn append(&self, partition: PartitionId, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = UntouchedBody::new(body);
        let mut missed = Vec::new();
        for target in self.placed.urls(partition) {
            let request = match self.request(&target, &parts).await {
                Ok(request) => request.body(reqwest::Body::wrap(body.clone())),
                Err(why) => {
                    missed.push(format!("{target}: {why}"));
                    continue;
                }
            };
            let sent = timeout(wait(&parts.uri), request.send()).await;
            self.metrics.forwarded(&target, matches!(sent, Ok(Ok(_))));
            let why = match sent {
                Ok(Ok(response)) => match self.relay(response) {
                    Ok(response) => return response,
                    Err(why) => why,
                },
                Ok(Err(error)) => {
                    let is_unsent = error.is_connect() && body.is_untouched();
                    let why = with_causes(&error.without_url());
                    if is_unsent {
                        missed.push(format!("{target}: {why}"));
                        continue;
                    }
                    why
                }
                Err(_) => "it did not answer in time".to_owned(),
            };
            let detail = format!(
                "instance {target} got the request and gave no answer ({why}): it may have appended the records. Send them again with \
                 the same ids"
            );
            return problem::problem(&Error::new(ErrorKind::Unavailable, detail).in_partition(partition));
        }
        let problem = Error::from(NotHere { partition }).problem();
        self.unreachable(partition, problem, &missed)
    }

    /// The request to an instance, without a body.
    async fn request(&self, target: &str, parts: &Parts) -> Result<reqwest::RequestBuilder, String> {
        let list = Arc::clone(&self.placed.instances);
        let client = self.client.get_or_try_init(async || {
            let made = self.projector.config().executor.run(move || client(&list)).await;
            made.map_err(|_| "the server ends".to_owned())?
        });
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = forwarded_headers(&parts.headers);
        let own = HeaderValue::try_from(self.placed.instances.own().name.as_str());
        headers.insert(FORWARDED, own.map_err(|error| error.to_string())?);
        Ok(client.await?.request(parts.method.clone(), format!("{target}{path}")).headers(headers))
    }

    /// The answer of an instance as one of this server, if it is about the same log.
    fn relay(&self, response: reqwest::Response) -> Result<Response, String> {
        if self.at.is_none() || response.headers().get(AT) != self.at.as_ref() {
            let status = response.status();
            return Err(format!(
                "its answer ({status}) has no {AT} of this journal and log: another service has this address"
            ));
        }
        let mut relayed = Response::new(Body::empty());
        (*relayed.status_mut(), *relayed.headers_mut()) = (response.status(), forwarded_headers(response.headers()));
        *relayed.body_mut() = Body::from_stream(response.bytes_stream());
        Ok(relayed)
    }
}

fn forwarded_headers(headers: &HeaderMap) -> HeaderMap {
    let is_of_browser = |name: &HeaderName| name.as_str().starts_with("sec-");
    let forwarded = headers.iter().filter(|(name, _)| !NOT_FORWARDED.contains(name) && !is_of_browser(name));
    forwarded.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// How long an instance may take to answer: the deadline of the request, and some time.
fn wait(uri: &Uri) -> Duration {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let deadline_ms = pairs.filter(|(name, _)| name == "deadline_ms").find_map(|(_, value)| value.parse().ok());
    Ask { consistency: None, deadline_ms }.deadline() + LATE
}

/// Reads the authorities of the list, and makes a client that trusts them. Blocking.
fn client(list: &Instances) -> Result<Client, String> {
    let tls = list.tls().map_err(|invalid| invalid.to_string())?;
    let builder = Client::builder().tls_backend_preconfigured(tls).redirect(Policy::none()).no_proxy();
    builder.connect_timeout(CONNECT_WAIT).build().map_err(|error| with_causes(&error))
}

/// A body that remembers the first read. An instance that cannot be reached reads nothing, so the next one can get the body.
#[derive(Clone)]
struct UntouchedBody(Arc<(Mutex<Body>, AtomicBool)>);

impl UntouchedBody {
    fn new(body: Body) -> Self {
        Self(Arc::new((Mutex::new(body), AtomicBool::new(false))))
    }

    fn is_untouched(&self) -> bool {
        !self.0.1.load(Ordering::Acquire)
    }
}

impl hyper::body::Body for UntouchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        let (body, is_touched) = &*self.0;
        is_touched.store(true, Ordering::Release);
        Pin::new(&mut *body.lock().unwrap_or_else(PoisonError::into_inner)).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).size_hint()
    }
}

//! An MCP server with streamable HTTP. Each message is a POST; its answers are JSON, or a stream of server-sent events.
//!
//! ```text
//!   refused (4xx), or not connected           the request did not reach the server
//!   another failure, or a stream that ended   the server may have acted on it, unless the stream can be resumed
//! ```

use super::{FromServer, Response, ToServer};
use crate::{
    client::Events,
    error::Error,
    mcp::{
        message::{Id, Message},
        stdio::LINES_MAX,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{
    RequestBuilder, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use runlog_producer::{Security, read_body};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{sleep, timeout},
};

/// Time limit to connect.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Requests in flight.
const REQUESTS_MAX: usize = 256;
/// How often a broken stream is resumed.
const RESUMES_MAX: u32 = 10;
/// Pauses before a stream is resumed.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time limit to end the session.
const END_WAIT: Duration = Duration::from_secs(2);

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const LAST_EVENT: &str = "last-event-id";

/// The session and the version of the connection.
#[derive(Clone, Debug, Default)]
struct Negotiated {
    session: Option<String>,
    /// The version that `initialize` agreed on.
    version: Option<String>,
}

/// A connection.
#[derive(Debug)]
struct Http {
    client: reqwest::Client,
    url: String,
    sender: mpsc::Sender<FromServer>,
    negotiated: Mutex<Negotiated>,
    /// The `initialize` request, whose answer has the version.
    initialize: Mutex<Option<Id>>,
}

/// Connects on the first message. Stops when the queue is closed.
pub(crate) fn start(
    url: &str,
    security: &Security,
    lines: mpsc::Receiver<ToServer>,
) -> Result<(watch::Receiver<bool>, mpsc::Receiver<FromServer>), Error> {
    let client = security.client(url)?.connect_timeout(CONNECT_WAIT).build();
    let client = client.map_err(|error| {
        Error::new(runlog_schemas::answer::ErrorKind::Internal, "cannot create the HTTP client").because(error)
    })?;
    let (sender, from_server) = mpsc::channel(LINES_MAX);
    let (ended, has_ended) = watch::channel(false);
    let http = Http { client, url: url.to_owned(), sender, negotiated: Mutex::default(), initialize: Mutex::default() };
    tokio::spawn(async move {
        Arc::new(http).send_all(lines).await;
        let _ = ended.send(true);
    });
    Ok((has_ended, from_server))
}

/// Waits until the session has ended.
pub(crate) async fn end(mut has_ended: watch::Receiver<bool>) {
    drop(timeout(END_WAIT, has_ended.wait_for(|ended| *ended)).await);
}

impl Http {
    fn negotiated(&self) -> MutexGuard<'_, Negotiated> {
        self.negotiated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_all(self: Arc<Self>, mut lines: mpsc::Receiver<ToServer>) {
        let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
        while let Some(to_server) = lines.recv().await {
            let ToServer { message, .. } = &to_server;
            if message.method.as_deref() == Some("initialize") {
                self.initialize.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&message.id);
            }
            let begins_listening = message.method.as_deref() == Some("notifications/initialized");
            let is_request = message.method.is_some() && message.id.is_some();
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let http = Arc::clone(&self);
            let exchange = async move {
                http.exchange(to_server).await;
                drop(permit);
            };
            // Requests may take long. The order of other messages is kept.
            if is_request {
                tokio::spawn(exchange);
            } else {
                exchange.await;
            }
            if begins_listening {
                tokio::spawn(Arc::clone(&self).listen());
            }
        }
        if self.negotiated().session.is_some() {
            drop(timeout(END_WAIT, self.headed(self.client.delete(&self.url), None).send()).await);
        }
    }

    /// Adds the headers of the protocol.
    fn headed(&self, request: RequestBuilder, message: Option<&Message>) -> RequestBuilder {
        let Negotiated { session, version } = self.negotiated().clone();
        let request = session.into_iter().fold(request, |request, session| request.header(SESSION, session));
        // Since the version 2026-07-28, each request names its version, and headers repeat parts of it.
        let params = message.map(Message::params).unwrap_or_default();
        let own = params.members("_meta").and_then(|meta| meta.text("io.modelcontextprotocol/protocolVersion"));
        let is_modern = own.is_some();
        let request = own.or(version).into_iter().fold(request, |request, version| request.header(VERSION, version));
        match message.and_then(|message| message.method.as_deref()).filter(|_| is_modern) {
            None => request,
            Some(method) => {
                let name = params.text("name").or_else(|| params.text("uri"));
                let request = request.header("mcp-method", method);
                name.into_iter().fold(request, |request, name| request.header("mcp-name", header_value(&name)))
            }
        }
    }

    /// Sends a message and passes on its answers. Reports a request without a response.
    async fn exchange(&self, ToServer { line, message }: ToServer) {
        let request = self.client.post(&self.url).header(CONTENT_TYPE, "application/json");
        let request = request.header(ACCEPT, "application/json, text/event-stream").body(line);
        let id = message.id.clone().filter(|_| message.method.is_some());
        let failed = match self.headed(request, Some(&message)).send().await {
            Ok(response) => self.receive(response, id.as_ref()).await,
            Err(error) if error.is_connect() || error.is_builder() => Some(Response::NotSent(describe(error))),
            Err(error) => Some(Response::Lost(describe(error))),
        };
        match (failed, id) {
            (Some(why), Some(id)) => self.report(FromServer::Failed(id, why)).await,
            (Some(Response::NotSent(why) | Response::Lost(why)), None) => {
                tracing::warn!("a message to the MCP server failed: {why}");
            }
            _ => {}
        }
    }

    async fn report(&self, from_server: FromServer) {
        // The gate is ending if nothing receives.
        drop(self.sender.send(from_server).await);
    }

    /// Receives the answer to a message. Returns why the request `id` gets no response.
    async fn receive(&self, response: reqwest::Response, id: Option<&Id>) -> Option<Response> {
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if let Some(session) = header(SESSION) {
            self.negotiated().session = Some(session);
        }
        let content = header("content-type").unwrap_or_default();
        if status.is_success() && content.starts_with("text/event-stream") {
            return self.stream(Events::new(response, self.url.clone()), id).await;
        }
        let body = match read_body(response).await {
            Ok(body) => String::from_utf8_lossy(&body).into_owned(),
            Err(error) => return Some(Response::Lost(format!("the answer of the MCP server broke off: {error:?}"))),
        };
        let is_response = || id.is_some() && Message::parse(&body).is_ok_and(|message| message.id.as_ref() == id);
        let is_json = status.is_success() && content.starts_with("application/json");
        if (is_json || is_response()) && self.deliver(&body, id).await {
            return None;
        }
        let why = format!("the MCP server answered {status} without a response to the request");
        match status {
            // It refused the request before it acted on it.
            _ if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT => Some(Response::NotSent(why)),
            _ => id.map(|_| Response::Lost(why)),
        }
    }

    /// Passes on messages. Returns whether one is the response to the request `id`.
    async fn deliver(&self, body: &str, id: Option<&Id>) -> bool {
        // Line breaks between tokens; a string cannot contain them.
        let Ok(all) = Message::split(&body.replace(['\n', '\r'], " ")) else { return false };
        let mut has_response = false;
        for line in all {
            let Ok(message) = Message::parse(&line) else { continue };
            let is_response = message.method.is_none() && message.id.is_some();
            if is_response {
                self.note_version(&message);
            }
            has_response |= is_response && message.id.as_ref() == id;
            self.report(FromServer::Line(line)).await;
        }
        has_response
    }

    fn note_version(&self, message: &Message) {
        let mut initialize = self.initialize.lock().unwrap_or_else(PoisonError::into_inner);
        if initialize.is_some() && *initialize == message.id {
            initialize.take();
            self.negotiated().version =
                message.members.members("result").and_then(|result| result.text("protocolVersion"));
        }
    }

    /// Passes on the messages of a stream until the response to `id`, or until it ends. Resumes it if the server numbers its
    /// events.
    async fn stream(&self, mut events: Events, id: Option<&Id>) -> Option<Response> {
        let (mut last, mut resumes) = (String::new(), 0);
        loop {
            while let Ok(Some(event)) = events.next().await {
                if !event.id.is_empty() {
                    last.clone_from(&event.id);
                }
                if self.deliver(&event.data, id).await && id.is_some() {
                    return None;
                }
            }
            let id = id?;
            let lost =
                || Response::Lost(format!("the stream of the MCP server ended before it answered {}", id.as_json()));
            if last.is_empty() {
                return Some(lost());
            }
            events = loop {
                if resumes == RESUMES_MAX {
                    return Some(lost());
                }
                resumes += 1;
                sleep(pause(resumes)).await;
                match self.open_stream(&last).await {
                    Ok(Some(events)) => break events,
                    Ok(None) => return Some(lost()),
                    Err(_) => {}
                }
            };
        }
    }

    /// Opens a stream by GET, after the event `last` if there is one. `None` if the server offers none.
    async fn open_stream(&self, last: &str) -> Result<Option<Events>, reqwest::Error> {
        let request = self.headed(self.client.get(&self.url), None).header(ACCEPT, "text/event-stream");
        let request = if last.is_empty() { request } else { request.header(LAST_EVENT, last) };
        let response = request.send().await?;
        if response.status().is_server_error() {
            return response.error_for_status().map(|_| None);
        }
        Ok(response.status().is_success().then(|| Events::new(response, self.url.clone())))
    }

    /// Passes on the messages that belong to no request, for as long as the server offers them.
    async fn listen(self: Arc<Self>) {
        let (mut last, mut failures) = (String::new(), 0);
        while !self.sender.is_closed() {
            match self.open_stream(&last).await {
                Ok(None) => return,
                Err(_) => {}
                Ok(Some(mut events)) => {
                    while let Ok(Some(event)) = events.next().await {
                        failures = 0;
                        if !event.id.is_empty() {
                            last.clone_from(&event.id);
                        }
                        self.deliver(&event.data, None).await;
                    }
                }
            }
            failures += 1;
            sleep(pause(failures)).await;
        }
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(PAUSE_MAX)
}

fn describe(error: reqwest::Error) -> String {
    runlog_schemas::answer::with_causes(&error.without_url())
}

/// The value of a header: as it is, or by the protocol's rule for other texts in base64.
fn header_value(text: &str) -> String {
    let is_plain =
        text.trim() == text && text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && !text.starts_with("=?");
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_header_can_have_is_encoded() {
        assert_eq!(header_value("book_flight"), "book_flight");
        assert_eq!(header_value("fliegen ü"), "=?base64?ZmxpZWdlbiDDvA==?=");
    }
}

//! Requests to a server over HTTP, each with a time limit; errors keep the server's kind.

use crate::error::Error;
use runlog_producer::{BodyError, Security, read_body, tls_failure};
use runlog_schemas::{
    answer::{ErrorKind, Problem},
    id::{self, Illegal},
};
use serde::{Serialize, de::DeserializeOwned};
use std::time::{Duration, Instant};

mod events;
mod target;

pub(crate) use events::{Event, Events};
pub(crate) use target::Target;

/// Time limit to connect.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Added to the deadline of a request, so that the server's own error arrives first.
const GRACE: Duration = Duration::from_secs(5);
/// Time limit for the first bytes of a stream.
const STREAM_WAIT: Duration = Duration::from_secs(30);
/// Time for which a temporarily refused request is sent again. An import can exceed its rate limit, for example.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// The shortest pause before the next attempt.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Interval of TCP keepalives, which detect that the other machine is down.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A server.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    /// Creates a client without connecting.
    pub(crate) fn new(server: &str, security: &Security) -> Result<Self, Error> {
        let http = security.client(server)?.connect_timeout(CONNECT_WAIT).tcp_keepalive(KEEPALIVE).build();
        let http =
            http.map_err(|error| Error::new(ErrorKind::Internal, "cannot create the HTTP client").because(error))?;
        Ok(Self { http, base: server.trim_end_matches('/').to_owned() })
    }

    /// The server's URL.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends a GET request; the whole answer must arrive within `deadline` and a grace of 5 s.
    pub(crate) async fn get<T: DeserializeOwned>(&self, target: Target, deadline: Duration) -> Result<T, Error> {
        let url = self.url(&target.deadline(deadline))?;
        self.exchange(self.http.get(&url), &url, deadline).await
    }

    /// Sends a POST request with a JSON body, with the same time limit.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        target: Target,
        body: String,
        deadline: Duration,
    ) -> Result<T, Error> {
        let url = self.url(&target.deadline(deadline))?;
        let request = self.http.post(&url).header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        self.exchange(request, &url, deadline).await
    }

    /// Opens a stream of server-sent events.
    pub(crate) async fn events(&self, target: Target) -> Result<Events, Error> {
        let url = self.url(&target)?;
        let request = self.http.get(&url).header(reqwest::header::ACCEPT, "text/event-stream").send();
        let opened = tokio::time::timeout(STREAM_WAIT, request).await;
        let response =
            opened.map_err(|_| self.no_answer(STREAM_WAIT))?.map_err(|error| self.request_error(error, STREAM_WAIT))?;
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(Events::new(response, url));
        }
        let body = self.body(response, &url, STREAM_WAIT).await?;
        Err(refusal(&url, status, &body))
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
        url: &str,
        deadline: Duration,
    ) -> Result<T, Error> {
        let (wait, begun, busy_max) = (deadline + GRACE, Instant::now(), BUSY_WAIT.min(deadline));
        let request = request.timeout(wait);
        let response = loop {
            // The body is text, which can be sent twice.
            let again = request.try_clone();
            let again = again.ok_or_else(|| Error::new(ErrorKind::Internal, "a request cannot be sent twice"))?;
            let response = again.send().await.map_err(|error| self.request_error(error, wait))?;
            // A server or a proxy may ask for more seconds than an instant can hold.
            match retry_after(&response).filter(|pause| begun.elapsed().saturating_add(*pause) < busy_max) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => break response,
            }
        };
        let status = response.status();
        let body = self.body(response, url, wait).await?;
        if !status.is_success() {
            return Err(refusal(url, status.as_u16(), &body));
        }
        serde_json::from_slice(&body).map_err(|error| {
            let what = format!("cannot read the answer of {url}; is it a runlog server of this version?");
            Error::new(ErrorKind::Internal, what).because(error)
        })
    }

    /// Reads the body of an answer.
    async fn body(&self, response: reqwest::Response, url: &str, wait: Duration) -> Result<Vec<u8>, Error> {
        read_body(response).await.map_err(|unread| match unread {
            BodyError::BrokenOff(error) => self.request_error(error, wait),
            BodyError::TooLong(why) => Error::new(ErrorKind::Internal, format!("the answer of {url} {why}")),
        })
    }

    /// Refuses `.` and `..` as a segment, because the URL would then name another resource.
    fn url(&self, target: &Target) -> Result<String, Error> {
        let mut segments = target.as_str().split('?').next().unwrap_or_default().split('/');
        match segments.find_map(id::dots) {
            Some(text) => Err(Error::new(ErrorKind::Invalid, Illegal::Dots { what: "run id", text }.to_string())),
            None => Ok(format!("{}{}", self.base, target.as_str())),
        }
    }

    fn request_error(&self, error: reqwest::Error, wait: Duration) -> Error {
        if let Some(what) = tls_failure(&error) {
            return Error::new(ErrorKind::Unavailable, format!("no TLS connection to {}: {what}", self.base));
        }
        if error.is_connect() {
            let what = format!(
                "no server at {}; start one with `runlog serve`, or name another with --server or RUNLOG_SERVER",
                self.base
            );
            return Error::new(ErrorKind::Unavailable, what).because(error.without_url());
        }
        if error.is_timeout() {
            return self.no_answer(wait);
        }
        let kind = if error.is_builder() { ErrorKind::Usage } else { ErrorKind::Unavailable };
        let what = format!("the answer of {} broke off; try again", self.base);
        Error::new(kind, what).because(error.without_url())
    }

    fn no_answer(&self, wait: Duration) -> Error {
        let what = format!(
            "{} did not answer within {}; try again, or allow more time with --deadline",
            self.base,
            humantime::format_duration(wait)
        );
        Error::new(ErrorKind::Unavailable, what)
    }
}

/// Returns the pause before a temporarily refused request, which had no effect, is sent again.
fn retry_after(response: &reqwest::Response) -> Option<Duration> {
    let refused = response.status() == reqwest::StatusCode::TOO_MANY_REQUESTS;
    let seconds =
        response.headers().get(reqwest::header::RETRY_AFTER).filter(|_| refused)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).max(BUSY_PAUSE_MIN))
}

/// Serialises the body of a request.
pub(crate) fn body(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(ErrorKind::Internal, "cannot serialise the request").because(error))
}

/// Returns the error for an answer other than success.
fn refusal(url: &str, status: u16, body: &[u8]) -> Error {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return problem.into();
    }
    let kind = match status {
        502..=504 => ErrorKind::Unavailable,
        413 => ErrorKind::TooLarge,
        400..=499 => ErrorKind::Usage,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, format!("{url} answered HTTP {status} without a reason; is it a runlog server?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_decides_the_exit_code_whatever_the_status() {
        let body = br#"{"type":"about:blank#stale","title":"stale","status":503,"detail":"12 behind","kind":"stale","lag":12}"#;
        let error = refusal("http://x", 503, body);
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Stale, "12 behind"));
    }

    #[test]
    fn an_answer_of_another_program_is_an_error() {
        for (status, code) in [(404, 2), (413, 3), (502, 4), (500, 5), (301, 5)] {
            assert_eq!(refusal("http://x", status, b"<html>").kind().exit_code(), code, "{status}");
        }
    }

    #[test]
    fn a_server_may_be_below_a_path() {
        let client = Client::new("http://h:1/prefix/", &Security::default()).unwrap();
        assert_eq!(client.url(&Target::new("/v1/runs")).unwrap(), "http://h:1/prefix/v1/runs");
    }

    #[test]
    fn a_run_that_no_url_can_name_is_never_requested() {
        let client = Client::new("http://h", &Security::default()).unwrap();
        for run in [".", ".."] {
            let error = client.url(&Target::run(run).path("/recovery").with("cursor", "a/../b")).unwrap_err();
            assert_eq!(error.kind().exit_code(), 3, "{error}");
        }
        client.url(&Target::run("...").path("/recovery").with("cursor", "..")).unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_no_server_sends_is_not_read() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n{").await.unwrap();
            // The client closes the connection.
            let _ = stream.read(&mut [0; 4096]).await;
        });
        let client = Client::new(&format!("http://{address}"), &Security::default()).unwrap();
        let read = client.get::<serde_json::Value>(Target::new("/v1/runs"), Duration::from_secs(60)).await;
        let error = read.unwrap_err().to_string();
        for part in ["/v1/runs", "268435456 bytes", "check the URL"] {
            assert!(error.contains(part), "{error}");
        }
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_pause_of_any_length_is_no_reason_to_wait_beyond_the_limit_or_to_panic() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pauses = ["18446744073709551615", "9223372036854775807", "86400", "99999999999999999999", "-1"];
        let server = tokio::spawn(async move {
            for pause in pauses {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                let head = format!(
                    "HTTP/1.1 429 Busy\r\nRetry-After: {pause}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).await.unwrap();
            }
        });
        let client = Client::new(&format!("http://{address}"), &Security::default()).unwrap();
        for pause in pauses {
            let answer = client.get::<serde_json::Value>(Target::new("/v1/runs"), Duration::from_secs(60)).await;
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Usage, "{pause}");
        }
        server.await.unwrap();
    }
}

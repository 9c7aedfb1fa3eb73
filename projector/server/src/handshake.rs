//! TLS handshakes, each within a time limit.

use super::{metrics::HandshakeFailures, tls::Tls, unauthenticated_connections::Eviction};
use runlog_projector::index::error::Error;
use runlog_schemas::answer::ErrorKind;
use std::{
    io,
    pin::{Pin, pin},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// Limits of reading from a refused client: time and bytes.
const LINGER_WAIT: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: u64 = 64 << 10;

/// The first byte of a TLS connection: the record type of a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// A connection that limits how long its client may pause reading.
pub(super) type Limited = Pin<Box<TimeoutStream<TcpStream>>>;

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The client and the server do not agree, or do not trust each other.
    Refused,
    /// The handshake took too long.
    TimedOut,
    /// Too many newer connections were accepted.
    CrowdedOut,
    /// The client does not speak TLS.
    NotTls,
}

impl Failure {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::CrowdedOut => "crowded_out",
            Self::NotTls => "not_tls",
        }
    }
}

/// Makes the TLS connection. A client that speaks HTTP without TLS gets an error that names `https://`.
pub(super) async fn shake(
    stream: Limited,
    tls: &Tls,
    eviction: &mut Eviction,
    failures: &HandshakeFailures,
) -> Option<TlsStream<Limited>> {
    // Dropped last: a client that sees its connection closed finds the failure counted.
    let mut accepting = pin!(accept(stream, tls));
    let accepted = tokio::select! {
        accepted = timeout(HANDSHAKE_WAIT, accepting.as_mut()) => accepted.unwrap_or(Err((Failure::TimedOut, None))),
        () = eviction.evicted() => Err((Failure::CrowdedOut, None)),
    };
    match accepted {
        Ok(stream) => stream,
        Err((failure, why)) => {
            failures.count(failure.as_str());
            let why = why.map(|why| why.to_string());
            tracing::info!(failure = failure.as_str(), why, "no TLS connection was made");
            None
        }
    }
}

/// Accepts the TLS connection. Returns `None` if the client closed it without sending a byte, as a TCP probe does.
async fn accept(mut stream: Limited, tls: &Tls) -> Result<Option<TlsStream<Limited>>, (Failure, Option<io::Error>)> {
    let refused = |error| (Failure::Refused, Some(error));
    let mut first = [0];
    if stream.get_ref().peek(&mut first).await.map_err(refused)? == 0 {
        return Ok(None);
    }
    if first != [TLS_HANDSHAKE] {
        if first[0].is_ascii_uppercase() {
            refuse_http(&mut stream).await.ok();
            linger(stream).await;
        }
        return Err((Failure::NotTls, None));
    }
    match tls.acceptor().accept(stream).into_fallible().await {
        Ok(stream) => Ok(Some(stream)),
        Err((error, stream)) => {
            // In TLS 1.3 a client sends its request before it learns that its certificate is refused.
            linger(stream).await;
            Err(refused(error))
        }
    }
}

/// Answers a client that speaks HTTP with an error.
async fn refuse_http(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let message = "this server speaks TLS: use https:// instead of http://";
    let body = serde_json::to_string(&Error::new(ErrorKind::Usage, message).problem())?;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await
}

/// Closes a connection after the error is sent, and reads the client's remaining bytes first. Closing with unread bytes
/// would reset the connection, and the client would lose the error.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if stream.shutdown().await.is_ok() {
        let rest = async { tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await };
        timeout(LINGER_WAIT, rest).await.ok();
    }
}

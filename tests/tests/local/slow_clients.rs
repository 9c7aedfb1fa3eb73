//! Clients that send or read too slowly are disconnected and free their resources for others.

use runlog_log::memory::MemoryLog;
use runlog_projector::{Config, Projector};
use runlog_server::access::AllowedHosts;
use runlog_tests::served;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

const BODY_BYTES_MAX: usize = 16 << 20;
/// The number of bodies of that size that fit into the capacity.
const BODIES_MAX: usize = 12;
/// The limit for a request's head, and for a pause within its body.
const SEND_WAIT: Duration = Duration::from_secs(10);
/// The limit for not reading.
const READ_WAIT: Duration = Duration::from_secs(30);
const SLACK: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_secs(600);

async fn start() -> (TempDir, SocketAddr) {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path(), || 0, || "journal".into());
    let projector = Arc::new(Projector::start(config, Arc::new(MemoryLog::new(1))).await.unwrap());
    let address = served::start(projector, AllowedHosts::default()).await.unwrap();
    (dir, address)
}

async fn connect(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

fn post(length: usize) -> String {
    format!(
        "POST /v1/runs/r/records?deadline_ms=300000 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// All bytes until the server closes the connection.
async fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset connection ends as well.
    timeout(NEVER, stream.read_to_end(&mut bytes)).await.unwrap().ok();
    String::from_utf8(bytes).unwrap()
}

/// The status line of the next answer.
async fn status(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(timeout(NEVER, stream.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(line).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_an_incomplete_request_is_closed() {
    let (_dir, address) = start().await;
    for head in ["", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let (stream, from) = (connect(address, head).await, Instant::now());
        assert_eq!(rest(stream).await, "", "{head:?}");
        assert!(from.elapsed() < SEND_WAIT + SLACK, "{head:?}: {:?}", from.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_releases_its_capacity() {
    let (_dir, address) = start().await;
    let mut silent = Vec::new();
    for _ in 0..BODIES_MAX {
        silent.push(connect(address, &post(BODY_BYTES_MAX)).await);
    }
    let drip = async {
        let mut slow = connect(address, &post(BODY_BYTES_MAX)).await;
        // A byte a second counts as nothing.
        loop {
            slow.write_all(b" ").await.ok();
            sleep(Duration::from_secs(1)).await;
        }
    };
    let honest = async {
        // Gives the others time to arrive first.
        sleep(SLACK).await;
        let from = Instant::now();
        let body = " ".repeat(2 << 20);
        let mut honest = connect(address, &post(body.len())).await;
        honest.write_all(body.as_bytes()).await.unwrap();
        let status = status(&mut honest).await;
        assert!(status.starts_with("HTTP/1.1 400 "), "its body is read and is not JSON: {status}");
        from.elapsed()
    };
    let waited = tokio::select! {
        waited = honest => waited,
        () = drip => unreachable!("it never ends"),
    };
    assert!(waited < SEND_WAIT + SLACK, "{waited:?}");
    for mut silent in silent {
        assert!(status(&mut silent).await.starts_with("HTTP/1.1 503 "));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_answers_loses_its_connection() {
    let (_dir, address) = start().await;
    let requests = 400;
    let stream = connect(address, &"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(requests)).await;
    sleep(READ_WAIT * 2).await;
    let answers = rest(stream).await.matches("HTTP/1.1 200 OK").count();
    assert!((1..requests).contains(&answers), "{answers}");
}

//! Accepts connections: so many at a time, each closed when its client neither sends a request nor reads its answer.

#![allow(
    clippy::disallowed_methods,
    reason = "sockets need a runtime; whoever runs everything by itself calls the routes"
)]

use super::{handshake::Handshakes, metrics::HandshakeFailures, tls::Tls};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
    service::TowerToHyperService,
};
use std::{io, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_io_timeout::TimeoutStream;

/// How long a request's head may take, from the connection or the last answer on.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// How long a client may read nothing of its answer.
const READ_WAIT: Duration = Duration::from_secs(30);
/// How long to wait before the next attempt where none can be accepted, as without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Where connections come from, and what they are given.
pub(super) struct Accept {
    pub(super) listener: TcpListener,
    pub(super) router: Router,
    /// The certificates; none for connections without TLS.
    pub(super) tls: Option<Arc<Tls>>,
    /// Connections at the same time, from the first byte of a handshake on. Further ones wait to be accepted.
    pub(super) connections_max: usize,
    pub(super) failures: HandshakeFailures,
}

/// Serves until `end` resolves and the requests in progress then are answered.
pub(super) async fn serve(accept: Accept, end: impl Future<Output = ()>) {
    let Accept { listener, router, tls, connections_max, failures } = accept;
    let room = Arc::new(Semaphore::new(connections_max));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
    let (connections, handshakes) = (GracefulShutdown::new(), Arc::new(Handshakes::default()));
    let mut end = pin!(end);
    loop {
        let (stream, room) = tokio::select! {
            biased;
            () = &mut end => break,
            accepted = next(&listener, &room) => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::error!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(READ_WAIT));
        let stream = Box::pin(stream);
        let (http, router, watcher) = (http.clone(), router.clone(), connections.watcher());
        let encrypted = tls.clone().map(|tls| (handshakes.begin(), tls, failures.clone()));
        tokio::spawn(async move {
            match encrypted {
                None => answer(stream, &http, router, watcher).await,
                Some((handshake, tls, failures)) => {
                    if let Some(stream) = handshake.accept(stream, &tls, &failures).await {
                        answer(stream, &http, router, watcher).await;
                    }
                }
            }
            drop(room);
        });
    }
    drop(listener);
    handshakes.end();
    connections.shutdown().await;
}

/// Answers the requests of a connection until it ends.
async fn answer<S>(stream: S, http: &http1::Builder, router: Router, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!("a connection ended: {error}");
    }
}

async fn next(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<(TcpStream, Option<OwnedSemaphorePermit>)> {
    // It is never closed.
    let room = room.clone().acquire_owned().await.ok();
    let (stream, _) = listener.accept().await?;
    // An answer is small and complete when it is written: nothing is gained by holding it back for more.
    stream.set_nodelay(true)?;
    Ok((stream, room))
}

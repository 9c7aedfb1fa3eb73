//! Accepts connections: so many at a time, each closed when its client neither sends a request nor reads its answer.

#![allow(
    clippy::disallowed_methods,
    reason = "sockets need a runtime; whoever runs everything by itself calls the routes"
)]

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use std::{io, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_io_timeout::TimeoutStream;

/// How long a request's head may take, from the connection or the last answer on.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// How long a client may read nothing of its answer.
const READ_WAIT: Duration = Duration::from_secs(30);
/// Connections at the same time. Further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 4096;
/// How long to wait before the next attempt where none can be accepted, as without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Serves until `end` resolves and the requests in progress then are answered.
pub(super) async fn serve(listener: TcpListener, router: Router, end: impl Future<Output = ()>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
    let connections = GracefulShutdown::new();
    let mut end = pin!(end);
    loop {
        let (stream, room) = tokio::select! {
            biased;
            () = &mut end => break,
            accepted = accept(&listener, &room) => match accepted {
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
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(room);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Option<OwnedSemaphorePermit>)> {
    // It is never closed.
    let room = room.clone().acquire_owned().await.ok();
    let (stream, _) = listener.accept().await?;
    // An answer is small and complete when it is written: nothing is gained by holding it back for more.
    stream.set_nodelay(true)?;
    Ok((stream, room))
}

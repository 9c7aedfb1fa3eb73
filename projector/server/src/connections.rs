//! Accepts a limited number of connections. Closes a connection whose client sends no request, does not read its
//! answer, or does not authenticate in time.

#![allow(clippy::disallowed_methods, reason = "sockets need a runtime; a caller without a runtime calls the routes")]

use super::{
    client_certificate::ClientCertificate,
    handshake::{self, Limited},
    metrics::HandshakeFailures,
    tls::Tls,
    unauthenticated_connections::{Eviction, Peer, Unauthenticated, UnauthenticatedConnections},
};
use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
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

/// How long a request's head may take, from the connection's start or from the last answer.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// How long a client may pause reading its answer.
const READ_WAIT: Duration = Duration::from_secs(30);
/// The longest head of a request, bytes. Also the part of an answer that a connection buffers for a client that does
/// not read, apart from one chunk.
const BUFFER_BYTES: usize = 128 << 10;
/// The pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// The source of connections, and their settings.
pub(super) struct Accept {
    pub(super) listener: TcpListener,
    pub(super) router: Router,
    /// The certificates; absent for connections without TLS.
    pub(super) tls: Option<Arc<Tls>>,
    /// Whether clients must authenticate.
    pub(super) asks_for_tokens: bool,
    /// Concurrent connections, including handshakes. Further connections wait to be accepted.
    pub(super) connections_max: usize,
    pub(super) failures: HandshakeFailures,
}

/// Serves until `end` resolves, and then until the requests in flight are answered.
pub(super) async fn serve(accept: Accept, end: impl Future<Output = ()>) {
    let Accept { listener, router, tls, asks_for_tokens, connections_max, failures } = accept;
    let slots = Arc::new(Semaphore::new(connections_max));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(BUFFER_BYTES);
    let (connections, unauthenticated) = (GracefulShutdown::new(), Arc::new(UnauthenticatedConnections::default()));
    let mut end = pin!(end);
    loop {
        let (stream, slot) = tokio::select! {
            biased;
            () = &mut end => break,
            accepted = accept_next(&listener, &slots) => match accepted {
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
        let (tls, failures, (guard, eviction)) = (tls.clone(), failures.clone(), unauthenticated.add());
        tokio::spawn(async move {
            let connection = Connection { guard, eviction, asks_for_tokens, http, router, watcher };
            connection.serve(stream, tls, &failures).await;
            drop(slot);
        });
    }
    drop(listener);
    unauthenticated.close_all();
    connections.shutdown().await;
}

/// An accepted connection.
struct Connection {
    guard: Unauthenticated,
    eviction: Eviction,
    asks_for_tokens: bool,
    http: http1::Builder,
    router: Router,
    watcher: Watcher,
}

impl Connection {
    /// Serves the connection until it ends.
    async fn serve(mut self, stream: Limited, tls: Option<Arc<Tls>>, failures: &HandshakeFailures) {
        match tls {
            None => self.answer(stream, None).await,
            Some(tls) => {
                if let Some(stream) = handshake::shake(stream, &tls, &mut self.eviction, failures).await {
                    let certificate = ClientCertificate::from_chain(stream.get_ref().1.peer_certificates());
                    self.answer(stream, certificate).await;
                }
            }
        }
    }

    /// Answers the requests of a client with this certificate.
    async fn answer<S>(self, stream: S, certificate: Option<ClientCertificate>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { guard, mut eviction, asks_for_tokens, http, router, watcher } = self;
        // Without tokens, every connected client is let in.
        let peer = asks_for_tokens.then(|| Peer::new(guard));
        let certificate = certificate.filter(|_| asks_for_tokens).map(Arc::new);
        let service = service_fn(move |mut request: Request<Incoming>| {
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(Arc::clone(certificate));
            }
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            TowerToHyperService::new(router.clone()).call(request)
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            ended = watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!("a connection ended: {error}");
            },
            () = eviction.evicted() => tracing::debug!("ended a connection that sent no token: too many newer connections"),
        }
    }
}

async fn accept_next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Option<OwnedSemaphorePermit>)> {
    // The semaphore is never closed.
    let slot = slots.clone().acquire_owned().await.ok();
    let (stream, _) = listener.accept().await?;
    // A small answer is written whole, so a delay to collect more bytes would gain nothing.
    stream.set_nodelay(true)?;
    Ok((stream, slot))
}

//! Runs a server: the listener for all requests, and another listener for monitoring.

use super::{
    App,
    access::AllowedHosts,
    audit::Audit,
    auth::Authentication,
    connections::{self, Accept},
    expiry::Watched,
    shutdown::Shutdown,
    tls::Tls,
};
use crate::index::{Clock, Projector, executor::Executor};
use futures_util::future::{OptionFuture, join, pending};
use std::{sync::Arc, time::Duration};
use tokio::net::TcpListener;

/// Concurrent connections for requests.
const CONNECTIONS_MAX: usize = 4096;
/// Concurrent connections for health and metrics.
const ADMIN_CONNECTIONS_MAX: usize = 64;

/// How a server admits requests. Default: as on a machine with one user.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Names of this server.
    pub hosts: AllowedHosts,
    /// The accepted tokens. Default none: every client may do everything.
    pub authentication: Option<Arc<Authentication>>,
    /// The audit log. Default: none.
    pub audit: Option<Arc<Audit>>,
    /// The certificates. Default none: connections are not encrypted.
    pub tls: Option<Arc<Tls>>,
    /// The listener that answers `/healthz`, `/readyz` and `/metrics` without TLS and tokens. Default: only the main
    /// listener answers them.
    pub admin: Option<TcpListener>,
}

impl From<AllowedHosts> for Options {
    fn from(hosts: AllowedHosts) -> Self {
        Self { hosts, ..Self::default() }
    }
}

/// Serves until `end` resolves, then ends within `grace`: streams and reads end at once, writes get their answer.
pub async fn serve(
    listener: TcpListener,
    projector: Arc<Projector>,
    options: impl Into<Options>,
    end: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
) {
    let mut options = options.into();
    let (admin, tls) = (options.admin.take(), options.tls.clone());
    let (executor, clock) = (projector.shared.config.executor.clone(), projector.shared.config.clock);
    let reloads = reload_periodically(options.authentication.clone(), tls.clone(), executor, clock);
    let (begin, shutdown) = Shutdown::new(grace);
    let asks_for_tokens = options.authentication.is_some();
    let app = App::new(projector, options, shutdown.clone());
    let failures = app.metrics().handshake_failures.clone();
    let admin = admin.map(|listener| Accept {
        listener,
        router: app.clone().admin_router(),
        tls: None,
        asks_for_tokens: false,
        connections_max: ADMIN_CONNECTIONS_MAX,
        failures: failures.clone(),
    });
    let (router, connections_max) = (app.router(), CONNECTIONS_MAX);
    let all = Accept { listener, router, tls, asks_for_tokens, connections_max, failures };
    let served = join(
        connections::serve(all, shutdown.begins()),
        OptionFuture::from(admin.map(|admin| connections::serve(admin, shutdown.begins()))),
    );
    let signal = async {
        end.await;
        begin.send(true).ok();
        pending::<()>().await
    };
    tokio::select! {
        _ = served => {}
        () = reloads => {}
        () = signal => {}
        // A client that does not read its answer must not delay the shutdown.
        () = shutdown.over() => {}
    }
}

/// Follows the files of tokens and certificates, warns before they expire, and never resolves.
async fn reload_periodically(
    authentication: Option<Arc<Authentication>>,
    tls: Option<Arc<Tls>>,
    executor: Executor,
    clock: Clock,
) {
    let watched = Watched { authentication: authentication.clone(), tls: tls.clone(), clock };
    let tokens = authentication.map(|authentication| authentication.reload_periodically(executor.clone()));
    let certificates = tls.map(|tls| tls.reload_periodically(executor));
    join(join(OptionFuture::from(tokens), OptionFuture::from(certificates)), watched.warn()).await;
}

//! Runs a server: the listener for all requests, and another listener for monitoring.

use super::{
    app::App,
    auth::Authentication,
    connections::{self, Accept},
    expiry::Watched,
    mount,
    options::Options,
    shutdown::Shutdown,
    tls::Tls,
};
use futures_util::future::{OptionFuture, join, pending};
use runlog_projector::index::{config::Clock, executor::Executor, projector::Projector};
use std::{sync::Arc, time::Duration};
use tokio::net::TcpListener;

/// Concurrent connections for requests.
const CONNECTIONS_MAX: usize = 4096;
/// Concurrent connections for health and metrics.
const ADMIN_CONNECTIONS_MAX: usize = 64;

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
    let (executor, clock) = (projector.executor().clone(), projector.config().clock);
    let reloads = reload_periodically(options.authentication.clone(), tls.clone(), executor, clock);
    let (begin, shutdown) = Shutdown::new(grace);
    let asks_for_tokens = options.authentication.is_some();
    let app = App::new(projector, options, shutdown.clone());
    let failures = app.metrics.handshake_failures.clone();
    let admin = admin.map(|listener| Accept {
        listener,
        router: mount::probes(app.clone()),
        tls: None,
        asks_for_tokens: false,
        connections_max: ADMIN_CONNECTIONS_MAX,
        failures: failures.clone(),
    });
    let (router, connections_max) = (mount::all(app), CONNECTIONS_MAX);
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

//! A server inside the test process, on its own port. [`server`](crate::server) starts a server process that can be
//! killed.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use runlog_content::Store;
use runlog_projector::Projector;
use runlog_server::{Options, serve};
use tokio::net::TcpListener;

/// The grace period of the server's shutdown; unused, because the server never shuts down.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until the runtime ends. Returns the address.
pub async fn start(projector: Arc<Projector>, options: impl Into<Options>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, projector, options.into(), std::future::pending(), GRACE));
    Ok(address)
}

/// An id that is unique in this process, for servers that append their own records.
pub fn id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("id-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A content store in a folder.
pub fn content(folder: &Path) -> anyhow::Result<Store> {
    let config = runlog_content::Config::new(format!("file:{}", folder.display()));
    Store::open(&config).context("no content store")
}

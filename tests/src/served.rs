//! A server inside the test's own process, on a port of its own. [`server`](crate::server) is one in a process that can be
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
use runlog_projector::{
    Projector,
    server::{Options, serve},
};
use tokio::net::TcpListener;

/// How long requests have at the server's end, which does not come.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until the runtime ends. Returns where.
pub async fn start(projector: Arc<Projector>, options: impl Into<Options>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, projector, options.into(), std::future::pending(), GRACE));
    Ok(address)
}

/// An id that this process gave to nothing else: for servers that append records of their own.
pub fn id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("id-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A content store in a folder.
pub fn content(folder: &Path) -> anyhow::Result<Store> {
    let config = runlog_content::Config::new(format!("file:{}", folder.display()));
    Store::open(&config).context("no content store")
}
